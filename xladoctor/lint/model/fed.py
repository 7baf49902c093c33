"""What goes into a model as a loader gave it: the loader has moved it, and what came with it.

``for images, labels in self.loader: outputs = self.model(images)``, where nobody knows the loader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.dotted import last_name
from xladoctor.lint.model.parts import names_bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from xladoctor.lint.model.evidence import Home
    from xladoctor.lint.model.syntax import Tree

#: Methods that move a tensor to a device.
_MOVES = frozenset({"to", "cuda"})


def fed(
    tree: Tree, home: Callable[[cst.CSTNode], Home]
) -> Mapping[Home, Mapping[str, cst.CSTNode]]:
    """The names that functions take out of one batch, part of which goes into a model unmoved.

    Args:
        tree: The files.
        home: The function around a node, or its module.
    """
    given: dict[Home, dict[str, cst.CSTNode]] = {}
    for call in tree.calls:
        if know.MODEL_NAME.search(last_name(call.func)):
            names = [one.value.value for one in call.args if isinstance(one.value, cst.Name)]
            given.setdefault(home(call), {}).update(dict.fromkeys(names, call))
    if not given:
        return {}
    found: dict[Home, dict[str, cst.CSTNode]] = {}
    for place, names in _batches(tree, home):
        call = next((given[place][one] for one in names if one in given.get(place, ())), None)
        if call is not None:
            found.setdefault(place, {}).update(dict.fromkeys(names, call))
    moved = _moved(tree, home) if found else set()
    for place, names in found.items():
        if not moved.isdisjoint((place, name) for name in names):
            found[place] = {}
    return found


def _batches(
    tree: Tree, home: Callable[[cst.CSTNode], Home]
) -> Iterator[tuple[Home, tuple[str, ...]]]:
    """What loops over batches take apart, in their heads or first of all in their bodies."""
    for loop in tree.nodes(cst.For):
        assert isinstance(loop, cst.For)
        whole = {*names_bound(loop.target)}
        for target in _tuples(loop.target):
            yield home(loop), tuple(names_bound(target))
        for line in loop.body.body:
            for part in line.body if isinstance(line, cst.SimpleStatementLine) else ():
                if not isinstance(part, cst.Assign) or not isinstance(part.value, cst.Name):
                    continue
                if part.value.value in whole:
                    yield home(loop), tuple(names_bound(part.targets[0].target))


def _tuples(target: cst.BaseExpression) -> Iterator[cst.Tuple]:
    """The innermost tuples of a target: ``(images, labels)`` of ``step, (images, labels)``."""
    if not isinstance(target, cst.Tuple):
        return
    inner = [one.value for one in target.elements if isinstance(one.value, cst.Tuple)]
    for one in inner:
        yield from _tuples(one)
    if not inner:
        yield target


def _moved(tree: Tree, home: Callable[[cst.CSTNode], Home]) -> set[tuple[Home, str]]:
    """The names that functions move themselves before they use them: ``images.to(device)``."""
    return {
        (home(call), call.func.value.value)
        for call in tree.calls
        if isinstance(call.func, cst.Attribute)
        and call.func.attr.value in _MOVES
        and isinstance(call.func.value, cst.Name)
    }
