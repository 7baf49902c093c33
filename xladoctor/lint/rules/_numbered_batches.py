"""Loops that take (number, batch) of a device loader of torch_xla, which gives the batch alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.rules._tolerated import tolerated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Function, Problem

_LOADERS = "torch_xla.distributed.parallel_loader."
#: Counters that are also what data sets give with each sample: its index.
_INDEX = re.compile(r"^(i|j|k|n|b?idx|index)$")
_UNUSED = re.compile(r"^_+$")
_BATCH = re.compile(r"(^|_)((mini)?batch(_data|_dict)?|xy|data|samples?|inputs?)$")
_PER_SAMPLE = re.compile(r"^__(getitem|iter|next)__$|collate")


def numbered_batches(model: FileModel) -> Iterator[Problem]:
    """``for step, (x, y) in loader``, which was right until the end of 2019: now x is no number.

    Silent where data sets or collate functions of the program give such pairs themselves.
    """
    for loop in model.nodes(cst.For, cst.CompFor):
        if not isinstance(loop, cst.For | cst.CompFor) or not _counts(model, loop):
            continue
        if _own_pairs(model) or tolerated(model, loop.iter):
            continue
        yield model.problem(
            loop.iter,
            "this loader gives batches, not (number, batch): the first part of the batch is taken "
            "for the number",
            suggestion=f"enumerate({model.tree.text(loop.iter).strip()})",
        )


def _counts(model: FileModel, loop: cst.For | cst.CompFor) -> bool:
    target = loop.target
    if not isinstance(target, cst.Tuple) or len(target.elements) != 2:
        return False
    first, second = (element.value for element in target.elements)
    if not isinstance(first, cst.Name) or not isinstance(second, cst.Name | cst.Tuple):
        return False
    value = model.value(loop.iter)
    if value.kind is not Kind.DEVICE_LOADER:
        return False
    nested = isinstance(second, cst.Tuple) and len(second.elements) > 1
    if value.type_name == know.DATA_PARALLEL:
        return nested or _is_number(model, loop, first)
    made = value.origin
    if not value.certain or not isinstance(made, cst.Call):
        return False
    if not (model.name(made.func) or "").startswith(_LOADERS):
        return False
    if not nested and not (isinstance(second, cst.Name) and _BATCH.search(second.value)):
        return False
    return _is_number(model, loop, first) or _UNUSED.match(first.value) is not None


def _is_number(model: FileModel, loop: cst.For | cst.CompFor, name: cst.Name) -> bool:
    """Whether a name is that of a counter, and used as one where an index would have it too."""
    if know.COUNTER_NAME.search(name.value) and not _INDEX.match(name.value):
        return True
    if not isinstance(loop, cst.For):
        return False
    tests = [one.test for one in model.within(loop.body, cst.If)]
    return any(_is_asked(model, test, name.value) for test in tests)


def _is_asked(model: FileModel, test: cst.BaseExpression, name: str) -> bool:
    """``if x % 50 == 0``, ``if x > 10``: a tensor of several numbers has no answer."""
    around = (model.parent(use) for use in model.within(test, cst.Name) if use.value == name)
    return any(
        is_name(one.left, name)
        for one in around
        if isinstance(one, cst.Comparison)
        or (isinstance(one, cst.BinaryOperation) and isinstance(one.operator, cst.Modulo))
    )


def _own_pairs(model: FileModel) -> bool:
    """Whether a data set or a collate function of the program gives a pair like that."""
    each = (function for one in (model, *model.linked) for function in one.functions)
    return any(
        isinstance(given, cst.Tuple) and len(given.elements) == 2 and _is_pair(given)
        for function in each
        if _PER_SAMPLE.search(function.name)
        for given in _given_by(function)
    )


def _given_by(function: Function) -> Iterator[cst.BaseExpression | None]:
    """What a function returns or yields."""
    yield from returned(function)
    for part in walk(function.node):
        if isinstance(part, cst.Yield) and not isinstance(part.value, cst.From):
            yield part.value


def _is_pair(given: cst.Tuple) -> bool:
    """Whether (first, second) is (index, sample), or has a second part of several."""
    first, second = (part.value for part in given.elements)
    if isinstance(second, cst.Tuple | cst.List | cst.Dict):
        return True
    return isinstance(first, cst.Name) and know.COUNTER_NAME.search(first.value) is not None
