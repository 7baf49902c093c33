"""Which conditions hold every so many turns of a loop, or on its last turn only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import is_name, last_name
from xladoctor.lint.model.settings import Settings
from xladoctor.lint.model.syntax import walk
from xladoctor.lint.model.taken import taken, targets
from xladoctor.lint.model.turns import (
    at_end,
    both_sides,
    bound_in,
    by_accumulation,
    is_last,
    names_in,
)
from xladoctor.lint.model.values import Kind
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Callable

    from xladoctor.lint.model.flow import Flow

#: How many names a length is followed through.
_DEPTH = 2
#: Words of what is true now and then: the last step, or one that something asks for.
_FORCES = frozenset(
    ["force", "forced", "save", "last", "final", "done", "stop", "best", "milestone", "checkpoint"]
)
#: Words of a count of steps, of which a training takes thousands.
_STEPS = frozenset({"step", "steps", "iteration", "iterations"})
#: Words of lists of such counts.
_LISTS = _STEPS | {"milestones", "checkpoints"}
#: Words of which core it is, also of one of several groups: ``tensor_parallel_rank``.
_CORE = frozenset({"rank", "ordinal"})
#: What the Trainer of transformers is asked to do behind a step, now and then.
_CONTROLS = frozenset(
    ["should_log", "should_save", "should_evaluate", "should_epoch_stop", "should_training_stop"]
)


class Schedules:
    """Answers for conditions.

    Args:
        flow: The program, and the values of its expressions.
        within: Whether a loop runs whole in each turn of another: over the layers of a model.
    """

    def __init__(self, flow: Flow, within: Callable[[cst.CSTNode], bool]) -> None:
        self._tree = flow.tree
        self._names = flow.names
        self._flow = flow
        self._within = within
        self._settings = Settings(flow)

    def every_so_often(
        self, test: cst.BaseExpression, when: bool, depth: int = 3, *, steps: bool = False
    ) -> bool:
        """``step % 50 == 0``, ``not step % 50``, ``step == 0`` and names bound to such a test."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            return self.every_so_often(test.expression, not when, depth, steps=steps)
        if (asked := both_sides(test)) is not None:
            sides = asked[:2]
            parts = [self.every_so_often(part, when, depth, steps=steps) for part in sides]
            if asked[2] is when:
                return any(parts)
            # ``step % 100 == 0 or step < 5``: at the beginning each step is looked at.
            rare = zip(sides, parts, strict=True)
            return any(parts) and all(
                part or (when and (_first_few(side) or at_end(self._tree, side) or forces(side)))
                for side, part in rare
            )
        if self._of_layers(test):
            return False
        if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
            operator = test.comparisons[0].operator
            equal = isinstance(operator, cst.Equal)
            if equal or isinstance(operator, cst.NotEqual):
                if steps and by_accumulation(test.left):
                    return False
                return equal is when and self._counts(test) and not self._stands_still(test.left)
            return when and (self._wraps(test) or self._in_first_steps(test) or _is_listed(test))
        if isinstance(test, cst.BinaryOperation) and isinstance(test.operator, cst.Modulo):
            return not when and not (steps and by_accumulation(test))
        if isinstance(test, cst.Attribute):  # ``self.control.should_log`` of a Trainer
            of_control = last_name(test.value) == "control"
            return when and of_control and test.attr.value in _CONTROLS
        if isinstance(test, cst.Name) and depth:
            bindings = self._tree.bindings(test)
            return bool(bindings) and any(
                isinstance(item.node, cst.BaseExpression)
                and item.kind == "assign"
                and self.every_so_often(item.node, when, depth - 1, steps=steps)
                for item in bindings
            )
        return False

    def _in_first_steps(self, test: cst.Comparison) -> bool:
        """``if self.state.global_step < 5:``; ``while step < 5:`` has no more turns than that.

        Nor may a loop over ``i`` have.
        """
        if not _first_few(test) or _STEPS.isdisjoint(words(last_name(test.left))):
            return False
        asking = (cst.If, cst.IfExp, cst.While)
        around = (one for one in self._tree.ancestors(test) if isinstance(one, asking))
        return not isinstance(next(around, None), cst.While)

    def _of_layers(self, test: cst.BaseExpression) -> bool:
        """``for i, layer in enumerate(self.layers): if i == 0:``, which each step comes to."""
        if not isinstance(test, cst.Comparison | cst.BinaryOperation):
            return False
        asked = [part for part in walk(test) if isinstance(part, cst.Name)]
        counted = [[one.node for one in self._tree.bindings(name)] for name in asked]
        return any(bound and all(map(self._is_of_layers, bound)) for bound in counted)

    def _is_of_layers(self, target: cst.CSTNode) -> bool:
        part = taken(self._tree, target)
        return part is not None and self._within(part.line)

    def _stands_still(self, node: cst.BaseExpression) -> bool:
        """``step % 10`` of a step that nobody counts up, and ``step % 1``: always the same."""
        if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.Modulo):
            return False
        if self._is_one(node.right):
            return True
        if not isinstance(node.left, cst.Name):
            return False
        bindings = self._tree.bindings(node.left)
        return bool(bindings) and all(
            item.kind == "assign" and isinstance(item.node, cst.Integer) for item in bindings
        )

    def _is_one(self, node: cst.BaseExpression) -> bool:
        """``1``, or a name that is given nothing else: ``log_interval = 1``."""
        if isinstance(node, cst.Name):
            bindings = self._tree.bindings(node)
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
        if any(self._flow.value(side).kind in cores or _of_core(side) for side in sides):
            return False
        if self._is_turn(*sides) or self._is_turn(*reversed(sides)):
            return True
        return any(isinstance(side, cst.Integer | cst.BinaryOperation) for side in sides) and any(
            isinstance(side, cst.Name | cst.Attribute) and not self._settings.hold(side)
            for side in sides
        )

    def _is_turn(self, count: cst.BaseExpression, one: cst.BaseExpression) -> bool:
        """``step == profile_step``: the count of a loop, and what it does not change."""
        if isinstance(count, cst.Attribute):
            return self._is_counted(count) and self._is_fixed(one)
        if not isinstance(count, cst.Name) or not isinstance(one, cst.Name | cst.Attribute):
            return False
        around = (n for n in self._tree.ancestors(count) if isinstance(n, cst.For | cst.While))
        loop = next((node for node in around if self._is_counter(count.value, node)), None)
        return loop is not None and not names_in(one) & bound_in(loop)

    def _is_counted(self, count: cst.Attribute) -> bool:
        """``self.state.global_step``, which something counts up: ``state.global_step += 1``."""
        name = count.attr.value
        return not _STEPS.isdisjoint(words(name)) and any(
            isinstance(line.target, cst.Attribute)
            and line.target.attr.value == name
            and _one(line.value)
            for line in self._tree.nodes(cst.AugAssign)
        )

    def _is_fixed(self, node: cst.BaseExpression) -> bool:
        """``self.config.profile_step``, which nothing sets but where its object is made."""
        if not isinstance(node, cst.Attribute):
            return False
        setting = (
            line
            for line in self._tree.nodes(cst.Assign, cst.AugAssign)
            for target in targets(line)
            if isinstance(target, cst.Attribute) and target.attr.value == node.attr.value
        )
        homes = (self._tree.function_of(line) for line in setting)
        return all(home is not None and home.name == "__init__" for home in homes)

    def _is_counter(self, name: str, loop: cst.For | cst.While) -> bool:
        """Whether a name counts the turns of a loop: also ``while True: ...; step += 1``."""
        if isinstance(loop, cst.For):
            return self._counter(loop) == name
        return any(
            isinstance(part, cst.AugAssign) and is_name(part.target, name) and _one(part.value)
            for line in loop.body.body
            if isinstance(line, cst.SimpleStatementLine)
            for part in line.body
        )

    def _counter(self, loop: cst.For) -> str | None:
        """The name that counts the turns of a loop: ``for i, x in enumerate(xs)``."""
        made = self._names.resolve(loop.iter.func) if isinstance(loop.iter, cst.Call) else None
        target: cst.BaseExpression = loop.target
        if made == "builtins.enumerate" and isinstance(target, cst.Tuple):
            target = target.elements[0].value
        elif made != "builtins.range":
            return None
        return target.value if isinstance(target, cst.Name) else None

    def _is_length(self, node: cst.BaseExpression) -> bool:
        for _ in range(_DEPTH):  # last = len(loader) - 1
            while isinstance(node, cst.BinaryOperation):
                node = node.left
            if not isinstance(node, cst.Name):
                break
            bindings = self._tree.bindings(node)
            made = bindings[0].node if len(bindings) == 1 else None
            if not isinstance(made, cst.BinaryOperation | cst.Call):
                return False
            node = made
        if not isinstance(node, cst.Call) or self._names.resolve(node.func) != "builtins.len":
            return False
        # How many samples a batch has does not count turns.
        tensors = {Kind.DEVICE_TENSOR, Kind.CPU_TENSOR}
        return not any(self._flow.value(argument.value).kind in tensors for argument in node.args)


def forces(side: cst.BaseExpression) -> bool:
    """``force_save`` of ``step % 100 == 0 or force_save``: now and then besides."""
    name = side.attr if isinstance(side, cst.Attribute) else side
    return isinstance(name, cst.Name) and not _FORCES.isdisjoint(words(name.value))


def _one(node: cst.CSTNode | None) -> bool:
    return isinstance(node, cst.Integer) and node.value == "1"


def _first_few(test: cst.BaseExpression) -> bool:
    """Whether a condition is one like ``step < 5``."""
    return (
        isinstance(test, cst.Comparison)
        and len(test.comparisons) == 1
        and isinstance(test.left, cst.Name | cst.Attribute)
        and isinstance(test.comparisons[0].operator, cst.LessThan | cst.LessThanEqual)
        and isinstance(test.comparisons[0].comparator, cst.Integer)
    )


def _is_listed(test: cst.Comparison) -> bool:
    """``if step in logging_steps:``, ``if epoch in self.milestones:``."""
    if not isinstance(test.comparisons[0].operator, cst.In):
        return False
    count, listed = test.left, test.comparisons[0].comparator
    if not all(isinstance(one, cst.Name | cst.Attribute) for one in (count, listed)):
        return False
    return bool(words(last_name(count)) & _STEPS and words(last_name(listed)) & _LISTS)


def _of_core(node: cst.BaseExpression) -> bool:
    return not _CORE.isdisjoint(words(last_name(node)))
