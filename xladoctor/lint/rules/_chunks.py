"""Texts that are cut into chunks one by one: the last chunk of each has a length of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import OnXla, walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.rules._exact import indices
from xladoctor.lint.rules._tokenized import innermost, mapped, slices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Function, Problem


def uneven_chunks(model: FileModel, loader: CallSite) -> Iterator[Problem]:
    """``for ids in rows["input_ids"]: all += [ids[i : i + 64] for i in range(0, len(ids), 64)]``.

    Texts that are joined before have one such rest in all, which programs leave out.

    Args:
        model: The file.
        loader: What makes batches of samples of any length.
    """
    for cut in _uneven(model):
        if model.on_xla(cut) is not OnXla.NO:
            yield model.problem(
                cut,
                "each text is cut into chunks by itself, and its last chunk is as long as what is "
                "left: each new length recompiles the whole step",
                suggestion="join the texts before they are cut and leave the rest out, or pad the "
                "last chunks",
                related=[model.place(loader.node.func, "the batches are made of them here")],
            )


def _uneven(model: FileModel) -> Iterator[cst.BaseExpression]:
    """The first such cut of each function that a data set is mapped with."""
    if any("==" in model.tree.text(call.node) for call in model.methods("filter")):
        return  # only those of one length are kept
    for function in mapped(model):
        cuts = (
            part
            for part in walk(function.node.body)
            if isinstance(part, cst.ListComp | cst.GeneratorExp) and _cuts(model, function, part)
        )
        first = next(cuts, None)
        if first is not None:
            yield first


def _cuts(model: FileModel, function: Function, made: cst.ListComp | cst.GeneratorExp) -> bool:
    """``[ids[i : i + size] for i in range(0, len(ids), size)]`` of one row of what is mapped."""
    each, cut = innermost(made.for_in), made.elt
    if each.ifs or not slices(model, made):
        return False
    assert isinstance(cut, cst.Subscript)
    assert isinstance(each.iter, cst.Call)
    row, stop, step = cut.value, each.iter.args[1].value, each.iter.args[2].value
    if not isinstance(row, cst.Name) or not _measures(model, stop, row):
        return False
    outer = None if each is made.for_in else made.for_in
    return _is_as_long(model, cut, step) and _is_row(model, function, row, outer)


def _measures(model: FileModel, node: cst.BaseExpression, row: cst.Name) -> bool:
    """``len(ids)`` of the row itself."""
    if not isinstance(node, cst.Call) or model.name(node.func) != "builtins.len":
        return False
    return is_name(node.args[0].value, row.value)


def _is_as_long(model: FileModel, cut: cst.Subscript, step: cst.BaseExpression) -> bool:
    """``ids[i : i + size]``, of as many as the places are apart."""
    part = cut.slice[0].slice
    end = part.upper if isinstance(part, cst.Slice) else None
    return (
        isinstance(end, cst.BinaryOperation)
        and isinstance(end.operator, cst.Add)
        and model.tree.text(end.right).strip() == model.tree.text(step).strip()
    )


def _is_row(model: FileModel, function: Function, row: cst.Name, outer: cst.CompFor | None) -> bool:
    """Whether a name is one text of the batch: ``for ids in rows["input_ids"]``."""
    if outer is not None:
        lines: list[cst.BaseExpression] = [outer.iter] if is_name(outer.target, row.value) else []
    else:
        taken = (model.taken(one.node) for one in model.bindings(row.value, row))
        loops = [None if part is None else part.line for part in taken]
        lines = [
            one.iter for one in loops if isinstance(one, cst.For) and is_name(one.target, row.value)
        ]
        if len(lines) != len(loops):
            return False
    given = function.parameters[:1]
    return bool(lines) and all(
        isinstance(line, cst.Subscript)
        and isinstance(line.value, cst.Name)
        and line.value.value in given
        and any(isinstance(key, cst.SimpleString) for key in indices(line))
        for line in lines
    )
