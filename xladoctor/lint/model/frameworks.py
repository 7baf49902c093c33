"""Facts of the frameworks that train: their classes, and what they call for each batch."""

from __future__ import annotations

#: Lightning Fabric by what everybody calls it, and its methods that put things on the device.
FABRICS = frozenset({"fabric", "_fabric"})
FABRIC_CLASS = "lightning.fabric.Fabric"
FABRIC_METHODS = frozenset(
    {"setup", "setup_module", "setup_optimizers", "setup_dataloaders", "to_device"}
)
#: Accelerate's object by what everybody calls it: a parameter of functions in other files.
ACCELERATORS = frozenset({"accelerator", "_accelerator"})
ACCELERATOR_CLASS = "accelerate.Accelerator"
#: Base classes of modules whose methods a framework calls once per batch.
LIGHTNING_MODULES = frozenset(
    {
        "lightning.pytorch.LightningModule",
        # Of Neuron's distributed library, whose modules are Lightning's.
        "neuronx_distributed.lightning.NeuronLTModule",
        "neuronx_distributed.plugins.lightning.NeuronLTModule",
    }
)
#: What such a module, a data module and the hooks of callbacks have as their ``trainer``.
LIGHTNING_TRAINER = "lightning.pytorch.Trainer"
WITH_TRAINER = LIGHTNING_MODULES | {"lightning.pytorch.LightningDataModule"}
#: The names that they have it under (the second is what the property keeps it in).
HELD_TRAINERS = frozenset({"trainer", "_trainer"})
LIGHTNING_STEPS = frozenset(
    {
        "training_step", "training_step_end", "on_train_batch_end", "optimizer_step",
        "on_train_batch_start", "on_after_batch_transfer",
        "on_after_backward", "on_before_backward", "on_before_optimizer_step",
    }
)  # fmt: skip
#: What calls a function that it is given for each batch of an evaluation: its place and name.
EVALUATED_BY = {"senteval.engine.SE": (1, "batcher"), "senteval.SE": (1, "batcher")}
#: Ignite's engines, which call a function for every batch; and those that hand what it made to a
#: function of their own: input, target, output and, in training, the loss.
IGNITE_ENGINES = frozenset({"ignite.engine.Engine", "ignite.engine.engine.Engine"})
IGNITE_TRAINER = "ignite.engine.create_supervised_trainer"
IGNITE_EVALUATOR = "ignite.engine.create_supervised_evaluator"
LIGHTNING_EVALS = frozenset(
    {
        "validation_step", "test_step", "predict_step", "validation_step_end", "test_step_end",
        "on_validation_batch_end", "on_test_batch_end", "on_validation_batch_start",
        "on_test_batch_start", "on_predict_batch_end",
    }
)  # fmt: skip
#: Callbacks of Lightning and of transformers, and what is called of them for each batch.
LIGHTNING_CALLBACKS = frozenset(
    f"lightning.pytorch.{name}"
    for name in (
        "Callback", "callbacks.Callback", "callbacks.callback.Callback", "callbacks.base.Callback",
        "callbacks.ProgressBar", "callbacks.progress.ProgressBar", "callbacks.ProgressBarBase",
        "callbacks.progress.ProgressBarBase", "callbacks.TQDMProgressBar",
        "callbacks.progress.TQDMProgressBar", "callbacks.RichProgressBar",
    )
)  # fmt: skip
#: Attributes of Lightning's Trainer that hold what was logged, as tensors; and the one that reads
#: all that the progress bar shows when it is asked for, as a bar's method does.
TRAINER_METRICS = frozenset({"callback_metrics", "logged_metrics"})
BAR_METRICS = "progress_bar_metrics"
TRAINER_CALLBACKS = frozenset(
    {"transformers.TrainerCallback", "transformers.trainer_callback.TrainerCallback"}
)
CALLBACKS = LIGHTNING_CALLBACKS | TRAINER_CALLBACKS
TRAINER_CALLBACK_STEPS = frozenset(
    {
        "on_step_begin", "on_step_end", "on_substep_end", "on_optimizer_step",
        "on_pre_optimizer_step",
    }
)  # fmt: skip
TRAINER_CALLBACK_EVALS = frozenset({"on_prediction_step"})
#: The Trainer of transformers and of what is built on it, and the methods that it calls for each
#: batch.
TRAINERS = frozenset(
    f"{module}Trainer"
    for module in [
        "transformers.", "transformers.Seq2Seq", "transformers.trainer.",
        "transformers.trainer_seq2seq.Seq2Seq", "optimum.neuron.Neuron", "optimum.tpu.",
        "optimum.neuron.Trainium", "optimum.neuron.Seq2SeqTrainium", "optimum.neuron.Seq2SeqNeuron",
        "optimum.neuron.trainers.Neuron", "optimum.neuron.NeuronSFT", "optimum.neuron.NeuronORPO",
        "adapters.Adapter", "adapters.Seq2SeqAdapter", "transformers.adapters.Adapter",
        "sentence_transformers.SentenceTransformer", "trl.SFT", "trl.DPO", "trl.ORPO", "trl.KTO",
        "trl.CPO", "trl.Reward", "trl.GRPO", "trl.trainer.sft_trainer.SFT",
        "trl.trainer.dpo_trainer.DPO",
    ]
)  # fmt: skip
#: Functions that a Trainer is given and calls for each batch, with tensors on the device: outputs
#: and labels in training, logits and labels in evaluation.
GIVEN_TO_STEP = "compute_loss_func"
GIVEN_TO_EVAL = "preprocess_logits_for_metrics"
#: What a batch may hold for the model of transformers that is no tensor.
FLAGS_OF_BATCHES = frozenset({"return_loss", "return_dict", "use_cache"})
#: Methods that a class has that is a copy of it, changed by the program.
OF_TRAINERS = frozenset(
    {"compute_loss", "training_step", "prediction_step", "get_train_dataloader", "evaluation_loop"}
)
TRAINER_STEPS = frozenset(
    {"compute_loss", "training_step", "_training_step", "_maybe_log_save_evaluate"}
)
#: What it gives ``compute_loss`` first.
GIVEN_TO_LOSS = ("model", "inputs")
TRAINER_EVALS = frozenset({"prediction_step"})
#: Methods of a Trainer that it leaves out on XLA devices, where it writes by ``_save_tpu``.
NOT_ON_XLA = frozenset({"_save"})
#: Metrics, whose ``compute`` has the cores bring together what each has counted, before it answers.
METRICS = frozenset(
    {
        *("torchmetrics.Metric", "torchmetrics.metric.Metric"),
        *("pytorch_lightning.metrics.Metric", "pytorch_lightning.metrics.metric.Metric"),
    }
)
#: What a metric counts a batch with.
METRIC_UPDATE = "update"
#: Base classes, and what is called of them for each batch of training and of an evaluation.
HOOKS = (
    (LIGHTNING_MODULES, LIGHTNING_STEPS, LIGHTNING_EVALS),
    (LIGHTNING_CALLBACKS, LIGHTNING_STEPS, LIGHTNING_EVALS),
    (TRAINERS, TRAINER_STEPS, TRAINER_EVALS),
    (TRAINER_CALLBACKS, TRAINER_CALLBACK_STEPS, TRAINER_CALLBACK_EVALS),
)
#: The packages that Lightning is.
LIGHTNING_PACKAGES = ("lightning", "pytorch_lightning", "lightning_fabric")
#: Lightning's names for strategies and accelerators, which only run on XLA devices.
LIGHTNING_FOR_XLA = frozenset(
    {
        "XLAStrategy", "XLAFSDPStrategy", "XLAAccelerator", "SingleDeviceXLAStrategy",
        "TPUSpawnStrategy", "TPUAccelerator", "SingleTPUStrategy",
    }
)  # fmt: skip
