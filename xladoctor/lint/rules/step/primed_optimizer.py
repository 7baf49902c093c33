"""XLA323: a fake optimizer step whose effect nothing replaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_PRIME = (
    "torch_xla.experimental.distributed_checkpoint.prime_optimizer",
    "torch_xla.experimental.distributed_checkpoint.util.prime_optimizer",
)
#: Ends of names of what puts kept weights and state in the place of those that the step made.
_RESTORES = ("restore", "load_state_dict", "set_optimizer_state_dict", "set_state_dict", "load")


@rule("XLA323")
def primed_optimizer(model: FileModel) -> Iterator[Problem]:
    """Find ``prime_optimizer`` after which, in the same function, nothing is restored."""
    for call in model.calls(*_PRIME):
        if call.function is None or any(_restores(other) for other in _behind(model, call)):
            continue
        yield model.problem(
            call.node,
            "prime_optimizer takes an optimizer step without gradients: weight decay and momentum "
            "change the weights, Adam counts a step, and nothing is restored afterwards",
            suggestion="call it only where a checkpoint is about to be restored, before restore()",
        )


def _behind(model: FileModel, call: CallSite) -> Iterator[CallSite]:
    """What its function runs behind a call, in functions of the program too."""
    assert call.function is not None
    row = model.row(call.node)
    for other in model.calls_of(call.function):
        if model.row(other.node) >= row and other is not call:
            yield other
            yield from model.reached(other.node)


def _restores(call: CallSite) -> bool:
    name = call.method or (call.name or "").rpartition(".")[2]
    return name in _RESTORES or name.startswith(("restore_", "load_"))
