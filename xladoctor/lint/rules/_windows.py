"""A model that is run on each window of a large picture or volume, all in one graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, LoopKind, OnXla, walk
from xladoctor.lint.model.dotted import last_name
from xladoctor.lint.model.knowledge import MODEL_NAME
from xladoctor.lint.model.turns import names_in
from xladoctor.lint.rules._exact import around, bounds
from xladoctor.lint.rules._reads import loop_place
from xladoctor.lint.rules._sources import the_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Problem

#: So many axes have a loop each: then the windows are many.
_AXES = 2


def unrolled_windows(model: FileModel) -> Iterator[Problem]:
    """``for i in range(...): for j in range(...): out[...] += model(x[..., i:i + w, j:j + w])``.

    Nothing in the loops ends the graph: it holds as many forward passes as there are windows.
    """
    told: set[cst.CSTNode] = set()
    for call in model.calls():
        loop = model.hot_loop(call.node) if _runs_model(model, call) else None
        if loop is None or model.on_xla(call.node) is OnXla.NO:
            continue
        axes = _axes(model, call)
        if len(axes) < _AXES or axes[-1] in told or _ends(model, axes[-1]):
            continue
        told.add(axes[-1])
        yield model.problem(
            call.node,
            "nothing ends the graph between the windows: the forward passes of all of them are "
            "one graph, which takes that many times longer to compile, and is another one for "
            "each number of windows",
            suggestion="torch_xla.sync() behind each window, or batches of windows of one size",
            related=[
                model.place(axes[-1], "goes over the windows"),
                loop_place(model, loop),
            ],
        )


def _runs_model(model: FileModel, call: CallSite) -> bool:
    func = call.node.func
    kind = model.value(func).kind
    named = isinstance(func, cst.Name | cst.Attribute) and MODEL_NAME.search(last_name(func))
    return kind is Kind.MODEL or (kind is Kind.UNKNOWN and call.target is None and bool(named))


def _axes(model: FileModel, call: CallSite) -> Sequence[cst.For]:
    """The loops over places around a call by which what the model is given is cut, innermost first.

    None of them has its number of turns written down.
    """
    given = (argument.value for argument in call.node.args)
    cut = {
        name
        for value in given
        for part in walk(the_source(model, value))
        if isinstance(part, cst.Subscript)
        for bound in bounds(part)
        for name in names_in(bound)
    }
    found = []
    for node in around(model, call.node):
        if isinstance(node, cst.FunctionDef | cst.Lambda):
            break
        if isinstance(node, cst.For) and cut & names_in(node.target) and _counts(model, node):
            found.append(node)
    return found


def _counts(model: FileModel, node: cst.For) -> bool:
    """``for i in range(0, height, stride):``, which is no loop over batches."""
    over, loop = node.iter, model.loop(node.body)
    return (
        isinstance(over, cst.Call)
        and model.name(over.func) == "builtins.range"
        and loop is not None
        and loop.kind is LoopKind.OTHER
        and any(not isinstance(argument.value, cst.Integer) for argument in over.args)
    )


def _ends(model: FileModel, outer: cst.For) -> bool:
    """Whether something in the loops ends the graph, reads, or is compiled by itself."""
    if any(model.effects.is_read(node) for node in walk(outer)):
        return True
    return any(
        model.effects.ends_graph(one) or model.effects.is_read(one.node)
        for one in model.reached(outer)
    )
