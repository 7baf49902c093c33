"""XLA304: ``barrier=True`` where the loader ends the graph, gradients that are reduced twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import given_true, same_name
from xladoctor.lint.rules._protocol import OPTIMIZER_STEP, REDUCE
from xladoctor.lint.rules._reads import loop_place
from xladoctor.lint.rules._reduced_twice import reduced_before
from xladoctor.lint.rules._sharded import reduced_by_ddp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem


@rule("XLA304")
def redundant_barrier(model: FileModel) -> Iterator[Problem]:
    """Find ``xm.optimizer_step(..., barrier=True)`` for each batch of a device loader.

    And one that reduces what ``xm.reduce_gradients`` or DDP has reduced.
    """
    yield from _reduced_again(model)
    yield from _behind_ddp(model)
    told = set()
    for call, asked in _one_after_another(model):
        told.add(call.node)
        yield model.problem(
            asked,
            "the next step ends the graph again: one update runs as two graphs, which are compiled "
            "and launched one after the other",
            suggestion="leave barrier out here",
            fix=model.fix("Remove barrier", model.remove_argument(call.node, asked), safe=False),
        )
    for call in model.calls(OPTIMIZER_STEP):
        value = given_true(model, call, "barrier")
        loops = _loops(model, call) if value is not None else []
        if value is None or not loops or not all(map(_ends_steps, loops)) or call.node in told:
            continue
        yield model.problem(
            value,
            "the device loader of this loop ends the graph of each step already: a second end "
            "launches nothing and makes the host wait for step closures",
            suggestion="leave barrier out",
            related=[loop_place(model, loops[0])],
            fix=model.fix("Remove barrier", model.remove_argument(call.node, value), safe=False),
        )


def _one_after_another(model: FileModel) -> Iterator[tuple[CallSite, cst.BaseExpression]]:
    """``xm.optimizer_step(first, barrier=True)`` right before that of a second optimizer."""
    steps = {call.node: call for call in model.calls(OPTIMIZER_STEP)}
    for call in steps.values():
        value, behind = given_true(model, call, "barrier"), _behind(model, call.node)
        following = steps.get(behind) if isinstance(behind, cst.Call) else None
        again = following is not None and given_true(model, following, "barrier") is not None
        if value is not None and again:
            yield call, value


def _behind(model: FileModel, node: cst.CSTNode) -> cst.CSTNode | None:
    """The call that the next statement of a block is, if a call's own statement is that alone."""
    line = model.parent(model.parent(node) or node)
    block = model.parent(line) if isinstance(line, cst.SimpleStatementLine) else None
    if not isinstance(block, cst.IndentedBlock | cst.Module):
        return None
    at = next((i for i, one in enumerate(block.body) if one is line), None)
    behind = block.body[at + 1] if at is not None and at + 1 < len(block.body) else None
    only = behind.body[0] if isinstance(behind, cst.SimpleStatementLine) else None
    return only.value if isinstance(only, cst.Expr) else None


def _reduced_again(model: FileModel) -> Iterator[Problem]:
    """``xm.reduce_gradients(optimizer)`` on the way to ``xm.optimizer_step(optimizer)``."""
    if not model.multi_core or not any(part.calls(REDUCE) for part in (model, *model.linked)):
        return
    for call in model.calls(OPTIMIZER_STEP):
        given = call.argument(0, "optimizer")
        first = reduced_before(model, call) if given is not None else None
        if first is None or given is None:
            continue
        optimizer = model.tree.text(given).strip()
        yield model.problem(
            call.node,
            "xm.optimizer_step reduces the gradients a second time: all cores exchange all of "
            "them again",
            suggestion=f"{optimizer}.step(), since the gradients are reduced already",
            related=[model.place(first.node, "reduced here")],
        )


def _behind_ddp(model: FileModel) -> Iterator[Problem]:
    """``net = DDP(net)``, whose backward pass reduces, and ``xm.optimizer_step(optimizer)``."""
    for call in model.calls(OPTIMIZER_STEP) if model.multi_core and not model.spmd else ():
        given = call.argument(0, "optimizer")
        wrap = reduced_by_ddp(model, call, surely=True)
        if wrap is None or given is None or not _groups_xla(model):
            continue
        optimizer = model.tree.text(given).strip()
        yield model.problem(
            call.node,
            "DistributedDataParallel has reduced the gradients in the backward pass: "
            "xm.optimizer_step sends them all, and all cores meet, a second time",
            suggestion=f"{optimizer}.step(), then torch_xla.sync() unless a device loader ends the "
            "step",
            related=[model.place(wrap.node, "reduced by this")],
        )


def _groups_xla(model: FileModel) -> bool:
    """``dist.init_process_group("xla", ...)``: the group that DDP reduces over is of XLA cores."""
    made = model.calls("torch.distributed.init_process_group")
    backends = (call.argument(0, "backend") for call in made)
    return any(one is not None and model.literal(one) == "xla" for one in backends)


def _ends_steps(loop: Loop) -> bool:
    return loop.iterates.kind is Kind.DEVICE_LOADER and loop.iterates.certain


def _is_one_of(call: CallSite, loop: Loop) -> bool:
    """``for optimizer in optimizers: xm.optimizer_step(optimizer)``: all are one batch's."""
    given = call.argument(0, "optimizer")
    target = loop.node.target if isinstance(loop.node, cst.For) else None
    return target is not None and any(
        isinstance(part, cst.Name) and same_name(part, given) for part in walk(target)
    )


def _loops(model: FileModel, call: CallSite, depth: int = 3) -> list[Loop]:
    """The innermost loops that run a call: here, or those of all callers of its function."""
    loop = model.loop(call.node)
    if loop is not None and call.name == OPTIMIZER_STEP and _is_one_of(call, loop):
        loop = model.loop(loop.node)
    if loop is not None:
        return [loop]
    if call.function is None or not depth:
        return []
    found = [_loops(model, caller, depth - 1) for caller in model.callers(call.function)]
    return [loop for loops in found for loop in loops] if all(found) else []
