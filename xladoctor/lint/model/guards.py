"""Conditions under which a node runs: branches, early returns, every-N-steps tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.devices import Devices
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.loops import Guard
from xladoctor.lint.model.syntax import walk
from xladoctor.lint.model.turns import (
    Turns,
    at_end,
    both_sides,
    bound_in,
    by_accumulation,
    is_larger,
    is_last,
    leaves,
    names_in,
)
from xladoctor.lint.model.values import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.names import LinkedNames, Names
    from xladoctor.lint.model.syntax import Function, Tree

#: How many names a length is followed through.
_DEPTH = 2
_LEAVE = cst.Return | cst.Raise | cst.Continue | cst.Break
_FUNCTIONS = cst.FunctionDef | cst.Lambda | cst.ClassDef
#: By type and not by isinstance, which LibCST's abstract classes make slow.
_FUNCTION_TYPES = frozenset([cst.FunctionDef, cst.Lambda, cst.ClassDef])
#: Parents under which a node may run only sometimes.
_GUARDING = frozenset(
    [cst.If, cst.IfExp, cst.While, cst.BooleanOperation, cst.IndentedBlock, cst.Module]
)


class Guards:
    """Finds the conditions around a node.

    Args:
        tree: The file's syntax.
        names: What its names are bound to.
        flow: The values of its expressions.
        callers: The calls of a function, and those that have it run later.
    """

    def __init__(
        self,
        tree: Tree,
        names: Names | LinkedNames,
        flow: Flow,
        callers: Callable[[Function], Sequence[cst.Call]],
    ) -> None:
        self._tree = tree
        self._names = names
        self._flow = flow
        self._known: dict[cst.CSTNode, tuple[Guard, ...]] = {}
        self._turns = Turns(tree, flow)
        self.devices = Devices(tree, names, self.around, callers, flow.believes)

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
            value = self._flow.value(guard.test)
            if guard.master is not None or value.kind in cores or value.local:
                return guard
        return None

    def rare(self, node: cst.CSTNode, *, of_batches: bool = False) -> bool:
        """Whether a node runs only in a few iterations of the loop around it, or on failure.

        Where gradients are added up, a step takes several batches (``of_batches``: ask for these).
        """
        child = node
        leaving: list[bool] = []
        for parent in self._tree.ancestors(node):
            if isinstance(parent, cst.Raise | cst.ExceptHandler):
                return True
            if isinstance(parent, _FUNCTIONS | cst.For | cst.While):
                # ``return`` ends a loop of the function, but not the one that calls the function.
                in_loop = isinstance(parent, cst.For | cst.While)
                if any(in_loop or not returns for returns in leaving):
                    return True
                break
            if isinstance(parent, cst.If) and child is not parent.test:
                last = _leaves_loop(child)
                if last is not None:
                    leaving.append(isinstance(last, cst.Return))
            child = parent
        return any(
            self._every_so_often(guard.test, guard.when, steps=not of_batches)
            or self._on_fault(guard)
            or self._since_last(guard)
            or self._once(guard)
            for guard in self.around(node)
            if self._same_loop(guard, node)
            and not self._only_of_epoch(guard)
            and (of_batches or not self._turns.hold_step(guard))
        )

    def _since_last(self, guard: Guard) -> bool:
        """``if step - last_saved >= 100:``, where the branch then sets ``last_saved = step``."""
        test = guard.test
        if not guard.when or not isinstance(guard.node, cst.If) or not is_larger(test):
            return False
        assert isinstance(test, cst.Comparison)
        left = test.left
        if not isinstance(left, cst.BinaryOperation) or not isinstance(left.operator, cst.Subtract):
            return False
        since = self._tree.text(left.right).strip()
        return isinstance(left.right, cst.Name | cst.Attribute) and any(
            isinstance(part, cst.AssignTarget) and self._tree.text(part.target).strip() == since
            for part in walk(guard.node.body, into_functions=False)
        )

    def _once(self, guard: Guard) -> bool:
        """``if self.queue is None:`` and ``if not hasattr(self, "queue"):``, which then make it.

        Also ``if not saved:``, which then says ``saved = True``.
        """
        if not isinstance(guard.node, cst.If):
            return False
        if self._sets_flag(guard.node, guard.test, when=guard.when):
            return True
        made = self._missing(guard.test, when=guard.when)
        body = guard.node.body if guard.when else guard.node.orelse
        return (
            made is not None
            and body is not None
            and any(
                isinstance(part, cst.AssignTarget) and self._tree.text(part.target).strip() == made
                for part in walk(body, into_functions=False)
            )
        )

    def _sets_flag(self, node: cst.If, test: cst.BaseExpression, *, when: bool) -> bool:
        """Whether a condition on a flag turns it, so that it holds once."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            return self._sets_flag(node, test.expression, when=not when)
        if not isinstance(test, cst.Name | cst.Attribute):
            return False
        flag, turned = self._tree.text(test).strip(), str(not when)
        body = node.body.body
        return any(
            isinstance(part, cst.Assign)
            and is_name(part.value, turned)
            and self._tree.text(part.targets[0].target).strip() == flag
            for line in body
            if isinstance(line, cst.SimpleStatementLine)
            for part in line.body
        )

    def _missing(self, test: cst.BaseExpression, *, when: bool) -> str | None:
        """The attribute that is not there yet where a condition is (not) so."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            return self._missing(test.expression, when=not when)
        if isinstance(test, cst.Call) and self._names.resolve(test.func) == "builtins.hasattr":
            given = [argument.value for argument in test.args]
            if when or len(given) != 2 or not isinstance(given[1], cst.SimpleString):
                return None
            return f"{self._tree.text(given[0]).strip()}.{given[1].raw_value}"
        if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
            operator, right = test.comparisons[0].operator, test.comparisons[0].comparator
            none = isinstance(right, cst.Name) and right.value == "None"
            if none and isinstance(operator, cst.Is if when else cst.IsNot):
                kept = isinstance(test.left, cst.Attribute)
                return self._tree.text(test.left).strip() if kept else None
        return None

    def _on_fault(self, guard: Guard) -> bool:
        """``if not torch.isfinite(loss):`` and ``if loss.isnan().any():``."""
        test, when = guard.test, guard.when
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            test, when = test.expression, not when
        asked = {
            part.func.attr.value if isinstance(part.func, cst.Attribute) else part.func.value
            for part in walk(test)
            if isinstance(part, cst.Call) and isinstance(part.func, cst.Attribute | cst.Name)
        }
        if any(isinstance(part, cst.Not | cst.And) for part in walk(test)):
            return False
        return bool(asked & {"isnan", "isinf"}) if when else "isfinite" in asked

    def _only_of_epoch(self, guard: Guard) -> bool:
        """``if epoch % 10 == 0:`` within the step loop: true on each step of such an epoch."""
        asked = {part.value for part in walk(guard.test) if isinstance(part, cst.Name)}
        loops = [x for x in self._tree.ancestors(guard.node) if isinstance(x, cst.For | cst.While)]
        if len(loops) < 2 or asked & bound_in(loops[0]):
            return False
        return any(isinstance(x, cst.For) and asked & names_in(x.target) for x in loops[1:])

    def _same_loop(self, guard: Guard, node: cst.CSTNode) -> bool:
        """``if epoch % 10 == 0:`` around the whole step loop does not make its steps rare."""
        for parent in self._tree.ancestors(node):
            if parent is guard.node:
                return True
            if isinstance(parent, cst.For | cst.While):
                return parent in self._tree.ancestors(guard.node)
        return True

    def _find(self, node: cst.CSTNode) -> tuple[Guard, ...]:
        """The guards of a node: those that its parent adds, and the parent's own."""
        parent = self._tree.parents.get(node)
        if parent is None or type(parent) in _FUNCTION_TYPES:
            return ()
        outer = self._known[parent]
        if type(parent) not in _GUARDING:
            return outer
        return (*self._added(parent, node), *outer)

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
            if type(statement) is cst.If and leaves(statement.body):
                yield self._guard(statement, statement.test, when=False)

    def _guard(self, node: cst.CSTNode, test: cst.BaseExpression, *, when: bool) -> Guard:
        kind = self._kind(test)
        master: bool | None = None
        if kind in {Kind.IS_MASTER, Kind.NOT_MASTER}:
            if when or both_sides(test) is None:
                master = (kind is Kind.IS_MASTER) is when
        elif not when:
            master = self._left_over(test)
        return Guard(node, test, when, master, self.devices.of_guard(test, when=when))

    def _left_over(self, test: cst.BaseExpression) -> bool | None:
        """Who is left behind ``if not is_master or debug: return``: of all parts none holds."""
        sides = both_sides(test)
        if sides is None or sides[2]:
            return None
        for part in sides[:2]:
            kind = self._kind(part)
            if kind in {Kind.IS_MASTER, Kind.NOT_MASTER}:
                return kind is Kind.NOT_MASTER
            inner = self._left_over(part)
            if inner is not None:
                return inner
        return None

    def _kind(self, test: cst.BaseExpression) -> Kind:
        """What a condition asks; ``due = due and is_master``, or False, asks for the master."""
        kind = self._flow.value(test).kind
        if kind is Kind.IS_MASTER or not isinstance(test, cst.Name):
            return kind
        bindings = self._names.lookup(test.value, self._tree.scopes[test]) or []
        given = [one.node for one in bindings if not _is_false(one.node)]
        masters = [
            isinstance(one, cst.BaseExpression) and self._flow.value(one).kind is Kind.IS_MASTER
            for one in given
        ]
        return Kind.IS_MASTER if masters and all(masters) else kind

    def _every_so_often(
        self, test: cst.BaseExpression, when: bool, depth: int = 3, *, steps: bool = False
    ) -> bool:
        """``step % 50 == 0``, ``not step % 50``, ``step == 0`` and names bound to such a test."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            return self._every_so_often(test.expression, not when, depth, steps=steps)
        if (asked := both_sides(test)) is not None:
            sides = asked[:2]
            parts = [self._every_so_often(part, when, depth, steps=steps) for part in sides]
            if asked[2] is when:
                return any(parts)
            # ``step % 100 == 0 or step < 5``: at the beginning each step is looked at.
            rare = zip(sides, parts, strict=True)
            return any(parts) and all(
                part or (when and (_first_few(side) or at_end(self._tree, side)))
                for side, part in rare
            )
        if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
            operator = test.comparisons[0].operator
            equal = isinstance(operator, cst.Equal)
            if equal or isinstance(operator, cst.NotEqual):
                if steps and by_accumulation(test.left):
                    return False
                return equal is when and self._counts(test) and not self._stands_still(test.left)
            return when and self._wraps(test)
        if isinstance(test, cst.BinaryOperation) and isinstance(test.operator, cst.Modulo):
            return not when and not (steps and by_accumulation(test))
        if isinstance(test, cst.Name) and depth:
            bindings = self._names.lookup(test.value, self._tree.scopes[test]) or []
            return bool(bindings) and any(
                isinstance(item.node, cst.BaseExpression)
                and item.kind == "assign"
                and self._every_so_often(item.node, when, depth - 1, steps=steps)
                for item in bindings
            )
        return False

    def _stands_still(self, node: cst.BaseExpression) -> bool:
        """``step % 10`` of a step that nobody counts up, and ``step % 1``: always the same."""
        if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.Modulo):
            return False
        if self._is_one(node.right):
            return True
        if not isinstance(node.left, cst.Name):
            return False
        bindings = self._names.lookup(node.left.value, self._tree.scopes[node.left]) or []
        return bool(bindings) and all(
            item.kind == "assign" and isinstance(item.node, cst.Integer) for item in bindings
        )

    def _is_one(self, node: cst.BaseExpression) -> bool:
        """``1``, or a name that is given nothing else: ``log_interval = 1``."""
        if isinstance(node, cst.Name):
            bindings = self._names.lookup(node.value, self._tree.scopes[node]) or []
            given = [item.node for item in bindings if item.kind == "assign"]
            return bool(given) and len(given) == len(bindings) and all(map(_one, given))
        return _one(node)

    def _wraps(self, test: cst.Comparison) -> bool:
        """Whether a count has come round: ``step * cores % 500 < cores``, ``a % n > b % n``."""
        sides = (test.left, test.comparisons[0].comparator)
        modulos = [
            side
            for side in sides
            if isinstance(side, cst.BinaryOperation) and isinstance(side.operator, cst.Modulo)
        ]
        if len(modulos) == 2:
            one, other = (self._tree.text(side.right) for side in modulos)
            return one == other
        less = isinstance(test.comparisons[0].operator, cst.LessThan)
        if not modulos or modulos[0] is not (sides[0] if less else sides[1]):
            return False
        stride = sides[1] if less else sides[0]
        text = self._tree.text(stride)
        return any(
            isinstance(part, cst.BaseExpression) and self._tree.text(part) == text
            for part in walk(modulos[0].left)
        )

    def _counts(self, test: cst.Comparison) -> bool:
        if any(isinstance(node, cst.Modulo) for node in walk(test)):
            return True
        sides = (test.left, test.comparisons[0].comparator)
        if any(self._is_length(side) for side in sides):  # the last step: i + 1 == len(loader)
            return any(isinstance(side, cst.Name | cst.BinaryOperation) for side in sides)
        if is_last(self._tree, *sides) or is_last(self._tree, *reversed(sides)):
            return True
        cores = {Kind.CORE_NUMBER, Kind.DEVICE_TENSOR, Kind.CPU_TENSOR, Kind.CONTAINER}
        return (
            any(isinstance(side, cst.Integer | cst.BinaryOperation) for side in sides)
            and any(isinstance(side, cst.Name | cst.Attribute) for side in sides)
            and not any(self._flow.value(side).kind in cores for side in sides)
        )

    def _is_length(self, node: cst.BaseExpression) -> bool:
        for _ in range(_DEPTH):  # last = len(loader) - 1
            while isinstance(node, cst.BinaryOperation):
                node = node.left
            if not isinstance(node, cst.Name):
                break
            bindings = self._names.lookup(node.value, self._tree.scopes[node]) or []
            made = bindings[0].node if len(bindings) == 1 else None
            if not isinstance(made, cst.BinaryOperation | cst.Call):
                return False
            node = made
        return isinstance(node, cst.Call) and self._names.resolve(node.func) == "builtins.len"


def _one(node: cst.CSTNode | None) -> bool:
    return isinstance(node, cst.Integer) and node.value == "1"


def _always(test: cst.BaseExpression) -> bool:
    """``while True:`` and ``while 1:`` decide nothing."""
    return _one(test) or is_name(test, "True")


def _is_false(node: cst.CSTNode | None) -> bool:
    return isinstance(node, cst.Name) and node.value == "False"


def _first_few(test: cst.BaseExpression) -> bool:
    """Whether a condition is one like ``step < 5``."""
    return (
        isinstance(test, cst.Comparison)
        and len(test.comparisons) == 1
        and isinstance(test.left, cst.Name | cst.Attribute)
        and isinstance(test.comparisons[0].operator, cst.LessThan | cst.LessThanEqual)
        and isinstance(test.comparisons[0].comparator, cst.Integer)
    )


def _leaves_loop(node: cst.CSTNode) -> cst.CSTNode | None:
    """What ends the loop that a branch stands in, so that it runs at most once."""
    if isinstance(node, cst.Else):
        node = node.body
    if not isinstance(node, cst.BaseSuite) or not node.body:
        return None
    last = node.body[-1]
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    return last if isinstance(last, cst.Raise | cst.Break | cst.Return) else None
