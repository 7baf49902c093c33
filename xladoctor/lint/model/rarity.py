"""What runs only in a few turns of the loop around it: by schedule, once, or on failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

import libcst as cst

from xladoctor.lint.model.conditions import asked_for_none, without_not
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.schedules import Schedules, forces
from xladoctor.lint.model.syntax import walk
from xladoctor.lint.model.turns import (
    Turns,
    bound_in,
    is_head,
    is_larger,
    last_of,
    names_in,
    refuses,
)
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Callable

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.guards import Guards
    from xladoctor.lint.model.loops import Guard

#: Words of the names of what asks for more to be told.
_LOGS = frozenset({"log", "logs", "logging", "verbose", "debug", "metrics", "print", "report",
                   "stats", "diagnostics"})  # fmt: skip
_FUNCTIONS = cst.FunctionDef | cst.Lambda | cst.ClassDef


class Rarity:
    """Answers for nodes.

    Args:
        flow: The program, and the values of its expressions.
        guards: The conditions around nodes.
        within: Whether a loop runs whole in each turn of another.
    """

    def __init__(self, flow: Flow, guards: Guards, within: Callable[[cst.CSTNode], bool]) -> None:
        self._tree = flow.tree
        self._names = flow.names
        self._guards = guards
        self._flow = flow
        self._within = within
        self._schedules = Schedules(flow, within)
        self._turns = Turns(flow)

    def rare(self, node: cst.CSTNode, *, of_batches: bool = False) -> bool:
        """Whether a node runs only in a few iterations of the loop around it, or on failure.

        Where gradients are added up, a step takes several batches (``of_batches``: ask for these).
        """
        child = node
        leaving: list[bool] = []
        for parent in self._tree.ancestors(node):
            if isinstance(parent, cst.Raise | cst.ExceptHandler):
                return True
            if is_head(parent, child):
                child = parent
                continue
            if isinstance(parent, _FUNCTIONS | cst.For | cst.While):
                # ``return`` ends a loop of the function, but not the one that calls the function.
                in_loop = isinstance(parent, cst.For | cst.While)
                left = any(in_loop or not returns for returns in leaving)
                # Once for each turn of the loop around one that is left: for each batch.
                if left and not (in_loop and self._within(parent)):
                    return True
                break
            if isinstance(parent, cst.If) and child is not parent.test:
                last = _leaves_loop(child)
                if last is not None:
                    leaving.append(isinstance(last, cst.Return))
            child = parent
        return any(
            self._schedules.every_so_often(guard.test, guard.when, steps=not of_batches)
            or self._on_fault(guard)
            or self._since_last(guard)
            or self._once(guard)
            or self._if_asked(guard)
            or self._by_flag(guard)
            for guard in self._guards.around(node)
            if not _checked(guard)
            and self._same_loop(guard, node)
            and not self._only_of_epoch(guard)
            and (of_batches or not self._turns.hold_step(guard))
        )

    def holds_step(self, guard: Guard) -> bool:
        """Whether the optimizer steps under a condition alone: it is true once for each step."""
        return self._turns.hold_step(guard)

    def _since_last(self, guard: Guard) -> bool:
        """``if step - last_saved >= 100:``, where the branch then sets ``last_saved = step``."""
        test, branch = guard.test, _branch(guard)
        if not guard.when or branch is None or not is_larger(test):
            return False
        assert isinstance(test, cst.Comparison)
        left = test.left
        if not isinstance(left, cst.BinaryOperation) or not isinstance(left.operator, cst.Subtract):
            return False
        since = self._tree.text(left.right).strip()
        return isinstance(left.right, cst.Name | cst.Attribute) and any(
            isinstance(part, cst.AssignTarget) and self._tree.text(part.target).strip() == since
            for part in walk(branch, into_functions=False)
        )

    def _by_flag(self, guard: Guard) -> bool:
        """``if force_save:``, of a flag that the loop around gives anew in each turn."""
        name = guard.written
        if not guard.when or not isinstance(name, cst.Name) or not forces(name):
            return False
        loops = {x for x in self._tree.ancestors(name) if isinstance(x, cst.For | cst.While)}
        bound = (item.node for item in self._tree.bindings(name) if item.kind == "assign")
        return any(not loops.isdisjoint(self._tree.ancestors(node)) for node in bound)

    def _if_asked(self, guard: Guard) -> bool:
        """``def learn(self, log=False): if log: ...``, which another file calls as it likes."""
        test, when = without_not(guard.test, when=guard.when)
        function = self._tree.function_of(guard.node)
        if not when or not isinstance(test, cst.Name) or function is None:
            return False
        if _LOGS.isdisjoint(words(test.value)):
            return False  # ``train=False`` is what every step of the training gives
        default = function.default(test.value)
        asked = default is not None and is_name(default, "False")
        return asked and not self._flow.callers(function)

    def _once(self, guard: Guard) -> bool:
        """``if self.queue is None:`` and ``if not hasattr(self, "queue"):``, which then make it.

        Also ``if not saved:``, which then says ``saved = True``, and ``if len(state) == 0:`` of an
        optimizer, which then fills ``state = self.state[p]``.
        """
        if not isinstance(guard.node, cst.If):
            return False
        body = _branch(guard)
        if self._sets_flag(guard.node, guard.test, when=guard.when):
            return True
        made = self._missing(guard.test, when=guard.when)
        empty = self._empty(guard.test, when=guard.when) if made is None else None
        if body is None or (made is None and empty is None):
            return False
        targets = [
            part.target
            for part in walk(body, into_functions=False)
            if isinstance(part, cst.AssignTarget)
        ]
        if made is not None:
            return any(self._tree.text(target).strip() == made for target in targets)
        filled = (target.value for target in targets if isinstance(target, cst.Subscript))
        return any(self._tree.text(holder).strip() == empty for holder in filled)

    def _empty(self, test: cst.BaseExpression, *, when: bool) -> str | None:
        """What an object keeps that has nothing in it yet: ``state`` of ``len(state) == 0``.

        Also of ``not state`` and of ``"step" not in state``; ``tables`` of a module is kept too.
        """
        test, when = without_not(test, when=when)
        holder: cst.BaseExpression | None = None
        if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
            [asked] = test.comparisons
            if isinstance(asked.operator, cst.In | cst.NotIn):
                lacks = isinstance(asked.operator, cst.NotIn) is when
                holder = asked.comparator if lacks else None
            elif isinstance(asked.operator, cst.Equal) and when and _is_length(test.left):
                none = isinstance(asked.comparator, cst.Integer) and asked.comparator.value == "0"
                holder = test.left.args[0].value if none else None
        elif not when:
            holder = test
        kept = self._tree.assigned_once(holder) if isinstance(holder, cst.Name) else holder
        stays = _is_kept(kept) or (holder is not kept and self._of_module(kept))
        return self._tree.text(holder).strip() if holder is not None and stays else None

    def _of_module(self, made: cst.BaseExpression | None) -> bool:
        """``tables = {}`` of a module, which its functions fill: it is there as long as they."""
        if not isinstance(made, cst.Dict | cst.Call) or self._tree.function_of(made) is not None:
            return False
        return not any(isinstance(x, cst.For | cst.While) for x in self._tree.ancestors(made))

    def _sets_flag(self, node: cst.If, test: cst.BaseExpression, *, when: bool) -> bool:
        """Whether a condition on a flag turns it, so that it holds once."""
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
        if isinstance(test, cst.Call) and self._names.resolve(test.func) == "builtins.hasattr":
            given = [argument.value for argument in test.args]
            if when or len(given) != 2 or not isinstance(given[1], cst.SimpleString):
                return None
            return f"{self._tree.text(given[0]).strip()}.{given[1].raw_value}"
        asked = asked_for_none(test)
        if asked is None or asked[1] is not when or not isinstance(asked[0], cst.Attribute):
            return None
        return self._tree.text(asked[0]).strip()

    def _on_fault(self, guard: Guard) -> bool:
        """``if not torch.isfinite(loss):`` and ``if loss.isnan().any():``."""
        test, when = guard.test, guard.when
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
        child = node
        for parent in self._tree.ancestors(node):
            if parent is guard.node:
                return True
            if isinstance(parent, cst.For | cst.While) and not is_head(parent, child):
                return parent in self._tree.ancestors(guard.node)
            child = parent
        return True


def _is_length(node: cst.BaseExpression) -> TypeGuard[cst.Call]:
    """``len(x)``."""
    return isinstance(node, cst.Call) and is_name(node.func, "len") and len(node.args) == 1


def _is_kept(node: cst.BaseExpression | None) -> bool:
    """What stays in an object from one turn to the next: ``self.seen``, ``self.state[p]``."""
    while isinstance(node, cst.Subscript | cst.Attribute):
        node = node.value
        if is_name(node, "self"):
            return True
    return False


def _branch(guard: Guard) -> cst.BaseSuite | cst.If | cst.Else | None:
    """The branch of an ``if`` in which a node stands, if it stands in one."""
    if not isinstance(guard.node, cst.If):
        return None
    return guard.node.body if guard.inside else guard.node.orelse


def _checked(guard: Guard) -> bool:
    """Whether the rest of a function runs always, or not at all: ``if len(x) != n: raise``."""
    node = guard.node
    return not guard.inside and refuses(node) and isinstance(node, cst.If) and node.orelse is None


def _leaves_loop(node: cst.CSTNode) -> cst.CSTNode | None:
    """What ends the loop that a branch stands in, so that it runs at most once."""
    if isinstance(node, cst.Else):
        node = node.body
    last = last_of(node) if isinstance(node, cst.BaseSuite) else None
    return last if isinstance(last, cst.Raise | cst.Break | cst.Return) else None
