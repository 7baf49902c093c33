"""Kinds of value through a file: what each expression evaluates to.

An abstract run of the module and of every function in it. Statements run in order, branches are
joined, loop bodies run again while their beginning changes. A call runs the function it calls if
its arguments say something new; what is only known later (globals, attributes that another method
sets) is there in the next round, until nothing changes or ``_ROUNDS`` are over. Methods are
run once per object they are called on, so that ``batch_time.avg`` (numbers) is not confused with
``losses.avg`` (device tensors) of the same class.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeAlias

import libcst as cst

from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.evaluate import Evaluator
from xladoctor.lint.model.names import dotted_text
from xladoctor.lint.model.syntax import Class, Function, Tree
from xladoctor.lint.model.values import (
    NUMBER,
    UNKNOWN,
    Instance,
    Kind,
    Value,
    container,
    element_of,
    join,
    unpack,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.lint.model.names import Names

_ROUNDS = 5
_MOST_CONTEXTS = 8

Env: TypeAlias = dict[str, Value]
Context: TypeAlias = tuple[Function | None, Instance | None]


class Frame:
    """One run of a function (or of the module) with what its names hold just now."""

    def __init__(self, function: Function | None, instance: Instance | None) -> None:
        self.function = function
        self.instance = instance
        self.env: Env = {}
        self.dead = False
        self.result: Value | None = None
        self.left: Env = {}


class Facts:
    """What one round found out for the next."""

    def __init__(self) -> None:
        self.parameters: dict[Context, dict[str, Value]] = {}
        self.results: dict[Context, Value] = {}
        self.attributes: dict[tuple[Instance, str], Value] = {}
        self.outer: dict[Function | None, Env] = {}
        self.instances: dict[Class, dict[Instance, None]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Facts) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


class Flow:
    """Values of expressions and targets of calls.

    Args:
        tree: The file's syntax.
        names: What its names are bound to.
        is_xla: Whether the file is for XLA devices: only then are names such as ``device`` or the
            arguments of ``forward`` believed.
    """

    def __init__(self, tree: Tree, names: Names, *, is_xla: bool) -> None:
        self.tree = tree
        self.names = names
        self.is_xla = is_xla
        self.known = Facts()
        self.found = Facts()
        self._values: dict[cst.CSTNode, Value] = {}
        self._targets: dict[cst.Call, Function | Class] = {}
        self._evaluator = Evaluator(self)
        self._is_module: dict[Class, bool] = {}
        self._running: list[Function] = []
        for _ in range(_ROUNDS):
            self._round()
            if self.found == self.known:
                break
            self.known = self.found

    def value(self, node: cst.BaseExpression) -> Value:
        """What an expression evaluates to."""
        return self._values.get(node, UNKNOWN)

    def target(self, node: cst.Call) -> Function | Class | None:
        """The function or class of this file that a call calls."""
        return self._targets.get(node)

    def callers(self, function: Function) -> Sequence[cst.Call]:
        """The calls that call a function (for ``__init__``: that make an object)."""
        return self._callers.get(function, ())

    @functools.cached_property
    def _callers(self) -> dict[Function, list[cst.Call]]:
        found: dict[Function, list[cst.Call]] = {}
        for call, target in self._targets.items():
            if isinstance(target, Class):
                method = self.method(target, "__init__")
                if method is None:
                    continue
                target = method
            found.setdefault(target, []).append(call)
        return found

    # What the evaluator asks and tells

    def record(self, node: cst.CSTNode, value: Value) -> None:
        """Remember what an expression was in this round; several runs are joined."""
        before = self._values.get(node)
        self._values[node] = value if before is None else join(before, value)

    def method(self, cls: Class, name: str, depth: int = 4) -> Function | None:
        """A method of a class or of its base classes in this file."""
        if name in cls.methods:
            return cls.methods[name]
        for base in cls.bases if depth else ():
            outer = self.names.definition(base)
            if isinstance(outer, Class) and outer is not cls:
                found = self.method(outer, name, depth - 1)
                if found is not None:
                    return found
        return None

    def inherits(self, cls: Class, names: frozenset[str], depth: int = 4) -> bool:
        """Whether a class has one of these base classes, through classes of this file too."""
        for base in cls.bases:
            if (self.names.resolve(base) or "") in names:
                return True
            outer = self.names.definition(base)
            if depth and isinstance(outer, Class) and self.inherits(outer, names, depth - 1):
                return True
        return False

    def is_module(self, cls: Class) -> bool:
        """Whether its objects are models."""
        if cls not in self._is_module:
            names = know.MODULES | know.LIGHTNING_MODULES
            self._is_module[cls] = self.inherits(cls, names)
        return self._is_module[cls]

    def enter(
        self,
        call: cst.Call | None,
        function: Function,
        instance: Instance | None,
        arguments: dict[str, Value],
    ) -> Value:
        """A call of a function of this file: remember the arguments, give what it returns."""
        if call is not None:
            self._targets[call] = function
        context = (function, instance)
        if context not in self.found.parameters and instance is not None:
            contexts = [key for key in self.found.parameters if key[0] is function]
            if len(contexts) >= _MOST_CONTEXTS:
                context = (function, Instance(instance.cls, None))
        first = context not in self.found.parameters
        parameters = self.found.parameters.setdefault(context, {})
        before = dict(parameters)
        for name, value in arguments.items():
            parameters[name] = join(parameters[name], value) if name in parameters else value
        if (first or parameters != before) and function not in self._running:
            self._run(*context)
        return self.found.results.get(context) or self.known.results.get(context, UNKNOWN)

    def made(self, call: cst.Call, cls: Class) -> Instance:
        """An object of a class of this file is made by a call."""
        self._targets[call] = cls
        instance = Instance(cls, call)
        self.found.instances.setdefault(cls, {})[instance] = None
        return instance

    def lookup(self, name: str, frame: Frame) -> Value | None:
        """What a name holds: here, in the functions around, in the module."""
        if name in frame.env:
            return frame.env[name]
        outer = frame.function.outer if frame.function else None
        while outer is not None:
            env = self.known.outer.get(outer, {})
            if name in env:
                return env[name]
            outer = outer.outer
        return self.known.outer.get(None, {}).get(name)

    # Rounds

    def _round(self) -> None:
        self.found = Facts()
        self._values = {}
        self._targets = {}
        frame = Frame(None, None)
        self.run_block(self.tree.module.body, frame)
        self.found.outer[None] = self._end_env(frame)
        for function in self.tree.functions.values():
            if function not in {key[0] for key in self.found.parameters}:
                for instance in self._contexts(function):
                    self._run(function, instance)

    def _contexts(self, function: Function) -> list[Instance | None]:
        """For a function that nothing in the file is seen to call: the objects it may belong to."""
        owner = function.owner
        if owner is None or function.is_static:
            return [None]
        return list(self.found.instances.get(owner, ())) or [Instance(owner, None)]

    def _run(self, function: Function, instance: Instance | None) -> None:
        self._running.append(function)
        frame = Frame(function, instance)
        given = self.found.parameters.get((function, instance), {})
        self._bind_parameters(function, frame, given)
        node = function.node
        if isinstance(node, cst.Lambda):
            frame.result = self._evaluator.evaluate(node.body, frame)
        else:
            self.run_block(node.body.body, frame)
        if frame.result is not None:
            self.found.results[(function, instance)] = frame.result
        env = self.found.outer.get(function)
        end = self._end_env(frame)
        self.found.outer[function] = end if env is None else _join_env(env, end)
        self._running.pop()

    def _end_env(self, frame: Frame) -> Env:
        return frame.left if frame.dead else {**frame.left, **frame.env}

    def _bind_parameters(self, function: Function, frame: Frame, given: dict[str, Value]) -> None:
        params = function.node.params
        named = [*params.posonly_params, *params.params, *params.kwonly_params]
        for index, param in enumerate(named):
            name = param.name.value
            default = self._evaluator.evaluate(param.default, frame) if param.default else None
            value = given.get(name)
            if value is None:
                value = self._guess_parameter(function, index, param) or default or UNKNOWN
            frame.env[name] = value
        for star in (params.star_arg, params.star_kwarg):
            if isinstance(star, cst.Param):
                frame.env[star.name.value] = given.get(star.name.value, UNKNOWN)
        if function.owner is not None and not function.is_static and function.parameters:
            kind = Kind.MODEL if self.is_module(function.owner) else Kind.OBJECT
            instance = frame.instance or Instance(function.owner, None)
            frame.env[function.parameters[0]] = Value(kind, certain=True, instance=instance)

    def _guess_parameter(self, function: Function, index: int, param: cst.Param) -> Value | None:
        """What a framework or PyTorch passes to a method of that name."""
        if not self.is_xla or function.owner is None or index == 0:
            return None
        if param.default is not None or _is_host_annotation(param):
            return None
        steps = know.LIGHTNING_STEPS | know.LIGHTNING_EVALS
        lightning = function.name in steps and self.inherits(function.owner, know.LIGHTNING_MODULES)
        if lightning and index > 1:
            return NUMBER
        if lightning or (function.name == "forward" and self.is_module(function.owner)):
            return Value(Kind.DEVICE_TENSOR, origin=function.node, local=True)
        return None

    # Statements

    def run_block(self, body: Sequence[cst.CSTNode], frame: Frame) -> None:
        """Run statements in order; ``frame.dead`` is set if the end is not reached."""
        for statement in body:
            self._statement(statement, frame)

    def _statement(self, node: cst.CSTNode, frame: Frame) -> None:
        if isinstance(node, cst.SimpleStatementLine | cst.SimpleStatementSuite):
            for part in node.body:
                self._simple(part, frame)
        elif isinstance(node, cst.If):
            self._if(node, frame)
        elif isinstance(node, cst.For):
            iterated = self._evaluator.evaluate(node.iter, frame)
            self._loop(node, frame, lambda: self.assign(node.target, element_of(iterated), frame))
        elif isinstance(node, cst.While):
            self._loop(node, frame, lambda: self._evaluator.evaluate(node.test, frame))
        elif isinstance(node, cst.With):
            for item in node.items:
                value = self._evaluator.evaluate(item.item, frame)
                if item.asname is not None:
                    self.assign(item.asname.name, value, frame)
            self.run_block(node.body.body, frame)
        elif isinstance(node, cst.Try | cst.TryStar):
            self._try(node, frame)
        elif isinstance(node, cst.Match):
            self._match(node, frame)
        elif isinstance(node, cst.FunctionDef):
            for item in node.decorators:
                self._evaluator.evaluate(item.decorator, frame)
            function = self.tree.functions[node]
            frame.env[function.name] = Value(Kind.FUNCTION, certain=True, function=function)
        elif isinstance(node, cst.ClassDef):
            inner = Frame(frame.function, None)
            inner.env = dict(frame.env)
            self.run_block(node.body.body, inner)
            cls = self.tree.classes[node]
            for name, value in inner.env.items():
                if value is not frame.env.get(name) and name not in cls.methods:
                    self.found.attributes[(Instance(cls, None), name)] = value

    def _simple(self, node: cst.CSTNode, frame: Frame) -> None:
        evaluate = self._evaluator.evaluate
        if isinstance(node, cst.Expr):
            evaluate(node.value, frame)
        elif isinstance(node, cst.Assign):
            value = evaluate(node.value, frame)
            for target in node.targets:
                self.assign(target.target, value, frame)
        elif isinstance(node, cst.AnnAssign):
            if node.value is not None:
                self.assign(node.target, evaluate(node.value, frame), frame)
        elif isinstance(node, cst.AugAssign):
            self.assign(node.target, self._evaluator.augmented(node, frame), frame)
        elif isinstance(node, cst.Return):
            value = evaluate(node.value, frame) if node.value is not None else NUMBER
            frame.result = value if frame.result is None else join(frame.result, value)
            frame.left = {**frame.left, **frame.env}
            frame.dead = True
        elif isinstance(node, cst.Raise | cst.Assert):
            for child in (getattr(node, "exc", None), getattr(node, "test", None)):
                if child is not None:
                    evaluate(child, frame)
            frame.dead = frame.dead or isinstance(node, cst.Raise)
        elif isinstance(node, cst.Break | cst.Continue):
            frame.left = {**frame.left, **frame.env}
            frame.dead = True
        elif isinstance(node, cst.Del) and isinstance(node.target, cst.Name):
            frame.env.pop(node.target.value, None)

    def _branch(
        self, body: Sequence[cst.CSTNode], frame: Frame, start: Env, ends: list[Env]
    ) -> None:
        frame.env, frame.dead = dict(start), False
        self.run_block(body, frame)
        if not frame.dead:
            ends.append(frame.env)

    def _merge(self, frame: Frame, ends: list[Env], fallback: Env) -> None:
        frame.dead = not ends
        frame.env = functools.reduce(_join_env, ends) if ends else fallback

    def _if(self, node: cst.If, frame: Frame) -> None:
        self._evaluator.evaluate(node.test, frame)
        start = frame.env
        ends: list[Env] = []
        self._branch(node.body.body, frame, start, ends)
        if isinstance(node.orelse, cst.If):
            self._branch([node.orelse], frame, start, ends)
        elif isinstance(node.orelse, cst.Else):
            self._branch(node.orelse.body.body, frame, start, ends)
        else:
            ends.append(start)
        self._merge(frame, ends, start)

    def _loop(self, node: cst.For | cst.While, frame: Frame, head: object) -> None:
        assert callable(head)
        start = dict(frame.env)
        for _ in range(2):
            frame.env, frame.dead = dict(start), False
            head()
            self.run_block(node.body.body, frame)
            # ``continue`` and ``break`` leave the body as well.
            joined = _join_env(start, {**frame.left, **frame.env})
            if joined == start:
                break
            start = joined
        frame.env, frame.dead = dict(start), False
        if node.orelse is not None:
            self.run_block(node.orelse.body.body, frame)

    def _try(self, node: cst.Try | cst.TryStar, frame: Frame) -> None:
        start = dict(frame.env)
        ends: list[Env] = []
        body = [*node.body.body, *(node.orelse.body.body if node.orelse else ())]
        self._branch(body, frame, start, ends)
        middle = _join_env(start, frame.env)
        for handler in node.handlers:
            self._branch(handler.body.body, frame, middle, ends)
        self._merge(frame, ends, middle)
        if node.finalbody is not None:
            self.run_block(node.finalbody.body.body, frame)

    def _match(self, node: cst.Match, frame: Frame) -> None:
        self._evaluator.evaluate(node.subject, frame)
        start = frame.env
        ends = [start]
        for case in node.cases:
            self._branch(case.body.body, frame, start, ends)
        self._merge(frame, ends, start)

    def assign(self, target: cst.CSTNode, value: Value, frame: Frame) -> None:
        """Bind a target (name, attribute, subscript or tuple of them) to a value."""
        if isinstance(target, cst.Tuple | cst.List):
            parts = unpack(value, len(target.elements))
            for element, part in zip(target.elements, parts, strict=True):
                if isinstance(element, cst.StarredElement):
                    part = container(part)
                self.assign(element.value, part, frame)
            return
        if isinstance(target, cst.Name):
            frame.env[target.value] = value
            for key in [key for key in frame.env if key.startswith(target.value + ".")]:
                del frame.env[key]
            self.record(target, value)
            return
        if isinstance(target, cst.Subscript):
            self._evaluator.evaluate(target, frame)
            self.put_into(target.value, value, frame)
        elif isinstance(target, cst.Attribute):
            holder = self._evaluator.evaluate(target.value, frame)
            text = dotted_text(target)
            if text is not None:
                frame.env[text] = value
            if holder.instance is not None:
                key = (holder.instance, target.attr.value)
                before = self.found.attributes.get(key)
                self.found.attributes[key] = value if before is None else join(before, value)
            self.record(target, value)

    def put_into(self, holder: cst.BaseExpression, value: Value, frame: Frame) -> None:
        """``holder[...] = value`` or ``holder.append(value)``: the container's elements change."""
        text = dotted_text(holder)
        if text is None:
            return
        before = self._evaluator.evaluate(holder, frame)
        if before.kind is Kind.CONTAINER:
            inner = element_of(before) if before.element or before.items else None
            after = container(value if inner is None else join(inner, value))
            self.assign(holder, after, frame)


def _join_env(one: Env, other: Env) -> Env:
    joined = dict(one)
    for name, value in other.items():
        joined[name] = join(joined[name], value) if name in joined else value
    return joined


def _is_host_annotation(param: cst.Param) -> bool:
    annotation = param.annotation.annotation if param.annotation else None
    return isinstance(annotation, cst.Name) and annotation.value in {"int", "bool", "str", "float"}
