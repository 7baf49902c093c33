"""The value of a call of the program's own functions, classes and objects.

Methods: ``methods``; what libraries have: ``librarycall``.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import frameworks
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.by_name import GETATTR, takes
from xladoctor.lint.model.called_back import CalledBack
from xladoctor.lint.model.contained import (
    any_on_device,
    as_output,
    container,
    dictionary,
    element_of,
    first_origin,
    spread,
    together,
    under_names,
    without_places,
)
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.inherited import of_base
from xladoctor.lint.model.librarycall import LibraryCalls, makes_optimizer
from xladoctor.lint.model.methods import MethodEvaluator
from xladoctor.lint.model.records import fill
from xladoctor.lint.model.reflected import Reflected
from xladoctor.lint.model.syntax import Class, Function
from xladoctor.lint.model.values import (
    NUMBER,
    UNKNOWN,
    Arguments,
    Instance,
    Kind,
    Value,
    any_local,
    defined,
    join,
)
from xladoctor.lint.words import for_others

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from xladoctor.lint.model.evaluate import Evaluator
    from xladoctor.lint.model.frames import Frame

#: What is measured in a step.
_MEASURED = frozenset({Kind.NUMBER, Kind.ARRAY, Kind.DEVICE_TENSOR, Kind.CPU_TENSOR, Kind.UNKNOWN})
_TEXT_METHODS = ("__format__", "__str__", "__repr__")


class CallEvaluator:
    """Evaluates calls.

    Args:
        evaluator: Evaluates everything else.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._flow = evaluator.flow
        self._methods = MethodEvaluator(self, evaluator)
        self._back = CalledBack(self, evaluator.flow)
        self._libraries = LibraryCalls(self, self._back, evaluator.flow)
        self._reflected = Reflected(self, evaluator)

    def evaluate(self, node: cst.Call, frame: Frame) -> Value:
        """What a call gives back."""
        name = self._flow.names.resolve(node.func)
        receiver = UNKNOWN
        # By type and not by isinstance, which LibCST's abstract classes make slow.
        func = node.func if type(node.func) is cst.Attribute else None
        if func is not None and name is None:
            receiver = self._evaluator.evaluate(func.value, frame)
        arguments = self._evaluator.arguments(node, frame)
        if name in know.TOKENIZERS or "return_tensors" in [key for key, _ in arguments]:
            # A BatchEncoding, or the tensor of ``clip.tokenize``, is made on the host.
            tensor = Value(Kind.CPU_TENSOR, certain=True, origin=node, local=True)
            return tensor if name in know.TOKENIZERS else container(tensor)
        self._back.started(arguments)
        if func is not None and func.attr.value in know.MODULE_HOOKS:
            self._back.hooked(func.attr.value, receiver, arguments)
        if (name or (func.attr.value if func is not None else "")) in know.MAKES_TEXT:
            for _, value in arguments:
                self.as_text(node, value)
        if name is not None:
            found = self._reflected.evaluate(node, name, arguments, frame)
            return found or self._libraries.named(node, name, arguments, frame)
        return self._of_program(node, func, receiver, arguments, frame)

    def _of_program(
        self,
        node: cst.Call,
        func: cst.Attribute | None,
        receiver: Value,
        arguments: Arguments,
        frame: Frame,
    ) -> Value:
        """What a function, class or object gives back that is not of a library."""
        definition = self._flow.names.definition(node.func)
        if isinstance(definition, Class):
            return self._construct(node, definition, arguments)
        if definition is not None and func is not None:
            # A function of a linked file, by the file's name.
            function = Value(Kind.FUNCTION, certain=True, function=definition)
            return self.enter(node, definition, function, arguments)
        # By a name, or a lambda of a linked file by the file's name: ``constants.IS_MAIN()``.
        called = self._evaluator.evaluate(node.func, frame) if func is None else UNKNOWN
        if func is not None:
            called = self._flow.memory.imported(func) or UNKNOWN
        if called.kind is Kind.FUNCTION and called.function is not None:
            return self.enter(node, called.function, called, arguments)
        if called.kind is Kind.FUNCTION and (called.functions or called.makes):
            return self.one_of(node, called, arguments)
        if called.type_name == GETATTR and type(called.origin) is cst.Call:
            return self._reflected.by_names(node, called.origin, arguments, frame)
        if func is not None:
            inherited = of_base(self._flow, func, arguments, frame)
            if inherited is not None:
                method, value, given = inherited
                return self.enter(node, method, value, given)
            self._kept(func.value, func.attr.value, receiver, arguments, frame)
            return self._methods.evaluate(node, func, receiver, arguments, frame)
        if called.kind is Kind.UNKNOWN and called.roads:
            return self._on_each_road(node, called, arguments)
        self._kept(node.func, "__call__", called, arguments, frame)
        return self.object_called(node, called, arguments)

    def _kept(
        self,
        holder: cst.BaseExpression,
        method: str,
        value: Value,
        arguments: Arguments,
        frame: Frame,
    ) -> None:
        """``meter.update(loss.item())``: an object of another package keeps what one core has.

        What torchmetrics keeps is brought together over the cores when it is asked for.
        """
        meter = value.kind is Kind.OBJECT or (value == UNKNOWN and method == "update")
        if not meter or value.instance is not None or value.local:
            return
        if method not in know.KEEPS or (value.type_name or "").startswith(know.BROUGHT_TOGETHER):
            return
        if dotted_text(holder) is not None and any_local(
            given for _, given in arguments if given.kind in _MEASURED
        ):
            self._flow.statements.assign(holder, value.but(local=True), frame)

    def as_text(self, node: cst.Call, value: Value) -> None:
        """``print(meter)``: runs the method that makes a text of the object."""
        for instance in self._flow.classes.objects(value) if value.kind is Kind.OBJECT else ():
            found = (self._flow.classes.method(instance.cls, name) for name in _TEXT_METHODS)
            method = next((one for one in found if one is not None), None)
            if method is not None:
                bound = Value(Kind.FUNCTION, function=method, instance=instance)
                self.enter(node, method, bound, (), by_name=True)

    # Functions and classes of the file

    def enter(
        self,
        node: cst.Call | None,
        function: Function,
        bound: Value,
        arguments: Arguments,
        *,
        by_name: bool = False,
    ) -> Value:
        """A function or method of the file is called: by ``node``, or by a library (None).

        What a decorator has put in its place runs around it.

        ``by_name``: the call gives its name alone.
        """
        wrapper = self._flow.memory.wrapper(function)
        if wrapper is None:
            return self._enter(node, function, bound, arguments, by_name=by_name)
        if node is not None and wrapper in self._around(node):
            # ``fn(*args)``, which runs what the calls of the decorated function give it.
            return self._flow.result(function)
        given = (*bound.bound, *arguments)
        if function.owner is not None and function.is_bound:
            kind = Kind.MODEL if self._flow.hooks.is_module(function.owner) else Kind.OBJECT
            instance = bound.instance or Instance(function.owner, None)
            given = ((None, Value(kind, certain=True, instance=instance)), *given)
        around = self._enter(node, wrapper, defined(wrapper), given, by_name=by_name)
        within = self._enter(node, function, bound, arguments, by_name=by_name)
        # What a decorator of several gives back is any of theirs.
        alone = self._flow.memory.wraps_one(wrapper)
        return around if alone and around.kind not in {Kind.UNKNOWN, Kind.NOTHING} else within

    def _around(self, node: cst.CSTNode) -> Iterator[Function]:
        function = self._flow.tree.function_of(node)
        return iter(()) if function is None else function.around

    def _enter(
        self,
        node: cst.Call | None,
        function: Function,
        bound: Value,
        arguments: Arguments,
        *,
        by_name: bool = False,
    ) -> Value:
        names = list(function.arguments)
        given: dict[str, Value] = {}
        rest: list[Value] = []
        unnamed: list[Value] = []
        brought: list[tuple[str | None, Value]] = []
        counted = True
        for keyword, value in spread((*bound.bound, *arguments)):
            if keyword == "*":
                given.update((name, element_of(value)) for name in names)
                rest.append(element_of(value))
                names, counted = [], False
            elif keyword == "**":
                held = under_names(value)
                unnamed += held
                whole = value.kind is Kind.CONTAINER
                brought += [(None, value if whole else container(one)) for one in held]
            elif keyword is not None:
                given[keyword] = value
            elif names:
                given[names.pop(0)] = value
            else:
                rest.append(value)
        params = function.node.params
        if unnamed:
            value = functools.reduce(join, unnamed)
            given.update((name, value) for name in _without_default(function, names, given))
            given.update(self._or_none(function, names, given, value))
        if isinstance(params.star_kwarg, cst.Param):
            named = {*function.parameters, *function.keyword_only}
            more = [(name, given.pop(name)) for name in list(given) if name not in named]
            if more or unnamed:
                # ``**settings`` whose keys are not known may bring more of them.
                given[params.star_kwarg.name.value] = dictionary([*more, *brought])
        if isinstance(params.star_arg, cst.Param) and rest:
            places = container(None, tuple(rest))
            given[params.star_arg.name.value] = places if counted else without_places(places)
        value = self._flow.enter(node, function, bound.instance, given, named=by_name)
        return together(value) if self._asks_all_cores(function) else value

    def _asks_all_cores(self, function: Function) -> bool:
        """``compute()`` of a class of the program that is built on torchmetrics' Metric."""
        cls = function.owner if function.name == "compute" else None
        return cls is not None and self._flow.hooks.inherits(cls, frameworks.METRICS)

    def _or_none(
        self, function: Function, names: Sequence[str], given: Collection[str], value: Value
    ) -> Iterator[tuple[str, Value]]:
        """``forward(input_ids=None, labels=None)``: what ``**batch`` gives if it holds them."""
        for one in function.declared if value.is_device_tensor else ():
            name = one.name.value
            open_ = (name in names or name in function.keyword_only) and name not in given
            if open_ and one.default is not None and self._flow.hooks.takes_tensor(function, one):
                yield name, join(value, NUMBER)

    def _on_each_road(self, node: cst.Call, called: Value, arguments: Arguments) -> Value:
        """``wrapped(model)(x)`` of what is a model on one road and an object on the other."""
        results = []
        for road in called.roads:
            if road.kind is Kind.FUNCTION and road.function is not None:
                results.append(self.enter(node, road.function, road, arguments))
            elif road.kind in {Kind.MODEL, Kind.LOSS, Kind.OBJECT}:
                results.append(self.object_called(node, road, arguments))
        return functools.reduce(join, results) if results else UNKNOWN

    def one_of(self, node: cst.Call, called: Value, arguments: Arguments) -> Value:
        """``STEPS[kind](model, batch)``: any of the functions or classes in a dictionary."""
        given = (*called.bound, *arguments)
        results = [
            self.enter(node, function, called, arguments)
            for function in self._flow.classes.in_order(called.functions)
            if takes(function, given)
        ]
        results += [
            self._construct(node, cls, given)
            for cls in self._flow.classes.in_order(called.makes)
            if len(called.makes) == 1 or not for_others(cls.name)
        ]
        return functools.reduce(join, results) if results else UNKNOWN

    def _construct(self, node: cst.Call, cls: Class, arguments: Arguments) -> Value:
        instance = self._flow.made(node, cls)
        kind = Kind.MODEL if self._flow.hooks.is_module(cls) else Kind.OBJECT
        if self._flow.hooks.inherits(cls, know.LOADERS) and "__iter__" not in cls.methods:
            kind = Kind.LOADER
        if self._flow.hooks.is_optimizer(cls):
            kind = Kind.OPTIMIZER
        value = Value(kind, certain=True, origin=node, instance=instance)
        method = self._flow.classes.method(cls, "__init__")
        if method is not None:
            self.enter(None, method, value, arguments)
        else:
            fill(self._flow, instance, spread(arguments))
        if self._flow.hooks.is_trainer(cls):
            self._back.trained(arguments)
        return value

    def object_called(self, node: cst.Call, called: Value, arguments: Arguments) -> Value:
        """``model(x)``, ``criterion(a, b)``, ``meter(x)``."""
        result = UNKNOWN
        if called.kind is Kind.DEVICE_TENSOR:
            # What ``.to(device)`` gave back is a module after all: nobody calls a tensor.
            called = Value(Kind.MODEL, origin=called.origin, on_device=True)
        if called.type_name == know.NAMED_TUPLE:
            return container(None, tuple(one for _, one in arguments)).but(
                type_name=know.NAMED_TUPLE
            )
        if called.type_name == know.DATA_PARALLEL:
            return self._back.data_parallel(arguments)
        # A model's own ``__call__`` goes around ``forward``, or stands for it.
        names = ("__call__", "forward") if called.kind is Kind.MODEL else ("__call__",)
        self._flow.memory.place(called)
        given_back = [
            self.enter(node, method, called.but(instance=instance), arguments)
            for instance in self._flow.classes.objects(called)
            for name in names
            if (method := self._flow.classes.method(instance.cls, name)) is not None
        ]
        if given_back:
            result = functools.reduce(join, given_back)
        values = [value for _, value in arguments]
        if called.type_name == know.SEQUENTIAL and called.element is not None:
            result = self._in_turn(node, called, arguments)
        if called.kind in {Kind.MODEL, Kind.LOSS}:
            if result.kind in {Kind.DEVICE_TENSOR, Kind.CONTAINER, Kind.CPU_TENSOR}:
                return as_output(result, node)
            return self._model_output(node, called, values)
        if called.kind is Kind.OBJECT and called.instance is None:
            # Of another package: who takes what it gives back to the host believes it elsewhere.
            local, there = any_local(values), any_on_device(values)
            name = called.type_name or ""
            if there and name.startswith(know.GIVE_TENSORS) and not name.endswith(know.GIVE_OTHERS):
                return Value(Kind.DEVICE_TENSOR, origin=node, local=local)
            return Value(local=local, made_of_device=there)
        unread = called == UNKNOWN or called.kind is Kind.OPTIMIZER
        if unread and result == UNKNOWN and makes_optimizer(node):
            return Value(Kind.OPTIMIZER, origin=node)
        if called == UNKNOWN and result == UNKNOWN:
            # From a module that is imported with a star, or handed on.
            made = any_on_device(values) or any(value.made_of_device for value in values)
            return Value(made_of_device=made)
        return result

    def _in_turn(self, node: cst.Call, called: Value, arguments: Arguments) -> Value:
        """``nn.Sequential(a, b)(x)``: each gets what the one before gave back."""
        given = arguments
        for module in called.items or (element_of(called),):
            given = [(None, self.object_called(node, module, given))]
        return given[0][1]

    def _model_output(self, node: cst.Call, model: Value, values: Sequence[Value]) -> Value:
        # ``model(**batch)``: what the batch holds is one core's.
        local = any(value.local or element_of(value).local for value in values)
        if any_on_device(values) or model.on_device:
            # A loss of torch takes tensors of one device and gives one: of whom one is known, all.
            tensors = model.kind is Kind.LOSS and (model.type_name or "").startswith("torch.nn.")
            certain = tensors and any(one.is_device_tensor and one.certain for one in values)
            origin = first_origin(values) or node
            return Value(Kind.DEVICE_TENSOR, certain=certain, origin=origin, local=local)
        if values and all(value.kind is Kind.CPU_TENSOR for value in values):
            return Value(Kind.CPU_TENSOR, origin=node, local=local)
        return Value(local=local, made_of_device=self._flow.belief.steps())


def _without_default(
    function: Function, names: Sequence[str], given: Collection[str]
) -> Iterator[str]:
    """The parameters that ``**batch`` has to give: they have no default, and nobody gives them."""
    for one in function.declared:
        name = one.name.value
        open_ = name in names or name in function.keyword_only
        if open_ and one.default is None and name not in given:
            yield name
