"""What the Trainer of transformers, and what is built on it, gives to the program that extends it.

It prepares the batch and the model: both are on the device in all that a subclass does with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.contained import any_on_device, container
from xladoctor.lint.model.values import Arguments, Kind, Value

if TYPE_CHECKING:
    from xladoctor.lint.model.syntax import Function, Tree

#: Attributes that hold the model that is trained.
MODELS = frozenset({"model", "model_wrapped"})
#: Its methods that make loaders, and those that move the batch that they are given.
LOADERS = frozenset({"get_train_dataloader", "get_eval_dataloader", "get_test_dataloader"})
MOVES = frozenset({"training_step", "prediction_step", "_prepare_inputs"})
#: The call by which a copy of its loop steps on XLA devices: that is a Trainer from before
#: Accelerate (transformers 4.30), whose loaders are plain ones of torch.
STEPS_ALONE = "torch_xla.core.xla_model.optimizer_step"
#: What starts a search for hyperparameters, and what nothing else runs of what comes with it
#: (transformers 4.57, integrations/integration_utils.py).
_SEARCHES = "hyperparameter_search"
_OF_SEARCHES = frozenset(
    {"_tune_save_checkpoint"}
    | {f"run_hp_search_{name}" for name in ("optuna", "ray", "sigopt", "wandb")}
)
_LOSSES = frozenset({"compute_loss", "training_step", "_training_step"})


def trainer_gives(
    name: str, node: cst.Call, arguments: Arguments, *, old: bool = False
) -> Value | None:
    """What a Trainer's own method gives back, None if nothing is known of it.

    Args:
        name: The method.
        node: The call of it.
        arguments: What it is given.
        old: Whether it is a Trainer from before Accelerate.
    """
    if name in LOADERS:
        return Value(Kind.LOADER, origin=node) if old else None
    tensor = Value(Kind.DEVICE_TENSOR, origin=node, local=True)
    first = arguments[0][1] if arguments else None
    if name == "prediction_step":
        return container(None, (tensor, tensor, tensor))  # loss, logits, labels
    if name in _LOSSES:
        return tensor  # also ``loss, outputs``
    if name == "_prepare_inputs":
        known = first is not None and any_on_device([first])
        return first if known else container(tensor)
    if name == "_prepare_input":
        return tensor
    if name == "_nested_gather":
        return Value(Kind.CPU_TENSOR, origin=node)  # by ``xm.mesh_reduce``, through the host
    if name == "gather_function":
        return first.but(local=False) if first is not None else None
    if name == "_wrap_model":
        return Value(Kind.MODEL, origin=node, on_device=True)
    return None


def of_searches(tree: Tree) -> frozenset[Function | None]:
    """What a copied Trainer runs for a search for hyperparameters alone, if nobody starts one.

    ``run_hp_search_wandb(trainer)``, with the functions in it. Of a file alone that is not known.
    """
    functions = tree.functions.values() if len(tree.modules) > 1 else ()
    found = [x for x in functions if any(one.name in _OF_SEARCHES for one in x.around)]
    asked = (x.func.attr.value for x in tree.calls if isinstance(x.func, cst.Attribute))
    return frozenset() if found and _SEARCHES in asked else frozenset(found)
