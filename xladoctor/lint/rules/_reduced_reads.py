"""Values that were reduced over the cores, and that the master core alone reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

from xladoctor.lint.library import Effect
from xladoctor.lint.model import walk
from xladoctor.lint.rules._cores import entry_places
from xladoctor.lint.rules._exact import around, in_order
from xladoctor.lint.rules._pending import waits_in_graph
from xladoctor.lint.rules._reads import snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_XM = "torch_xla.core.xla_model."
#: What gives a tensor that the cores have made together. A list is reduced in place.
_GIVE = tuple(_XM + name for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"))
#: What changes the tensor that it is given.
_CHANGE = tuple(f"torch.distributed.{name}" for name in ("all_reduce", "broadcast"))
#: How the host gets at a value.
_READS = frozenset({"item", "cpu", "tolist", "numpy"})
_CASTS = frozenset({"builtins.float", "builtins.int", "builtins.bool", "builtins.print"})
#: Names from the collective to what is read.
_NAMES = 3


class _Reduced(NamedTuple):
    """A name that holds what the cores have made together: since when, and by which collective."""

    name: str
    since: CallSite
    by: CallSite


def reduced_reads(model: FileModel) -> Iterator[Problem]:
    """``mean = xm.all_reduce("sum", total)``, then ``if master: print(mean.item())``.

    The read runs the collective in a graph of its own, on the master core alone. Also behind
    ``dist.all_reduce(total)``, and of what a function has reduced and gives back.
    """
    told: set[cst.Call] = set()
    for one in (*_reduced(model), *_given_back(model)):
        entry = model.on_every_core(one.since.node)
        if entry is None or model.master_only(one.since.node) is not None:
            continue
        use, read = next(_by_master(model, one), (None, None))
        if use is None or read is None or one.by.node in told:
            continue
        if one.since is one.by:
            told.add(one.by.node)  # where the master has run it, no later read does
        guard = model.master_only(use)
        yield model.problem(
            read,
            f"only the master core reads {snippet(model, use)}: that runs the reduction in "
            "a graph of its own, while the other cores run it in another one: it never "
            "completes",
            suggestion="torch_xla.sync() before the condition, or read it on all cores",
            related=[
                model.place(one.by.node, "still pending"),
                *([model.place(guard.written, "only the master core gets here")] if guard else []),
                *entry_places(model, entry),
            ],
        )


def _reduced(model: FileModel) -> Iterator[_Reduced]:
    """What a file reduces, and keeps by a name."""
    for call in model.calls(*_GIVE, *_CHANGE):
        if not waits_in_graph(model, call):
            continue
        if call.name in _CHANGE:
            given = call.argument(0, "tensor")
            if isinstance(given, cst.Name) and model.value(given).is_device_tensor:
                yield _Reduced(given.value, call, call)
            continue
        listed = call.argument(1, "inputs")
        if isinstance(listed, cst.List):  # reduced in place, too
            names = (item.value for item in listed.elements if isinstance(item.value, cst.Name))
            yield from (_Reduced(name.value, call, call) for name in names)
            continue
        line = next((one for one in around(model, call.node) if isinstance(one, cst.Assign)), None)
        name = _bound_by(line)
        # ``value = xm.all_reduce(...).item()`` is read on all cores.
        if name is not None and line is not None and not _read_in(model, line):
            yield _Reduced(name, call, call)


def _given_back(model: FileModel) -> Iterator[_Reduced]:
    """``loss = reduced(loss)`` with a function that gives back what is still pending."""
    for part in (model, *model.linked):
        for one in _reduced(part):
            function = one.since.function
            if function is None or not _returns(part, one):
                continue
            for call in model.callers(function):
                line = model.parent(call.node)
                name = _bound_by(line)
                if name is not None and model.is_here(call.node):
                    yield _Reduced(name, call, one.by)


def _returns(model: FileModel, one: _Reduced) -> bool:
    """Whether a function gives back what it has reduced, and nothing has read it before."""
    return any(
        isinstance(end, cst.Return) and _pending(model, one.since, use)
        for use, end in _ends(model, one.name, one.since.node)
    )


def _bound_by(line: cst.CSTNode | None) -> str | None:
    """The one name that an assignment binds."""
    if not isinstance(line, cst.Assign) or len(line.targets) != 1:
        return None
    target = line.targets[0].target
    return target.value if isinstance(target, cst.Name) else None


def _by_master(model: FileModel, one: _Reduced) -> Iterator[tuple[cst.Name, cst.CSTNode]]:
    """The reads of the master core alone that run a collective."""
    for use, end in _ends(model, one.name, one.since.node):
        if isinstance(end, cst.Assign | cst.Return):
            continue
        if model.master_only(use) is not None and _pending(model, one.since, use):
            yield use, end


def _ends(
    model: FileModel, name: str, made: cst.CSTNode, depth: int = _NAMES
) -> Iterator[tuple[cst.Name, cst.CSTNode]]:
    """What becomes of a name behind a node, also of what is computed from it: reads, returns."""
    for use in _uses(model, name, made):
        end = _end_of(model, use)
        if end is None:
            continue
        yield use, end
        further = _bound_by(end) if depth else None
        if further is not None:
            yield from _ends(model, further, end, depth - 1)


def _uses(model: FileModel, name: str, made: cst.CSTNode) -> Iterator[cst.Name]:
    """The uses of a name behind what it is bound to, until it is bound again."""
    function = model.function_of(made)
    if function is None:
        return
    line = made if isinstance(made, cst.Assign) else model.parent(made)
    behind = max((model.tree.order[part] for part in walk(line or made)), default=0)
    nodes = [
        node
        for node in walk(function.node, into_functions=False)
        if isinstance(node, cst.Name)
        and node.value == name
        and model.tree.order[node] > behind
        and model.loop(node) is model.loop(made)
    ]
    for node in sorted(nodes, key=model.tree.order.__getitem__):
        if isinstance(model.parent(node), cst.AssignTarget | cst.For):
            return
        yield node


def _end_of(model: FileModel, use: cst.Name) -> cst.CSTNode | None:
    """What reads a tensor that is used somewhere: ``t.item()``, ``float(t)``, ``f"{t}"``.

    Also a logger that is given it: ``wandb.log({"loss": t})``, ``writer.add_scalar("loss", t)``.
    Where nothing does, the line that binds what is computed from it, or gives that back.
    """
    held: cst.CSTNode = use
    while isinstance(held, cst.BaseExpression) and model.value(held).is_device_tensor:
        parent = model.parent(held)
        if isinstance(parent, cst.FormattedStringExpression):
            return held
        if isinstance(parent, cst.Assign | cst.Return):
            return parent
        if isinstance(parent, cst.DictElement):
            parent = model.parent(model.parent(parent) or parent)
        if isinstance(parent, cst.Arg):
            call = model.parent(parent)
            reads = isinstance(call, cst.Call) and (
                model.call(call).name in _CASTS or model.effects.is_read(call)
            )
            return call if reads else None
        if isinstance(parent, cst.Attribute) and parent.value is held:
            call = model.parent(parent)
            if not isinstance(call, cst.Call) or call.func is not parent:
                return None  # ``mean.shape``
            if parent.attr.value in _READS:
                return call
            parent = call
        elif not isinstance(parent, cst.BinaryOperation) and not (
            isinstance(parent, cst.Subscript) and parent.value is held
        ):
            return None
        held = parent
    return None


def _read_in(model: FileModel, line: cst.Assign) -> bool:
    return any(model.effects.is_read(node) for node in walk(line.value))


def _pending(model: FileModel, made: CallSite, use: cst.Name) -> bool:
    """Whether nothing between a reduction and a use may have run it, on all cores."""
    given = set(walk(made.node))  # what is reduced is computed before
    for event in model.effects.of(Effect.READ, Effect.COLLECTIVE, Effect.SAVE, Effect.GRAPH_END):
        node = event.node
        if node in given or model.function_of(node) is not made.function:
            continue
        between = in_order(model, made.node, node) and in_order(model, node, use)
        if between and model.master_only(node) is None:
            return False
    for call in model.calls_of(made.function):
        if call.node in given:
            continue
        if not (in_order(model, made.node, call.node) and in_order(model, call.node, use)):
            continue
        if model.master_only(call.node) is None and _may_run(model, call):
            return False
    return not any(
        in_order(model, made.node, loop.node) and in_order(model, loop.node, use)
        for loop in model.loops
        if loop.function is made.function
    )


def _may_run(model: FileModel, call: CallSite) -> bool:
    """Whether a call ends the graph, or is one that nobody has read."""
    if model.effects.ends_graph(call) or any(
        model.effects.ends_graph(inner) for inner in model.reached(call.node)
    ):
        return True
    known = (call.name or "").startswith(("torch.", "torch_xla.", "builtins.", "time."))
    return call.target is None and not known and call.method is None
