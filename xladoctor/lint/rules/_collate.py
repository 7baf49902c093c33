"""The functions that make batches of samples, on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, walk
from xladoctor.lint.rules._exact import bounds
from xladoctor.lint.rules._loaders import DATA_LOADER
from xladoctor.lint.rules._longest import lengths_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel

#: Calls that give a batch the length that they are told, as functions and as methods.
SHAPED = frozenset(
    {"torch.nn.functional.pad", "torch.zeros", "torch.full", "torch.ones", "numpy.pad",
     "numpy.zeros", "numpy.full", "numpy.ones"}
)  # fmt: skip
_EMPTY = frozenset(
    {"torch.empty", "numpy.empty", "torch.LongTensor", "torch.FloatTensor", "torch.Tensor"}
)
SHAPED_METHODS = frozenset({"new_zeros", "new_full", "new_ones"})
#: Functions from the one that a loader is given to the one that pads.
_HELPERS = 3


def collate_functions(model: FileModel) -> Iterator[Function]:
    """What makes batches for the loaders: the functions given to them, and what those call.

    The loaders of linked files count too, and those that a Trainer makes (``data_collator=``).
    """
    for part in (model, *model.linked):
        given = [call.argument(6, "collate_fn") for call in part.calls(DATA_LOADER)]
        given += [call.keywords["data_collator"] for call in part.giving("data_collator")]
        for collate in given:
            function = _callable(part, collate) if collate is not None else None
            if function is not None:
                yield from _with_helpers(model, function)


def _callable(model: FileModel, node: cst.BaseExpression) -> Function | None:
    """The function, or the ``__call__`` of the object, that an expression is."""
    value = model.value(node)
    if value.function is None and value.instance is not None:
        # transformers' own collators come to the second by the first.
        of = (model.method(value.instance.cls, name) for name in ("__call__", "torch_call"))
        return next((method for method in of if method is not None), None)
    return value.function


def _with_helpers(
    model: FileModel, function: Function, depth: int = _HELPERS
) -> Iterator[Function]:
    yield function
    for node in walk(function.node) if depth else ():
        target = model.call(node).target if isinstance(node, cst.Call) else None
        if isinstance(target, Function):
            yield from _with_helpers(model, target, depth - 1)


def sizes(model: FileModel, node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """The numbers that give what a collate function makes its shape."""
    if isinstance(node, cst.Subscript):
        yield from bounds(node)
    elif isinstance(node, cst.BinaryOperation):
        if isinstance(node.operator, cst.Multiply) and isinstance(node.left, cst.List):
            yield from lengths_in(node.right)
    elif isinstance(node, cst.Call):
        call = model.call(node)
        if call.name in SHAPED | _EMPTY or call.method in SHAPED_METHODS:
            for value in (*call.positional, *call.keywords.values()):
                yield from lengths_in(value)
