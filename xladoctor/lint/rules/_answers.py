"""What a condition says of the questions that it is put together of, where it holds or fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.conditions import without_not
from xladoctor.lint.module_names import module_names
from xladoctor.lint.rules._api import entry_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel

#: The release that ``tables/names.toml`` knows the names of.
_KNOWN = (2, 9)


def answers(
    model: FileModel, test: cst.BaseExpression, *, when: bool, today: bool = True
) -> Iterator[tuple[cst.BaseExpression, bool | None]]:
    """The questions of a condition, each with its answer; None if that is not known.

    Of ``if hasattr(torch_xla, "launch") and cores is None: return`` the lines behind it know that
    there are ``cores``, since ``launch`` is there.

    Args:
        model: The file.
        test: The condition.
        when: Whether it holds.
        today: Whether the release to lint for is the one that runs; else any may be.
    """
    test, when = without_not(test, when=when)
    if not isinstance(test, cst.BooleanOperation):
        yield test, when
        return
    every = isinstance(test.operator, cst.And)
    sides = [test.left, test.right]
    if today and every is not when:
        # One of them decides: the one that is left, if all others are known not to.
        sides = [side for side in sides if is_there(model, side) is not every]
    known = every is when or len(sides) == 1
    for side in sides:
        for part, holds in answers(model, side, when=when, today=today):
            yield part, holds if known else None


def is_there(model: FileModel, test: cst.BaseExpression) -> bool | None:
    """What ``hasattr(xm, "sync")`` is with the release to lint for; None if that is not known."""
    if not isinstance(test, cst.Call) or model.name(test.func) != "builtins.hasattr":
        return None
    given = [argument.value for argument in test.args]
    asked = model.literal(given[1]) if len(given) == 2 else None
    module = model.name(given[0]) if given else None
    names = module_names().get(module or "")
    if names is None or not isinstance(asked, str) or model.target < _KNOWN:
        return None
    row = entry_for(f"{module}.{asked}")
    return asked in names and (row is None or not row.removed(model.target))
