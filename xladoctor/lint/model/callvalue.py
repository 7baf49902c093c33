"""The value of a call: functions of the file, of PyTorch and torch_xla, methods of what is known."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, TypeAlias

import libcst as cst

from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.names import dotted_text
from xladoctor.lint.model.syntax import Class, Function
from xladoctor.lint.model.values import (
    NUMBER,
    UNKNOWN,
    Kind,
    Value,
    container,
    element_of,
    join,
    likely,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.lint.model.evaluate import Evaluator
    from xladoctor.lint.model.flow import Frame

Arguments: TypeAlias = "Sequence[tuple[str | None, Value]]"


class CallEvaluator:
    """Evaluates calls.

    Args:
        evaluator: Evaluates everything else.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._flow = evaluator.flow

    def evaluate(self, node: cst.Call, frame: Frame) -> Value:
        """What a call gives back."""
        name = self._flow.names.resolve(node.func)
        receiver = UNKNOWN
        if isinstance(node.func, cst.Attribute) and name is None:
            receiver = self._evaluator.evaluate(node.func.value, frame)
        arguments = self._evaluator.arguments(node, frame)
        if name is not None:
            return self._named(node, name, arguments, frame)
        definition = self._flow.names.definition(node.func)
        if isinstance(definition, Class):
            return self._construct(node, definition, arguments)
        called = (
            self._evaluator.evaluate(node.func, frame)
            if not isinstance(node.func, cst.Attribute)
            else UNKNOWN
        )
        if called.kind is Kind.FUNCTION and called.function is not None:
            return self._enter(node, called.function, called, arguments)
        if isinstance(node.func, cst.Attribute):
            return self._method(node, node.func, receiver, arguments, frame)
        return self._object_called(node, called, arguments)

    # Functions and classes of the file

    def _enter(
        self, node: cst.Call | None, function: Function, bound: Value, arguments: Arguments
    ) -> Value:
        names = list(function.parameters)
        if function.owner is not None and not function.is_static and names:
            names = names[1:]
        given: dict[str, Value] = {}
        for keyword, value in arguments:
            if keyword == "*":
                given.update((name, element_of(value)) for name in names)
                names = []
            elif keyword == "**":
                continue
            elif keyword is not None:
                given[keyword] = value
            elif names:
                given[names.pop(0)] = value
        return self._flow.enter(node, function, bound.instance, given)

    def _construct(self, node: cst.Call, cls: Class, arguments: Arguments) -> Value:
        instance = self._flow.made(node, cls)
        kind = Kind.MODEL if self._flow.is_module(cls) else Kind.OBJECT
        value = Value(kind, certain=True, origin=node, instance=instance)
        method = self._flow.method(cls, "__init__")
        if method is not None:
            self._enter(None, method, value, arguments)
        return value

    def _object_called(self, node: cst.Call, called: Value, arguments: Arguments) -> Value:
        """``model(x)``, ``criterion(a, b)``, ``meter(x)``."""
        result = UNKNOWN
        if called.instance is not None:
            name = "forward" if called.kind is Kind.MODEL else "__call__"
            method = self._flow.method(called.instance.cls, name)
            if method is not None:
                result = self._enter(node, method, called, arguments)
        if called.kind in {Kind.MODEL, Kind.LOSS}:
            if result.kind in {Kind.DEVICE_TENSOR, Kind.CONTAINER, Kind.CPU_TENSOR}:
                return result
            return self._model_output(node, called, [value for _, value in arguments])
        return result

    def _model_output(self, node: cst.Call, model: Value, values: Sequence[Value]) -> Value:
        local = any(value.local for value in values)
        if any(value.holds_device_tensor for value in values) or model.on_device:
            return Value(Kind.DEVICE_TENSOR, origin=_origin(values) or node, local=local)
        if values and all(value.kind is Kind.CPU_TENSOR for value in values):
            return Value(Kind.CPU_TENSOR, origin=node, local=local)
        return Value(local=local)

    # Functions of libraries

    def _named(self, node: cst.Call, name: str, arguments: Arguments, frame: Frame) -> Value:
        values = [value for _, value in arguments]
        first = values[0] if values else UNKNOWN
        local = any(value.local for value in values)
        if name.startswith("builtins."):
            return self._builtin(name, arguments, frame)
        if name in know.REDUCES:
            return self._reduced(node, name, values, frame)
        if name.startswith("torch_xla"):
            return self._torch_xla(node, name, arguments, first)
        if name in know.WRAPPERS or name in know.PASS_ON:
            return dataclasses.replace(first, type_name=name)
        if name in know.CORE_NUMBERS:
            return Value(Kind.CORE_NUMBER, certain=True, origin=node, local=True)
        if name.startswith("numpy."):
            return Value(Kind.ARRAY, certain=True, local=local)
        if name.startswith(know.HOST_MODULES):
            return dataclasses.replace(NUMBER, local=local)
        if name == "functools.partial":
            return first
        if name.startswith("torch.") or name == "torch":
            return self._torch(node, name, arguments)
        return self._library(node, name, values)

    def _builtin(self, name: str, arguments: Arguments, frame: Frame) -> Value:
        del frame
        values = [value for _, value in arguments]
        first = values[0] if values else UNKNOWN
        local = any(value.local for value in values)
        if name in know.PASS_ON:
            return dataclasses.replace(first, items=None) if values else container(None)
        if name in know.HOST_BUILTINS:
            kept = local and name in {"builtins.int", "builtins.float", "builtins.bool"}
            return dataclasses.replace(NUMBER, local=kept)
        if name == "builtins.range":
            return container(NUMBER)
        if name == "builtins.enumerate":
            return container(container(None, (NUMBER, element_of(first))))
        if name == "builtins.zip":
            return container(container(None, tuple(element_of(value) for value in values)))
        if name in {"builtins.next", "builtins.sum", "builtins.filter"}:
            inner = element_of(values[-1] if name == "builtins.filter" else first)
            return container(inner) if name == "builtins.filter" else inner
        if name in {"builtins.max", "builtins.min", "builtins.abs"}:
            parts = [element_of(v) if v.kind is Kind.CONTAINER else v for v in values]
            return functools.reduce(join, parts) if parts else UNKNOWN
        if name == "builtins.map" and first.function is not None:
            given = [(None, element_of(value)) for value in values[1:]]
            return container(self._enter(None, first.function, first, given))
        if name in {"builtins.dict", "builtins.getattr"}:
            return container(None) if name == "builtins.dict" else UNKNOWN
        return UNKNOWN

    def _reduced(self, node: cst.Call, name: str, values: Sequence[Value], frame: Frame) -> Value:
        """Afterwards every core holds the same: also in place, in the tensors of a list."""
        for argument in node.args:
            parts = (
                [element.value for element in argument.value.elements]
                if isinstance(argument.value, cst.List)
                else [argument.value]
            )
            for part in parts:
                text = dotted_text(part)
                if text is not None and text in frame.env:
                    frame.env[text] = dataclasses.replace(frame.env[text], local=False)
        if name.endswith(".mesh_reduce"):
            return NUMBER
        tensors = [value for value in values if value.holds_device_tensor]
        return dataclasses.replace(tensors[0], local=False) if tensors else UNKNOWN

    def _torch_xla(self, node: cst.Call, name: str, arguments: Arguments, first: Value) -> Value:
        if name in know.DEVICES:
            return Value(Kind.DEVICE, certain=True, origin=node)
        if name in know.CORE_NUMBERS:
            return Value(Kind.CORE_NUMBER, certain=True, origin=node, local=True)
        if name in know.IS_MASTER:
            return Value(Kind.IS_MASTER, certain=True, origin=node, local=True)
        if name in know.DEVICE_LOADERS:
            return Value(Kind.DEVICE_LOADER, certain=True, origin=node, element=first)
        if name == f"{know.PL}.ParallelLoader":
            return Value(Kind.PARALLEL_LOADER, certain=True, origin=node, element=first)
        if name in know.WRAPPERS or "FullySharded" in name:
            return dataclasses.replace(first, on_device=first.on_device or "Fully" in name)
        if name.startswith("torch_xla.amp.syncfree") or ".optim." in name:
            return Value(Kind.OPTIMIZER, certain=True, origin=node)
        if name in know.SPAWNERS:
            self._spawned(name, arguments)
            return UNKNOWN
        if name.rpartition(".")[2].startswith(("xrt_world_size", "world_size", "global_device")):
            return NUMBER
        if name.endswith("add_step_closure"):
            self._closure(arguments)
        return UNKNOWN

    def _spawned(self, name: str, arguments: Arguments) -> None:
        """The function gets the number of its core first, then ``args``."""
        keywords = {key: value for key, value in arguments if key is not None}
        positional = [value for key, value in arguments if key is None]
        function = keywords.get(know.SPAWNERS[name], positional[0] if positional else UNKNOWN)
        extra = keywords.get("args", positional[1] if len(positional) > 1 else container(None))
        if function.function is None:
            return
        core = Value(Kind.CORE_NUMBER, certain=True, local=True)
        given: list[tuple[str | None, Value]] = [(None, core)]
        if name.endswith("notebook_launcher"):
            given = []
        given.extend((None, item) for item in extra.items or ())
        self._enter(None, function.function, function, given)

    def _closure(self, arguments: Arguments) -> None:
        positional = [value for key, value in arguments if key is None]
        keywords = {key: value for key, value in arguments if key is not None}
        function = positional[0] if positional else keywords.get("closure", UNKNOWN)
        extra = keywords.get("args", positional[1] if len(positional) > 1 else UNKNOWN)
        if function.function is not None and extra.items:
            given = [(None, item) for item in extra.items]
            self._enter(None, function.function, function, given)

    def _torch(self, node: cst.Call, name: str, arguments: Arguments) -> Value:
        values = [value for _, value in arguments]
        last = name.rpartition(".")[2]
        if name == "torch.device":
            return self._torch_device(node, values)
        if name in know.HOST_FUNCTIONS:
            return NUMBER
        if name in know.DATA_LOADERS:
            return Value(Kind.LOADER, certain=True, origin=node)
        if name.startswith("torch.utils.data.") and last.endswith("Sampler"):
            return Value(Kind.SAMPLER, certain=True, origin=node, type_name=name)
        if name.startswith("torch.optim.lr_scheduler."):
            return Value(Kind.SCHEDULER, certain=True, origin=node, type_name=name)
        if name.startswith("torch.optim."):
            return Value(Kind.OPTIMIZER, certain=True, origin=node, type_name=name)
        if name.startswith("torch.nn.") and last[:1].isupper() and ".utils." not in name:
            kind = Kind.LOSS if last.endswith("Loss") else Kind.MODEL
            return Value(kind, certain=True, origin=node, type_name=name)
        if name == "torch.hub.load":
            return Value(Kind.MODEL, origin=node)
        if name == "torch.Generator" or name.startswith("torch.utils."):
            return UNKNOWN
        return self._tensor_function(node, name, arguments)

    def _torch_device(self, node: cst.Call, values: Sequence[Value]) -> Value:
        argument = node.args[0].value if node.args else None
        if isinstance(argument, cst.SimpleString):
            xla = argument.evaluated_value[:3] in {"xla", b"xla"}
            return Value(Kind.DEVICE if xla else Kind.OTHER_DEVICE, certain=True, origin=node)
        if values and values[0].kind in {Kind.DEVICE, Kind.OTHER_DEVICE}:
            return values[0]
        return UNKNOWN

    def _tensor_function(self, node: cst.Call, name: str, arguments: Arguments) -> Value:
        values = [value for _, value in arguments]
        local = any(value.local for value in values)
        device = next((value for key, value in arguments if key == "device"), None)
        if device is not None:
            return on_device(device, node, local=local)
        known = [value for value in values if value.holds_device_tensor]
        if known:
            certain = any(value.certain for value in known)
            return Value(Kind.DEVICE_TENSOR, certain, _origin(known), local=local)
        if name in know.FACTORIES:
            return Value(Kind.CPU_TENSOR, certain=True, origin=node, local=local)
        tensors = [_flat(value) for value in values if value.kind is not Kind.NUMBER]
        if tensors and all(value.kind is Kind.CPU_TENSOR for value in tensors):
            return Value(Kind.CPU_TENSOR, certain=True, origin=node, local=local)
        return Value(local=local)

    def _library(self, node: cst.Call, name: str, values: Sequence[Value]) -> Value:
        last = name.rpartition(".")[2]
        parts = name.split(".")
        if last == "from_pretrained":
            owner = parts[-2] if len(parts) > 1 else ""
            if know.NOT_MODELS.search(owner):
                return UNKNOWN
            return Value(Kind.MODEL, origin=node, type_name=name)
        if name.startswith("torchvision.models.") or name == "timm.create_model":
            return Value(Kind.MODEL, certain=True, origin=node, type_name=name)
        if parts[0] in {"transformers", "timm", "apex", "adamp", "torch_optimizer"} and (
            last.startswith(("Adam", "Adafactor", "Lamb", "create_optimizer", "SGD"))
        ):
            return Value(Kind.OPTIMIZER, certain=True, origin=node)
        if last[:1].isupper():
            return Value(Kind.OBJECT, certain=True, origin=node, type_name=name)
        return Value(local=any(value.local for value in values))

    # Methods

    def _method(
        self,
        node: cst.Call,
        func: cst.Attribute,
        receiver: Value,
        arguments: Arguments,
        frame: Frame,
    ) -> Value:
        name = func.attr.value
        held = self._evaluator.evaluate(func, frame) if receiver.instance is not None else UNKNOWN
        if held.kind is Kind.FUNCTION and held.function is not None:
            return self._enter(node, held.function, held, arguments)
        if held.kind in {Kind.MODEL, Kind.LOSS, Kind.OBJECT}:
            return self._object_called(node, held, arguments)
        if receiver.kind in {Kind.DEVICE_TENSOR, Kind.CPU_TENSOR}:
            return self._tensor_method(node, name, receiver, arguments)
        if name in {"to", "cuda", "cpu"}:
            return self._moved(node, func, receiver, arguments, frame)
        if receiver.kind is Kind.CONTAINER:
            return self._container_method(func, name, receiver, arguments, frame)
        if receiver.kind is Kind.PARALLEL_LOADER and name == "per_device_loader":
            return dataclasses.replace(receiver, kind=Kind.DEVICE_LOADER)
        if receiver.kind is Kind.MODEL and name in {"train", "eval", "float", "half", "bfloat16"}:
            return receiver
        if name == "prepare" and len(arguments) > 0:
            return _prepared(arguments)
        if name in know.REDUCE_METHODS and arguments:
            return dataclasses.replace(arguments[0][1], local=False)
        if name == "numpy" or receiver.kind is Kind.ARRAY:
            return Value(Kind.ARRAY, receiver.certain, local=receiver.local)
        if name in know.READS or receiver.kind is Kind.NUMBER:
            return dataclasses.replace(NUMBER, local=receiver.local)
        if name == "run" and arguments and arguments[0][1].function is not None:
            function = arguments[0][1]  # MpSerialExecutor().run(make_dataset)
            assert function.function is not None
            return self._enter(None, function.function, function, ())
        guessed = self._evaluator.guess(name)
        if guessed.kind in {Kind.MODEL, Kind.LOSS} and receiver.kind in {Kind.UNKNOWN, Kind.MODEL}:
            return self._object_called(node, guessed, arguments)
        local = receiver.local or any(value.local for _, value in arguments)
        return Value(local=local)

    def _tensor_method(
        self, node: cst.Call, name: str, receiver: Value, arguments: Arguments
    ) -> Value:
        if name == "item":
            return dataclasses.replace(NUMBER, local=receiver.local)
        if name == "tolist":
            return container(dataclasses.replace(NUMBER, local=receiver.local))
        if name == "numpy":
            return Value(Kind.ARRAY, receiver.certain, node, receiver.local)
        if name == "cpu":
            return Value(Kind.CPU_TENSOR, receiver.certain, node, receiver.local)
        if name in {"to", "type_as"}:
            for _, value in arguments:
                if value.kind in {Kind.DEVICE, Kind.OTHER_DEVICE}:
                    return on_device(value, node, local=receiver.local)
                if value.is_device_tensor:
                    return on_device(value, node, local=receiver.local)
            return self._to_literal(node, receiver)
        if name == "cuda":
            return Value(local=receiver.local)
        if name in know.HOST_METHODS:
            return NUMBER
        if name in {"keys", "values", "items"}:
            inner = likely(receiver)
            pair = container(None, (NUMBER, inner)) if name == "items" else inner
            return container(NUMBER if name == "keys" else pair)
        local = receiver.local or any(value.local for _, value in arguments)
        if receiver.kind is Kind.CPU_TENSOR and any(v.is_device_tensor for _, v in arguments):
            return Value(local=local)
        return dataclasses.replace(receiver, local=local)

    def _to_literal(self, node: cst.Call, receiver: Value) -> Value:
        for argument in node.args:
            if isinstance(argument.value, cst.SimpleString):
                text = str(argument.value.evaluated_value)
                kind = Kind.DEVICE_TENSOR if text.startswith("xla") else Kind.CPU_TENSOR
                if text.startswith("cuda"):
                    return Value(local=receiver.local)
                return Value(kind, certain=True, origin=node, local=receiver.local)
        return receiver

    def _moved(
        self,
        node: cst.Call,
        func: cst.Attribute,
        receiver: Value,
        arguments: Arguments,
        frame: Frame,
    ) -> Value:
        """``x.to(device)`` of something that is not known to be a tensor; of a model in place."""
        name = func.attr.value
        device = next((v for _, v in arguments if v.kind in {Kind.DEVICE, Kind.OTHER_DEVICE}), None)
        if receiver.kind is Kind.OBJECT or (receiver == UNKNOWN and _makes_model(func.value)):
            # A class of another file: what is moved whole is a model as a rule, and it is called.
            receiver = Value(Kind.MODEL, origin=node)
        if receiver.kind in {Kind.MODEL, Kind.LOSS}:
            if device is None or device.kind is not Kind.DEVICE:
                return receiver
            moved = dataclasses.replace(receiver, on_device=True)
            text = dotted_text(func.value)
            if text is not None and text in frame.env:
                frame.env[text] = moved
            return moved
        if name == "cpu":
            return Value(Kind.CPU_TENSOR, origin=node, local=receiver.local)
        if device is not None:
            return on_device(device, node, local=receiver.local)
        tensor = next((v for _, v in arguments if v.is_device_tensor), None)
        if tensor is not None:
            return on_device(tensor, node, local=receiver.local)
        return self._to_literal(node, UNKNOWN) if name == "to" else UNKNOWN

    def _container_method(
        self,
        func: cst.Attribute,
        name: str,
        receiver: Value,
        arguments: Arguments,
        frame: Frame,
    ) -> Value:
        if name in {"append", "add", "appendleft", "extend", "insert", "update"} and arguments:
            value = arguments[-1][1]
            added = element_of(value) if name in {"extend", "update"} else value
            self._flow.put_into(func.value, added, frame)
            return NUMBER
        if name == "items":
            return container(container(None, (NUMBER, element_of(receiver))))
        if name == "values":
            return container(element_of(receiver))
        if name == "copy":
            return receiver
        if name in {"get", "pop", "popleft", "popitem", "setdefault"}:
            return element_of(receiver)
        if name in {"index", "count", "keys"}:
            return NUMBER if name != "keys" else container(NUMBER)
        return UNKNOWN


def on_device(device: Value, node: cst.CSTNode, *, local: bool = False) -> Value:
    """A tensor that was put on a device (or beside a tensor) by a node."""
    if device.kind in {Kind.DEVICE, Kind.DEVICE_TENSOR}:
        return Value(Kind.DEVICE_TENSOR, device.certain, node, local)
    if device.kind in {Kind.OTHER_DEVICE, Kind.CPU_TENSOR}:
        return Value(Kind.CPU_TENSOR, device.certain, node, local)
    return Value(local=local)


def _prepared(arguments: Arguments) -> Value:
    """``accelerator.prepare(...)`` hands back its arguments; loaders then move their batches."""
    items = []
    for _, value in arguments:
        if value.kind is Kind.LOADER:
            value = dataclasses.replace(value, kind=Kind.DEVICE_LOADER)
        elif value.kind is Kind.MODEL:
            value = dataclasses.replace(value, on_device=True)
        items.append(value)
    return items[0] if len(items) == 1 else container(None, tuple(items))


def _origin(values: Sequence[Value]) -> cst.CSTNode | None:
    return next((_flat(value).origin for value in values if value.holds_device_tensor), None)


def _flat(value: Value) -> Value:
    if value.kind is not Kind.CONTAINER:
        return value
    inner = [*(value.items or ()), *([value.element] if value.element else [])]
    best = next((item for item in inner if item.holds_device_tensor), None)
    return _flat(best or (inner[0] if inner else UNKNOWN))


def _makes_model(node: cst.BaseExpression) -> bool:
    """``get_model(args)``: a function of another file whose name says that it makes a model."""
    if not isinstance(node, cst.Call):
        return False
    last = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
    return isinstance(last, cst.Name) and last.value.lower().endswith(("model", "net"))
