"""Programs whose cores hold different parts of one model (neuronx_distributed)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel

_NXD = "neuronx_distributed."
#: What divides a model over cores, with the sizes: positions and names of arguments, 1 by default.
_DIVIDES = {
    **dict.fromkeys(
        (
            f"{_NXD}parallel_layers.initialize_model_parallel",
            f"{_NXD}parallel_layers.parallel_state.initialize_model_parallel",
        ),
        ((0, "tensor_model_parallel_size"), (1, "pipeline_model_parallel_size")),
    ),
    **dict.fromkeys(
        (
            f"{_NXD}neuronx_distributed_config",
            f"{_NXD}trainer.neuronx_distributed_config",
            f"{_NXD}trainer.trainer.neuronx_distributed_config",
        ),
        ((0, "tensor_parallel_size"), (1, "pipeline_parallel_size")),
    ),
}
#: By what a class that nobody has read is told over how many cores its parts are divided.
_SIZES = frozenset({"tp_degree", "tensor_parallel_size", "tensor_model_parallel_size"})


def divided(model: FileModel) -> CallSite | None:
    """What divides the model of a program over several cores, if anything does.

    Cores that hold parts of one model take the same batch and the same random numbers, and have
    gradients of different parameters. A size that is not seen counts as more than one.
    """
    parts = (part.once(_first_here) for part in (model, *model.linked))
    return next((call for call in parts if call is not None), None)


def _first_here(model: FileModel) -> CallSite | None:
    """The first call of a file that divides a model, by a name that is known or by its sizes."""
    for call in model.calls(*_DIVIDES):
        given = [call.argument(*size) for size in _DIVIDES[call.name or ""]]
        if any(size is not None and model.literal(size) != 1 for size in given):
            return call
    for call in model.calls() if model.is_xla else ():
        sizes = [call.keywords[name] for name in _SIZES & {*call.keywords}]
        unread = call.name not in _DIVIDES and call.target is None
        if unread and any(model.literal(size) != 1 for size in sizes):
            return call
    return None
