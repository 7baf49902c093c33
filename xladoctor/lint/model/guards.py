"""Conditions under which a node runs: branches, early returns, and who gets through them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.apart import alone
from xladoctor.lint.model.booleans import MASTERS
from xladoctor.lint.model.conditions import joined, meant, without_not
from xladoctor.lint.model.devices import Devices
from xladoctor.lint.model.dotted import dotted_text, is_name, last_name
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.model.loops import Guard, OnXla
from xladoctor.lint.model.masters import Masters
from xladoctor.lint.model.syntax import Function, children
from xladoctor.lint.model.turns import both_sides, leaves, refuses
from xladoctor.lint.model.values import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from xladoctor.lint.model.flow import Flow

#: By type and not by isinstance, which LibCST's abstract classes make slow.
_FUNCTION_TYPES = frozenset([cst.FunctionDef, cst.Lambda, cst.ClassDef])
#: Parents under which a node may run only sometimes.
_GUARDING = frozenset(
    [cst.If, cst.IfExp, cst.While, cst.BooleanOperation, cst.IndentedBlock, cst.Module]
)

#: What an import raises that finds nothing.
_NOT_THERE = frozenset({"ImportError", "ModuleNotFoundError"})
#: What reads a clock, and what compares with what it said.
_CLOCKS = frozenset(
    {
        *("time.time", "time.monotonic", "time.perf_counter", "time.time_ns"),
        *("timeit.default_timer", "datetime.datetime.now"),
    }
)
_ORDERS = cst.GreaterThan | cst.GreaterThanEqual | cst.LessThan | cst.LessThanEqual


class Guards:
    """Finds the conditions around a node.

    Args:
        flow: The program, and the values of its expressions.
        callers: The calls of a function, and those that have it run later.
    """

    def __init__(self, flow: Flow, callers: Callable[[Function], Sequence[cst.Call]]) -> None:
        self._tree = flow.tree
        self._names = flow.names
        self._flow = flow
        self._known: dict[cst.CSTNode, tuple[Guard, ...]] = {}
        self._masters = Masters(flow)
        self.devices = Devices(flow.tree, flow.names, self.around, callers, flow.belief.believes)

    def around(self, node: cst.CSTNode) -> Sequence[Guard]:
        """All conditions around a node within its function, innermost first."""
        waiting: list[cst.CSTNode] = []
        current: cst.CSTNode | None = node
        while current is not None and current not in self._known:
            waiting.append(current)
            current = self._tree.parents.get(current)
            if type(current) in _FUNCTION_TYPES:
                break
        for child in reversed(waiting):
            self._known[child] = self._find(child)
        return self._known[node]

    def master(self, node: cst.CSTNode) -> Guard | None:
        """The guard that lets only the master core through."""
        return next((guard for guard in self.around(node) if guard.master is True), None)

    def differs(self, node: cst.CSTNode) -> Guard | None:
        """A guard that may let one core through and not another."""
        cores = {Kind.CORE_NUMBER, Kind.IS_MASTER, Kind.NOT_MASTER}
        for guard in self.around(node):
            if not guard.inside and _refuses(guard.node):
                continue  # who is refused ends the whole run
            value = self._flow.value(guard.test)
            if guard.master is not None or value.kind in cores or value.local:
                return guard
            if self._asks_clock(guard.test):
                return guard
        return None

    def _asks_clock(self, node: cst.CSTNode, *, compared: bool = False, depth: int = 2) -> bool:
        """``time.time() - saved > 600``: no two processes read the same time.

        Also behind names that are bound once. What another call makes of it may be reduced.
        """
        if isinstance(node, cst.Call):
            return compared and self._names.resolve(node.func) in _CLOCKS
        if isinstance(node, cst.Name):
            made = self._tree.assigned_once(node) if depth else None
            return made is not None and self._asks_clock(made, compared=compared, depth=depth - 1)
        if isinstance(node, cst.Comparison):
            compared = isinstance(node.comparisons[0].operator, _ORDERS)
        return any(
            self._asks_clock(child, compared=compared, depth=depth) for child in children(node)
        )

    def _find(self, node: cst.CSTNode) -> tuple[Guard, ...]:
        """The guards of a node: those that its parent adds, and the parent's own."""
        parent = self._tree.parents.get(node)
        if parent is None or type(parent) in _FUNCTION_TYPES:
            if isinstance(parent, cst.FunctionDef) and node is parent.body:
                return (*self._decorating(parent), *self._defining(parent))
            return ()
        outer = self._known[parent]
        if type(parent) not in _GUARDING:
            return outer
        return (*self._added(parent, node), *outer)

    def _decorating(self, function: cst.FunctionDef) -> Iterator[Guard]:
        """``@rank_zero_only``, ``@accelerator.on_main_process``: the others call nothing."""
        for decorator in function.decorators:
            written = decorator.decorator
            dotted = self._names.resolve(written) or dotted_text(written) or ""
            if know.ON_MASTER.match(dotted.rpartition(".")[2]):
                yield Guard(function, written, when=True, written=written, inside=True, master=True)

    def _defining(self, function: cst.FunctionDef) -> Iterator[Guard]:
        """``if rank == 0: def save(): ...``: the others do not have it."""
        return (guard for guard in self.around(function) if guard.master is True)

    def _added(self, parent: cst.CSTNode, child: cst.CSTNode) -> Iterator[Guard]:
        if isinstance(parent, cst.If | cst.IfExp) and child is not parent.test:
            yield self._guard(parent, parent.test, when=child is parent.body)
        elif isinstance(parent, cst.While) and child is parent.body and not _always(parent.test):
            yield self._guard(parent, parent.test, when=True)
        elif isinstance(parent, cst.BooleanOperation) and child is parent.right:
            yield self._guard(parent, parent.left, when=isinstance(parent.operator, cst.And))
        elif isinstance(parent, cst.IndentedBlock | cst.Module):
            yield from self._left_before(parent.body, child)

    def _left_before(self, body: Sequence[cst.CSTNode], child: cst.CSTNode) -> Iterator[Guard]:
        for statement in body:
            if statement is child:
                return
            if type(statement) is cst.If:
                yield from self._behind(statement)
            elif type(statement) is cst.SimpleStatementLine:
                yield from self._asserted(statement)
            elif type(statement) is cst.Try and _looks_for_package(statement):
                yield from self._left_before(statement.body.body, statement)

    def _behind(self, branch: cst.If) -> Iterator[Guard]:
        """What an ``if`` before it says of a node: one of its branches ends the block."""
        if leaves(branch.body):
            yield self._guard(branch, branch.test, when=False)
        elif type(branch.orelse) is cst.Else and leaves(branch.orelse.body):
            yield self._guard(branch, branch.test, when=True)

    def _asserted(self, line: cst.SimpleStatementLine) -> Iterator[Guard]:
        """``assert not use_tpu``: of what is asserted only that this is no XLA device."""
        for part in line.body:
            if type(part) is cst.Assert:
                guard = self._guard(part, part.test, when=True)
                if guard.runs is OnXla.NO:
                    yield guard

    def _guard(self, node: cst.CSTNode, written: cst.BaseExpression, *, when: bool) -> Guard:
        inside = when
        asked, when = without_not(written, when=when)
        test, holds = meant(self._tree, asked, when=when)
        refused = not inside and _refuses(node)
        master = self._master(test, when=holds, refused=refused)
        if master is None and test is not asked:  # by its name alone: ``is_master = first()``
            master = self._master(asked, when=when, refused=refused)
        runs = self.devices.tests.of_guard(test, when=holds)
        if runs in {None, OnXla.MAYBE} and test is not asked:  # ``use_tpu = detect()``
            runs = self.devices.tests.of_guard(asked, when=when) or runs
        return Guard(node, test, holds, written, inside, master, runs)

    def _master(self, test: cst.BaseExpression, *, when: bool, refused: bool) -> bool | None:
        """Whether a condition lets the master alone through, or all but the master."""
        if sides := _among_several(test):
            return self._master(sides, when=when, refused=refused)
        kind = self._kind(test)
        if kind not in MASTERS and when:
            return True if self._asks_on_xla(test) else None
        if kind not in MASTERS:
            return None if refused else self._left_over(test)
        if (when or both_sides(test) is None) and not refused:
            return (kind is Kind.IS_MASTER) is when
        return None

    def _asks_on_xla(self, test: cst.BaseExpression) -> bool:
        """``not on_tpu or rank == 0``: on XLA devices this lets the master alone through.

        Also what ``def is_main(): return not on_tpu or rank == 0`` gives back.
        """
        for part in joined(self._answer(test), cst.And):
            ways = list(joined(part, cst.Or))
            left = [one for one in ways if self._may_hold(one)]
            if len(left) == 1 < len(ways) and self._kind(left[0]) is Kind.IS_MASTER:
                return True
        return False

    def _answer(self, test: cst.BaseExpression) -> cst.BaseExpression:
        """What a function of the program gives back that is asked, if it has one answer."""
        asked = self._flow.targets(test) if isinstance(test, cst.Call) else ()
        function = asked[0] if len(asked) == 1 else None
        answers = [*returned(function)] if isinstance(function, Function) else []
        return answers[0] if len(answers) == 1 else test

    def _may_hold(self, test: cst.BaseExpression) -> bool:
        """Whether a condition can hold on XLA devices."""
        asked, when = without_not(test, when=True)
        return self.devices.tests.of_guard(asked, when=when) is not OnXla.NO

    def _left_over(self, test: cst.BaseExpression) -> bool | None:
        """Who is left behind ``if not is_master or debug: return``: of all parts none holds."""
        sides = both_sides(test)
        if sides is None or sides[2]:
            return None
        for part in sides[:2]:
            kind = self._kind(part)
            if kind in MASTERS:
                return kind is Kind.NOT_MASTER
            inner = self._left_over(part)
            if inner is not None:
                return inner
        return None

    def _kind(self, test: cst.BaseExpression) -> Kind:
        """What a condition asks; ``due = due and is_master``, or False, asks for the master.

        ``if rank:`` holds on all cores but the master; ``if writer is not None:`` on the master, if
        it alone has made one.
        """
        kind = self._flow.value(test).kind
        if kind is Kind.CORE_NUMBER:
            return Kind.NOT_MASTER
        held = _held(test)
        if held is not None and self._masters.has(held[0]):
            return Kind.IS_MASTER if held[1] else Kind.NOT_MASTER
        sides = both_sides(test) if held is None else None
        if sides is not None and sides[2] and Kind.IS_MASTER in map(self._kind, sides[:2]):
            return Kind.IS_MASTER
        if kind is Kind.IS_MASTER or not isinstance(test, cst.Name):
            return kind
        asked, holds = meant(self._tree, test, when=True)
        if asked is not test and holds:  # a flag that ``if is_master:`` sets
            return self._kind(asked)
        bindings = self._tree.bindings(test)
        given = [one.node for one in bindings if not is_name(one.node, "False")]
        masters = [
            isinstance(one, cst.BaseExpression) and self._flow.value(one).kind is Kind.IS_MASTER
            for one in given
        ]
        return Kind.IS_MASTER if masters and all(masters) else kind


def _looks_for_package(node: cst.Try) -> bool:
    """``try: import torch_xla ...``, ``except ImportError``: with what it imports it runs whole."""
    return bool(node.handlers) and all(
        one.type is not None and last_name(one.type) in _NOT_THERE for one in node.handlers
    )


def _among_several(test: cst.BaseExpression) -> cst.BaseExpression | None:
    """``rank != 0`` of ``world_size > 1 and rank != 0``: one core alone is the master."""
    sides = both_sides(test)
    if sides is None or not sides[2]:
        return None
    one, other, _ = sides
    for several, left in ((one, other), (other, one)):
        if isinstance(several, cst.Comparison) and alone(several) is False:
            return left
    return None


def _held(test: cst.BaseExpression) -> tuple[cst.Name | cst.Attribute, bool] | None:
    """What a condition asks for being there, and whether it holds if it is."""
    if isinstance(test, cst.Name | cst.Attribute):
        return test, True
    if not isinstance(test, cst.Comparison) or not isinstance(test.left, cst.Name | cst.Attribute):
        return None
    (asked, *more) = test.comparisons
    if more or not is_name(asked.comparator, "None"):
        return None
    if isinstance(asked.operator, cst.Is | cst.Equal):
        return test.left, False
    if isinstance(asked.operator, cst.IsNot | cst.NotEqual):
        return test.left, True
    return None


def _refuses(node: cst.CSTNode) -> bool:
    """``if rank < 0 or rank >= world_size: raise``: nobody is meant to be left behind."""
    return refuses(node) and isinstance(node, cst.If) and isinstance(node.body, cst.IndentedBlock)


def _always(test: cst.BaseExpression) -> bool:
    """``while True:`` and ``while 1:`` decide nothing."""
    one = isinstance(test, cst.Integer) and test.value == "1"
    return one or is_name(test, "True")
