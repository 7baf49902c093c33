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
from typing import TYPE_CHECKING, TypeVar

import libcst as cst

from xladoctor.lint.model.evaluate import Evaluator
from xladoctor.lint.model.evidence import Evidence
from xladoctor.lint.model.facts import Context, Facts
from xladoctor.lint.model.frames import Frame, join_env
from xladoctor.lint.model.helpers import only_returned
from xladoctor.lint.model.hooks import Hooks
from xladoctor.lint.model.redefined import called_as_it_was
from xladoctor.lint.model.runs import Run, Runs
from xladoctor.lint.model.statements import Statements
from xladoctor.lint.model.syntax import Class, Function, Tree
from xladoctor.lint.model.trials import Trials
from xladoctor.lint.model.values import (
    NOTHING,
    UNKNOWN,
    Instance,
    Kind,
    Value,
    join,
    where_it_trains,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from xladoctor.lint.library import Library
    from xladoctor.lint.model.frames import Env
    from xladoctor.lint.model.names import LinkedNames, Names

_Defined = TypeVar("_Defined", Function, Class)

#: Programs reach their fixed point in two to four rounds.
_PATIENCE = 5
_MOST_CONTEXTS = 8
#: A value of more classes than these is any object.
_MOST_CLASSES = 6
_LONGEST_CHAIN = 20
#: How often a function runs that gives itself other arguments than it was given.
_RECURSIONS = 3
#: Helpers within helpers of which each call gets its own answer.
_HELPERS = 3
#: The mark of an object whose module was moved to the device; no attribute is called so.
_PLACED = " placed"


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
        self._xla = xla
        self._module = tree.modules[0]  # the one whose code runs just now
        self.known = Facts()
        self.found = Facts()
        self._recorded: dict[cst.CSTNode, Value] = {}  # by the run that is under way
        self._targets: dict[cst.Call, Function | Class] = {}
        self._runs_all: dict[cst.Call, dict[Function | Class, None]] = {}
        #: Calls that give the name of what they run.
        self.named: set[cst.Call] = set()
        self._iterated: dict[Function, dict[cst.BaseExpression, None]] = {}
        self._runs = Runs()
        self._frames: dict[
            Function | cst.Module | cst.FunctionDef, Frame
        ] = {}  # of what runs just now
        self.evaluator = Evaluator(self)
        self.statements = Statements(self, self.evaluator)
        self._evidence = Evidence(tree, names)
        self._trials = Trials(tree, xla, beside)
        self.hooks = Hooks(tree, names)
        self._running: list[Function] = []
        self._helpers = 0
        self._waiting: dict[Context, None] = {}
        self._entered: set[Function] = set()
        self._called: set[Function] = set()
        self._contexts_of: Counter[Function] = Counter()  # how many in this round
        for number in itertools.count(1):
            self._round()
            if number > _PATIENCE:
                self.found = self.known.joined(self.found)
            if self.found == self.known:
                break
            self.known = self.found
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

    def objects(self, value: Value) -> Sequence[Instance]:
        """What a value may be an object of: of one made by a known call, or of several classes."""
        if value.instance is not None:
            return (value.instance,)
        order = self.tree.order
        classes = sorted(value.classes, key=lambda cls: order[cls.node])
        return [Instance(cls, None) for cls in classes[:_MOST_CLASSES]]

    def in_order(self, known: frozenset[_Defined]) -> Sequence[_Defined]:
        """Functions or classes in the order of the program; of very many none."""
        found = sorted(known, key=lambda one: self.tree.order[one.node])
        return found if len(found) <= _MOST_CLASSES else ()

    def callers(self, function: Function) -> Sequence[cst.Call]:
        """The calls that call a function (for ``__init__``: that make an object)."""
        return self._callers.get(function, ())

    @functools.cached_property
    def _callers(self) -> dict[Function, list[cst.Call]]:
        found: dict[Function, list[cst.Call]] = {}
        for call in self._runs_all:
            for target in self.targets(call):
                method = self.method(target, "__init__") if isinstance(target, Class) else target
                if method is not None:
                    found.setdefault(method, []).append(call)
        return found

    def believes(self, node: cst.CSTNode | None = None) -> bool:
        """Whether the module of a node (or of the code that runs now) is for XLA devices."""
        module = self._module if node is None else self.tree.module_of(node)
        return module in self._xla

    def steps(self) -> bool:
        """Whether the code that runs now is of a module that takes steps on the device."""
        return self.believes() and self._evidence.takes_steps(self._module)

    def believed(self, name: str, value: Value, frame: Frame) -> Value:
        """What a name holds that is bound to a value, by what its function does with it."""
        value = self.as_device(name, value, frame)
        if value.kind not in {Kind.UNKNOWN, Kind.DEVICE_TENSOR} or not self.believes():
            return value
        home = frame.function or self._module
        if value.kind is Kind.DEVICE_TENSOR:
            # ``net = build(args).to(device)``
            whole = (
                not value.local
                and _is_move(value.origin)
                and self._evidence.is_model(home, name, moved=True)
            )
            return Value(Kind.MODEL, origin=value.origin, on_device=True) if whole else value
        if self._evidence.is_model(home, name, moved=False):
            return Value(Kind.MODEL, origin=value.origin, local=value.local)
        step = self._evidence.stepped(home, name)
        if step is None:
            return value
        return Value(Kind.DEVICE_TENSOR, origin=step, local=value.local)

    def as_device(self, text: str, value: Value, frame: Frame) -> Value:
        """The device of the family, if a device loader is given what is called so."""
        if value.kind not in {Kind.UNKNOWN, Kind.NUMBER, Kind.OTHER_DEVICE}:
            return value
        call = self._evidence.given_as_device(frame.function or self._module, text)
        return value if call is None else Value(Kind.DEVICE, origin=call)

    # What the evaluator asks and tells

    def record(self, node: cst.CSTNode, value: Value) -> None:
        """Remember what an expression was in this run."""
        values = self._recorded
        before = values.get(node)
        values[node] = value if before is None else join(before, value)

    def method(self, cls: Class, name: str, depth: int = 4) -> Function | None:
        """A method of a class or of its base classes in this file."""
        if name in cls.methods:
            return cls.methods[name]
        return self.inherited(cls, name, depth)

    def inherited(self, cls: Class, name: str, depth: int = 4) -> Function | None:
        """A method of the base classes of a class in this file."""
        for base in cls.bases if depth else ():
            outer = self.names.definition(base)
            if isinstance(outer, Class) and outer is not cls:
                found = self.method(outer, name, depth - 1)
                if found is not None:
                    return found
        return None

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
        frame = self._frames.get(self._module) if not self._running else None
        if frame is not None and function.node in self._replaced:
            self._runs.ask(self._keep, function.node, dict(frame.env))
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
        new = context not in self.found.parameters
        if new and instance is not None and self._contexts_of[function] >= _MOST_CONTEXTS:
            context = (function, Instance(instance.cls, None))
        self._entered.add(function)
        first = context not in self.found.parameters
        self._contexts_of[function] += first
        parameters = self.found.parameters.setdefault(context, {})
        before = dict(parameters)
        for name, value in arguments.items():
            parameters[name] = join(parameters[name], value) if name in parameters else value
        if (first or parameters != before) and function not in self._running:
            if len(self._running) < _LONGEST_CHAIN:
                for _ in range(_RECURSIONS):
                    given = dict(parameters)
                    self._run(*context)
                    if parameters == given:
                        break  # it gave itself nothing new
            else:
                self._waiting[context] = None
        if function not in self._running and self._helpers < _HELPERS:
            returned = only_returned(function)
            if returned is not None:
                return self._returned(function, context[1], arguments, returned)
        # A function that calls itself has, for now, returned nothing.
        otherwise = NOTHING if function in self._running else UNKNOWN
        return self.found.results.get(context) or self.known.results.get(context, otherwise)

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

    def _keep(self, node: cst.FunctionDef, env: Env) -> None:
        """What the file's names hold where it calls a function that it defines anew further on."""
        before = self.found.outer.get(node)
        self.found.outer[node] = env if before is None else join_env(before, env)

    def _home(self) -> cst.Module | cst.FunctionDef:
        """Where the names of the file are looked up that are not bound in a function.

        A notebook that defines ``train`` and ``main`` in one cell, calls ``main()``, and defines
        both anew in another: the first ``main`` calls the first ``train``.
        """
        first = self._running[0].node if self._running else None
        return (
            first
            if isinstance(first, cst.FunctionDef) and self._is_replaced(first)
            else (self._module)
        )

    def _is_replaced(self, node: cst.FunctionDef) -> bool:
        return node in self._replaced and self.tree.module_of(node) is self._module

    @functools.cached_property
    def _replaced(self) -> frozenset[cst.CSTNode]:
        return called_as_it_was(self.tree)

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
        before, self._module = self._module, self.tree.module_of(function.node)
        self._running.append(function)
        self._helpers += 1
        self._bind_parameters(function, frame, given)
        value = self.evaluator.evaluate(returned, frame)
        self._helpers -= 1
        self._running.pop()
        self._module, self._recorded = before, recorded
        return value

    def made(self, call: cst.Call, cls: Class) -> Instance:
        """An object of a class of this file is made by a call."""
        return self._runs.ask(self._make, call, cls)

    def _make(self, call: cst.Call, cls: Class) -> Instance:
        self._targets[call] = cls
        self._runs_all.setdefault(call, {})[cls] = None
        instance = Instance(cls, call)
        self.found.instances.setdefault(cls, {})[instance] = None
        return instance

    def lookup(self, name: str, frame: Frame) -> Value | None:
        """What a name holds: here, in the functions around, in the module."""
        if name in frame.env:
            return frame.env[name]
        outer = frame.function.outer if frame.function else None
        while outer is not None:
            value = self._runs.ask(self._outer, outer, name)
            if value is not None:
                return value
            outer = outer.outer
        return self._runs.ask(self._outer, self._home(), name)

    def _outer(self, home: Function | cst.Module | cst.FunctionDef, name: str) -> Value | None:
        """What a name of a function or module holds at its end, or as far as it ran."""
        env = self.known.outer.get(home)
        if env is None:  # in the first round
            frame = self._frames.get(home)
            env = frame.env if frame is not None else self.found.outer.get(home, {})
        value = env.get(name)
        for facts in (self.known, self.found):
            shared = facts.shared.get((home, name))  # type: ignore[arg-type]
            if shared is not None:
                return shared if value is None else join(value, shared)
        return value

    def share(self, name: str, value: Value) -> None:
        """A function sets a name of its file: ``global device``."""
        self._runs.ask(self._share, (self._module, name), value)

    def _share(self, place: tuple[cst.Module, str], value: Value) -> None:
        self.found.shared[place] = join(self.found.shared.get(place, NOTHING), value)

    def stored(self, instance: Instance, name: str) -> Value | None:
        """What an attribute of an object of this file holds."""
        return self._runs.ask(self._attribute, instance, name)

    def _attribute(self, instance: Instance, name: str) -> Value | None:
        for facts in (self.known, self.found):
            if instance.call is None:  # any object of the class
                made = (instance, *facts.instances.get(instance.cls, ()))
                held = [facts.attributes.get((key, name)) for key in made]
                known = [value for value in held if value is not None]
                if known:
                    return functools.reduce(join, known)
                continue
            for key in (instance, Instance(instance.cls, None)):
                value = facts.attributes.get((key, name))
                if value is not None:
                    return value
        return None

    def all_stored(self, instance: Instance) -> Value:
        """What the attributes of an object hold, whichever it is."""
        return self._runs.ask(self._all_attributes, instance)

    def _all_attributes(self, instance: Instance) -> Value:
        held = (
            value
            for facts in (self.known, self.found)
            for (key, _), value in facts.attributes.items()
            if key == instance
        )
        return functools.reduce(join, held, NOTHING)

    def store(self, instance: Instance, name: str, value: Value, *, anew: bool = False) -> None:
        """An attribute of an object of this file is set; of a class, ``anew``."""
        self._runs.ask(self._store, instance, name, value, anew)

    def _store(self, instance: Instance, name: str, value: Value, anew: bool) -> None:
        place = (instance, name)
        before = None if anew else self.found.attributes.get(place)
        self.found.attributes[place] = value if before is None else join(before, value)

    def place(self, module: Value) -> None:
        """A model is on the device: so is ``self`` in its methods."""
        if module.kind is Kind.MODEL and module.on_device:
            for instance in self.objects(module):
                self.store(instance, _PLACED, Value(Kind.MODEL, on_device=True))

    def imported(self, node: cst.BaseExpression) -> Value | None:
        """What an imported name holds at the end of the linked file it is from; None if it is not.

        A function or class is no such value: see ``names.definition``.
        """
        linked = self.names.linked(node)
        if linked is None:
            return None
        names, name = linked
        return self._runs.ask(self._outer, names.module, name) or UNKNOWN

    # Rounds

    def _round(self) -> None:
        self.found = Facts()
        self._runs.begin()
        self._targets = {}
        self._runs_all = {}
        self._iterated = {}
        self._entered = set()
        self._contexts_of = Counter()
        before, self._called = self._called, set()
        for module in self.tree.modules:
            self._module = module
            run = self._runs.again(module, {}) or self._run_module(module)
            self.found.outer[module] = run.end
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
        """For a function that nothing in the file is seen to call: the objects it may belong to."""
        owner = function.owner
        if owner is None or function.is_static:
            return [None]
        # A factory further down made them in the round before.
        made = {**self.known.instances.get(owner, {}), **self.found.instances.get(owner, {})}
        return [*made][:_MOST_CONTEXTS] or [Instance(owner, None)]

    def _run_module(self, module: cst.Module) -> Run:
        frame = Frame(None, None)
        with self._recorded_run(module, module, frame, {}) as run:
            self.statements.run(module.body, frame)
        return run

    def _run(self, function: Function, instance: Instance | None) -> None:
        self._running.append(function)
        before, self._module = self._module, self.tree.module_of(function.node)
        context = (function, instance)
        given = dict(self.found.parameters.get(context, {}))
        run = self._runs.again(context, given) or self._run_function(function, instance, given)
        if run.result is not None:
            self.found.results[context] = run.result
        env = self.found.outer.get(function)
        self.found.outer[function] = run.end if env is None else join_env(env, run.end)
        self._running.pop()
        self._module = before

    def _run_function(
        self, function: Function, instance: Instance | None, given: dict[str, Value]
    ) -> Run:
        frame = Frame(function, instance)
        with self._recorded_run((function, instance), function, frame, given) as run:
            self._bind_parameters(function, frame, given)
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
            self._frames[home] = frame
            yield run
            run.result, run.end = frame.result, self._end_env(frame)
            del self._frames[home]
            self._recorded = around

    def _end_env(self, frame: Frame) -> Env:
        return frame.left if frame.dead else {**frame.left, **frame.env}

    def _bind_parameters(self, function: Function, frame: Frame, given: dict[str, Value]) -> None:
        params = function.node.params
        named = [*params.posonly_params, *params.params, *params.kwonly_params]
        of_module = function.owner is not None and self.hooks.is_module(function.owner)
        for index, param in enumerate(named):
            name = param.name.value
            default = self.evaluator.evaluate(param.default, frame) if param.default else None
            value = given.get(name)
            if value is None:
                value = self._passed(function, index, param, default)
            elif of_module:
                value = where_it_trains(value)
            frame.env[name] = self.believed(name, value, frame)
        for star in (params.star_arg, params.star_kwarg):
            if isinstance(star, cst.Param):
                frame.env[star.name.value] = given.get(star.name.value, UNKNOWN)
        method = function
        while method.owner is None and method.outer is not None and frame.instance is not None:
            method = method.outer  # a function in a method: its ``self`` is that of the method
        if method.owner is not None and not method.is_static and method.parameters:
            name = method.parameters[0]
            if method is function or name not in frame.env:
                frame.env[name] = self._object(method, method.owner, frame)

    def _object(self, method: Function, owner: Class, frame: Frame) -> Value:
        """The object that a method is run on."""
        kind = Kind.MODEL if self.hooks.is_module(owner) else Kind.OBJECT
        instance = frame.instance or Instance(owner, None)
        placed = (
            kind is Kind.MODEL
            and method.name != "__init__"
            and self.stored(instance, _PLACED) is not None
        )
        return Value(kind, certain=True, instance=instance, on_device=placed)

    def _passed(
        self, function: Function, index: int, param: cst.Param, default: Value | None
    ) -> Value:
        """What a parameter holds that no call in the program gives."""
        given = self.hooks.given(function, index, param) if self.believes() else None
        if given is None:
            return default or UNKNOWN
        return given if default is None else join(given, default)


def _is_move(node: cst.CSTNode | None) -> bool:
    """``....to(device)``: what a model gives back is none, whatever is done with it."""
    return (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value in {"to", "cuda", "prepare", "setup"}
    )
