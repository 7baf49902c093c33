"""Functions that somebody else calls for every batch: frameworks, engines, another file's loop."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import calls, frameworks
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.dotted import last_name
from xladoctor.lint.model.loops import LoopKind
from xladoctor.lint.model.module_hooks import trained_with
from xladoctor.lint.model.syntax import Class, Function
from xladoctor.lint.model.training import method, steps_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.training import Training


class CalledPerBatch:
    """Answers for functions.

    Args:
        flow: The program, and the values of its expressions.
        training: What calls do for training.
    """

    def __init__(self, flow: Flow, training: Training) -> None:
        self._tree = flow.tree
        self._names = flow.names
        self._flow = flow
        self._graph = training.graph
        self._around = training.around
        self._training = training

    @functools.cached_property
    def _handed(self) -> dict[Function, LoopKind]:
        """Functions that Ignite's engines, Trainers, SentEval and modules call for every batch."""
        hooks = trained_with(self._flow, self._training)
        found = {one: LoopKind.STEP for one in hooks if self._flow.belief.believes(one.node)}
        for call in self._tree.calls:
            name = self._names.resolve(call.func)
            given = {x.keyword.value if x.keyword else "": x.value for x in reversed(call.args)}
            if name in frameworks.TRAINERS or self._is_trainer(call):
                found.update(self._of_trainer(given))
                continue
            if name in frameworks.EVALUATED_BY:
                place, keyword = frameworks.EVALUATED_BY[name]
                node = calls.given(call, place, keyword)
            elif name in frameworks.IGNITE_ENGINES:
                node = given.get("process_function", given.get(""))
            elif name in {frameworks.IGNITE_TRAINER, frameworks.IGNITE_EVALUATOR}:
                node = given.get("output_transform")
            else:
                continue
            function = self._flow.value(node).function if node is not None else None
            if function is not None and self._flow.belief.believes(function.node):
                trains = any(
                    self._training.trains(inner) for inner in self._graph.calls_in(function)
                )
                is_step = name == frameworks.IGNITE_TRAINER or trains
                found[function] = LoopKind.STEP if is_step else LoopKind.EVAL
        return found

    def _is_trainer(self, call: cst.Call) -> bool:
        """``MyTrainer(model, ...)``, of a class that is built on the Trainer of transformers."""
        cls = self._flow.target(call)
        return isinstance(cls, Class) and self._flow.hooks.is_trainer(cls)

    def _of_trainer(
        self, given: Mapping[str, cst.BaseExpression]
    ) -> Iterator[tuple[Function, LoopKind]]:
        """The model that a Trainer runs, and what else it is given to call."""
        node = given.get("model", given.get(""))
        if node is None or not self._flow.belief.believes(node):
            return
        for instance in self._flow.classes.objects(self._flow.value(node)):
            method = self._flow.classes.method(instance.cls, "forward")
            if method is not None and self._flow.hooks.is_module(instance.cls):
                yield method, LoopKind.STEP
        kinds = {frameworks.GIVEN_TO_STEP: LoopKind.STEP, frameworks.GIVEN_TO_EVAL: LoopKind.EVAL}
        for name, kind in kinds.items():
            function = self._flow.value(given[name]).function if name in given else None
            if function is not None:
                yield function, kind

    def kind(self, function: Function) -> LoopKind | None:
        """What each call of a function is a turn of; None for others."""
        if function in self._handed:
            return self._handed[function]
        if not self._flow.belief.believes(function.node):
            return LoopKind.STEP if self._is_own_step(function) else None
        if self._is_lone_step(function) or self._feeds_lone_step(function):
            return LoopKind.STEP
        hooks = self._flow.hooks
        hook = hooks.hook(function)
        if hook is not None or self._flow.callers(function):
            return hook
        agents = self._of_agent(function)
        if agents is not None:
            return agents
        called = hooks.is_of_model(function) or hooks.is_step(function)
        return LoopKind.STEP if called else None

    def _is_own_step(self, function: Function) -> bool:
        """The step of the program's own optimizer, in a file that names no device itself."""
        return self._flow.hooks.is_step(function) and function.owner in self._made

    @functools.cached_property
    def _made(self) -> set[Class]:
        """The classes of the program that it makes objects of."""
        targets = (self._flow.target(call) for call in self._tree.calls)
        return {target for target in targets if isinstance(target, Class)}

    def _is_lone_step(self, function: Function) -> bool:
        """``train_step(batch)``, which another file calls for every batch.

        Or what a function gives back that puts a step together: ``step = make_step(model, opt)``.
        """
        named = know.STEP_NAME.search(function.name) or self._is_given_back(function)
        calls = self._graph.calls_in(function)
        if not (named or self._is_for_base(function)) or self._flow.callers(function):
            return False
        return bool(function.parameters) and any(
            self._around[call] is None and self._training.trains(call, 1) for call in calls
        )

    def _is_for_base(self, function: Function) -> bool:
        """``_backward_pass(self, loss)`` of a class on another file's Trainer, which calls it.

        It goes backward and steps by itself, in no loop.
        """
        if function.owner is None or not function.owner.bases:
            return False
        calls = [call for call in self._graph.calls_in(function) if self._around[call] is None]
        backward = any(method(call) == "backward" for call in calls)
        return backward and any(
            method(call) == "step" or last_name(call.func) == "optimizer_step" for call in calls
        )

    def _of_agent(self, function: Function) -> LoopKind | None:
        """``act(state)`` and ``learn()`` of an agent that another file lets act and learn."""
        if function.owner is None:
            return None
        methods = function.owner.methods.values()
        calls = self._graph.calls_in(function)
        if self._plays(calls):
            return LoopKind.ROLLOUT
        if know.ACT_NAME.search(function.name) or self._is_shown_state(function):
            learns = any(
                self._training.trains(call, 1)
                for one in methods
                for call in self._graph.calls_in(one)
            )
            acts = learns and any(self._training.asks_model(call) for call in calls)
            return LoopKind.ROLLOUT if acts else None
        if not know.LEARN_NAME.search(function.name):
            return None
        learns = any(
            self._around[call] is None and self._training.trains(call, 1) for call in calls
        )
        return LoopKind.STEP if learns else None

    def _plays(self, calls: Sequence[cst.Call]) -> bool:
        """``play_step(net)`` of an agent: a model chooses, and the environment takes one step."""
        once = [call for call in calls if self._around[call] is None]
        return any(map(steps_environment, once)) and any(map(self._training.asks_model, once))

    def _is_shown_state(self, function: Function) -> bool:
        """``agent.step(observation)``: what it makes of it is one step of an environment."""
        return function.name == "step" and not know.OBSERVED.isdisjoint(function.parameters)

    def _feeds_lone_step(self, function: Function) -> bool:
        """``feed_data(batch)`` of an object whose ``optimize_parameters()`` takes the step.

        The object's own evaluation may feed it as well.
        """
        owner = function.owner
        if owner is None or not know.FEED_NAME.search(function.name):
            return False
        homes = [self._graph.home[call] for call in self._flow.callers(function)]
        return all(isinstance(x, Function) and x.owner is owner for x in homes) and any(
            self._is_lone_step(method) for method in owner.methods.values()
        )

    @functools.cached_property
    def _given_back(self) -> dict[Function | None, set[str]]:
        """The names that functions return."""
        found: dict[Function | None, set[str]] = {}
        for part in self._tree.by_type.get(cst.Return, ()):
            if type(part) is cst.Return and type(part.value) is cst.Name:
                found.setdefault(self._tree.function_of(part), set()).add(part.value.value)
        return found

    def _is_given_back(self, function: Function) -> bool:
        outer = function.outer
        if outer is None or not isinstance(function.node, cst.FunctionDef):
            return False
        return function.name in self._given_back.get(outer, ())
