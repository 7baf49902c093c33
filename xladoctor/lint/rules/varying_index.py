"""XLA205: a Python number that counts the steps is used as an index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import LoopKind, walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import around
from xladoctor.lint.rules._protocol import syncs
from xladoctor.lint.rules._reads import costly_loop, loop_place, often, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Loop, Problem


@rule("XLA205")
def varying_index(model: FileModel) -> Iterator[Problem]:
    """Find reads such as ``table[step]`` of device tensors, where ``step`` counts the loop."""
    for loop in model.loops:
        counter = _counter(model, loop)
        if counter is None or loop.kind not in {LoopKind.STEP, LoopKind.EVAL}:
            continue
        if not loop.iterates.is_loader and not _ends_graph(model, loop):
            continue  # all turns are one graph (accumulation of gradients): the same every time
        for node in walk(loop.node, into_functions=False):
            if not isinstance(node, cst.Subscript) or not _reads(model, node):
                continue
            value = model.value(node.value)
            if not value.is_device_tensor or not value.certain:
                continue
            if not any(_is_counter(model, part, counter) for part in _indices(node)):
                continue
            if costly_loop(model, node) is not loop or model.loop(node) is not loop:
                continue
            yield model.problem(
                node,
                f"`{counter}` becomes a constant of the graph: {snippet(model, node)} makes a new "
                f"graph {often(loop)}, and each is compiled",
                suggestion="index with a tensor: x.index_select(0, torch.tensor([step], "
                "device=device))",
                related=[loop_place(model, loop)],
            )


def _ends_graph(model: FileModel, loop: Loop) -> bool:
    return any(syncs(model, call) or call.method == "item" for call in model.reached(loop.node))


def _counter(model: FileModel, loop: Loop) -> str | None:
    """The name that counts the iterations: of ``enumerate`` or ``range``."""
    node = loop.node
    if not isinstance(node, cst.For) or not isinstance(node.iter, cst.Call):
        return None
    name = model.name(node.iter.func)
    if name == "builtins.range" and isinstance(node.target, cst.Name):
        return node.target.value
    if name == "builtins.enumerate" and isinstance(node.target, cst.Tuple):
        first = node.target.elements[0].value
        return first.value if isinstance(first, cst.Name) else None
    return None


def _reads(model: FileModel, node: cst.Subscript) -> bool:
    parent = model.parent(node)
    return not isinstance(parent, cst.AssignTarget | cst.AugAssign | cst.Del)


def _indices(node: cst.Subscript) -> Iterator[cst.BaseExpression]:
    for element in node.slice:
        if isinstance(element.slice, cst.Index):
            yield element.slice.value
        elif isinstance(element.slice, cst.Slice):
            parts = (element.slice.lower, element.slice.upper)
            yield from (part for part in parts if part is not None)


def _is_counter(model: FileModel, node: cst.BaseExpression, counter: str) -> bool:
    """The counter itself, or a sum or product with it; not ``step % 2``, which repeats."""
    if isinstance(node, cst.BinaryOperation):
        if not isinstance(node.operator, cst.Add | cst.Subtract | cst.Multiply):
            return False
        return _is_counter(model, node.left, counter) or _is_counter(model, node.right, counter)
    if not isinstance(node, cst.Name) or node.value != counter:
        return False
    # Another loop around the index may bind the name anew.
    return not any(isinstance(parent, cst.CompFor | cst.Lambda) for parent in around(model, node))
