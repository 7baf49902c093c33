"""XLA305: the optimizer is made before the model is moved, and keeps the old parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import in_order, same_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem


@rule("XLA305")
def optimizer_before_device(model: FileModel) -> Iterator[Problem]:
    """Find optimizers of a model that the same function moves to the device afterwards."""
    if not model.is_xla or model.frameworks:
        return
    makers = list(model.calls("torch.optim.*"))
    for maker in makers:
        if model.value(maker.node).kind is not Kind.OPTIMIZER:
            continue
        for owner in _owners(maker):
            move = _moved_after(model, maker, owner)
            if move is None or _made_again(model, makers, maker, owner, move):
                continue
            yield model.problem(
                maker.node,
                "the move to the XLA device replaces the model's parameters: this optimizer keeps "
                "the old ones, and its steps change nothing",
                suggestion="move the model first, then make the optimizer",
                related=[model.place(move.node, "moved here, afterwards")],
            )
            break


def _owners(maker: CallSite) -> Iterator[cst.BaseExpression]:
    """What stands before ``.parameters()`` in the optimizer's arguments."""
    for argument in maker.node.args:
        for part in walk(argument.value):
            if (
                isinstance(part, cst.Call)
                and isinstance(part.func, cst.Attribute)
                and part.func.attr.value in {"parameters", "named_parameters"}
            ):
                yield part.func.value


def _moved_after(model: FileModel, maker: CallSite, owner: cst.BaseExpression) -> CallSite | None:
    """The first move to a device in the function, if it comes after the optimizer."""
    if not isinstance(owner, cst.Name | cst.Attribute) or model.value(owner).on_device:
        return None
    moves = [
        call
        for call in model.methods("to")
        if call.function is maker.function
        and same_name(call.receiver, owner)
        and (target := call.argument(0, "device")) is not None
        and model.value(target).kind is Kind.DEVICE
    ]
    if not moves or not in_order(model, maker.node, moves[0].node):
        return None
    guards = {guard.node for guard in model.guards(maker.node)}
    return moves[0] if {guard.node for guard in model.guards(moves[0].node)} <= guards else None


def _made_again(
    model: FileModel,
    makers: list[CallSite],
    maker: CallSite,
    owner: cst.BaseExpression,
    move: CallSite,
) -> bool:
    """Whether the model gets another optimizer after the move: the first may be for nothing."""
    return any(
        other is not maker
        and other.function is maker.function
        and in_order(model, move.node, other.node)
        and any(same_name(again, owner) for again in _owners(other))
        for other in makers
    )
