"""Loops of Python over the rows of a device tensor, each of whose turns is a part of the graph.

Measured on torch_xla 2.9 on the CPU: discounted returns of 64 rows took 2.7 s, as a scan 0.1 s;
generalized advantage estimation ten times as long for four times as many rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

from xladoctor.lint.model import Kind, OnXla, walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.rules._exact import indices
from xladoctor.lint.rules._fixed import is_of_shape, of_shape
from xladoctor.lint.rules._longest import dimension
from xladoctor.lint.rules._reads import not_here, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

#: Turns that are not worth a word.
_FEW = 16


class _Rows(NamedTuple):
    """What ``for t in reversed(range(len(rewards)))`` counts.

    Attributes:
        last: How many turns there are.
        backwards: Whether it counts down, as what is summed up from the end does.
    """

    last: cst.BaseExpression
    backwards: bool


def row_by_row(model: FileModel) -> Iterator[Problem]:
    """Find loops that compute one row of a device tensor from the row before, or write it."""
    for loop in model.nodes(cst.For):
        rows = _counted(model, loop)
        if rows is None or not isinstance(loop.target, cst.Name) or not_here(model, loop):
            continue
        if model.on_xla(loop) is not OnXla.YES or not _is_long(model, rows):
            continue
        row = _row(model, loop, loop.target.value)
        if row is None or not (_carries(loop) or _writes(model, loop, rows)):
            continue
        if _ends_or_reads(model, loop):
            continue
        yield model.problem(
            loop,
            f"every turn of this loop over the rows of {snippet(model, row.value)} puts its "
            "operations into the graph, which is compiled as a whole: with more rows that takes "
            "longer than in proportion",
            suggestion="torch_xla.experimental.scan.scan(step, init, xs), which compiles the step "
            "once; of a few numbers: on the host, with what is computed moved once",
            related=[model.place(row, "one row in each turn")],
        )


def _counted(model: FileModel, loop: cst.For) -> _Rows | None:
    """``range(n)``, ``reversed(range(n))`` and ``range(n - 1, -1, -1)``."""
    if not isinstance(loop.iter, cst.Call):
        return None
    call = model.call(loop.iter)
    backwards = call.name == "builtins.reversed"
    inner = call.argument(0) if backwards else loop.iter
    counted = model.call(inner) if isinstance(inner, cst.Call) else None
    if counted is None or counted.name != "builtins.range" or not counted.positional:
        return None
    if len(counted.positional) == 3:
        if model.literal(counted.positional[2]) != -1:
            return None
        return _Rows(counted.positional[0], backwards=True)
    return _Rows(counted.positional[-1], backwards)


def _is_long(model: FileModel, rows: _Rows) -> bool:
    """Whether there are as many turns as a tensor has rows, or as a loop from the end has."""
    number = model.literal(rows.last)
    if isinstance(number, int):
        return rows.backwards and number > _FEW
    return rows.backwards or any(_is_size(model, part) for part in walk(rows.last))


def _is_size(model: FileModel, node: cst.CSTNode) -> bool:
    """``len(x)``, ``x.size(0)``, ``x.shape[0]``, or a name that holds one of these."""
    if isinstance(node, cst.Call):
        return is_of_shape(model.call(node))
    if isinstance(node, cst.Name):
        bound = (model.assigned_by(one) for one in model.bindings(node.value, node))
        return any(made is not None and of_shape(model, made) for made in bound)
    return isinstance(node, cst.Subscript) and of_shape(model, node)


def _row(model: FileModel, loop: cst.For, counter: str) -> cst.Subscript | None:
    """The first part of a device tensor that a turn takes: ``rewards[t]``, ``x[:, t]``."""
    for node in walk(loop.body, into_functions=False):
        if not isinstance(node, cst.Subscript) or not _names(node, counter):
            continue
        value = model.value(node.value)
        if value.is_device_tensor and value.certain:
            return node
    return None


def _names(node: cst.Subscript, counter: str) -> bool:
    return any(is_name(part, counter) for index in indices(node) for part in walk(index))


def _carries(loop: cst.For) -> bool:
    """Whether a turn computes a value from that of the turn before: ``gae = delta + c * gae``."""
    for node in walk(loop.body, into_functions=False):
        if isinstance(node, cst.AugAssign) and isinstance(node.target, cst.Name):
            return True
        if not isinstance(node, cst.Assign):
            continue
        names = {one.target.value for one in node.targets if isinstance(one.target, cst.Name)}
        if any(isinstance(part, cst.Name) and part.value in names for part in walk(node.value)):
            return True
    return False


def _writes(model: FileModel, loop: cst.For, rows: _Rows) -> bool:
    """Whether a turn writes a row: ``out[i] = f(x[i])``, of as many as ``len(x)``."""
    assert isinstance(loop.target, cst.Name)
    if not (rows.backwards or _is_first(model, rows.last)):
        return False  # ``for c in range(x.shape[1])``: three colours
    return any(
        isinstance(node.target, cst.Subscript)
        and _names(node.target, loop.target.value)
        and model.value(node.target.value).is_device_tensor
        for node in walk(loop.body, into_functions=False)
        if isinstance(node, cst.AssignTarget)
    )


def _is_first(model: FileModel, last: cst.BaseExpression) -> bool:
    """``len(x)``, ``x.size(0)`` and ``x.shape[0]``, also of a name."""
    return dimension(model.assigned_once(last) if isinstance(last, cst.Name) else last) == 0


def _ends_or_reads(model: FileModel, loop: cst.For) -> bool:
    """Whether something in the loop ends the graph, reads or runs a model: others tell of that."""
    if model.effects.ends(loop):
        return True
    return any(
        model.effects.is_read(call.node) or model.value(call.node.func).kind is Kind.MODEL
        for call in model.reached(loop)
    )
