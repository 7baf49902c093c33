"""XLA305: the optimizer is made before the model is moved, and keeps the old parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import assigned, in_order, same_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_FSDP = "torch_xla.distributed.fsdp.XlaFullyShardedDataParallel"
_MADE_AT_ONCE = cst.List | cst.ListComp | cst.Tuple


@rule("XLA305")
def optimizer_before_device(model: FileModel) -> Iterator[Problem]:
    """Find optimizers of a model that the same function moves to the device afterwards."""
    if not model.is_xla or model.frameworks:
        return
    makers = [call for call in model.calls() if model.value(call.node).kind is Kind.OPTIMIZER]
    for maker in makers:
        for owner, taken in _owners(model, maker):
            move = _moved_after(model, maker, owner, taken)
            wrap = None if move is not None else _wrapped_after(model, maker, owner, taken)
            after = move or wrap
            if after is None or _made_again(model, makers, maker, owner, after):
                continue
            yield model.problem(
                maker.node,
                (
                    "the move to the XLA device replaces the model's parameters: this optimizer "
                    "keeps the old ones, and its steps change nothing"
                    if wrap is None
                    else "FSDP replaces the model's parameters by shards of them: this optimizer "
                    "keeps the old ones, and its steps change nothing"
                ),
                suggestion=f"{'wrap' if wrap else 'move'} the model first, then make the optimizer",
                related=[
                    model.place(after.node, f"{'wrapped' if wrap else 'moved'} here, afterwards")
                ],
            )
            break


def _owners(model: FileModel, maker: CallSite) -> Iterator[tuple[cst.BaseExpression, cst.CSTNode]]:
    """What stands before ``.parameters()`` in the optimizer's arguments, and when it is asked.

    A list of groups that is made before asks then; a generator asks when it is used.
    """
    for argument in maker.node.args:
        sources: list[tuple[cst.CSTNode, cst.CSTNode]] = [(argument.value, maker.node)]
        if isinstance(argument.value, cst.Name):
            values = assigned(model, argument.value)
            sources += [(value, value) for value in values if isinstance(value, _MADE_AT_ONCE)]
        for source, taken in sources:
            for part in walk(source):
                if (
                    isinstance(part, cst.Call)
                    and isinstance(part.func, cst.Attribute)
                    and part.func.attr.value in {"parameters", "named_parameters"}
                ):
                    yield part.func.value, taken


def _wrapped_after(
    model: FileModel, maker: CallSite, owner: cst.BaseExpression, taken: cst.CSTNode
) -> CallSite | None:
    """``model = FSDP(model)`` in the same function, after the parameters were taken."""
    for call in model.calls(_FSDP):
        if (
            call.function is maker.function
            and same_name(call.argument(0, "module"), owner)
            and in_order(model, taken, call.node)
        ):
            guards = {guard.node for guard in model.guards(maker.node)}
            inside = {guard.node for guard in model.guards(call.node)} <= guards
            return call if inside else None
    return None


def _moved_after(
    model: FileModel, maker: CallSite, owner: cst.BaseExpression, taken: cst.CSTNode
) -> CallSite | None:
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
    if not moves or not in_order(model, taken, moves[0].node):
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
        and any(same_name(again, owner) for again, _ in _owners(model, other))
        for other in makers
    )
