"""Modules that a function imports and gives back: ``xm, pl = import_torch_xla()``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import imported, is_name
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.model.taken import taken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from xladoctor.lint.model.syntax import Binding, FunctionNode, Tree

    #: What a function gives back, each time, and what the names of its file mean.
    Gives = tuple[Sequence[cst.BaseExpression], Callable[[cst.BaseExpression], str | None]]


def givers(tree: Tree) -> Mapping[FunctionNode, Sequence[cst.BaseExpression]]:
    """The functions of a file that import something of torch_xla, with what they give back."""
    found: dict[FunctionNode, Sequence[cst.BaseExpression]] = {}
    for node in tree.imports:
        home = tree.function_of(node)
        if home is not None and any(name.startswith("torch_xla") for name in imported(node)):
            found[home.node] = [*returned(home)]
    return found


def given_back(
    tree: Tree, bindings: Sequence[Binding], gives: Callable[[cst.Call], Gives]
) -> str | None:
    """The module of torch_xla that a name is bound to by such functions alone.

    Args:
        tree: The file's syntax.
        bindings: All that the name is bound to; ``None`` is no other meaning.
        gives: What the function that a call runs gives back, and what its file's names mean.
    """
    meanings: set[str | None] = set()
    for item in bindings:
        if is_name(item.node, "None"):
            continue
        part = _taken_of(tree, item)
        given, means = gives(part[0]) if part is not None else ((), None)
        if part is None or means is None or not given:
            return None
        found = _parts_at(given, part[1])
        meanings |= {None if one is None else means(one) for one in found}
    meaning = meanings.pop() if len(meanings) == 1 else None
    return meaning if meaning is not None and meaning.startswith("torch_xla") else None


def _taken_of(tree: Tree, binding: Binding) -> tuple[cst.Call, tuple[int, ...]] | None:
    """The call whose result, or a part of it, a name is bound to, with the places of the part."""
    if binding.kind == "assign" and isinstance(binding.node, cst.Call):
        return binding.node, ()
    part = taken(tree, binding.node) if binding.kind == "other" else None
    starred = isinstance(tree.parents.get(binding.node), cst.StarredElement)
    if part is None or starred or not isinstance(part.line, cst.Assign):
        return None
    return (part.value, part.places) if isinstance(part.value, cst.Call) else None


def _parts_at(
    given: Sequence[cst.BaseExpression], places: Sequence[int]
) -> Iterator[cst.BaseExpression | None]:
    """What stands at a place of each of some tuples; of ``None, None`` nothing, elsewhere None."""
    for one in given:
        part: cst.BaseExpression | None = one
        for place in places:
            items = part.elements if isinstance(part, cst.Tuple | cst.List) else ()
            part = items[place].value if place < len(items) else None
        if not is_name(part, "None"):
            yield part
