"""What names hold where a condition is so: ``isinstance(x, torch.Tensor)``, ``x is None``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.conditions import asked_for_none, meant
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.knowledge import DEVICE_LOADERS
from xladoctor.lint.model.values import NOTHING, NUMBER, UNKNOWN, Kind, join, likely, of_type

if TYPE_CHECKING:
    from xladoctor.lint.model.frames import Env
    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree


class Narrowing:
    """What is known of names where a condition holds, or does not.

    Args:
        names: What they are bound to.
        tree: The syntax of the file or files.
    """

    def __init__(self, names: Names | LinkedNames, tree: Tree) -> None:
        self._names = names
        self._tree = tree

    def narrowed(self, test: cst.BaseExpression, env: Env, *, when: bool) -> Env:
        """What names hold where ``isinstance(x, torch.Tensor)`` is (not) so: no tensor, if not."""
        test, when = meant(self._tree, test, when=when)
        if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And) and when:
            return self.narrowed(test.right, self.narrowed(test.left, env, when=True), when=True)
        if isinstance(test, cst.Comparison):
            return _without_none(test, env, when=when)
        if not isinstance(test, cst.Call) or not test.args:
            return env
        text = dotted_text(test.args[0].value)
        value = env.get(text) if text is not None else None
        if text is None or value is None:
            return env
        if value.kind is Kind.CONTAINER and when and self._says_tensor(test):
            # ``if isinstance(parameters, torch.Tensor): parameters = [parameters]``: not now.
            return {**env, text: NOTHING}
        if value.roads and not value.is_device_tensor:
            said = self._says_tensor(test)
            return env if said is None else {**env, text: of_type(value, tensor=said is when)}
        if not value.is_device_tensor:
            return env
        return env if self._says_tensor(test) is not (not when) else {**env, text: UNKNOWN}

    def asked_of(self, test: cst.BaseExpression) -> cst.BaseExpression | None:
        """``x["a"]`` of ``torch.is_tensor(x["a"])``: what is no tensor where that is not so."""
        asks = isinstance(test, cst.Call) and bool(test.args) and self._says_tensor(test)
        return test.args[0].value if asks and isinstance(test, cst.Call) else None

    def said_loader(self, test: cst.BaseExpression) -> cst.Name | cst.Attribute | None:
        """``loader`` of ``isinstance(loader, pl.MpDeviceLoader)``."""
        if not isinstance(test, cst.Call) or len(test.args) != 2:
            return None
        if self._names.resolve(test.func) != "builtins.isinstance":
            return None
        held, asked = (argument.value for argument in test.args)
        is_one = self._names.resolve(asked) in DEVICE_LOADERS
        return held if is_one and isinstance(held, cst.Name | cst.Attribute) else None

    def _says_tensor(self, test: cst.Call) -> bool | None:
        """What a test of a type says of an object if it holds: a tensor, none, or neither."""
        name = self._names.resolve(test.func)
        if name == "torch.is_tensor":
            return True
        if name != "builtins.isinstance" or len(test.args) != 2:
            return None
        asked = test.args[1].value
        kinds = asked.elements if isinstance(asked, cst.Tuple) else [cst.Element(asked)]
        names = [self._names.resolve(kind.value) or "" for kind in kinds]
        if set(names) <= {"torch.Tensor"}:
            return True
        return False if all(name.startswith("builtins.") for name in names) else None


def _without_none(test: cst.Comparison, env: Env, *, when: bool) -> Env:
    """``if mask is not None: mask = mask.to(device)``: where that is not so, there is no mask.

    Where it is so, what is a number or something else (``return None``) is the other.
    """
    asked = asked_for_none(test)
    text = dotted_text(asked[0]) if asked is not None else None
    if asked is None or text is None or text not in env:
        return env
    value = env[text]
    if asked[1] is not when:
        rest = [road for road in value.roads if road.kind is not Kind.NUMBER]
        if not 0 < len(rest) < len(value.roads):
            return env
        return {**env, text: likely(functools.reduce(join, rest))}
    return {**env, text: NUMBER} if value.kind in {Kind.CPU_TENSOR, Kind.DEVICE_TENSOR} else env
