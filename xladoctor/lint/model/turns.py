"""Turns of loops: which are the last, and in which branch of a turn the optimizer steps."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import last_name, string
from xladoctor.lint.model.syntax import Function, walk
from xladoctor.lint.model.values import Kind
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.loops import Guard
    from xladoctor.lint.model.syntax import Tree

_LEAVE = cst.Return | cst.Raise | cst.Continue | cst.Break
#: How many calls deep the optimizer may step.
_DEPTH = 3
_ACCUMULATES = re.compile(
    r"accum|(^|_)grad(ient)?_acc(_|$)|^acc_(steps?|iters?|batches)$", re.IGNORECASE
)
#: Words of the number at which a loop ends.
_LAST = frozenset({"max", "total", "last", "end", "final", "num", "n", "steps", "iters", "epochs"})


class Turns:
    """Answers for the branches of a file.

    Args:
        flow: The program, and the values of its expressions.
    """

    def __init__(self, flow: Flow) -> None:
        self._tree = flow.tree
        self._flow = flow
        self._steps: dict[tuple[cst.CSTNode, bool], bool] = {}
        self._taking: dict[tuple[Function, int], bool] = {}

    def hold_step(self, guard: Guard) -> bool:
        """``if (i + 1) % accumulate == 0: optimizer.step()``: true on every step, then.

        Also ``if steps % 4 == 0: agent.learn()``, in the loop or in a method that it calls. Not
        where the loop steps elsewhere too: a generator has its turn every so many steps.
        """
        key = guard.node, guard.inside
        if key not in self._steps:
            inside = sum(map(self._steps_optimizer, _under(self._tree, guard)))
            loop = _loop_around(self._tree, guard.node) if inside else None
            around = loop or (self._tree.function_of(guard.node) if inside else None)
            block = around.node if isinstance(around, Function) else around
            parts = walk(block.body, into_functions=False) if block is not None else ()
            everywhere = sum(map(self._steps_optimizer, parts))
            self._steps[key] = bool(inside) and inside == everywhere
        return self._steps[key]

    def _steps_optimizer(self, node: cst.CSTNode, depth: int = _DEPTH) -> bool:
        if not isinstance(node, cst.Call):
            return False
        target = self._flow.target(node)
        if isinstance(target, Function):
            return depth > 0 and self._takes_step(target, depth - 1)
        if not isinstance(node.func, cst.Attribute):
            return False
        name = node.func.attr.value
        return name == "optimizer_step" or (
            name == "step" and self._flow.value(node.func.value).kind is Kind.OPTIMIZER
        )

    def _takes_step(self, function: Function, depth: int) -> bool:
        """Whether a function takes a step of the optimizer, and not in a loop of its own."""
        key = function, depth
        if key not in self._taking:
            self._taking[key] = False  # where it calls itself
            self._taking[key] = any(
                self._steps_optimizer(part, depth)
                and _loop_around(self._tree, part, function.node) is None
                for part in walk(function.node.body, into_functions=False)
            )
        return self._taking[key]


def _under(tree: Tree, guard: Guard) -> Iterator[cst.CSTNode]:
    """What runs under a condition: its branch, or what stands behind the branch that leaves."""
    node = guard.node
    if not isinstance(node, cst.If):
        return
    if guard.inside:
        yield from walk(node.body, into_functions=False)
        return
    if node.orelse is not None:
        yield from walk(node.orelse, into_functions=False)
    block = tree.parents.get(node)
    if leaves(node.body) and isinstance(block, cst.IndentedBlock):
        behind = itertools.dropwhile(lambda line: line is not node, block.body)
        for line in itertools.islice(behind, 1, None):
            yield from walk(line, into_functions=False)


def at_end(tree: Tree, test: cst.BaseExpression) -> bool:
    """``step >= max_steps``: the loop ends there."""
    return (
        is_larger(test)
        and isinstance(test, cst.Comparison)
        and is_last(tree, test.left, test.comparisons[0].comparator)
    )


def is_last(tree: Tree, count: cst.BaseExpression, end: cst.BaseExpression) -> bool:
    """``step == config["max_steps"]``, where the loop around counts ``step`` up."""
    if not isinstance(count, cst.Name) or not isinstance(
        end, cst.Name | cst.Attribute | cst.Subscript
    ):
        return False
    parts = (part for part in walk(end) if isinstance(part, cst.Name | cst.SimpleString))
    asked = (str(string(p)) if isinstance(p, cst.SimpleString) else p.value for p in parts)
    if all(_LAST.isdisjoint(words(text)) for text in asked):
        return False
    loop = _loop_around(tree, count)
    bound = bound_in(loop) if loop is not None else set()
    return count.value in bound and names_in(end).isdisjoint(bound)


def _loop_around(
    tree: Tree, node: cst.CSTNode, within: cst.CSTNode | None = None
) -> cst.For | cst.While | None:
    for parent in tree.ancestors(node):
        if parent is within:
            return None
        if isinstance(parent, cst.For | cst.While):
            return parent
    return None


def is_head(loop: cst.CSTNode, child: cst.CSTNode) -> bool:
    """Whether a child of a ``for`` is what it goes over, asked for before its first turn."""
    return isinstance(loop, cst.For) and child is loop.iter


def bound_in(loop: cst.For | cst.While) -> set[str]:
    """The names that a loop gives a meaning to, as its target or in its body."""
    found = names_in(loop.target) if isinstance(loop, cst.For) else set()
    for part in walk(loop.body, into_functions=False):
        if isinstance(part, cst.AssignTarget | cst.AugAssign | cst.NamedExpr | cst.AnnAssign):
            found |= names_in(part.target)
    return found


def both_sides(
    test: cst.CSTNode,
) -> tuple[cst.BaseExpression, cst.BaseExpression, bool] | None:
    """The sides of ``a and b``, or of ``(a == 0) & (b == 0)``, and whether both have to hold."""
    if isinstance(test, cst.BooleanOperation):
        return test.left, test.right, isinstance(test.operator, cst.And)
    if not isinstance(test, cst.BinaryOperation):
        return None
    sides = (test.left, test.right)
    if not isinstance(test.operator, cst.BitAnd | cst.BitOr) or not all(map(_asks, sides)):
        return None
    return *sides, isinstance(test.operator, cst.BitAnd)


def _asks(side: cst.BaseExpression) -> bool:
    """Whether an expression is true or false by the way in which it is written."""
    if isinstance(side, cst.UnaryOperation):
        return isinstance(side.operator, cst.Not)
    return isinstance(side, cst.Comparison | cst.Call) or both_sides(side) is not None


def is_larger(test: cst.BaseExpression) -> bool:
    """Whether a condition is ``a > b`` or ``a >= b``."""
    return (
        isinstance(test, cst.Comparison)
        and len(test.comparisons) == 1
        and isinstance(test.comparisons[0].operator, cst.GreaterThan | cst.GreaterThanEqual)
    )


def by_accumulation(node: cst.BaseExpression) -> bool:
    """``number % args.gradient_accumulation_steps``: the batches of a step, by their name."""
    if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.Modulo):
        return False
    return names_accumulation(node.right)


def counts_micro_steps(
    over: cst.BaseExpression, name: Callable[[cst.BaseExpression], str | None]
) -> bool:
    """``range(self.accumulation_steps)``: the batches of one step.

    Args:
        over: What a loop goes over.
        name: The dotted name of an expression.
    """
    if not isinstance(over, cst.Call) or not over.args or name(over.func) != "builtins.range":
        return False
    return names_accumulation(over.args[-1].value)


def names_accumulation(node: cst.BaseExpression) -> bool:
    """``args.gradient_accumulation_steps``: a number of batches of one step, by its name."""
    return bool(_ACCUMULATES.search(last_name(node)))


def names_in(node: cst.CSTNode) -> set[str]:
    """The names in an expression."""
    return {part.value for part in walk(node) if isinstance(part, cst.Name)}


def is_of_turn(loop: cst.CSTNode, called: cst.BaseExpression) -> bool:
    """Whether each turn of a loop calls another one: ``layer(x)``, ``self.layers[i](x)``.

    Layer by layer a model is run once.
    """
    names: set[str] = set()
    while isinstance(called, cst.Attribute | cst.Subscript):
        if isinstance(called, cst.Subscript):
            names.update(name for part in called.slice for name in names_in(part))
        called = called.value
    names.update(names_in(called) if isinstance(called, cst.Name) else ())
    return isinstance(loop, cst.For) and not names_in(loop.target).isdisjoint(names)


def last_of(block: cst.BaseSuite) -> cst.CSTNode | None:
    """The last statement of a block, also of several on its last line."""
    last = block.body[-1] if block.body else None
    return last.body[-1] if isinstance(last, cst.SimpleStatementLine) else last


def refuses(node: cst.CSTNode) -> bool:
    """``if len(x) != n: raise ValueError()``: who comes there ends the run."""
    return isinstance(node, cst.If) and isinstance(last_of(node.body), cst.Raise)


def leaves(block: cst.BaseSuite) -> bool:
    """Whether the end of a block is never reached."""
    return isinstance(last_of(block), _LEAVE)
