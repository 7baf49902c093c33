"""What a call switches off in the functions that it runs: ``save(x, wait=False)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import libcst as cst

from xladoctor.lint.model.calls import given
from xladoctor.lint.model.dotted import last_name, string
from xladoctor.lint.model.unreached import combined, is_logic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xladoctor.lint.model.loops import Guard
    from xladoctor.lint.model.syntax import Function, Tree

#: A node and the calls that lead to it, innermost first.
Road: TypeAlias = "tuple[cst.CSTNode, ...]"
_CONSTANTS: Mapping[str, object] = {"True": True, "False": False, "None": None}
#: Methods that are called by the name of their object: what a place holds is not sure.
_BY_OBJECT = frozenset({"__init__", "__call__", "forward"})


class Switches:
    """Compares the conditions around nodes with what calls give the parameters that they ask.

    Args:
        tree: The syntax of the file or files.
        guards: The conditions around a node within its function.
    """

    def __init__(self, tree: Tree, guards: Callable[[cst.CSTNode], Sequence[Guard]]) -> None:
        self._tree = tree
        self._guards = guards

    def off(self, road: Road) -> bool:
        """Whether a condition on the way is known not to hold: ``if wait: meet()``."""
        return any(
            self._truth(guard.test, road[at:]) is (not guard.when)
            for at, node in enumerate(road[:-1])
            for guard in self._guards(node)
        )

    def _truth(self, test: cst.BaseExpression, road: Road) -> bool | None:
        """What a condition is on a road, by what is written; None if that does not say so."""
        if is_logic(test):
            return combined(test, lambda part: self._truth(part, road))
        if not isinstance(test, cst.Comparison):
            value = self._value(test, road)
            return None if value is NotImplemented else bool(value)
        [asked, *more] = test.comparisons
        equal = isinstance(asked.operator, cst.Equal | cst.Is)
        if more or not (equal or isinstance(asked.operator, cst.NotEqual | cst.IsNot)):
            return None
        sides = self._value(test.left, road), self._value(asked.comparator, road)
        return None if NotImplemented in sides else (sides[0] == sides[1]) is equal

    def _value(self, node: cst.BaseExpression, road: Road) -> object:
        """What is written for a parameter by the call that gives it, or as its default."""
        if isinstance(node, cst.SimpleString):
            return string(node)
        if isinstance(node, cst.Integer):
            return node.evaluated_value
        if not isinstance(node, cst.Name):
            return NotImplemented
        if node.value in _CONSTANTS:
            return _CONSTANTS[node.value]
        function = self._tree.function_of(road[0])
        names = () if function is None else (*function.parameters, *function.keyword_only)
        if function is None or node.value not in names or len(road) < 2:
            return NotImplemented
        if any(one.kind != "param" for one in self._tree.bindings(node)):
            return NotImplemented
        argument = _given(road[1], function, node.value)
        return NotImplemented if argument is None else self._value(argument, road[1:])


def _given(call: cst.CSTNode, function: Function, name: str) -> cst.BaseExpression | None:
    """What a call of a function gives a parameter, or its default; None if it does not say so."""
    if not isinstance(call, cst.Call) or any(argument.star for argument in call.args):
        return None
    argument = given(call, None, name)
    if argument is not None or function.name in _BY_OBJECT:
        return argument
    if last_name(call.func) != function.name:
        return None  # it has the function run by something else, or by another name
    argument = given(call, function.place(name), name)
    return function.default(name) if argument is None else argument
