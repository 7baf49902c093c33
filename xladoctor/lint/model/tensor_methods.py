"""The value of a method call on a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint import family
from xladoctor.lint.model import booleans, frameworks
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.contained import container
from xladoctor.lint.model.dotted import string, text_of
from xladoctor.lint.model.values import NUMBER, UNKNOWN, Arguments, Kind, Value, likely, on_device

if TYPE_CHECKING:
    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names


class TensorMethods:
    """Evaluates methods of what is known to be a tensor.

    Args:
        names: What names are bound to.
    """

    def __init__(self, names: Names | LinkedNames) -> None:
        self._names = names

    def evaluate(self, node: cst.Call, name: str, receiver: Value, arguments: Arguments) -> Value:
        """What ``tensor.method(...)`` gives back."""
        if name in know.TEXT_METHODS or _takes_flag(node, name):
            return NUMBER  # a key, or a text, after all
        result = self._of_tensor(node, name, receiver, arguments)
        if result.kind not in booleans.TENSORS:
            return result
        resolve = self._names.resolve
        boolean = booleans.of_method(name, node, receiver, arguments, resolve)
        return result if result.boolean is boolean else result.but(boolean=boolean)

    def _of_tensor(self, node: cst.Call, name: str, receiver: Value, arguments: Arguments) -> Value:
        if name == "item":
            return NUMBER.but(local=receiver.local)
        if name == "tolist":
            return container(NUMBER.but(local=receiver.local))
        if name == "numpy":
            return Value(Kind.ARRAY, receiver.certain, node, receiver.local)
        if name == "cpu":
            return Value(Kind.CPU_TENSOR, receiver.certain, node, receiver.local)
        if name in {"to", "type_as"}:
            return self._tensor_moved(node, receiver, arguments)
        if name == "cuda":
            return Value(local=receiver.local)
        if name in know.HOST_METHODS and not (name == "type" and arguments):
            return NUMBER
        if name in {"named_parameters", "named_buffers"}:  # a model after all
            return container(container(None, (NUMBER, likely(receiver))))
        if name in {"keys", "values", "items"}:
            inner = likely(receiver)
            pair = container(None, (NUMBER, inner)) if name == "items" else inner
            return container(NUMBER if name == "keys" else pair)
        local = receiver.local or any(value.local for _, value in arguments)
        if receiver.kind is Kind.CPU_TENSOR and any(v.is_device_tensor for _, v in arguments):
            return Value(local=local)
        if f"torch.{name}" in know.GIVES_PARTS:
            return container(receiver.but(local=local))
        return receiver.but(local=local)

    def _tensor_moved(self, node: cst.Call, receiver: Value, arguments: Arguments) -> Value:
        for (_, value), argument in zip(arguments, node.args, strict=True):
            if value.kind in {Kind.DEVICE, Kind.OTHER_DEVICE, Kind.DEVICE_TENSOR}:
                return on_device(value, node, local=receiver.local)
            name = self._names.resolve(argument.value) or ""
            if value.kind is Kind.UNKNOWN and not name.startswith("torch."):
                # Not a dtype: it may be any device.
                return likely(receiver) if receiver.is_device_tensor else UNKNOWN
        return self.to_literal(node, receiver)

    def to_literal(self, node: cst.Call, receiver: Value) -> Value:
        """What ``to`` gives that names a device in quotes, or none: ``x.to("cpu")``."""
        for argument in node.args:
            if isinstance(argument.value, cst.SimpleString):
                text = str(string(argument.value))
                kind = Kind.DEVICE_TENSOR if family.of_device(text) else Kind.CPU_TENSOR
                if text.startswith("cuda"):
                    return Value(local=receiver.local)
                return Value(kind, certain=True, origin=node, local=receiver.local)
        return receiver


def _takes_flag(node: cst.Call, name: str) -> bool:
    """``inputs.get("return_loss")`` of a batch: a flag of Python's beside its tensors."""
    key = text_of(node.args[0].value) if name in {"get", "pop"} and node.args else None
    return key in frameworks.FLAGS_OF_BATCHES
