"""Names that are picked by the release that runs: ``getattr(torch_xla, "sync", None) or ...``.

What a program picks so is what the release of today has: the first of its candidates that is there
and goes by its newest name. Which names there are stands in ``tables/names.toml``, what became of
them in ``tables/api.toml``.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeAlias

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.model.dotted import is_name, last_name, text_of
from xladoctor.lint.model.parts import literal_parts, walk
from xladoctor.lint.module_names import module_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from xladoctor.lint.model.definitions import Class, Function

    #: The dotted name of an expression.
    Spell: TypeAlias = "Callable[[cst.BaseExpression], str | None]"
    #: The function or class of the program that an expression means.
    Define: TypeAlias = "Callable[[cst.BaseExpression], Function | Class | None]"

#: Expressions that pick one of several names.
PICKING = frozenset([cst.IfExp, cst.BooleanOperation, cst.Call])
_PACKAGE = "torch_xla"
#: How helpers ask an object or module for a name.
_ASKS = frozenset({"getattr", "import_module", "attrgetter"})


@functools.cache
def newest(dotted: str) -> str:
    """What newer releases call a function of torch_xla: ``torch_xla.sync`` of ``xm.mark_step``."""
    return _rows().get(dotted, {}).get("new") or dotted


@functools.cache
def _rows() -> dict[str, dict[str, str]]:
    return {row["old"]: row for row in catalogue.table("api")["name"]}


@functools.cache
def _is_there(dotted: str) -> bool:
    """Whether the release that the tables know has a name."""
    module, _, name = dotted.rpartition(".")
    return name in module_names().get(module, ()) and "removed_in" not in _rows().get(dotted, {})


def picked(node: cst.BaseExpression, spelled: Spell, defined: Define) -> str | None:
    """The function of torch_xla that an expression picks among several names, or None.

    ``getattr(torch_xla, "sync", xm.mark_step)``, ``torch_xla.sync if hasattr(...) else
    xm.mark_step``, ``a or b``, and a function of the program that is given modules and names, and
    asks for them: ``first_of((torch_xla, "sync"), (xm, "mark_step"))``.

    Args:
        node: The expression.
        spelled: The dotted name of an expression.
        defined: The function of the program that an expression means.
    """
    found = [*_candidates(node, spelled, defined)]
    if not found or any(one is None or not one.startswith(f"{_PACKAGE}.") for one in found):
        return None
    there = [one for one in found if one is not None and _is_there(one)]
    return next((one for one in there if newest(one) == one), there[0] if there else None)


def _candidates(node: cst.BaseExpression, spelled: Spell, defined: Define) -> Iterator[str | None]:
    """The names that an expression may be, in its order; None for what is something else."""
    if isinstance(node, cst.BooleanOperation):
        if not isinstance(node.operator, cst.Or):
            yield None
        yield from _candidates(node.left, spelled, defined)
        yield from _candidates(node.right, spelled, defined)
    elif isinstance(node, cst.IfExp):
        found = [*_candidates(node.body, spelled, defined)]
        found += _candidates(node.orelse, spelled, defined)
        asks = any(is_name(part, "hasattr") for part in walk(node.test))
        one = len({newest(name or "") for name in found}) == 1  # by its names of two releases
        yield from found if asks or one else (None,)
    elif isinstance(node, cst.Call):
        yield from _asked(node, spelled, defined)
    elif isinstance(node, cst.Lambda):  # of releases that have neither: ``lambda: None``
        if isinstance(node.body, cst.Call):
            yield spelled(node.body.func)
    elif not is_name(node, "None"):
        yield spelled(node) if isinstance(node, cst.Name | cst.Attribute) else None


def _asked(node: cst.Call, spelled: Spell, defined: Define) -> Iterator[str | None]:
    """What a call asks for: ``getattr(xm, "sync", None)``, or a helper that does so."""
    given = [argument.value for argument in node.args]
    if is_name(node.func, "getattr") and len(given) > 1:
        yield _of(given[0], given[1], spelled)
        if len(given) > 2:
            yield from _candidates(given[2], spelled, defined)
        return
    helper = defined(node.func) if any(map(_holds_text, given)) else None
    body = getattr(helper.node, "body", None) if helper is not None else None
    asks = [part.func for part in walk(body) if isinstance(part, cst.Call)] if body else []
    names = {last_name(one) for one in asks}
    if "setattr" in names or not names & _ASKS:
        yield None
        return
    yield from _listed(given, spelled)


def _holds_text(part: cst.BaseExpression) -> bool:
    """A text, or pairs with one in them."""
    return text_of(part) is not None or any(map(_holds_text, literal_parts(part)))


def _listed(given: Sequence[cst.BaseExpression], spelled: Spell) -> Iterator[str]:
    """What pairs of a module and a name stand for: ``(xm, "mark_step")``; also ``xm, "a", "b"``.

    A text before the first module says what is looked for; a module may be written as a text.
    """
    owner: cst.BaseExpression | None = None
    for one in given:
        if isinstance(one, cst.Tuple | cst.List):
            yield from _listed([element.value for element in one.elements], spelled)
        elif (text_of(one) or _PACKAGE).startswith(_PACKAGE):
            owner = one
        elif owner is not None and (named := _of(owner, one, spelled)) is not None:
            yield named


def _of(owner: cst.BaseExpression, name: cst.BaseExpression, spelled: Spell) -> str | None:
    """``torch_xla.sync`` of ``torch_xla, "sync"``; the module may be a text, too."""
    module, text = text_of(owner) or spelled(owner), text_of(name)
    return f"{module}.{text}" if module and text and text.isidentifier() else None
