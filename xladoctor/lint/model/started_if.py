"""What runs on no core: the other branch of a condition under which the cores are started."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.syntax import walk
from xladoctor.lint.model.turns import both_sides

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from xladoctor.lint.model.loops import Entry, Guard
    from xladoctor.lint.model.syntax import Tree


class StartedIf:
    """Compares conditions with those around the calls that start the cores.

    Args:
        tree: The syntax of the file or files.
        guards: The conditions around a node within its function.
    """

    def __init__(
        self,
        tree: Tree,
        guards: Callable[[cst.CSTNode], Sequence[Guard]],
    ) -> None:
        self._tree = tree
        self._guards = guards
        self._known: frozenset[tuple[str, bool]] | None = None

    def excludes(self, node: cst.CSTNode, entries: Sequence[Entry]) -> bool:
        """``else`` of ``if args.cores > 1:``, where that decides whether cores are started."""
        if self._known is None:
            calls = [entry.call for entry in entries]
            sides = [
                {side for guard in self._guards(call) for side in self._sides(guard)}
                for call in calls
                if call is not None
            ]
            asked = set.intersection(*sides) if sides and len(sides) == len(calls) else set()
            self._known = frozenset(asked)
        if not self._known:
            return False
        return any(
            self._holds(guard.test, when=not guard.when) and self._is_setting(guard.test)
            for guard in self._guards(node)
        )

    def _sides(self, guard: Guard) -> Iterator[tuple[str, bool]]:
        """The texts that are true, or false, under a condition."""
        waiting = [(guard.test, guard.when)]
        while waiting:
            test, when = waiting.pop()
            if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
                waiting.append((test.expression, not when))
                continue
            yield self._written(test), when
            sides = both_sides(test)
            if sides is not None and sides[2] is when:
                waiting += [(sides[0], when), (sides[1], when)]

    def _holds(self, test: cst.BaseExpression, *, when: bool) -> bool:
        """Whether a condition is known to be true, or false, where the cores are started."""
        known = self._known or frozenset()
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            return self._holds(test.expression, when=not when)
        if (self._written(test), when) in known:
            return True
        sides = both_sides(test)
        if sides is None:
            return False
        every = all if sides[2] is when else any
        return every(self._holds(side, when=when) for side in sides[:2])

    def _written(self, test: cst.BaseExpression) -> str:
        """The text of a condition, whatever the settings are called: ``a.smoke``, ``args.smoke``.

        They are what ``parse_args`` gives, and what functions are given.
        """
        text = self._tree.text(test).strip()
        for part in walk(test):
            holder = part.value if isinstance(part, cst.Attribute) else None
            if isinstance(holder, cst.Name) and self._are_settings(holder):
                text = re.sub(rf"\b{re.escape(holder.value)}\.", "settings.", text)
        return text

    def _are_settings(self, name: cst.Name) -> bool:
        """Whether a name is a parameter, or what ``parse_args`` gives."""
        bindings = self._tree.bindings(name) if name in self._tree.scopes else ()
        return (
            bool(bindings)
            and name.value != "self"
            and all(
                binding.kind == "param"
                or (isinstance(binding.node, cst.Call) and _parses(binding.node))
                for binding in bindings
            )
        )

    def _is_setting(self, test: cst.BaseExpression) -> bool:
        """Whether all names mean the same in both places: those of the module, and ``args.x``."""
        for part in walk(test):
            if not isinstance(part, cst.Name) or part not in self._tree.scopes:
                continue
            parent = self._tree.parents.get(part)
            if isinstance(parent, cst.Attribute) and parent.attr is part:
                continue
            held = isinstance(parent, cst.Attribute | cst.Subscript)
            for binding in self._tree.bindings(part):
                if binding.kind == "param" and held:
                    continue
                if binding.kind == "param" or self._tree.function_of(binding.node) is not None:
                    return False
        return True


def _parses(call: cst.Call) -> bool:
    """``ArgumentParser().parse_args()``."""
    return isinstance(call.func, cst.Attribute) and call.func.attr.value == "parse_args"
