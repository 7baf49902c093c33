"""Which lines give a name, or an attribute of the object, what it holds where it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

from xladoctor.lint.model.dotted import dotted_text, is_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Function

_LINES = (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.NamedExpr, cst.For, cst.CompFor, cst.Call)
#: Methods that put something into a list, a set, a dictionary or a meter.
PUTS = frozenset(
    {"append", "extend", "add", "insert", "update", "add_batch", "appendleft", "put", "accumulate"}
)
_BLOCKS = (cst.IndentedBlock, cst.SimpleStatementSuite, cst.Module)


class Given(NamedTuple):
    """One way in which a name gets what it holds, or some of it.

    Attributes:
        line: The assignment, the loop or the call.
        value: What is assigned or gone over; None for a call, which has arguments.
        places: Where in the target the name stands: (1,) for ``b`` of ``a, b = pair``.
        anew: Whether nothing is left of what it held before.
    """

    line: cst.CSTNode
    value: cst.BaseExpression | None
    places: tuple[int, ...]
    anew: bool

    @property
    def is_loop(self) -> bool:
        """Whether the name is what a loop goes over."""
        return isinstance(self.line, cst.For | cst.CompFor)

    @property
    def adds(self) -> bool:
        """Whether it is one of several that the name holds in the end, or holds the sum of."""
        return not self.anew


class GivenNames:
    """What is given to the names of a program, function by function, found when it is asked for.

    Args:
        model: The file that asks.
    """

    def __init__(self, model: FileModel) -> None:
        self._model = model
        self._known: dict[cst.CSTNode, dict[str, list[Given]]] = {}

    def to(self, node: cst.Name | cst.Attribute) -> Sequence[Given] | None:
        """What gives a name what it holds where it stands.

        None where its own function gives it nothing: it is a parameter, or another's.
        """
        model, text = self._model, dotted_text(node)
        if text is None:
            return None
        for outer in model.functions_around(node):
            given = self._in(outer).get(text, [])
            if given:
                return self._reaching(node, given, inside=outer is model.function_of(node))
            if text in (*outer.parameters, *outer.keyword_only):
                return None
        home = model.file_with(node)
        found = self._of_file(text, home) if isinstance(node, cst.Name) else []
        return self._reaching(node, found, inside=model.function_of(node) is None) or None

    def kept(self, node: cst.BaseExpression) -> Sequence[Given] | None:
        """What the methods of a class give to ``self.x``, wherever it is read; None of others."""
        owner = self._model.class_around(node) if isinstance(node, cst.Attribute) else None
        if owner is None or not isinstance(node, cst.Attribute) or not is_name(node.value, "self"):
            return None
        text = f"self.{node.attr.value}"
        return [one for method in owner.methods.values() for one in self._in(method).get(text, [])]

    def _of_file(self, name: str, home: FileModel) -> list[Given]:
        """What a file gives a name of its own, also in functions with ``global name``."""
        found = self._in(None, home).get(name, [])
        for line in home.nodes(cst.Global):
            function = home.function_of(line)
            if function is not None and any(is_name(one.name, name) for one in line.names):
                found = [*found, *self._in(function).get(name, [])]
        return found

    def _in(
        self, function: Function | None, home: FileModel | None = None
    ) -> dict[str, list[Given]]:
        node = function.node if function is not None else (home or self._model).tree.module
        if node not in self._known:
            found: dict[str, list[Given]] = {}
            for kind in _LINES:
                for line in self._model.within(node, kind):
                    if self._model.function_of(line) is function:
                        for text, given in self._of_line(line):
                            found.setdefault(text, []).append(given)
            self._known[node] = found
        return self._known[node]

    def _of_line(self, line: cst.CSTNode) -> Iterator[tuple[str, Given]]:
        if isinstance(line, cst.Call):
            call = self._model.call(line)
            if call.method in PUTS and call.receiver is not None:
                yield from _to(call.receiver, Given(line, None, (), anew=False))
            return
        if isinstance(line, cst.Assign):
            for one in line.targets:
                yield from _to(one.target, Given(line, line.value, (), anew=True))
        elif isinstance(line, cst.AugAssign):
            # ``loss /= count`` is no sum of several.
            adds = isinstance(line.operator, cst.AddAssign | cst.SubtractAssign)
            yield from _to(line.target, Given(line, line.value, (), anew=False), adds)
        elif isinstance(line, cst.For | cst.CompFor):
            yield from _to(line.target, Given(line, line.iter, (), anew=True))
        elif isinstance(line, cst.AnnAssign | cst.NamedExpr):
            yield from _to(line.target, Given(line, line.value, (), anew=True))

    def _reaching(
        self, node: cst.CSTNode, given: Sequence[Given], *, inside: bool
    ) -> Sequence[Given]:
        """Those whose value may still be there, by the blocks and loops around them."""
        model = self._model
        order = model.file_with(node).tree.order
        around = [node, *model.file_with(node).tree.ancestors(node)]
        own = [one for one in given if isinstance(one.line, cst.CompFor)]
        for one in own:  # the names of a comprehension are its own
            if any(part in around for part in _comprehensions(model, one.line)):
                return [one]
        given = [one for one in given if one not in own]
        if not inside:
            return given
        known = set(around)
        before = [one for one in given if self._is_before(one, order, node, known)]
        sure = [one for one in before if one.anew and self._is_sure(one, known)]
        last = max(sure, key=lambda one: order[one.line], default=None)
        found = [] if last is None else [last]
        turns = {part for part in around if isinstance(part, cst.For | cst.While)}
        if last is not None:
            turns -= set(model.file_with(node).tree.ancestors(last.line)) | {last.line}
        for one in given:
            behind = last is None or order[one.line] > order[last.line]
            again = not turns.isdisjoint(model.file_with(node).tree.ancestors(one.line))
            if one is not last and behind and (one in before or again):
                found.append(one)
        return found

    def _is_before(
        self, one: Given, order: dict[cst.CSTNode, int], node: cst.CSTNode, known: set[cst.CSTNode]
    ) -> bool:
        if isinstance(one.line, cst.For):
            return one.line.body in known or order[one.line] < order[node]
        return one.line not in known and order[one.line] < order[node]

    def _is_sure(self, one: Given, known: set[cst.CSTNode]) -> bool:
        """Whether who comes to the node has come through the line: its block is around the node."""
        if isinstance(one.line, cst.For):
            return one.line.body in known
        block: cst.CSTNode | None = self._model.parent(one.line)
        while block is not None and not (
            isinstance(block, _BLOCKS) and not isinstance(self._model.parent(block), cst.With)
        ):
            block = self._model.parent(block)
        return block in known


def _to(target: cst.CSTNode, given: Given, adds: bool = True) -> Iterator[tuple[str, Given]]:
    """The names that a target sets, with their places in it."""
    if isinstance(target, cst.Tuple | cst.List):
        for at, element in enumerate(target.elements):
            yield from _to(element.value, given._replace(places=(*given.places, at)), adds)
        return
    while isinstance(target, cst.Subscript):
        target, given = target.value, given._replace(anew=False)
    if isinstance(target, cst.Name | cst.Attribute) and adds:
        text = dotted_text(target)
        if text is not None:
            yield text, given


def _comprehensions(model: FileModel, line: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The comprehension that a ``for`` is of, whose names those of its target are."""
    parent = model.parent(line)
    while isinstance(parent, cst.CompFor):
        parent = model.parent(parent)
    if parent is not None:
        yield parent


def brought(model: FileModel, given: Given) -> CallSite | None:
    """The call that puts something in, if it is one."""
    return model.call(given.line) if isinstance(given.line, cst.Call) else None
