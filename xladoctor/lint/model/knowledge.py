"""What library functions, methods and attributes give back.

Facts: PyTorch 2.9 and torch_xla 2.9, the operations measured on PJRT_DEVICE=CPU (``rules/tables``).
"""

from __future__ import annotations

import re

from xladoctor import patterns

XM = "torch_xla.core.xla_model"
XMP = "torch_xla.distributed.xla_multiprocessing"
#: Holds a model for the cores; its one method, ``to``, gives the model back.
#: FSDP's class, also of a copy of torch_xla's in a project.
FSDP_CLASS = "XlaFullyShardedDataParallel"
MODEL_WRAPPER = f"{XMP}.MpModelWrapper"

#: Methods of a tensor that hand its content to the host as Python numbers.
READS = frozenset({"item", "tolist"})
#: Methods of a tensor whose result is known on the host without waiting for the device.
HOST_METHODS = frozenset(
    [
        "size", "dim", "numel", "nelement", "ndimension", "stride", "element_size", "get_device",
        "is_floating_point", "is_complex", "is_contiguous", "data_ptr", "backward",
        "storage_offset", "requires_grad_", "register_hook", "type",
        # Of transformers' caches, which are taken for tensors where nobody says what they are.
        "get_seq_length", "get_max_cache_shape",
    ]
)  # fmt: skip
#: Methods of texts that no tensor has: what is asked so is a key, or a text.
TEXT_METHODS = frozenset(
    [
        "startswith", "endswith", "isdigit", "isalpha", "isnumeric", "isupper", "islower",
        "lower", "upper", "strip", "lstrip", "rstrip", "removeprefix", "removesuffix",
    ]
)  # fmt: skip
#: Attributes that are answered without waiting for the device.
HOST_ATTRIBUTES = frozenset(
    [
        "shape", "dtype", "ndim", "requires_grad", "is_leaf", "grad_fn", "names", "layout",
        "itemsize",
        "is_cuda", "is_sparse", "is_meta", "is_cpu", "is_quantized", "nbytes", "_version",
        "__class__",
        "is_xla", "retains_grad", "is_nested", "is_mkldnn", "output_nr",
    ]
)  # fmt: skip
#: What has a shape says it on the host.
SHAPES = frozenset({"shape", "ndim"})
#: Attributes of a tensor that are tensors beside it.
TENSOR_ATTRIBUTES = frozenset({"data", "grad", "T", "mT", "H", "real", "imag", "values", "indices"})

#: What makes one tensor of several, longer than each of them.
JOINS = frozenset(
    f"torch.{name}"
    for name in ("cat", "concat", "concatenate", "hstack", "vstack", "dstack", "column_stack")
)
#: The same, and what gives a new dimension to them.
JOINS_AND_STACKS = JOINS | {"torch.stack"}
#: The norm of gradients: a tensor where they are.
GRADIENT_NORMS = frozenset(
    f"torch.nn.utils.{name}" for name in ["clip_grad_norm_", "clip_grad_norm", "get_total_norm"]
)
#: The same as methods of models (FSDP), Accelerate's and Fabric's objects.
GRADIENT_NORM_METHODS = frozenset({"clip_grad_norm_", "clip_gradients", "get_grad_norm"})
#: What is asked of the elements of a tensor, and of nothing else: of numbers they raise.
ASKS_OF_TENSORS = frozenset({"isnan", "isinf", "isfinite", "isposinf", "isneginf"})
#: What gives elements of what it is given.
PICKS = frozenset({"random.choice", "random.choices", "random.sample"})
#: What is moved with the module that it belongs to, by how its value is called.
PARAMETER = "torch.nn.Parameter"
#: Methods by which a module takes a tensor that is moved with it.
REGISTERS = frozenset({"register_buffer", "register_parameter"})
#: Methods by which a module is given a part: ``self.add_module("head", nn.Linear(8, 2))``.
ADDS_MODULE = frozenset({"add_module", "register_module"})
#: Methods by which a module is given a function to run with each of its passes.
FORWARD_HOOK, BACKWARD_HOOK = "register_forward_hook", "register_full_backward_hook"
MODULE_HOOKS = frozenset({FORWARD_HOOK, BACKWARD_HOOK, "register_forward_pre_hook"})
#: Parameters and buffers of the layers of torch, by name.
OF_LAYERS = frozenset({"weight", "bias", "running_mean", "running_var", "in_proj_weight"})
#: Methods that give the modules of a model.
PARTS_OF_MODELS = frozenset({"modules", "named_modules", "children", "named_children"})
#: Methods that give its parameters or buffers.
TENSORS_OF_MODELS = frozenset({"parameters", "named_parameters", "buffers", "named_buffers"})
#: All of these methods.
OF_MODELS = REGISTERS | ADDS_MODULE | PARTS_OF_MODELS | TENSORS_OF_MODELS
#: Classes of averaged models by their names.
AVERAGE_NAME = patterns.lazy(r"EMA|Ema(?![a-z])|Averaged?Model|MovingAverage|Polyak|Teacher")
#: Attributes of a model that are the model within, or a part of it.
INNER_MODELS = patterns.lazy(
    r"^_?(module|(ema_|base_|averaged_|shadow_|inner_|orig_|wrapped_)?(model|mod|net)|ema|backbone|encoder"
    r"|decoder|head|classifier|unet|vae|transformer|text_encoder|student|teacher|generator)$"
)
#: Methods of models that give tensors for the tensors they are given.
FORWARD_METHODS = patterns.lazy(
    r"^(module|forward|encode|decode|embed|generate|sample|reconstruct)(_|$)"
    r"|^(extract|get)_\w*features$"
)
#: Those that give tensors where they are given some: ``model.get_logits_from(hidden)``.
OF_TENSORS = patterns.lazy(r"^(get|extract|compute|calc|to)_(\w*_)?(embed|logit|hidden|represent)")
#: Methods of models whose answers are no tensors.
ANSWERS = patterns.lazy(
    r"^_?(is|has|get|should|num|count|log|print|save|load|check|set|add)_|^log$"
)
#: Attributes of framework objects that tell the master core.
MASTER_ATTRIBUTES = frozenset(
    {
        "is_main_process", "is_local_main_process", "is_global_zero", "is_world_process_zero",
        "is_local_process_zero", "is_world_master", "is_local_master",
    }
)  # fmt: skip
#: The same by what programs call them (``distenv.master``, ``self.is_rank_zero``).
MASTER_NAME = patterns.lazy(
    r"^(is_)?(master|(global_|local_)?(main|master|zero|primary|chief|leader)"
    r"_(process|rank|core|worker)|rank_?(zero|0))$|^_?is_(main|primary|chief|leader|coordinator)$"
)
#: Decorators of functions that only it runs (``@rank_zero_only`` of Lightning,
#: ``@accelerator.on_main_process`` of Accelerate), also a program's own.
ON_MASTER = patterns.lazy(
    r"^(only_)?on_(local_)?(main|master)_(process|rank|core)$"
    r"|^(is_)?(master|main(_process)?|rank_?(zero|0))_only$"
)
#: Functions of other files that tell it, and the number of this core, by their names.
ASKS_MASTER = re.compile(
    r"^_?(is_)?((global_|local_)?(main|master|zero|primary|chief|leader)_(process|rank|core|worker)"
    r"|rank_?(zero|0))$|^_?is_(main|master|primary|chief|leader)(_node|_host|_device)?$"
    r"|^_?(?i:(is_)?(xla|tpu)_(main|master)(_process|_core)?)$"
)
ASKS_RANK = re.compile(r"^_?get_((global|local|dist|world|ddp|xla)_)?(rank|ordinal)$")
#: The number of this core by its name.
CORE_NAME = patterns.lazy(
    r"^_?((global|local|ddp|dist|distributed|world|process|core|xla|tpu)_)?(rank|ordinal)$"
)
CORE_NUMBER_ATTRIBUTES = frozenset(
    {"global_rank", "local_rank", "process_index", "local_process_index"}
)
#: Functions whose result is the same on every core.
REDUCES = frozenset(
    [
        f"{XM}.all_reduce", f"{XM}.mesh_reduce", f"{XM}.all_gather", f"{XM}.rendezvous",
        f"{XM}.collective_broadcast",
        "torch.distributed.all_reduce", "torch.distributed.broadcast",
        "torch.distributed.all_gather_object", "torch.distributed.broadcast_object_list",
        "accelerate.utils.broadcast_object_list",
    ]
)  # fmt: skip
REDUCE_METHODS = frozenset(
    {"gather", "reduce", "gather_for_metrics", "all_gather", "_nested_gather"}
)
#: Methods of Accelerate and of Trainers that hand on what they are given: made longer, or bare.
HANDS_ON = frozenset({"pad_across_processes", "_pad_across_processes", "unwrap_model"})
#: What everybody calls such functions, whoever wraps them: ``compat.mesh_reduce(...)``.
NAMED_REDUCES = frozenset({"mesh_reduce", "all_reduce", "allreduce", "all_gather", "allgather"})

#: Functions that make a tensor of texts.
TOKENIZERS = frozenset({"clip.tokenize", "open_clip.tokenize", "clip.clip.tokenize"})
#: What libraries hold that is a plain number.
CONSTANTS = frozenset(
    f"{module}.{name}"
    for module in ("math", "numpy", "torch")
    for name in ("pi", "e", "inf", "nan", "tau")
)
#: Decorators of methods that are read as attributes.
PROPERTIES = frozenset({"property", "cached_property"})
#: Functions and methods that make texts of the objects that they are given.
MAKES_TEXT = frozenset(
    [
        *(f"builtins.{name}" for name in ("print", "str", "repr", "format")),
        "torch_xla.core.xla_model.master_print", "tqdm.tqdm.write",
        "format", "info", "warning", "error", "critical", "exception",
    ]
)  # fmt: skip
#: Datasets of tensors that are there already, and parts of datasets.
DATASETS = frozenset(
    f"torch.utils.data.{name}" for name in ("TensorDataset", "Subset", "random_split")
)
#: What makes texts of numbers, by what everybody calls it.
TOKENIZER_NAME = re.compile(
    r"(^|_)(tokeni[sz]er|tok|processor|processing_class|feature_extractor)$", re.IGNORECASE
)
#: Methods of tokenizers that take ids to the host; what processors of transformers make arrays of,
#: and arguments that nothing else takes.
TELLS_IDS = frozenset({"decode", "batch_decode", "convert_ids_to_tokens"})
PROCESSED = frozenset({"images", "audio", "audios", "videos", "raw_speech"})
PROCESSOR_NAME = re.compile(r"(image|video|audio)_?processor$|feature_extractor$", re.IGNORECASE)
OF_PROCESSORS = frozenset(
    {"text", "images", "audio", "text_target", "return_tensors", "padding", "truncation",
     "sampling_rate", "add_special_tokens"}
)  # fmt: skip
#: Functions (and methods of tensors) that take a tensor apart: a tuple of tensors.
GIVES_PARTS = frozenset(
    f"torch.{name}"
    for name in ("split", "chunk", "unbind", "tensor_split", "hsplit", "vsplit", "dsplit")
)
#: Methods of meters and the like, which keep what they are given; and packages whose metrics ask
#: the other cores before they answer.
KEEPS = frozenset({"__call__", "update", "add", "append", "step", "accumulate", "log", "record"})
BROUGHT_TOGETHER = ("torchmetrics.", "ignite.", "evaluate.", "accelerate.", "torch.", "torch_xla.")
#: Functions of other files that hand tensors to the host, by their names: ``to_numpy(logits)``.
READER = patterns.lazy(
    r"^_?((tensors?|torch)?_?(to|2|as)_?(numpy|np|ndarray|list|cpu|python|scalar|pil|img|image)s?"
    r"|detach_(and_|to_)*(cpu|numpy)|(to_)?cpu_(numpy|tensor))$",
    re.IGNORECASE,
)
#: Functions that make a tensor of what is none yet, by their names: ``to_tensor(rows, device)``.
MAKES_TENSOR = patterns.lazy(r"^_?([a-z]+_)?(to|2|as)_?(torch_)?tensors?$|^_?(to|as|from)_torch$")
#: Functions that move all tensors of a batch, by their names: ``to_device(batch, device)``.
MOVER = patterns.lazy(
    r"^_?(any|all|batch|data|dict|tensors?|x|inputs?|sample|recursive|recursively|nested|cast|convert|copy"
    r"|map|move|place|put|send|transfer|upload)?_?(data|batch|dict|tensors?|inputs?|sample|all|recursive)?"
    r"_?(to|2|on|onto)_?(the_)?(device|dev|xla|tpu|gpu|cuda)(_recursive|_recursively)?$",
    re.IGNORECASE,
)
#: torch_xla's own function that moves tensors, and what holds them.
SENDS = f"{XM}.send_cpu_data_to_device"
#: Functions that run a function on every core: (name, position of the function, its keyword).
SPAWNERS = {
    f"{XMP}.spawn": "fn",
    "torch_xla.launch": "fn",
    "torch_xla.distributed.xla_multiprocessing.start_processes": "fn",
    "accelerate.notebook_launcher": "function",
    "accelerate.launchers.notebook_launcher": "function",
    "torch_xla.experimental.pjrt.spawn": "fn",
}
#: Those of them that do not give the number of the core before ``args`` (Accelerate 1.11).
WITHOUT_NUMBER = frozenset(name for name in SPAWNERS if name.endswith(".notebook_launcher"))
#: What makes a class whose objects hold what they are given, in order and by name.
NAMED_TUPLE = "collections.namedtuple"
#: Runs a function for each core in a thread of its own (2019, no longer maintained).
DATA_PARALLEL = "torch_xla.distributed.data_parallel.DataParallel"
STEP_CLOSURES = frozenset({f"{XM}.add_step_closure"})
NOT_MODELS = patterns.lazy(
    r"Tokenizer|Config|Processor|Extractor|Dataset|Scheduler|Arguments|Trainer"
)

#: Arguments of ``forward`` that are numbers, flags or settings by their names.
NUMBER_NAME = patterns.lazy(
    r"(^|_)(len|length|seqlen|size|shape|dim|num|count|n|index|idx|ids?x|step|epoch|iteration|layer|"
    r"ratio|rate|scale_factor|eps|dtype|device|mode|name|training|flag|config|cfg|kwargs|stage|level)$"
    r"|^(return|use|is|num|n|output|do|apply|with|has)_"
)
#: Functions of other packages that make tensors of the tensors they are given: losses.
LOSS_FUNCTION = patterns.lazy(
    r"(^|_)(loss|criterion|cross_entropy|bce)(_fn|_func)?$", re.IGNORECASE
)
#: The counter of a loop by its name.
COUNTER_NAME = patterns.lazy(
    r"^(i|j|k|n|b?idx|bi|it|itr|index"
    r"|(((train|val|valid|test|eval|global|local)_)?(step|iter|iteration)|batch)"
    r"_?(i|id|idx|ix|index|n|nb|no|num|number|count)"
    r"|((train|val|valid|test|eval|global|local)_)?(step|iter|iteration))$"
)
DEVICE_NAME = patterns.lazy(r"^((xla_|tpu_|_)?(device|dev)|(XLA_|TPU_)?DEVICE)$")
SETTINGS_NAME = patterns.lazy(
    r"^(args?|flags|opts?|options|config|conf|cfg|hparams|hps?)$", re.IGNORECASE
)
OPTIMIZER_NAME = patterns.lazy(r"(^|_)(optimi[sz]ers?|optim|opt)(_?[a-z0-9]{1,2})?$", re.IGNORECASE)
#: What programs call the class of an optimizer that a setting chose, or several of them.
OPTIMIZER_CLASS_NAME = patterns.lazy(
    r"(^|_)(optimi[sz]ers?|optims?|opts?)_?(class|cls|type|fn|factory|map|by_name)?(es)?$",
    re.IGNORECASE,
)
LOSS_NAME = patterns.lazy(
    r"(^|_)(criterion|loss_?fn|loss_?func|loss_function|objective)(\d?$|_)", re.IGNORECASE
)
MODEL_NAME = patterns.lazy(
    r"(^|_)(model|net|network|generator|discriminator|backbone)(_?[a-z]?\d?|_ema)$", re.IGNORECASE
)
#: Methods that give back the model that they are called on.
GIVE_ITSELF = frozenset({"to", "train", "eval"})
#: What moves batches to the device and ends a graph for each.
DEVICE_LOADERS = frozenset(
    f"torch_xla.distributed.parallel_loader.{name}"
    for name in ("MpDeviceLoader", "PerDeviceLoader")
)
DEVICE_LOADER_NAME = patterns.lazy(
    r"(^|_)(para|parallel|device|xla|tpu|mp)_?([a-z]+_)*(data_?)?loader", re.IGNORECASE
)
LOADER_NAME = patterns.lazy(r"(loader|dataloader|_dl|_batches)s?$|^(dl|loader)", re.IGNORECASE)

#: PyTorch's loader, by its names.
LOADERS = frozenset({"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"})
_TRANSFORMS = ("vmap", "grad", "grad_and_value", "jacrev", "jacfwd", "hessian")
#: What makes another function of one: called, it gives tensors where those are that it is given.
TRANSFORMS = (
    *(f"torch.func.{name}" for name in _TRANSFORMS),
    *(f"functorch.{name}" for name in _TRANSFORMS),
    "torch.vmap",
)
#: Classes whose objects, called, give tensors where those are that they are given.
GIVE_TENSORS = (
    "torchmetrics.", "torchaudio.transforms.", "torchvision.transforms.", "kornia.augmentation.",
    "torch_audiomentations.", *TRANSFORMS,
)  # fmt: skip
#: Of these, what may make something else of them on the way.
GIVE_OTHERS = ("Compose", "ToPILImage", "PILToTensor", "Lambda")
#: A model that calls the modules it holds one after the other, and all that hold some.
SEQUENTIAL = "torch.nn.Sequential"
MODULE_HOLDERS = frozenset({SEQUENTIAL, "torch.nn.ModuleDict", "torch.nn.ModuleList"})
#: Base classes of models.
MODULES = frozenset({"torch.nn.Module", "torch.nn.Sequential", "transformers.PreTrainedModel"})
#: Methods of model classes that make one.
LOADS_MODEL = frozenset({"from_pretrained", "from_config", "_from_config"})
#: Ends of names by which programs ask for the other cores, or give each its part of the data.
ASKS_FOR_CORES = (
    ".xla_model.get_ordinal", ".xla_model.xrt_world_size", ".xla_model.is_master_ordinal",
    ".xla_model.master_print", ".xla_model.rendezvous", ".xla_model.mesh_reduce",
    ".runtime.global_ordinal", ".runtime.world_size", ".DistributedSampler",
)  # fmt: skip
#: Ends of names by which programs ask transformers and Accelerate for torch_xla.
ASKS_FOR_XLA = (".is_torch_xla_available", ".is_torch_tpu_available")
#: Ends of names of what gives the device of a core.
ASKS_FOR_DEVICE = (".xla_model.xla_device", "torch_xla.device")
#: Objects that scale a loss, go backward and step.
SCALER_NAME = patterns.lazy(r"scaler$", re.IGNORECASE)
#: Gives a function some of its arguments.
PARTIAL = "functools.partial"
#: Methods by which an object is trained.
TRAINS_NAME = patterns.lazy(r"^_?(pre)?(train|fit|learn)(_|ing|$)")
#: Functions that are one step by their names.
STEP_NAME = patterns.lazy(
    r"^_?((do_|run_|one_|single_)?(train(ing)?|optimi[sz]ation|update|fit)_?(one_?)?(step|batch|iter(ation)?))(_fn)?$"
    r"|^_?(forward_(and_)?backward|optimi[sz]e_?[pP]arameters|train_one_(step|batch|iter)|step_fn)$"
)
#: Packages whose environments are simulated on the host.
SIMULATIONS = patterns.lazy(
    r"(gym|gymnasium|gym3|ale_py|procgen|pettingzoo|dm_control|dm_env|minigrid|gym_minigrid|nle"
    r"|stable_baselines3|retro|supersuit|envpool|mujoco_py)(\.|$)"
)
#: What reinforcement learning acts in, by its name.
ENVIRONMENT_NAME = patterns.lazy(r"(^|_)(vec_?)?env(ironment)?s?(_?\d+)?(_|$)")
#: Methods by which an agent says what to do next, and by which it learns from what it has seen.
ACT_NAME = patterns.lazy(
    r"^_?(act|(select|choose|get|sample|pick|take|compute|predict)_actions?(_and_\w+)?|get_policy_action)$"
)
#: What agents call what they see of an environment.
OBSERVED = frozenset({"observation", "observations", "obs"})
LEARN_NAME = patterns.lazy(
    r"^_?((soft_)?(learn|optimi[sz]e|replay|update)|experience_replay|learn_from_\w+"
    r"|(optimi[sz]e|update|train)_(model|agent|policy|critic|actor|networks?|parameters)"
    r"|train(_on_(batch|memory))?)$"
)
#: Methods that hand an object the batch on which it then takes a step (pix2pix, BasicSR).
FEED_NAME = re.compile(
    r"^_?(feed|set|load|receive)_(data|input|inputs|batch|train_data|training_data)$"
)
