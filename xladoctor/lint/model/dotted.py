"""Dotted names as text: how imports and expressions spell them, and one address for each thing."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: The same thing under several public addresses: the left is rewritten to the right. Only whole
#: dotted parts at the beginning match.
_SAME = {
    "torch.utils.data.dataloader": "torch.utils.data",
    "torch.utils.data.sampler": "torch.utils.data",
    "torch.utils.data.distributed": "torch.utils.data",
    "torch.nn.modules.loss": "torch.nn",
    "torch.nn.modules.module": "torch.nn",
    "torch.nn.utils.clip_grad": "torch.nn.utils",
    "torch.optim.adamw": "torch.optim",
    "torch.optim.adam": "torch.optim",
    "torch.optim.sgd": "torch.optim",
    "torch.autograd.grad_mode": "torch",
    "pytorch_lightning": "lightning.pytorch",
    "lightning.Trainer": "lightning.pytorch.Trainer",
    "lightning.LightningModule": "lightning.pytorch.LightningModule",
    "lightning.LightningDataModule": "lightning.pytorch.LightningDataModule",
    "lightning.Callback": "lightning.pytorch.Callback",
    "lightning.pytorch.core.LightningModule": "lightning.pytorch.LightningModule",
    "lightning.pytorch.core.module.LightningModule": "lightning.pytorch.LightningModule",
    "lightning.pytorch.core.lightning.LightningModule": "lightning.pytorch.LightningModule",
    "lightning.pytorch.trainer.Trainer": "lightning.pytorch.Trainer",
    "pytorch_lightning.core.LightningModule": "lightning.pytorch.LightningModule",
    "pytorch_lightning.core.lightning.LightningModule": "lightning.pytorch.LightningModule",
    "pytorch_lightning.trainer.Trainer": "lightning.pytorch.Trainer",
    "lightning.Fabric": "lightning.fabric.Fabric",
    "lightning.fabric.fabric.Fabric": "lightning.fabric.Fabric",
    "lightning_fabric": "lightning.fabric",
    "lightning.seed_everything": "lightning.pytorch.seed_everything",
    "torch_xla_py.xla_model": "torch_xla.core.xla_model",
    "torch_xla_py.data_parallel": "torch_xla.distributed.data_parallel",
    "tqdm.auto": "tqdm",
    "tqdm.notebook": "tqdm",
    "tqdm.autonotebook": "tqdm",
}
#: What everybody calls these modules, and calls nothing else.
KNOWN_AS = {
    "xm": "torch_xla.core.xla_model",
    "xmp": "torch_xla.distributed.xla_multiprocessing",
    "xr": "torch_xla.runtime",
    "torch_xla": "torch_xla",
}
#: The same of what a caller hands in, by what the file uses of it alone: ``pl`` is Lightning, too.
HANDED_IN = {**KNOWN_AS, "pl": "torch_xla.distributed.parallel_loader"}
#: What such a name means in a file that binds it nowhere (``from utilities import *``, a part of a
#: notebook), and the attributes that say so; all, where there are none.
LEFT_OUT = {
    "torch": ("torch", frozenset()),
    "np": ("numpy", frozenset()),
    "gc": ("gc", frozenset()),
    "time": ("time", frozenset()),
    "os": ("os", frozenset()),
    "random": ("random", frozenset({"seed", "random", "randint", "choice", "shuffle", "uniform"})),
    "nn": ("torch.nn", frozenset({"Module", "Linear", "Conv2d", "CrossEntropyLoss", "functional"})),
    "F": ("torch.nn.functional", frozenset({"cross_entropy", "softmax", "log_softmax", "relu"})),
    "optim": ("torch.optim", frozenset({"Adam", "AdamW", "SGD", "lr_scheduler"})),
    "xm": (
        "torch_xla.core.xla_model",
        frozenset(
            [
                "xla_device", "optimizer_step", "mark_step", "master_print", "is_master_ordinal",
                "xrt_world_size", "get_ordinal", "mesh_reduce", "rendezvous", "add_step_closure",
                "reduce_gradients",
            ]
        ),
    ),
    "xmp": (
        "torch_xla.distributed.xla_multiprocessing",
        frozenset({"spawn", "MpModelWrapper", "MpSerialExecutor"}),
    ),
    "pl": (
        "torch_xla.distributed.parallel_loader",
        frozenset({"ParallelLoader", "MpDeviceLoader"}),
    ),
}  # fmt: skip
#: What it means by other attributes.
LEFT_OUT_TOO = {
    "pl": (
        "pytorch_lightning",
        frozenset({"Trainer", "LightningModule", "LightningDataModule", "seed_everything"}),
    ),
}
#: Classes and functions that a file calls and binds nowhere, behind ``from data import *``.
LEFT_OUT_CALLS = {
    "DataLoader": "torch.utils.data.DataLoader",
    "DistributedSampler": "torch.utils.data.distributed.DistributedSampler",
    "TensorDataset": "torch.utils.data.TensorDataset",
    "random_split": "torch.utils.data.random_split",
    "pad_sequence": "torch.nn.utils.rnn.pad_sequence",
    "clip_grad_norm_": "torch.nn.utils.clip_grad_norm_",
    "train_test_split": "sklearn.model_selection.train_test_split",
    "roc_auc_score": "sklearn.metrics.roc_auc_score",
    "accuracy_score": "sklearn.metrics.accuracy_score",
    "f1_score": "sklearn.metrics.f1_score",
}
#: What a file takes from libraries with a star and binds nowhere: the module, and where the names
#: live that it hands on.
STARS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "transformers.trainer": {
        "transformers": (
            "Trainer", "TrainerCallback", "TrainingArguments", "PreTrainedModel", "EvalPrediction",
            "DataCollatorWithPadding", "default_data_collator", "set_seed",
            "is_torch_tpu_available", "is_torch_xla_available",
        ),
        "transformers.trainer_pt_utils": (
            "nested_concat", "nested_numpify", "nested_detach", "nested_xla_mesh_reduce",
            "distributed_concat", "find_batch_size", "get_parameter_names",
            "LengthGroupedSampler",
        ),
        "torch.utils.data": ("DataLoader", "Dataset", "RandomSampler", "SequentialSampler"),
        "torch.utils.data.distributed": ("DistributedSampler",),
        "torch": ("nn",),
    },
    "transformers.trainer_pt_utils": {
        "transformers.trainer_pt_utils": (
            "nested_concat", "nested_numpify", "nested_detach", "nested_xla_mesh_reduce",
            "distributed_concat", "find_batch_size", "get_parameter_names",
            "torch_pad_and_concatenate",
        ),
    },
    "transformers": {
        "transformers": (
            "Trainer", "Seq2SeqTrainer", "TrainerCallback", "TrainingArguments",
            "Seq2SeqTrainingArguments", "PreTrainedModel", "HfArgumentParser", "EvalPrediction",
            "DataCollatorWithPadding", "DataCollatorForSeq2Seq",
            "DataCollatorForTokenClassification",
            "AutoModel", "AutoConfig", "AutoTokenizer", "AutoModelForCausalLM",
            "AutoModelForSeq2SeqLM", "AutoModelForMaskedLM", "AutoModelForQuestionAnswering",
            "AutoModelForSequenceClassification", "AutoModelForTokenClassification",
            "BertModel", "BertPreTrainedModel", "RobertaModel", "RobertaPreTrainedModel",
            "default_data_collator", "set_seed", "is_torch_tpu_available", "is_torch_xla_available",
        ),
    },
}  # fmt: skip
_LONGEST_FIRST = sorted(_SAME.items(), key=lambda item: -len(item[0]))


@functools.lru_cache(maxsize=10_000)
def canonical(dotted: str) -> str:
    """One address for things that have several (see ``_SAME``)."""
    for old, new in _LONGEST_FIRST:
        if dotted == old or dotted.startswith(old + "."):
            return new + dotted[len(old) :]
    return dotted


def is_name(node: cst.CSTNode | None, name: str | None) -> bool:
    """Whether a node is a plain name, this one."""
    return isinstance(node, cst.Name) and node.value == name


def dotted_text(node: cst.BaseExpression) -> str | None:
    """``a.b.c`` as text if the expression is a plain chain of names, else None."""
    parts: list[str] = []
    while type(node) is cst.Attribute:
        parts.append(node.attr.value)
        node = node.value
    if type(node) is not cst.Name:
        return None
    parts.append(node.value)
    return ".".join(reversed(parts))


def string(node: cst.SimpleString) -> str | bytes:
    """What a string literal holds; most are what stands between their quotes."""
    text = node.value
    if text[0] in "\"'" and "\\" not in text and "\r" not in text:
        quotes = 3 if len(text) >= 6 and text[:3] in {'"""', "'''"} else 1
        return text[quotes:-quotes]
    return node.evaluated_value


def last_name(node: cst.BaseExpression) -> str:
    """The last name of a chain of attributes, or a name by itself; "" of anything else."""
    return (dotted_text(node) or "").rpartition(".")[2]


def text_of(node: cst.CSTNode | None) -> str | None:
    """The text that an expression is, if it is written as one."""
    value = string(node) if isinstance(node, cst.SimpleString) else None
    return value if isinstance(value, str) else None


def imports_module(node: cst.BaseExpression) -> str | None:
    """The module that ``importlib.import_module("torch_xla.runtime")`` gives, if it is written."""
    if type(node) is not cst.Call or len(node.args) != 1:
        return None
    if dotted_text(node.func) not in {"importlib.import_module", "import_module"}:
        return None
    given = node.args[0].value
    text = string(given) if isinstance(given, cst.SimpleString) else None
    return text if isinstance(text, str) and not text.startswith(".") else None


def from_names(node: cst.ImportFrom) -> Iterable[tuple[str, str]]:
    """(bound name, dotted original) of each name of a ``from`` import."""
    if isinstance(node.names, cst.ImportStar):
        return
    # A relative import is another file of the user's package: its address begins with dots.
    prefix = "." * len(node.relative)
    module = (dotted_text(node.module) or "") if node.module is not None else ""
    for alias in node.names:
        name = alias.name.value
        assert isinstance(name, str)
        bound = alias.asname.name.value if alias.asname is not None else name  # type: ignore[union-attr]
        assert isinstance(bound, str)
        joined = f"{module}.{name}" if module else name
        yield bound, prefix + joined


def imported(node: cst.Import | cst.ImportFrom) -> frozenset[str]:
    """The dotted names that an import statement names: modules, and what it takes out of them."""
    if isinstance(node, cst.Import):
        return frozenset(dotted_text(alias.name) or "" for alias in node.names)
    module = (dotted_text(node.module) or "") if node.module is not None else ""
    return frozenset({module, *(dotted for _, dotted in from_names(node))})


def takes_torch_xla(node: cst.Import | cst.ImportFrom) -> bool:
    """Whether an import statement names torch_xla, or anything in it."""
    return any(name.partition(".")[0] == "torch_xla" for name in imported(node))


def assignments(
    line: cst.CSTNode,
) -> Iterator[tuple[cst.BaseAssignTargetExpression, cst.BaseExpression]]:
    """What ``a = b = 1`` and ``a: int = 1`` assign to, each with the value; nothing of others."""
    if type(line) is cst.Assign:
        for target in line.targets:
            yield target.target, line.value
    elif type(line) is cst.AnnAssign and line.value is not None:
        yield line.target, line.value


def paired(
    target: cst.BaseExpression, value: cst.BaseExpression
) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """``a, b = 1, 2``: each target with its value; itself what is not written out so."""
    lists = (cst.Tuple, cst.List)
    if not isinstance(target, lists) or not isinstance(value, lists):
        yield target, value
        return
    parts = [*target.elements, *value.elements]
    if len(target.elements) != len(value.elements) or not all(
        isinstance(part, cst.Element) for part in parts
    ):
        yield target, value
        return
    for one, other in zip(target.elements, value.elements, strict=True):
        yield from paired(one.value, other.value)
