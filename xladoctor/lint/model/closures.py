"""What is run after a step: functions that are given to ``add_step_closure``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.calls import given

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import libcst as cst

    from xladoctor.lint.model.callgraph import CallGraph
    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.syntax import Function

_DEPTH = 3


class StepClosures:
    """The functions that run after a step.

    Args:
        flow: The program, and the values of its expressions.
        graph: Which function calls which.
    """

    def __init__(self, flow: Flow, graph: CallGraph) -> None:
        self._tree = flow.tree
        self._names = flow.names
        self._flow = flow
        self._home = graph.home
        self._only_closures: dict[tuple[Function, int], bool] = {}

    @functools.cached_property
    def given_by(self) -> Mapping[Function, Sequence[cst.Call]]:
        """The functions that are given to ``add_step_closure``, and the calls that give them."""
        found: dict[Function, list[cst.Call]] = {}
        for call in self._tree.calls:
            if self._names.resolve(call.func) in know.STEP_CLOSURES:
                closure = given(call, 0, "closure")
                function = self._flow.value(closure).function if closure is not None else None
                if function is not None:
                    found.setdefault(function, []).append(call)
        return found

    def is_closure(self, function: Function, depth: int = _DEPTH) -> bool:
        """Whether a function is given to ``add_step_closure``, or only called by one that is."""
        if not self.given_by:
            return False
        asked = (function, depth)
        if asked not in self._only_closures:
            self._only_closures[asked] = self._find_closure(function, depth)
        return self._only_closures[asked]

    def _find_closure(self, function: Function, depth: int) -> bool:
        if function in self.given_by:
            return True
        callers = self._flow.callers(function)
        return (
            bool(callers)
            and depth > 0
            and all(
                (home := self._home[call]) is not None and self.is_closure(home, depth - 1)
                for call in callers
            )
        )

    def calls(self, function: Function) -> Sequence[cst.Call]:
        """The calls of ``add_step_closure`` that are given a function."""
        return self.given_by.get(function, ())

    def hold(self, node: cst.CSTNode) -> bool:
        """Whether a node is in a function given to ``add_step_closure``, or only called by one."""
        function = self._tree.function_of(node)
        while function is not None:
            if self.is_closure(function):
                return True
            function = function.outer
        return False

    def run_by(self, function: Function) -> Sequence[cst.Call]:
        """The calls of a function, and those that give it to ``add_step_closure``."""
        return [*self._flow.callers(function), *self.given_by.get(function, ())]
