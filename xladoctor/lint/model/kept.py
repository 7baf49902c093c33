"""What the methods of a class keep in the attributes of ``self``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

from xladoctor.lint.model.dotted import assignments, is_name, paired
from xladoctor.lint.model.parts import walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xladoctor.lint.model.definitions import Class


class Kept(NamedTuple):
    """What lines set attributes to, by the names of these.

    Attributes:
        given: The values of assignments.
        apart: What is taken apart, ``self.net, self.optimizer = prepare(net, optimizer)``; None for
            other lines, ``for self.step in steps``.
    """

    given: Mapping[str, Sequence[cst.BaseExpression]]
    apart: Mapping[str, Sequence[cst.BaseExpression | None]]

    def once(self, name: str) -> cst.BaseExpression | None:
        """What an attribute is set to, if that is one assignment alone."""
        given = self.given.get(name, ())
        return given[0] if len(given) == 1 and name not in self.apart else None

    def made_of(self, name: str) -> Sequence[cst.BaseExpression | None]:
        """What each line that sets an attribute gives it, or takes apart for it."""
        return [*self.given.get(name, ()), *self.apart.get(name, ())]


NOTHING_KEPT = Kept({}, {})


def kept_by(owner: Class) -> Kept:
    """What the methods of a class keep."""
    given: dict[str, list[cst.BaseExpression]] = {}
    apart: dict[str, list[cst.BaseExpression | None]] = {}
    for method in owner.methods.values():
        for line in walk(method.node):
            for target, value in (pair for both in assignments(line) for pair in paired(*both)):
                if type(target) is cst.Attribute and is_name(target.value, "self"):
                    given.setdefault(target.attr.value, []).append(value)
                else:
                    for name in _parts(target):
                        apart.setdefault(name, []).append(value)
            for name in _otherwise(line):
                apart.setdefault(name, []).append(None)
    return Kept(given, apart)


def _parts(target: cst.BaseExpression) -> Iterator[str]:
    """The attributes in a target that is taken apart: ``self.net, (self.a, b)``."""
    if isinstance(target, cst.Tuple | cst.List):
        for element in target.elements:
            yield from _parts(element.value)
    elif isinstance(target, cst.Attribute) and is_name(target.value, "self"):
        yield target.attr.value


def _otherwise(line: cst.CSTNode) -> Iterator[str]:
    """The attributes that other lines than assignments set."""
    if isinstance(line, cst.For | cst.AugAssign):
        yield from _parts(line.target)
    elif isinstance(line, cst.AsName) and isinstance(line.name, cst.BaseExpression):
        yield from _parts(line.name)
