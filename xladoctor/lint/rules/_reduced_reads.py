"""Values that were reduced over the cores, and that the master core alone reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
#: How the host gets at a value.
_READS = frozenset({"item", "cpu", "tolist", "numpy"})
_CASTS = frozenset({"builtins.float", "builtins.int", "builtins.bool", "builtins.print"})


def reduced_reads(model: FileModel) -> Iterator[Problem]:
    """``mean = xm.all_reduce("sum", total)``, then ``if master: print(mean.item())``.

    The read runs the collective in a graph of its own, on the master core alone.
    """
    for call in model.calls(*_GIVE):
        line = next((one for one in around(model, call.node) if isinstance(one, cst.Assign)), None)
        target = line.targets[0].target if line is not None and len(line.targets) == 1 else None
        entry = model.on_every_core(call.node)
        if not isinstance(target, cst.Name) or line is None or entry is None:
            continue
        if not waits_in_graph(model, call) or model.master_only(call.node) is not None:
            continue
        if _read_in(model, line):
            continue  # ``value = xm.all_reduce(...).item()``, on all cores
        for use in _uses(model, target.value, call):
            guard, read = model.master_only(use), _read_of(model, use)
            if guard is None or read is None or not _pending(model, call, use):
                continue
            yield model.problem(
                read,
                f"only the master core reads {snippet(model, target)}: that runs the reduction in "
                "a graph of its own, while the other cores run it in another one: it never "
                "completes",
                suggestion="torch_xla.sync() before the condition, or read it on all cores",
                related=[
                    model.place(call.node, "still pending"),
                    model.place(guard.written, "only the master core gets here"),
                    *entry_places(model, entry),
                ],
            )
            break


def _uses(model: FileModel, name: str, made: CallSite) -> Iterator[cst.Name]:
    """The uses of a name behind what it is bound to, until it is bound again."""
    if made.function is None:
        return
    nodes = [
        node
        for node in walk(made.function.node, into_functions=False)
        if isinstance(node, cst.Name)
        and node.value == name
        and in_order(model, made.node, node)
        and model.loop(node) is model.loop(made.node)
    ]
    for node in sorted(nodes, key=model.tree.order.__getitem__):
        if isinstance(model.parent(node), cst.AssignTarget | cst.AugAssign | cst.For):
            return
        yield node


def _read_of(model: FileModel, use: cst.Name) -> cst.CSTNode | None:
    """What reads a tensor that is used somewhere: ``t.item()``, ``float(t)``, ``f"{t}"``.

    Also a logger that is given it: ``wandb.log({"loss": t})``, ``writer.add_scalar("loss", t)``.
    """
    held: cst.CSTNode = use
    while isinstance(held, cst.BaseExpression) and model.value(held).is_device_tensor:
        parent = model.parent(held)
        if isinstance(parent, cst.FormattedStringExpression):
            return held
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
        elif not isinstance(parent, cst.BinaryOperation):
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
