"""What the parameters of a function hold when it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import frameworks
from xladoctor.lint.model.memory import PLACED
from xladoctor.lint.model.values import (
    UNKNOWN,
    Instance,
    Kind,
    Value,
    defined,
    join,
    where_it_trains,
)

if TYPE_CHECKING:
    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.frames import Frame
    from xladoctor.lint.model.syntax import Class, Function


class Parameters:
    """Binds the parameters of functions.

    Args:
        flow: The run that the functions belong to.
    """

    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    def bind(self, function: Function, frame: Frame, given: dict[str, Value]) -> None:
        """Give parameters what calls give, their defaults, or what is believed of them."""
        params = function.node.params
        of_module = function.owner is not None and self._flow.hooks.is_module(function.owner)
        for index, param in enumerate(function.declared):
            name = param.name.value
            default = self._flow.evaluator.evaluate(param.default, frame) if param.default else None
            value = given.get(name)
            if value is None or (value == UNKNOWN and self._flow.hooks.hook(function)):
                value = self._passed(function, index, param, default)
                if value == UNKNOWN:
                    value = self._annotated(param, frame)
            elif of_module:
                value = where_it_trains(value)
            frame.env[name] = self._flow.belief.believed(name, value, frame)
        for star in (params.star_arg, params.star_kwarg):
            if isinstance(star, cst.Param):
                frame.env[star.name.value] = given.get(star.name.value, UNKNOWN)
        beside = self._flow.hooks.passed_beside(function)
        if beside is not None and isinstance(params.star_kwarg, cst.Param):
            frame.env[params.star_kwarg.name.value] = beside
        method = function
        while method.owner is None and method.outer is not None and frame.instance is not None:
            method = method.outer  # a function in a method: its ``self`` is that of the method
        if method.owner is not None and method.is_bound and method.parameters:
            name = method.parameters[0]
            if method.of_class:
                frame.env[name] = defined((frame.instance or Instance(method.owner, None)).cls)
                return
            if method is function or name not in frame.env:
                frame.env[name] = self._object(method, method.owner, frame)

    def _object(self, method: Function, owner: Class, frame: Frame) -> Value:
        """The object that a method is run on."""
        kind = Kind.MODEL if self._flow.hooks.is_module(owner) else Kind.OBJECT
        instance = frame.instance or Instance(owner, None)
        held = Value(kind, certain=True, instance=instance)
        if kind is not Kind.MODEL or method.name == "__init__":
            return held
        if self._trains(method, owner):
            self._flow.memory.place(held.but(on_device=True))
        return held.but(on_device=self._flow.memory.stored(instance, PLACED) is not None)

    def _trains(self, method: Function, owner: Class) -> bool:
        """A hook that Lightning calls for each batch: it has moved the module before."""
        hooks = self._flow.hooks
        return (
            hooks.hook(method) is not None
            and hooks.inherits(owner, frameworks.LIGHTNING_MODULES)
            and self._flow.belief.believes()
        )

    def _annotated(self, param: cst.Param, frame: Frame) -> Value:
        """What a parameter is said to be, where that is a class of the program: ``exp: Exp``."""
        said = param.annotation.annotation if param.annotation is not None else None
        if not isinstance(said, cst.Name | cst.Attribute):
            return UNKNOWN
        made = self._flow.evaluator.evaluate(said, frame).makes
        if len(made) != 1:
            return UNKNOWN
        (cls,) = made
        if self._flow.hooks.is_module(cls):
            return UNKNOWN
        return Value(Kind.OBJECT, classes=frozenset({cls, *self._flow.classes.below(cls)}))

    def _passed(
        self, function: Function, index: int, param: cst.Param, default: Value | None
    ) -> Value:
        """What a parameter holds that no call in the program gives."""
        hears = function.owner if index == 1 and param.name.value == "trainer" else None
        if hears is not None and self._flow.hooks.inherits(hears, frameworks.LIGHTNING_CALLBACKS):
            return Value(Kind.OBJECT, certain=True, type_name=frameworks.LIGHTNING_TRAINER)
        given = (
            self._flow.hooks.given(function, index, param) if self._flow.belief.believes() else None
        )
        if given is None:
            return default or UNKNOWN
        return given if default is None else join(given, default)
