"""XLA112: a clock is read while the device still works."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint import family
from xladoctor.lint.library import Effect
from xladoctor.lint.model import Function, Kind, walk
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.loops import opposed
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._asked import asked_tensors
from xladoctor.lint.rules._formatting import formats
from xladoctor.lint.rules._pictures import makes_pictures
from xladoctor.lint.rules._stopwatches import Timed, reached_between, stopped_by
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Problem

_CLOCKS = frozenset(
    {
        *("time.time", "time.perf_counter", "time.monotonic", "timeit.default_timer"),
        *("time.time_ns", "time.perf_counter_ns", "time.monotonic_ns"),
        *("datetime.datetime.now", "datetime.datetime.utcnow"),
    }
)
_XM = "torch_xla.core.xla_model."
_ENDS = frozenset({"torch_xla.sync", _XM + "mark_step"})
_STEPS = _ENDS | {_XM + "optimizer_step"}
_READS = frozenset({"item", "cpu", "tolist", "numpy"})
_CASTS = frozenset(f"builtins.{name}" for name in ("float", "int", "bool", "print", "str"))
#: Readings of the clock in a turn of a loop: of all of it, and the beginning and end of the turn.
_TIMES = 3
#: Words in the names of what times the tracing on purpose.
_TRACING = frozenset({"trace", "traced", "traces", "tracing"})
#: Methods that keep what they are given as it is.
_GIVE_NOTHING = frozenset({"append", "backward", "extend", "add_"})


@rule("XLA112")
def timing_without_wait(model: FileModel) -> Iterator[Problem]:
    """Find differences of two clock readings with device work and no wait between them."""
    if not model.is_xla:
        return
    reported: set[cst.CSTNode] = set()
    for node in model.nodes(cst.BinaryOperation):
        if not isinstance(node.operator, cst.Subtract):
            continue
        end = _clock(model, node.left, node)
        if end is None or end.node in reported:
            continue  # the same reading, used twice
        if _is_of_tracing(model, node) or _is_of_budget(model, node):
            continue
        start, work = _only_queued(model, node, end)
        if start is None or work is None:
            continue
        reported.add(end.node)
        yield model.problem(
            end.node,
            "the clock is read before the device has done its work: this times how fast Python "
            "traces, not how fast the model runs",
            suggestion="call torch_xla.sync(wait=True) before reading the clock",
            related=[
                model.place(start, "the time is taken from here"),
                model.place(work.node, "this only queues work for the device"),
            ],
        )


def _only_queued(
    model: FileModel, node: cst.BinaryOperation, end: CallSite
) -> tuple[cst.CSTNode, CallSite] | tuple[None, None]:
    """From where a difference of two readings is taken, and the work between that nothing awaits.

    Between the two in one function, and while a stopwatch of the program runs.
    """
    start = _clock(model, node.right, node)
    timed: list[Timed] = []
    here = start is not None and _before(model, start, end)
    # A device loader lets the host run ahead by a few batches only.
    if start is not None and here and not _device_loader_between(model, start, end):
        if _is_of_launch(model, start, end) or _waited_before(model, start, end):
            return None, None
        timed.append(Timed(start.node, reached_between(model, start, end)))
    calls = model.calls_of(end.function)
    before = [call for call in calls if model.tree.order[call.node] < model.tree.order[end.node]]
    if not any(_waits(model, call) for call in before):
        timed += stopped_by(model, end, node.right, _CLOCKS)
    for begun, between in timed:
        work = next((call for call in between if _works(model, call)), None)
        if work is None or any(_waits(model, call) for call in between):
            continue
        if any(_may_read(model, call, begun, work) for call in between):
            continue
        if not _asks_between(model, between, begun, work, end):
            return begun, work
    return None, None


def _clock(model: FileModel, node: cst.BaseExpression, use: cst.CSTNode) -> CallSite | None:
    """The reading of the clock that an expression is: the last one before its use, if a name."""
    if isinstance(node, cst.Call):
        return model.call(node) if model.call(node).name in _CLOCKS else None
    order = model.tree.order
    readings = [
        model.call(made)
        for made in _assigned(model, node)
        if isinstance(made, cst.Call)
        and model.call(made).name in _CLOCKS
        and order.get(made, order[use]) < order[use]
        and model.function_of(made) is model.function_of(use)
        and not opposed(model.guards(made), model.guards(use))
    ]
    # Set in a loop's body after the work and before, the first one covers both.
    return min(readings, key=lambda call: order[call.node]) if readings else None


def _assigned(model: FileModel, node: cst.BaseExpression) -> Iterator[cst.CSTNode]:
    """What a name is bound to, or an attribute (``self.start``) that is spelled alike."""
    if isinstance(node, cst.Name):
        yield from model.assigned_to(node)
    elif isinstance(node, cst.Attribute):
        yield from model.assigned.get(dotted_text(node) or "", ())


def _is_of_tracing(model: FileModel, node: cst.BinaryOperation) -> bool:
    """``tracing_time = time.time() - start``: who writes so knows what it is that they measure."""
    line = model.parent(node)
    written = [node, *line.targets] if isinstance(line, cst.Assign) else [node]
    names = (part for one in written for part in walk(one) if isinstance(part, cst.Name))
    return any(words(name.value) & _TRACING for name in names)


def _is_of_launch(model: FileModel, start: CallSite, end: CallSite) -> bool:
    """Whether nothing but the end of the graph stands between: how long that takes is meant.

    It compiles there, and waits for the step before: a slow one tells of a compilation.
    """
    between = model.calls_between(start.node, end.node)
    return bool(between) and all(call.name in _ENDS for call in between)


def _waited_before(model: FileModel, start: CallSite, end: CallSite) -> bool:
    """``elapsed = time.time() - began`` in a loop behind the start, whose turns read below it.

    All turns but the last few have been waited for. Not where a turn asks for the time more than
    once: then the differences between are meant.
    """
    loop = model.loop(end.node)
    if loop is None or loop.implicit or model.tree.order[start.node] > model.tree.order[loop.node]:
        return False
    if sum(call.name in _CLOCKS for call in model.calls_in(loop.node)) > _TIMES:
        return False
    behind = (
        call
        for call in model.calls_in(loop.node)
        if model.tree.order[call.node] > model.tree.order[end.node]
    )
    return any(_waits(model, call) for call in behind)


def _is_of_budget(model: FileModel, node: cst.BinaryOperation) -> bool:
    """``left = budget - (time.time() - start)``, ``if time.time() - start > budget``: no timing."""
    used = model.parent(node)
    if isinstance(used, cst.BinaryOperation):
        return used.right is node and isinstance(used.operator, cst.Subtract)
    return isinstance(used, cst.Comparison | cst.ComparisonTarget)


def _before(model: FileModel, start: CallSite, end: CallSite) -> bool:
    return model.tree.order[start.node] < model.tree.order[end.node]


def _works(model: FileModel, call: CallSite) -> bool:
    if call.name in _STEPS:
        return True
    if call.method == "backward" and call.receiver is not None:
        return model.value(call.receiver).is_device_tensor
    called = model.value(call.node.func)
    return called.kind is Kind.MODEL and called.on_device


def _waits(model: FileModel, call: CallSite) -> bool:
    if call.name in family.waits() or (call.method in _READS and call.name is None):
        # ``torch.cos(torch.tensor(share)).item()`` of a schedule: on the host all along
        return call.receiver is None or model.value(call.receiver).kind is not Kind.CPU_TENSOR
    if (call.name or "").startswith("math.") and model.is_here(call.node):
        return model.effects.is_read(call.node)
    if makes_pictures(model, call) or model.effects.read_at(call.node) is not None:
        return True
    if isinstance(call.target, Function) and _stores_on_host(model, call.target):
        return True
    if call.name in _ENDS:
        return call.argument(0, "wait") is not None
    told = call.keywords.get("wait")  # the function below these: ``_xla_sync_multi(wait=True)``
    if told is not None and (call.name or "").startswith("torch_xla."):
        return model.literal(told) is True
    name = model.effects.name(call)
    if name is not None and name.empty and Effect.COLLECTIVE in name.effects:
        return True  # the cores meet when each has done its work
    if call.name in _CASTS or call.name == _XM + "master_print":
        return any(_shows_tensor(model, part) for part in walk(call.node))
    # ``logger.info(f"loss {loss:.3f}")``
    parts = (part for argument in call.node.args for part in walk(argument.value))
    return any(type(part) is cst.FormattedString and formats(model, part) for part in parts)


def _may_read(model: FileModel, call: CallSite, start: cst.CSTNode, work: CallSite) -> bool:
    """``pictures = processor.postprocess(images)``: what cannot be read is given what was made.

    It may well read it, unless it gives a tensor of the device back, as a loss does.
    """
    order = model.tree.order
    if call.target is not None or call.name is not None:
        return False
    here = model.is_here(call.node) and model.is_here(work.node)
    if here and order[call.node] < order[work.node]:
        return False  # in another file it may come later, wherever it stands
    if model.value(call.node.func).kind not in {Kind.UNKNOWN, Kind.OBJECT}:
        return False
    if model.value(call.node).is_device_tensor or call.method in _GIVE_NOTHING:
        return False
    return any(
        order.get(made, -1) > order[start]
        for argument in call.node.args
        for made in model.assigned_to(argument.value)
    )


def _stores_on_host(model: FileModel, function: Function) -> bool:
    """``losses[i] = loss`` with ``losses`` on the CPU waits too, whatever ``loss`` is."""
    return any(
        isinstance(node, cst.AssignTarget)
        and isinstance(node.target, cst.Subscript)
        and model.value(node.target.value).kind is Kind.CPU_TENSOR
        for node in walk(function.node)
    )


def _shows_tensor(model: FileModel, node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Name | cst.Attribute) and model.value(node).is_device_tensor


def _asks_between(
    model: FileModel,
    between: Sequence[CallSite],
    begun: cst.CSTNode,
    work: CallSite,
    end: CallSite,
) -> bool:
    """``if token == end_of_text: break``, also in what is called: the host waits for each token."""
    order = model.tree.order
    ran = {call.target for call in between if isinstance(call.target, Function)}
    after = order.get(work.node, order.get(begun, 0))  # the work may be of another file
    return any(
        part.function_of(tensor) in ran
        or (
            part is model
            and part.function_of(tensor) is end.function
            and after < order[tensor] < order[end.node]
        )
        for part in (model, *model.linked)
        for _, tensor in asked_tensors(part)
    )


def _device_loader_between(model: FileModel, start: CallSite, end: CallSite) -> bool:
    order = model.tree.order
    return any(
        loop.iterates.kind is Kind.DEVICE_LOADER
        and order[start.node] < order[loop.node] < order[end.node]
        for loop in model.loops
    )
