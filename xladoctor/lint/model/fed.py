"""What goes into a model as a loader gave it: the loader has moved it, and what came with it.

``for images, labels in self.loader: outputs = self.model(images)``, where nobody knows the loader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.calls import called_name
from xladoctor.lint.model.dotted import last_name, text_of
from xladoctor.lint.model.parts import index_of, names_bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from xladoctor.lint.model.evidence import Home
    from xladoctor.lint.model.syntax import Tree

#: What moves tensors to a device.
_MOVES = frozenset({"to", "cuda", "xla", "send_cpu_data_to_device", "to_device", "tree_map"})
#: What gives something else beside the batch.
_COUNTS = frozenset({"enumerate", "zip", "items", "range"})


def fed(
    tree: Tree, home: Callable[[cst.CSTNode], Home]
) -> Mapping[Home, Mapping[str, cst.CSTNode]]:
    """The names that functions take out of one batch, part of which goes into a model as it is.

    Nothing of a function that moves anything itself, nor names that it binds to anything else.

    Args:
        tree: The files.
        home: The function around a node, or its module.
    """
    given: dict[Home, dict[str, cst.CSTNode]] = {}
    for call in tree.calls:
        if know.MODEL_NAME.search(last_name(call.func) or _key(call.func)):
            names = [one.value.value for one in call.args if isinstance(one.value, cst.Name)]
            given.setdefault(home(call), {}).update(dict.fromkeys(names, call))
    found: dict[Home, dict[str, cst.CSTNode]] = {}
    for place, target in _batches(tree, home) if given else ():
        asked = given.get(place, {})
        bare = (one.value for one in target.elements if isinstance(one.value, cst.Name))
        parts = [name.value for name in bare if len(tree.bindings(name)) == 1]
        fed_by = next((asked[one] for one in parts if one in asked), None)
        if fed_by is not None:
            found.setdefault(place, {}).update(dict.fromkeys(parts, fed_by))
    moving = {home(call) for call in tree.calls if called_name(call) in _MOVES} if found else set()
    return {place: parts for place, parts in found.items() if place not in moving}


def _key(node: cst.BaseExpression) -> str:
    """``model`` of ``parts["model"](images)``."""
    return (isinstance(node, cst.Subscript) and text_of(index_of(node))) or ""


def _batches(tree: Tree, home: Callable[[cst.CSTNode], Home]) -> Iterator[tuple[Home, cst.Tuple]]:
    """What loops over batches take apart, in their heads or first of all in their bodies."""
    for loop in tree.nodes(cst.For):
        assert isinstance(loop, cst.For)
        whole = {*names_bound(loop.target)}
        counts = any(called_name(one) in _COUNTS for one in tree.within(loop.iter, cst.Call))
        for taken in _tuples(loop.target):
            if not (counts and taken is loop.target):  # ``step, batch``
                yield home(loop), taken
        for line in loop.body.body:
            for part in line.body if isinstance(line, cst.SimpleStatementLine) else ():
                if not isinstance(part, cst.Assign) or not isinstance(part.value, cst.Name):
                    continue
                target = part.targets[0].target
                if part.value.value in whole and isinstance(target, cst.Tuple):
                    yield home(loop), target


def _tuples(target: cst.BaseExpression) -> Iterator[cst.Tuple]:
    """The innermost tuples of a target: ``(images, labels)`` of ``step, (images, labels)``."""
    if not isinstance(target, cst.Tuple):
        return
    inner = [one.value for one in target.elements if isinstance(one.value, cst.Tuple)]
    for one in inner:
        yield from _tuples(one)
    if not inner:
        yield target
