"""Python numbers in lists of a batch, as its collate function says: other ones each time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, Value
from xladoctor.lint.model.contained import element_of
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.model.loops import HOT
from xladoctor.lint.model.parts import index_of
from xladoctor.lint.rules._collate import collate_functions
from xladoctor.lint.rules._graph_constants import graph_constants
from xladoctor.lint.rules._read_numbers import gone_over_by
from xladoctor.lint.rules._sources import of_parameter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from xladoctor.lint.model import FileModel

#: Names, parameters, attributes and loops on the way from a number to the batch.
_DEPTH = 6


def listed_places(model: FileModel) -> Iterator[tuple[cst.Subscript, cst.BaseExpression]]:
    """Places in device tensors that are numbers of lists: ``x[row, batch["places"][row]]``."""
    for node in model.nodes(cst.Subscript) if model.is_xla else ():
        for place in graph_constants(model, node, likely=True):
            found = _listed(model, place, _DEPTH)
            if found is not None and found.kind is Kind.NUMBER and isinstance(node, cst.Subscript):
                yield node, place
                break


def _listed(model: FileModel, node: cst.BaseExpression, depth: int) -> Value | None:
    """What an expression holds of a list in the batch; None if it is of none."""
    if depth == 0:
        return None
    if isinstance(node, cst.Subscript):
        place = index_of(node)
        if isinstance(place, cst.SimpleString):
            return _collated(model, node.value, model.literal(place))
        held = _listed(model, node.value, depth - 1)
        return element_of(held) if held is not None and place is not None else held
    if isinstance(node, cst.Attribute):
        return _same(_listed(model, one, depth - 1) for one in _but_none(model.kept_in(node)))
    if not isinstance(node, cst.Name):
        return None
    return _same(_bound(model, node, depth - 1))


def _bound(model: FileModel, name: cst.Name, depth: int) -> Iterator[Value | None]:
    for binding in model.bindings(name.value, name):
        if binding.kind == "param":
            for one in _but_none(of_parameter(model, name) or ()):
                yield _listed(model, one, depth)
        elif binding.kind == "assign" and isinstance(binding.node, cst.BaseExpression):
            yield _listed(model, binding.node, depth)
        else:
            over = gone_over_by(model, binding.node) if binding.node is not None else None
            held = _listed(model, over, depth) if over is not None else None
            yield element_of(held) if held is not None else None


def _but_none(given: Iterable[cst.BaseExpression]) -> list[cst.BaseExpression]:
    """``self.places = None`` is there until the first batch."""
    return [one for one in given if not is_name(one, "None")]


def _same(found: Iterator[Value | None]) -> Value | None:
    """What all of several roads hold, if all are lists of the batch."""
    values = list(found)
    return values[0] if values and all(values) and len({x.kind for x in values if x}) == 1 else None


def _collated(model: FileModel, batch: cst.BaseExpression, key: object) -> Value | None:
    """What the collate functions put into a batch under a name, if they all make a list of it."""
    if not isinstance(batch, cst.Name) or not _is_batch(model, batch):
        return None
    values = [
        model.value(element.value)
        for function in collate_functions(model)
        for made in returned(function)
        if isinstance(made, cst.Dict)
        for element in made.elements
        if isinstance(element, cst.DictElement) and model.literal(element.key) == key
    ]
    lists = values and all(one.kind is Kind.CONTAINER for one in values)
    return values[0] if lists else None


def _is_batch(model: FileModel, name: cst.Name) -> bool:
    """Whether a name is what a loop of steps, evaluation or a rollout goes over."""
    taken = (model.taken(one.node) for one in model.bindings(name.value, name))
    return all(
        part is not None and any(x.node is part.line and x.kind in HOT for x in model.loops)
        for part in taken
    )
