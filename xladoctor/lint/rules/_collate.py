"""The functions that make batches of samples, on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, Function, walk
from xladoctor.lint.rules._exact import bounds
from xladoctor.lint.rules._given import given as named
from xladoctor.lint.rules._handed_over import is_trainer
from xladoctor.lint.rules._loaders import DATA_LOADER
from xladoctor.lint.rules._longest import lengths_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Value

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

    The loaders of the program's other files count too, those that are its own classes, and Trainers
    of transformers, which make theirs themselves.
    """
    seen: set[Function] = set()
    for part in model.files_of_program:
        for function in part.once(_given_to_loaders):
            if function not in seen:
                seen.add(function)
                yield from _with_helpers(model, function)


def _given_to_loaders(model: FileModel) -> Sequence[Function]:
    """What loaders and Trainers of a file are given, and collators that stand in tables.

    ``COLLATORS = {"bert": CollatorForBert}``: who makes these cannot be seen.
    """
    found: list[Function] = []
    for collate in _collating(model):
        found += called_by(model, collate)
    for cls in model.classes:
        function = cls.methods.get("__call__")
        if function is not None and "Collat" in cls.name and _is_handed_on(model, cls):
            found.append(function)
    return found


def called_by(model: FileModel, collate: cst.BaseExpression) -> Iterator[Function]:
    """The functions that run where an expression is called: ``collate_fn=Collator(tokenizer)``."""
    value = model.value(collate)
    for one in value.roads or (value,):
        yield from _callable(model, one)


def _collating(model: FileModel) -> Iterator[cst.BaseExpression]:
    """The expressions of a file that say what makes batches."""
    for call in model.calls():
        given = None
        if call.name == DATA_LOADER:
            given = call.argument(6, "collate_fn")
        elif is_trainer(model, call):
            given = named(model, call).get("data_collator")
        elif "collate_fn" in call.keywords and _makes_loader(model, call):
            given = call.keywords["collate_fn"]
        if given is not None:
            yield given
    for owner in model.classes:
        if DATA_LOADER in model.library_bases(owner):
            yield from model.kept(owner).get("collate_fn", ())


def _makes_loader(model: FileModel, call: CallSite) -> bool:
    """``AudioLoader(...)`` of a class on ``DataLoader``, and ``super().__init__(...)`` in it."""
    owner = call.target
    if call.method == "__init__" and call.function is not None:
        owner = call.function.owner
    return isinstance(owner, Class) and DATA_LOADER in model.library_bases(owner)


def _callable(model: FileModel, value: Value) -> Iterator[Function]:
    """The functions, or the ``__call__`` of the objects, that a value may be."""
    yield from value.each_function
    classes = {value.instance.cls} if value.instance is not None else value.classes
    for cls in classes:
        function = model.method(cls, "__call__") or model.method(cls, "torch_call")
        if function is not None:
            yield function


def _is_handed_on(model: FileModel, cls: Class) -> bool:
    """Whether a table holds a class, or a call is given it, and none makes objects of it."""
    parts = (model, *model.linked)
    if any(call.target is cls for part in parts for call in part.calls()):
        return False
    return any(
        name.value == cls.name
        and isinstance(part.parent(name), cst.DictElement | cst.Element | cst.Arg)
        for part in parts
        for name in part.nodes(cst.Name)
    )


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


def handed_sizes(model: FileModel, call: CallSite) -> Iterator[cst.BaseExpression]:
    """What a call of a function of the program gives as a size: ``pad_to(rows, longest)``."""
    function = call.target
    if not isinstance(function, Function) or call.has_star:
        return
    nodes = walk(function.node, into_functions=False)
    numbers = (
        x for node in nodes for x in sizes(model, node) if not isinstance(node, cst.Subscript)
    )
    for name in dict.fromkeys(x.value for x in numbers if isinstance(x, cst.Name)):
        value = call.given_to(function, name) if name in function.parameters else None
        if value is not None:
            yield value
