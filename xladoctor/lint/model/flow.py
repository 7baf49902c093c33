"""Kinds of value through a file, or several linked ones: what each expression evaluates to.

An abstract run of the modules and of every function in them. Statements run in order, branches are
joined, loop bodies run again while their beginning changes. A call runs the function it calls if
its arguments say something new; what is only known later (globals, attributes that another method
sets) is there in the next round, until a round finds just what it was given: a fixed point. Where
rounds would swing to and fro, what they found is joined from ``_PATIENCE`` rounds on (widening):
values then only go up, and the lattice of values ends. Methods are run once per object they are
called on, so that ``batch_time.avg`` (numbers) is not confused with ``losses.avg`` (device tensors)
of the same class.

A run depends on its parameters and on what it asks outside of its own names, and only on these: it
is recorded (``runs``), and where all answers are the same again it is not evaluated again.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import Counter
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.backends import Backends
from xladoctor.lint.model.belief import Belief
from xladoctor.lint.model.classes import Classes
from xladoctor.lint.model.evaluate import Evaluator
from xladoctor.lint.model.facts import Context, Facts
from xladoctor.lint.model.frames import Frame, join_env
from xladoctor.lint.model.helpers import only_returned
from xladoctor.lint.model.hooks import Hooks
from xladoctor.lint.model.memory import Memory
from xladoctor.lint.model.parameters import Parameters
from xladoctor.lint.model.running import Running
from xladoctor.lint.model.runs import Run, Runs
from xladoctor.lint.model.statements import Statements
from xladoctor.lint.model.syntax import Class, Function, Tree
from xladoctor.lint.model.trials import Trials
from xladoctor.lint.model.values import NOTHING, UNKNOWN, Instance, Kind, Value, join

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from xladoctor.lint.library import Library
    from xladoctor.lint.model.frames import Env
    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names

#: Programs reach their fixed point in two to four rounds.
_PATIENCE = 5
_MOST_CONTEXTS = 8
_LONGEST_CHAIN = 20
#: How often a function runs that gives itself other arguments than it was given.
_RECURSIONS = 3
#: Helpers within helpers of which each call gets its own answer.
_HELPERS = 3


class Flow:
    """Values of expressions and targets of calls.

    Args:
        tree: The syntax of the file or files.
        names: What their names are bound to.
        xla: The modules that are for XLA devices: only there are names such as ``device`` or the
            arguments of ``forward`` believed.
        library: What names of libraries do.
        beside: The modules that neither are imported for XLA devices nor import what is.
    """

    def __init__(
        self,
        tree: Tree,
        names: Names | LinkedNames,
        xla: frozenset[cst.Module],
        library: Library,
        beside: frozenset[cst.Module] = frozenset(),
    ) -> None:
        self.tree = tree
        self.library = library
        self.names = names
        self._now = Running(tree)
        self._runs = Runs()
        self.classes = Classes(tree, names)
        self.backends = Backends(tree, names, self.classes)
        self.belief = Belief(tree, names, xla, self._now)
        self.memory = Memory(self._now, self._runs, names, self.classes)
        self._recorded: dict[cst.CSTNode, Value] = {}  # by the run that is under way
        self._targets: dict[cst.Call, Function | Class] = {}
        self._runs_all: dict[cst.Call, dict[Function | Class, None]] = {}
        #: Calls that give the name of what they run.
        self.named: set[cst.Call] = set()
        self._iterated: dict[Function, dict[cst.BaseExpression, None]] = {}
        self.evaluator = Evaluator(self)
        self.statements = Statements(self, self.evaluator)
        self._parameters = Parameters(self)
        self._trials = Trials(tree, xla, beside)
        self.hooks = Hooks(tree, names, self.classes)
        self._helpers = 0
        self._waiting: dict[Context, None] = {}
        self._entered: set[Function] = set()
        self._called: set[Function] = set()
        self._contexts_of: Counter[Function] = Counter()  # how many in this round
        for number in itertools.count(1):
            self._round()
            if number > _PATIENCE:
                self._now.found = self._now.known.joined(self._now.found)
            if self._now.found == self._now.known:
                break
            self._now.known = self._now.found
        self._values = self._runs.values()
        self._runs.forget()

    def value(self, node: cst.BaseExpression) -> Value:
        """What an expression evaluates to."""
        value = self._values.get(node, NOTHING)
        return UNKNOWN if value.kind is Kind.NOTHING else value

    def target(self, node: cst.Call) -> Function | Class | None:
        """The function or class of this file that a call calls."""
        return self._targets.get(node)

    def targets(self, node: cst.Call) -> Sequence[Function | Class]:
        """All that a call may call: a method of each of the objects that it is run for."""
        return tuple(self._runs_all.get(node, ()))

    def callers(self, function: Function) -> Sequence[cst.Call]:
        """The calls that call a function (for ``__init__``: that make an object)."""
        return self._callers.get(function, ())

    @functools.cached_property
    def _callers(self) -> dict[Function, list[cst.Call]]:
        found: dict[Function, list[cst.Call]] = {}
        for call in self._runs_all:
            for target in self.targets(call):
                method = (
                    self.classes.method(target, "__init__") if isinstance(target, Class) else target
                )
                if method is not None:
                    found.setdefault(method, []).append(call)
        return found

    def record(self, node: cst.CSTNode, value: Value, *, known: bool = False) -> None:
        """Remember what an expression was in this run; all of it, if its use tells (``known``)."""
        values = self._recorded
        before = None if known else values.get(node)
        values[node] = value if before is None else join(before, value)

    def enter(
        self,
        call: cst.Call | None,
        function: Function,
        instance: Instance | None,
        arguments: dict[str, Value],
        *,
        named: bool = False,
    ) -> Value:
        """A call of a function of this file: remember the arguments, give what it returns.

        Args:
            call: What runs it; None for a library.
            function: The function.
            instance: The object that it is run on.
            arguments: What its parameters are given.
            named: The call gives the function's name alone: ``engine.call("after_batch")``.
        """
        if isinstance(function.node, cst.FunctionDef):
            self.memory.keep(function.node)
        return self._runs.ask(self._enter, call, function, instance, arguments, named)

    def _enter(
        self,
        call: cst.Call | None,
        function: Function,
        instance: Instance | None,
        arguments: dict[str, Value],
        named: bool,
    ) -> Value:
        if call is not None:
            self._calls(call, function, named=named)
        arguments = self._trials.believed(call, arguments)
        self._called.add(function)
        context = (function, instance)
        new = context not in self._now.found.parameters
        if new and instance is not None and self._contexts_of[function] >= _MOST_CONTEXTS:
            context = (function, Instance(instance.cls, None))
        self._entered.add(function)
        first = context not in self._now.found.parameters
        self._contexts_of[function] += first
        parameters = self._now.found.parameters.setdefault(context, {})
        before = dict(parameters)
        for name, value in arguments.items():
            parameters[name] = join(parameters[name], value) if name in parameters else value
        if (first or parameters != before) and function not in self._now.functions:
            if len(self._now.functions) < _LONGEST_CHAIN:
                for _ in range(_RECURSIONS):
                    given = dict(parameters)
                    self._run(*context)
                    if parameters == given:
                        break  # it gave itself nothing new
            else:
                self._waiting[context] = None
        if function not in self._now.functions and self._helpers < _HELPERS:
            returned = only_returned(function)
            if returned is not None:
                return self._returned(function, context[1], arguments, returned)
        # A function that calls itself has, for now, returned nothing.
        otherwise = NOTHING if function in self._now.functions else UNKNOWN
        return self._now.found.results.get(context) or self._now.known.results.get(
            context, otherwise
        )

    def result(self, function: Function) -> Value:
        """What a function gives back, whoever calls it."""
        return self._runs.ask(self._result, function)

    def _result(self, function: Function) -> Value:
        given = (
            value
            for facts in (self._now.known, self._now.found)
            for (one, _), value in facts.results.items()
            if one is function
        )
        return functools.reduce(join, given, NOTHING)

    def _calls(self, call: cst.Call, function: Function, *, named: bool) -> None:
        """Remember what a call runs."""
        if named:
            self.named.add(call)
        else:
            self._targets[call] = function
        self._runs_all.setdefault(call, {})[function] = None

    def iterate(self, node: cst.BaseExpression, function: Function, instance: Instance) -> Value:
        """A loop goes over an object of the program's: its ``__iter__`` or ``__next__`` runs."""
        return self._runs.ask(self._iterate, node, function, instance)

    def _iterate(self, node: cst.BaseExpression, function: Function, instance: Instance) -> Value:
        self._iterated.setdefault(function, {})[node] = None
        return self._enter(None, function, instance, {}, False)

    def iterations(self, function: Function) -> Sequence[cst.BaseExpression]:
        """What is gone over, where that runs a method: an object with an ``__iter__``."""
        return tuple(self._iterated.get(function, ()))

    def _returned(
        self,
        function: Function,
        instance: Instance | None,
        given: dict[str, Value],
        returned: cst.BaseExpression,
    ) -> Value:
        """What one call of a function gives that only returns: ``def gpu(x): return x.to(dev)``.

        Such a helper is called with models, batches and numbers alike; each gets its own answer.
        What its expressions are is what its runs say, which know all of its calls.
        """
        frame = Frame(function, instance)
        recorded, self._recorded = self._recorded, {}
        before, self._now.module = self._now.module, self.tree.module_of(function.node)
        self._now.functions.append(function)
        self._helpers += 1
        self._parameters.bind(function, frame, given)
        value = self.evaluator.evaluate(returned, frame)
        self._helpers -= 1
        self._now.functions.pop()
        self._now.module, self._recorded = before, recorded
        return value

    def made(self, call: cst.Call, cls: Class) -> Instance:
        """An object of a class of this file is made by a call."""
        return self._runs.ask(self._make, call, cls)

    def _make(self, call: cst.Call, cls: Class) -> Instance:
        self._targets[call] = cls
        self._runs_all.setdefault(call, {})[cls] = None
        instance = Instance(cls, call)
        self._now.found.instances.setdefault(cls, {})[instance] = None
        return instance

    # Rounds

    def _round(self) -> None:
        self._now.found = Facts()
        self._runs.begin()
        self._targets = {}
        self._runs_all = {}
        self._iterated = {}
        self._entered = set()
        self._contexts_of = Counter()
        before, self._called = self._called, set()
        for module in self.tree.modules:
            self._now.module = module
            run = self._runs.again(module, {}) or self._run_module(module)
            self._now.found.outer[module] = run.end
        self._run_waiting()
        # A helper that stands above the function which calls it is run by that call, with what is
        # known of its arguments: those that nothing called in the round before come first.
        for function in sorted(self.tree.functions.values(), key=before.__contains__):
            if function not in self._entered:
                for instance in self._contexts(function):
                    self._run(function, instance)
        self._run_waiting()

    def _run_waiting(self) -> None:
        """Run what was called at the end of a chain of calls too long for Python's own stack."""
        while self._waiting:
            waiting, self._waiting = self._waiting, {}
            for context in waiting:
                self._run(*context)

    def _contexts(self, function: Function) -> Sequence[Instance | None]:
        """For a function that nothing in the file is seen to call: the objects it may belong to.

        Of a method that is inherited these are those of the heirs too, which have the methods that
        it calls: ``self.compute_loss(batch)``.
        """
        owner = function.owner
        if owner is None or function.is_static:
            return [None]
        heirs = self.classes.heirs(function)
        made: dict[Instance, None] = {}
        for cls in (owner, *heirs):  # a factory further down made them in the round before
            made |= self._now.known.instances.get(cls, {})
            made |= self._now.found.instances.get(cls, {})
        nobody = [Instance(cls, None) for cls in (*heirs, owner)]
        return [*made][:_MOST_CONTEXTS] or nobody[:_MOST_CONTEXTS]

    def _run_module(self, module: cst.Module) -> Run:
        frame = Frame(None, None)
        with self._recorded_run(module, module, frame, {}) as run:
            self.statements.run(module.body, frame)
        return run

    def _run(self, function: Function, instance: Instance | None) -> None:
        self._now.functions.append(function)
        before, self._now.module = self._now.module, self.tree.module_of(function.node)
        context = (function, instance)
        given = dict(self._now.found.parameters.get(context, {}))
        run = self._runs.again(context, given) or self._run_function(function, instance, given)
        if run.result is not None:
            self._now.found.results[context] = run.result
        env = self._now.found.outer.get(function)
        self._now.found.outer[function] = run.end if env is None else join_env(env, run.end)
        self._now.functions.pop()
        self._now.module = before

    def _run_function(
        self, function: Function, instance: Instance | None, given: dict[str, Value]
    ) -> Run:
        frame = Frame(function, instance)
        with self._recorded_run((function, instance), function, frame, given) as run:
            self._parameters.bind(function, frame, given)
            node = function.node
            if isinstance(node, cst.Lambda):
                frame.result = self.evaluator.evaluate(node.body, frame)
            else:
                self.statements.run(node.body.body, frame)
        return run

    @contextlib.contextmanager
    def _recorded_run(
        self, key: Hashable, home: Function | cst.Module, frame: Frame, given: dict[str, Value]
    ) -> Iterator[Run]:
        with self._runs.recorded(key, given) as run:
            self._recorded, around = run.values, self._recorded
            self._now.frames[home] = frame
            yield run
            run.result, run.end = frame.result, self._end_env(frame)
            del self._now.frames[home]
            self._recorded = around

    def _end_env(self, frame: Frame) -> Env:
        return frame.left if frame.dead else {**frame.left, **frame.env}
