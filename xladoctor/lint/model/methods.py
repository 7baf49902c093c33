"""The value of a method call: on objects of the program, models and loaders, and by its name.

On tensors: ``tensor_methods``; on containers: ``holder_methods``.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import frameworks, ignite
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.contained import (
    all_moved,
    as_output,
    container,
    element_of,
    moved_by_name,
    prepared,
    spread,
)
from xladoctor.lint.model.dotted import dotted_text, last_name, string, text_of
from xladoctor.lint.model.helpers import listed
from xladoctor.lint.model.holder_methods import HolderMethods
from xladoctor.lint.model.indexed import as_container
from xladoctor.lint.model.inherited import is_super
from xladoctor.lint.model.layers import is_layer
from xladoctor.lint.model.moved_models import is_moved_model
from xladoctor.lint.model.tensor_methods import TensorMethods
from xladoctor.lint.model.trainers import STEPS_ALONE, trainer_gives
from xladoctor.lint.model.values import (
    NUMBER,
    UNKNOWN,
    Arguments,
    Instance,
    Kind,
    Value,
    any_local,
    join,
    of_type,
    on_device,
)

if TYPE_CHECKING:
    from xladoctor.lint.model.callvalue import CallEvaluator
    from xladoctor.lint.model.evaluate import Evaluator
    from xladoctor.lint.model.frames import Frame

#: Methods that a tensor has, and no container of tensors.
_OF_TENSORS_ALONE = frozenset({"backward", "cpu", "detach", "item", "mean", "sum"})
_NO_TENSORS = (Kind.CONTAINER, Kind.NUMBER, Kind.UNKNOWN)


class MethodEvaluator:
    """Evaluates method calls.

    Args:
        calls: Evaluates calls of functions of the file.
        evaluator: Evaluates everything else.
    """

    def __init__(self, calls: CallEvaluator, evaluator: Evaluator) -> None:
        self._calls = calls
        self._evaluator = evaluator
        self._flow = evaluator.flow
        self._tensors = TensorMethods(evaluator.flow.names)
        self._holders = HolderMethods(evaluator.flow)

    def evaluate(
        self,
        node: cst.Call,
        func: cst.Attribute,
        receiver: Value,
        arguments: Arguments,
        frame: Frame,
    ) -> Value:
        """What ``receiver.method(...)`` gives back."""
        name = func.attr.value
        asked = name in know.ASKS_OF_TENSORS and receiver == UNKNOWN and not node.args
        asked = asked and self._flow.belief.believes()
        if asked or (receiver.made_of_device and name in {"cpu", "detach", "item"}):
            origin = node if asked else None
            receiver = Value(Kind.DEVICE_TENSOR, origin=origin, local=receiver.local)
            self._flow.record(func.value, receiver)
        receiver = self._tensor_of_roads(func, receiver, frame)
        if name in {"items", "values"} and receiver.kind is Kind.UNKNOWN:
            of = _whose_state(func.value)  # ``net.state_dict().items()``
            if of is not None:
                held = self._evaluator.evaluate(of, frame)
                return _tensors_of(held, node, named=name == "items")
        followed = self._followed(node, func, receiver, arguments, frame)
        if followed is not None:
            return followed
        if receiver.kind in {Kind.DEVICE_TENSOR, Kind.CPU_TENSOR}:
            return self._tensors.evaluate(node, name, receiver, arguments)
        if name in {"to", "cuda", "cpu"}:
            return self._moved(node, func, receiver, arguments, frame)
        as_one = as_container(self._flow, receiver, name)
        if receiver.kind is Kind.CONTAINER or as_one is not None:
            return self._holders.of_container(node, func, as_one or receiver, arguments, frame)
        if receiver.kind is Kind.MODEL and receiver.type_name in know.MODULE_HOLDERS:
            within = self._holders.of_modules(node, func, receiver, arguments, frame)
            if within is not None:
                return within
        if receiver.kind is Kind.PARALLEL_LOADER and name == "per_device_loader":
            return receiver.but(kind=Kind.DEVICE_LOADER)
        if receiver.kind is Kind.MODEL and name in {"train", "eval", "float", "half", "bfloat16"}:
            return receiver
        return self._by_name(node, name, receiver, arguments)

    def _tensor_of_roads(self, func: cst.Attribute, value: Value, frame: Frame) -> Value:
        """``loss.backward()`` of ``(loss, outputs) if asked else loss``: it is the tensor here.

        And a tensor for sure where it only was a likely one: nothing else has this method.
        """
        if func.attr.value == "backward" and value.is_device_tensor and not value.roads:
            sure = value.but(certain=True)
            if isinstance(func.value, cst.Name) and func.value.value in frame.env:
                frame.env[func.value.value] = sure
            return sure
        if value.kind is not Kind.UNKNOWN or func.attr.value not in _OF_TENSORS_ALONE:
            return value
        kinds = {road.kind for road in value.roads}
        tensor = of_type(value, tensor=True) if value.roads else UNKNOWN
        if not tensor.is_device_tensor or not kinds <= {Kind.DEVICE_TENSOR, *_NO_TENSORS}:
            return value
        self._flow.record(func.value, tensor, known=True)
        if isinstance(func.value, cst.Name) and func.value.value in frame.env:
            frame.env[func.value.value] = tensor
        return tensor

    def _followed(
        self,
        node: cst.Call,
        func: cst.Attribute,
        receiver: Value,
        arguments: Arguments,
        frame: Frame,
    ) -> Value | None:
        """What a method of the program gives, or a module that an object keeps."""
        name = func.attr.value
        result = self._loaded(node, name, receiver)
        if result is not None:
            return result
        if receiver.instance is None and receiver.classes:
            result = self._of_one_of(node, name, receiver, arguments)
        known = receiver.instance is not None or bool(receiver.makes)
        known = known or _holds_model(receiver, name, arguments)
        held = self._evaluator.evaluate(func, frame) if known else UNKNOWN
        if held.kind is Kind.FUNCTION and held.function is not None:
            result = self._calls.enter(node, held.function, held, arguments)
        elif held.kind is Kind.FUNCTION and (held.functions or held.makes):
            return self._calls.one_of(node, held, arguments)
        if result is not None:
            inferred = receiver.kind is Kind.MODEL and not know.ANSWERS.search(name)
            return as_output(result, node) if inferred else result  # ``self.net.infer(x)``
        if receiver.kind is Kind.MODEL and is_layer(name, held):
            held = held.but(kind=Kind.MODEL)
        if held.kind in {Kind.MODEL, Kind.LOSS, Kind.OBJECT, Kind.DEVICE_TENSOR}:
            return self._calls.object_called(node, held, arguments)
        if self._is_trainers(func.value, receiver, frame):
            return trainer_gives(name, node, arguments, old=self._steps_alone)
        return None

    def _of_one_of(
        self, node: cst.Call, name: str, receiver: Value, arguments: Arguments
    ) -> Value | None:
        """``callback.on_step(self)`` of one of several objects: the method of each of them.

        It gives what that of the object gives which is taken on XLA devices.
        """
        objects = self._flow.classes.objects(receiver)
        taken = self._flow.backends.taken(objects)
        results = []
        for instance in objects:
            method = self._flow.classes.method(instance.cls, name)
            if method is not None:
                bound = Value(Kind.FUNCTION, certain=True, function=method, instance=instance)
                result = self._calls.enter(node, method, bound, arguments)
                results += [result] if instance in taken else []
        return functools.reduce(join, results) if results else None

    def _by_name(self, node: cst.Call, name: str, receiver: Value, arguments: Arguments) -> Value:
        """What the name of a method says when its object is not known."""
        if name == "prepare" and arguments:
            believed = self._flow.belief.believes()
            return prepared(spread(self._named(node, arguments) if believed else arguments))
        if arguments and name in frameworks.FABRIC_METHODS and _is_fabric(node, receiver):
            return self._fabric(node, name, arguments)
        if (moved := moved_by_name(name, [value for _, value in arguments], node)) is not None:
            return moved
        if name in know.GRADIENT_NORM_METHODS and self._flow.belief.believes():
            return Value(Kind.DEVICE_TENSOR, origin=node)
        if name in {"__next__", "next"} and receiver.is_loader:
            return element_of(receiver)
        if name in know.OF_MODELS:
            return self._of_model(node, name, receiver, arguments)
        if name in know.REDUCE_METHODS | know.HANDS_ON and arguments:
            given = arguments[0][1]
            return given if name in know.HANDS_ON else given.but(local=False)
        if name == "step" and receiver.kind is Kind.OPTIMIZER and arguments:
            closure = arguments[0][1]
            if closure.function is not None:
                return self._calls.enter(node, closure.function, closure, (), by_name=True)
        if name == "numpy" or receiver.kind is Kind.ARRAY:
            return Value(Kind.ARRAY, receiver.certain, local=receiver.local)
        if name in know.READS or receiver.kind is Kind.NUMBER:
            return NUMBER.but(local=receiver.local)
        return self._called_by_name(node, name, receiver, arguments)

    def _of_model(self, node: cst.Call, name: str, receiver: Value, arguments: Arguments) -> Value:
        """What a model gives of itself: its modules, its parameters; a buffer that it takes."""
        if name in know.REGISTERS:
            return self._registered(node, receiver.instance, arguments)
        if name in know.ADDS_MODULE:
            own = _first_text(node)
            if own is not None and receiver.instance is not None and len(arguments) > 1:
                self._flow.memory.store(receiver.instance, own, arguments[1][1])
            return NUMBER
        named = name.startswith("named")
        if name in know.TENSORS_OF_MODELS:
            return _tensors_of(receiver, node, named=named)
        if receiver.kind is not Kind.MODEL:
            return UNKNOWN
        part = Value(Kind.MODEL, origin=receiver.origin, on_device=receiver.on_device)
        return container(container(None, (NUMBER, part)) if named else part)

    def _registered(self, node: cst.Call, module: Instance | None, arguments: Arguments) -> Value:
        """``self.register_buffer("mask", mask)``: an attribute that is moved with the module."""
        name = _first_text(node)
        given = arguments[1][1] if len(arguments) > 1 else UNKNOWN
        if given.kind is Kind.UNKNOWN and not given.roads:  # nothing else may be given, or None
            given = Value(Kind.CPU_TENSOR, origin=node)
        if name is not None and module is not None and given.kind is Kind.CPU_TENSOR:
            self._flow.memory.store(module, name, given.but(type_name=know.PARAMETER))
        return NUMBER

    def _called_by_name(
        self, node: cst.Call, name: str, receiver: Value, arguments: Arguments
    ) -> Value:
        """A function that the method runs, or a model that it is."""
        if name == "run" and arguments and arguments[0][1].function is not None:
            function = arguments[0][1]  # MpSerialExecutor().run(make_dataset)
            assert function.function is not None
            bound = ignite.given_to_run(receiver, arguments)
            return self._calls.enter(None, function.function, function, bound)
        if name in know.MASTER_ATTRIBUTES:  # ``trainer.is_world_process_zero()``
            return Value(Kind.IS_MASTER, certain=True, origin=node, local=True)
        if name == "from_pretrained" and know.MODEL_NAME.search(_last(node.func)):
            return Value(Kind.MODEL, origin=node)  # ``model = CLASSES[kind]``
        inner = receiver.instance is not None and not know.ANSWERS.search(name)
        given = any(value.holds_device_tensor or value.made_of_device for _, value in arguments)
        inner = inner or bool(know.OF_TENSORS.search(name))
        if receiver.kind is Kind.MODEL and (
            know.FORWARD_METHODS.search(name) or (inner and given)  # ``self.layer(x)``
        ):
            return self._calls.object_called(
                node, receiver.but(instance=None, classes=frozenset()), arguments
            )
        if name == "forward" and receiver.kind is Kind.LOSS:  # ``self.criterion.forward(x, y)``
            return self._calls.object_called(node, receiver, arguments)
        guessed = self._evaluator.guess(name)
        if guessed.kind in {Kind.MODEL, Kind.LOSS} and receiver.kind in {Kind.UNKNOWN, Kind.MODEL}:
            return self._calls.object_called(node, guessed, arguments)
        local = receiver.local or any_local(value for _, value in arguments)
        local = local and name not in know.NAMED_REDUCES
        return Value(local=local, made_of_device=given or receiver.made_of_device)

    def _loaded(self, node: cst.Call, name: str, receiver: Value) -> Value | None:
        """``Tagger.from_pretrained(path)`` of a model of the program built on a library's."""
        if name not in know.LOADS_MODEL:
            return None
        makes = frozenset(
            cls
            for cls in receiver.makes
            if self._flow.hooks.is_of_library(cls) and self._flow.classes.method(cls, name) is None
        )
        return self._calls.one_of(node, Value(Kind.FUNCTION, makes=makes), ()) if makes else None

    def _is_trainers(self, holder: cst.BaseExpression, receiver: Value, frame: Frame) -> bool:
        """A Trainer of transformers, or an object of a class of the program that is built on it."""
        if receiver.instance is None and is_super(holder, self._flow.names):
            method = frame.function
            owner = method.owner if method is not None else None
        else:
            owner = receiver.instance.cls if receiver.instance is not None else None
        if owner is None:
            return receiver.type_name in frameworks.TRAINERS
        return self._flow.hooks.is_trainer(owner)

    @functools.cached_property
    def _steps_alone(self) -> bool:
        """Whether the program takes its steps by ``xm.optimizer_step``, as old Trainers did."""
        resolve = self._flow.names.resolve
        return any(resolve(call.func) == STEPS_ALONE for call in self._flow.tree.calls)

    def _named(self, node: cst.Call, arguments: Arguments) -> Arguments:
        """Arguments that cannot be followed are what their names say."""
        if len(arguments) != len(node.args):
            return arguments
        named: list[tuple[str | None, Value]] = []
        for argument, (keyword, value) in zip(node.args, arguments, strict=True):
            parts = listed(self._flow.tree, argument.value) if keyword == "*" else ()
            if value.items is not None and len(parts) == len(value.items):
                pairs = zip(parts, value.items, strict=True)
                named += [(None, self._by_its_name(one, item)) for one, item in pairs]
            else:
                named.append((keyword, self._by_its_name(argument.value, value)))
        return named

    def _by_its_name(self, node: cst.BaseExpression, value: Value) -> Value:
        if value.kind is not Kind.UNKNOWN:
            return value
        text = last_name(node)
        if know.LOADER_NAME.search(text):
            return Value(Kind.LOADER, origin=node)
        return self._evaluator.guess(text)

    def _fabric(self, node: cst.Call, name: str, arguments: Arguments) -> Value:
        """``fabric.setup(model, optimizer)``, ``fabric.to_device(batch)``."""
        if name in {"setup", "setup_module"} and arguments[0][1].kind is Kind.OBJECT:
            # A class of another package: the first is the model.
            arguments = [(None, Value(Kind.MODEL, origin=node)), *arguments[1:]]
        if name != "to_device":
            return prepared(arguments)
        return all_moved(arguments[0][1], node) if self._flow.belief.believes() else UNKNOWN

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
        if receiver.kind is Kind.OBJECT and (receiver.type_name or "").startswith(
            know.GIVE_TENSORS
        ):
            return receiver  # ``MulticlassAccuracy(10).to(device)``: it moves what it has counted
        unread = receiver == UNKNOWN and is_moved_model(self._flow.tree, node, func)
        if receiver.kind is Kind.OBJECT or unread:
            # A class of another file: what is moved whole is a model as a rule, and it is called.
            receiver = Value(Kind.MODEL, origin=node)
        if receiver.kind in {Kind.MODEL, Kind.LOSS}:
            if device is None or device.kind is not Kind.DEVICE:
                return self._brought_back(node, func, receiver, frame)
            moved = receiver.but(on_device=True)
            self._flow.memory.place(moved)
            text = dotted_text(func.value)
            # Also what a function finds outside of itself, for the rest of the function.
            if text is not None and (text in frame.env or type(func.value) is cst.Name):
                frame.env[text] = moved
            if type(func.value) is cst.Attribute:
                self._kept_moved(func.value, moved, frame)
            return moved
        if name == "cpu":
            return Value(Kind.CPU_TENSOR, origin=node, local=receiver.local)
        if device is not None:
            return on_device(device, node, local=receiver.local)
        tensor = next((v for _, v in arguments if v.is_device_tensor), None)
        if tensor is not None:
            return on_device(tensor, node, local=receiver.local)
        return self._tensors.to_literal(node, UNKNOWN) if name == "to" else UNKNOWN

    def _brought_back(
        self, node: cst.Call, func: cst.Attribute, model: Value, frame: Frame
    ) -> Value:
        """``copy.deepcopy(net).cpu()``, ``net.to("cpu")``: on the host from here on."""
        to_host = func.attr.value == "cpu" or any(text_of(x.value) == "cpu" for x in node.args)
        if not to_host or not model.on_device:
            return model
        back = model.but(on_device=False)
        if type(func.value) is cst.Name and func.value.value in frame.env:
            frame.env[func.value.value] = back
        return back

    def _kept_moved(self, node: cst.Attribute, moved: Value, frame: Frame) -> None:
        """``self.net.to(device)`` in one method: it is there in all others too."""
        holder = self._evaluator.evaluate(node.value, frame)
        if holder.instance is not None:
            self._flow.memory.store(holder.instance, node.attr.value, moved, anew=True)


def _whose_state(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """``net`` of ``net.state_dict()``."""
    called = node.func if isinstance(node, cst.Call) and not node.args else None
    stated = isinstance(called, cst.Attribute) and called.attr.value == "state_dict"
    return called.value if stated and isinstance(called, cst.Attribute) else None


def _first_text(node: cst.Call) -> str | None:
    """``"mask"`` of ``register_buffer("mask", mask)``."""
    written = node.args[0].value if node.args else None
    text = string(written) if isinstance(written, cst.SimpleString) else None
    return text if isinstance(text, str) else None


def _tensors_of(model: Value, node: cst.CSTNode, *, named: bool) -> Value:
    """The parameters or buffers of a model, which are where it is."""
    if model.kind is not Kind.MODEL or not model.on_device:
        return UNKNOWN
    tensor = Value(Kind.DEVICE_TENSOR, origin=node)
    return container(container(None, (NUMBER, tensor)) if named else tensor)


def _is_fabric(node: cst.Call, receiver: Value) -> bool:
    return (
        receiver.type_name == frameworks.FABRIC_CLASS
        or _last(node.func).lower() in frameworks.FABRICS
    )


def _last(func: cst.BaseExpression) -> str:
    """The last name before the method: "model" in ``args.model.from_pretrained``."""
    text = dotted_text(func.value) if isinstance(func, cst.Attribute) else None
    return (text or "").rpartition(".")[2]


def _holds_model(receiver: Value, name: str, arguments: Arguments) -> bool:
    """``trainer.model(x)`` of an object that nobody has read: its model, and no method of it."""
    return (
        receiver.kind in {Kind.OBJECT, Kind.UNKNOWN}
        and bool(know.MODEL_NAME.search(name))
        and any(value.holds_device_tensor for _, value in arguments)
    )
