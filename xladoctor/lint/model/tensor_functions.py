"""The value of a call of a function of torch: which device its tensors are on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint import family
from xladoctor.lint.library import Returns
from xladoctor.lint.model import booleans
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.contained import first_origin, flat, is_of_one_core, together
from xladoctor.lint.model.dotted import dotted_text, string
from xladoctor.lint.model.values import (
    NUMBER,
    STANDS_IN,
    UNKNOWN,
    Arguments,
    Kind,
    Value,
    on_device,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.lint.model.frames import Frame
    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names


#: Functions that are given numbers, sizes and bounds, and no tensors.
_OF_NUMBERS = frozenset(
    f"torch.{name}"
    for name in ("zeros", "ones", "empty", "full", "arange", "rand", "randn", "randint",
                 "randperm", "eye", "range")
)  # fmt: skip


class TensorFunctions:
    """Evaluates calls of functions that make tensors or are given them.

    Args:
        names: What names are bound to.
    """

    def __init__(self, names: Names | LinkedNames) -> None:
        self._names = names

    def device(self, node: cst.Call, values: Sequence[Value]) -> Value:
        """``torch.device("xla")``."""
        argument = node.args[0].value if node.args else None
        if isinstance(argument, cst.SimpleString):
            xla = family.of_device(str(string(argument))) is not None
            return Value(Kind.DEVICE if xla else Kind.OTHER_DEVICE, certain=True, origin=node)
        if isinstance(argument, cst.IfExp):
            # ``"cuda" if torch.cuda.is_available() else "cpu"``
            named = [
                family.of_device(str(string(part))) is not None
                for part in (argument.body, argument.orelse)
                if isinstance(part, cst.SimpleString)
            ]
            if len(named) == 2 and not any(named):
                return Value(Kind.OTHER_DEVICE, certain=True, origin=node)
        if values and values[0].kind in {Kind.DEVICE, Kind.OTHER_DEVICE}:
            return values[0]
        return UNKNOWN

    def evaluate(self, node: cst.Call, arguments: Arguments, *, made_here: bool) -> Value:
        """The tensor that a function gives; ``made_here``: anew, of what is no tensor."""
        values = [value for _, value in arguments]
        # ``torch.cat(kept)``: what is in the list tells.
        local = any(map(is_of_one_core, values))
        device = next((value for key, value in arguments if key == "device"), None)
        written = _written_device(node)
        if written is not None:
            return on_device(Value(written, certain=True), node, local=local)
        if device is not None:
            return on_device(device, node, local=local)
        known = [value for value in values if value.holds_device_tensor]
        if known:
            certain = any(value.certain for value in known)
            return Value(Kind.DEVICE_TENSOR, certain, first_origin(known), local=local)
        if made_here:
            return Value(Kind.CPU_TENSOR, certain=True, origin=node, local=local)
        tensors = [flat(value) for value in values if value.kind is not Kind.NUMBER]
        if tensors and all(value.kind is Kind.CPU_TENSOR for value in tensors):
            return Value(Kind.CPU_TENSOR, certain=True, origin=node, local=local)
        given = (flat(value).made_of_device for value in values)
        return Value(local=local, made_of_device=any(given))

    def filled(self, node: cst.Call, what: Returns, name: str, arguments: Arguments) -> Value:
        """A new tensor or array."""
        local = any(is_of_one_core(value) for _, value in arguments)
        if what is Returns.ARRAY:
            made = Value(Kind.ARRAY, certain=True, local=local)
        elif name == "torch.from_numpy":
            # Whatever is believed of what it is given: that is an array, on the host.
            made = Value(Kind.CPU_TENSOR, certain=True, origin=node, local=local)
        else:
            if name in _OF_NUMBERS:  # a tensor that is given in the place of one is read
                arguments = [
                    (keyword, value if keyword == "device" else _as_number(value))
                    for keyword, value in arguments
                ]
            made = self.evaluate(node, arguments, made_here=True)
            if made.kind is Kind.CPU_TENSOR and _is_number(name, node):
                made = made.but(type_name=STANDS_IN)
        return self.typed(made, name, node, arguments)

    def typed(self, tensor: Value, name: str, node: cst.Call, arguments: Arguments) -> Value:
        """What a function of torch or NumPy makes, and whether it holds booleans."""
        if tensor.kind not in booleans.TENSORS:
            return tensor
        boolean = booleans.of_function(name, node, arguments, self._names.resolve)
        return tensor if tensor.boolean is boolean else tensor.but(boolean=boolean)

    def reduced(self, node: cst.Call, name: str, values: Sequence[Value], frame: Frame) -> Value:
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
                    frame.env[text] = together(frame.env[text])
        if name.endswith(".mesh_reduce"):
            return NUMBER
        tensors = [value for value in values if value.holds_device_tensor]
        if tensors:
            return tensors[0].but(local=False)
        # They are given a device tensor, wherever it is from, and give back a new one.
        place = {f"{know.XM}.all_reduce": 1, f"{know.XM}.all_gather": 0}.get(name, len(values))
        one = place < len(values) and values[place].kind is Kind.UNKNOWN
        return Value(Kind.DEVICE_TENSOR, origin=node) if one else UNKNOWN


def _as_number(value: Value) -> Value:
    return NUMBER.but(local=value.local) if value.is_device_tensor else value


def _is_number(name: str, node: cst.Call) -> bool:
    """``torch.tensor(0.0)``, ``torch.zeros(1)``: one number, which is written there."""
    given = node.args[0].value if node.args else None
    if name in {"torch.tensor", "torch.as_tensor"}:
        return isinstance(given, cst.Float | cst.Integer)
    return name == "torch.zeros" and isinstance(given, cst.Integer) and given.value == "1"


def _written_device(node: cst.Call) -> Kind | None:
    """The device that ``device="cpu"`` or ``device="xla"`` says, None if it is no such text."""
    for argument in node.args:
        text = argument.value
        named = argument.keyword is not None and argument.keyword.value == "device"
        if named and isinstance(text, cst.SimpleString):
            kind = str(string(text)).partition(":")[0]
            return {"xla": Kind.DEVICE, "cpu": Kind.OTHER_DEVICE}.get(kind)
    return None
