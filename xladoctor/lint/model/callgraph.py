"""Which function calls which: the calls of each, and what they run."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.syntax import Class

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.syntax import Function

#: How many calls further on counts as near.
_DEPTH = 3
#: How many calls deep a node may stand in what a loop runs.
_CHAIN = 6
#: Lines of a method that a subclass has to write: its text, and ``raise NotImplementedError``.
_SHORT = 2
#: Methods that ``with Timer():`` runs of the object that is made there.
_MANAGES = ("__enter__", "__exit__")
_TEXT = (cst.SimpleString, cst.ConcatenatedString, cst.Ellipsis)


class CallGraph:
    """The calls of each function, and the functions that they run.

    Args:
        flow: The program, and the values of its expressions.
    """

    def __init__(self, flow: Flow) -> None:
        self._tree = flow.tree
        self._flow = flow
        self._reach: dict[cst.CSTNode, Sequence[cst.Call]] = {}
        #: The function around each call.
        self.home = {call: flow.tree.function_of(call) for call in flow.tree.calls}
        self._nearby: dict[Function, set[Function]] = {}
        self._called_in: dict[Function, set[Function]] = {}

    def reaches(self, call: cst.Call, wanted: set[Function | None]) -> bool:
        """Whether a call runs one of some functions, by itself or a few calls further on."""
        target = self.called(call)
        return target is not None and not wanted.isdisjoint(self._near(target))

    def _near(self, function: Function) -> set[Function]:
        """A function, those that it calls, and so on."""
        if function not in self._nearby:
            found = frontier = {function}
            for _ in range(_DEPTH - 1):
                frontier = {inner for one in frontier for inner in self._callees(one)} - found
                found = found | frontier
            self._nearby[function] = found
        return self._nearby[function]

    def _callees(self, function: Function) -> set[Function]:
        if function not in self._called_in:
            called = (self.called(call) for call in self.calls_in(function))
            self._called_in[function] = {one for one in called if one is not None}
        return self._called_in[function]

    @functools.cached_property
    def _by_home(self) -> dict[Function | None, list[cst.Call]]:
        found: dict[Function | None, list[cst.Call]] = {}
        for call, home in self.home.items():
            found.setdefault(home, []).append(call)
        return found

    def calls_in(self, function: Function | None) -> Sequence[cst.Call]:
        """The calls that stand in a function (None: in the module), not in functions within it."""
        return self._by_home.get(function, ())

    def runs(self, call: cst.Call) -> Iterator[Function]:
        """The functions of the file that a call may run, of a class its ``__init__``."""
        for target in self._flow.targets(call):
            function = (
                self._flow.classes.method(target, "__init__")
                if isinstance(target, Class)
                else target
            )
            if function is not None:
                yield function
            if isinstance(target, Class) and isinstance(self._tree.parents.get(call), cst.WithItem):
                methods = (self._flow.classes.method(target, name) for name in _MANAGES)
                yield from (method for method in methods if method is not None)

    def called(self, call: cst.Call) -> Function | None:
        """The function of the file that a call runs; of a class, its ``__init__``."""
        target = self._flow.target(call)
        if isinstance(target, Class):
            return self._flow.classes.method(target, "__init__")
        if target is not None and _is_left_open(target):
            # ``self.train_step(batch)`` of a base class: a subclass says what it does.
            return next((one for one in self.runs(call) if not _is_left_open(one)), target)
        return target

    def reached(self, node: cst.CSTNode) -> Sequence[cst.Call]:
        """The calls in a node, and in the functions of the file that they run."""
        if node not in self._reach:
            self._reach[node] = self._find_reached(node)
        return self._reach[node]

    def _find_reached(self, node: cst.CSTNode) -> Sequence[cst.Call]:
        dead = self._tree.unreached
        found = dict.fromkeys(x for x in self._tree.within(node, cst.Call) if x not in dead)
        frontier = list(found)
        seen: set[Function] = set()
        for _ in range(_CHAIN):
            targets = {target for call in frontier for target in self.runs(call)} - seen
            frontier = [call for target in targets for call in self.calls_in(target)]
            found.update(dict.fromkeys(frontier))
            seen |= targets
        return sorted(found, key=self._tree.order.__getitem__)


def _is_left_open(function: Function) -> bool:
    """Whether a method does nothing, or raises: ``raise NotImplementedError``, ``pass``."""
    body = function.node.body
    if function.owner is None or not isinstance(body, cst.IndentedBlock) or len(body.body) > _SHORT:
        return False
    return all(
        isinstance(part, cst.Pass | cst.Raise)
        or (isinstance(part, cst.Expr) and isinstance(part.value, _TEXT))
        for line in body.body
        for part in (line.body if isinstance(line, cst.SimpleStatementLine) else [line])
    )
