"""What the loops of a file are for: steps, evaluation, epochs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.loop_sources import LoopSources
from xladoctor.lint.model.loops import Loop, LoopKind
from xladoctor.lint.model.nesting import Nesting
from xladoctor.lint.model.parts import names_bound
from xladoctor.lint.model.per_batch import CalledPerBatch
from xladoctor.lint.model.syntax import walk
from xladoctor.lint.model.training import Training, method, steps_environment, steps_one_of
from xladoctor.lint.model.turns import counts_micro_steps, last_of
from xladoctor.lint.model.values import UNKNOWN, Kind
from xladoctor.lint.model.without_gradients import WithoutGradients
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.lint.model.callgraph import CallGraph
    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.syntax import LoopNode
    from xladoctor.lint.model.unit_tests import UnitTests

#: Words of what a program is run with, once for each.
_SETTINGS = frozenset({"device", "backend", "dtype"})


class Loops:
    """The loops of a file and their kinds.

    Args:
        flow: The program, and the values of its expressions.
        graph: Which function calls which.
        tests: What stands in unit tests, whose loops are no training.
    """

    def __init__(self, flow: Flow, graph: CallGraph, tests: UnitTests) -> None:
        self._tree = flow.tree
        self._names = flow.names
        self._flow = flow
        self._graph = graph
        self._nesting = Nesting(flow.tree)
        #: The innermost loop around a node, in the same function.
        self.innermost = self._nesting.innermost
        self._around = self._nesting.around
        self._training = Training(flow, graph, self._nesting)
        #: What runs without gradients.
        self.without = WithoutGradients(flow.tree, flow.names, graph)
        self._tests = tests
        self._sources = LoopSources(flow)
        self._per_batch = CalledPerBatch(flow, self._training)

    @functools.cached_property
    def all(self) -> Sequence[Loop]:
        """All loops, and the methods that a framework calls once per batch."""
        found = [
            Loop(
                node,
                self._kinds[node],
                self._tree.function_of(node),
                self._sources.value(node),
                self._sources.over(node),
            )
            for node in self._tree.loops
        ]
        for function in self._tree.functions.values():
            kind = self._per_batch.kind(function)
            if kind is not None:
                found.append(Loop(function.node, kind, function, UNKNOWN, implicit=True))
        return found

    @functools.cached_property
    def by_node(self) -> dict[cst.CSTNode, Loop]:
        """The loops by their nodes."""
        return {loop.node: loop for loop in self.all}

    @functools.cached_property
    def _kinds(self) -> dict[LoopNode, LoopKind]:
        steps = {
            loop
            for call in self._tree.calls
            if (loop := self._around[call]) is not None
            and self._training.trains(call)
            and not _has_one_turn(loop)
            and not _over_settings(loop)
            and not self._tests.hold(loop)
        }
        parts = {loop for loop in steps if self._over_optimizers(loop)}
        steps = steps - parts | {outer for part in parts if (outer := self._around[part])}
        steps |= {outer for loop in steps if (outer := self._of_micro_steps(loop)) is not None}
        kinds: dict[LoopNode, LoopKind] = {}
        for node in self._tree.loops:
            if node in steps and not self._repeats_an_epoch(node, steps):
                kinds[node] = LoopKind.STEP
            else:
                kinds[node] = self._batch_loop(node)
        for node in self._tree.loops:
            # ``teacher.eval()`` before a loop over epochs says nothing of it.
            over = kinds[node] is LoopKind.EVAL and not self._sources.over_batches(node)
            if kinds[node] is not LoopKind.STEP and self._is_rollout(node):
                kinds[node] = LoopKind.ROLLOUT
            elif (over or kinds[node] is LoopKind.OTHER) and self._holds_steps(node, kinds):
                kinds[node] = LoopKind.EPOCH
        return kinds

    def _of_micro_steps(self, node: LoopNode) -> LoopNode | None:
        """The loop whose turns are the steps: around ``for i in range(accumulation_steps):``."""
        over = node.iter if isinstance(node, cst.For) else None
        if not isinstance(over, cst.Call) or not counts_micro_steps(over, self._names.resolve):
            return None
        return self._around[over]

    def _over_optimizers(self, node: LoopNode) -> bool:
        """``for optimizer in optimizers: optimizer.step()``: parts of one step, not steps."""
        if not isinstance(node, cst.For):
            return False
        # ``for self.step_number in range(100): self.step()`` goes over no optimizers.
        own = set(names_bound(node.target))
        inside = (inner for inner in self._nesting.inside[node] if isinstance(inner, cst.Call))
        trains = [call for call in inside if self._training.trains(call)]
        return bool(trains) and all(steps_one_of(call, own) for call in trains)

    def _is_rollout(self, node: LoopNode) -> bool:
        """``action = policy(state)``, ``state = env.step(action)``, both in each turn."""
        inside = (inner for inner in self._nesting.inside[node] if isinstance(inner, cst.Call))
        calls = [call for call in inside if self._around[call] is node]
        return any(steps_environment(call) for call in calls) and any(
            self._training.asks_model(call) for call in calls
        )

    def _repeats_an_epoch(self, node: LoopNode, steps: set[LoopNode]) -> bool:
        """A loop around one over batches, that makes the last step of an epoch by itself.

        Both may stand in a function that it calls for each epoch.
        """
        if self._sources.over_batches(node):
            return False
        batches = {loop for loop in steps if self._sources.over_batches(loop)} - {node}
        homes = {self._tree.function_of(loop) for loop in batches} - {None}
        return any(
            self._graph.reaches(inner, homes) if isinstance(inner, cst.Call) else inner in batches
            for inner in self._nesting.inside[node]
        )

    def _holds_steps(self, node: LoopNode, kinds: dict[LoopNode, LoopKind]) -> bool:
        step_loops = [loop for loop, kind in kinds.items() if kind is LoopKind.STEP]
        if any(loop in self._nesting.inside[node] for loop in step_loops):
            return True
        with_steps = {self._tree.function_of(loop) for loop in step_loops} - {None}
        return any(
            isinstance(inner, cst.Call) and self._graph.reaches(inner, with_steps)
            for inner in self._nesting.inside[node]
        )

    def _batch_loop(self, node: LoopNode) -> LoopKind:
        """The kind of a loop that does not train itself, by what it goes over."""
        if (
            self._tests.hold(node)
            or _runs_once(node)
            or _over_settings(node)
            or self._sources.over_modules(node)
            or self._asks_a_person(node)
        ):
            return LoopKind.OTHER
        named = self._sources.over_batches(node)
        if not named and any(
            self._sources.over_batches(inner)
            for inner in self._nesting.inside[node]
            if isinstance(inner, cst.For | cst.While | cst.CompFor)
        ):
            return LoopKind.OTHER  # of epochs: ``model.eval()`` before it says nothing of them
        calls = [inner for inner in self._nesting.inside[node] if isinstance(inner, cst.Call)]
        uses_model = any(self._training.asks_model(call) for call in calls)
        if named and self.without.no_grad(node):
            return LoopKind.EVAL
        if not uses_model:
            return LoopKind.OTHER
        if named or self.without.no_grad(node) or self._looks_at_each(node, calls):
            # A loop that clears gradients trains, in a function that nobody has read.
            cleared = any(method(call) == "zero_grad" for call in calls)
            return LoopKind.STEP if cleared else LoopKind.EVAL
        return LoopKind.OTHER

    def _asks_a_person(self, node: LoopNode) -> bool:
        """``while True: question = input(); ...``: as slow as somebody writes."""
        return isinstance(node, cst.While) and any(
            isinstance(inner, cst.Call) and self._names.resolve(inner.func) == "builtins.input"
            for inner in self._nesting.inside[node]
        )

    def _looks_at_each(self, node: LoopNode, calls: Sequence[cst.Call]) -> bool:
        """``for name in images: with torch.no_grad(): out = model(read(name))``.

        Also in a notebook's own lines, behind ``model.eval()``, and where a function that is called
        there without gradients runs the model.
        """
        here = [call for call in calls if self._around[call] is node]
        runs = [call for call in here if self._flow.value(call.func).kind is Kind.MODEL]
        if runs and self._tree.function_of(node) is None and self.without.eval_before(node, None):
            return True
        asking = runs or [call for call in here if self._training.asks_model(call)]
        if not asking or not all(map(self._is_without, asking)):
            return False
        return bool(runs) or not self._is_within_step(node)

    def _is_within_step(self, node: LoopNode) -> bool:
        """Whether a loop is a part of a step: the one around it trains."""
        outer = [one for one in self._tree.ancestors(node) if one in self._nesting.inside]
        return any(
            isinstance(inner, cst.Call) and self._training.trains(inner)
            for one in outer
            for inner in self._nesting.inside[one]  # type: ignore[index]
        )

    def _is_without(self, call: cst.Call) -> bool:
        """Whether a call stands in ``with torch.no_grad():``."""
        return any(self.without.is_no_grad(item) for item in self._tree.ancestors(call))


def _runs_once(node: LoopNode) -> bool:
    """``for batch in loader: ...; break``: a look at the first batch alone."""
    if not isinstance(node, cst.For):
        return False
    return isinstance(last_of(node.body), cst.Break | cst.Return) and not any(
        isinstance(part, cst.Continue) for part in walk(node.body, into_functions=False)
    )


def _over_settings(node: LoopNode) -> bool:
    """``for text in ["a", "b"]:``, ``for device in args.devices:``: no batches, a turn for each."""
    if not isinstance(node, cst.For):
        return False
    if isinstance(node.target, cst.Name) and not _SETTINGS.isdisjoint(words(node.target.value)):
        return True
    over = node.iter
    return isinstance(over, cst.List | cst.Tuple) and all(
        isinstance(item.value, cst.SimpleString | cst.ConcatenatedString) for item in over.elements
    )


def _has_one_turn(node: LoopNode) -> bool:
    """``for length in [2048]:``, of which the other values are commented out."""
    over = node.iter if isinstance(node, cst.For) else None
    if not isinstance(over, cst.List | cst.Tuple) or len(over.elements) != 1:
        return False
    return isinstance(over.elements[0].value, cst.Integer | cst.Float | cst.SimpleString)
