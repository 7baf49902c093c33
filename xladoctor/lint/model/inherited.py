"""Calls of a base class's method on the object itself: ``super().__init__(vocab)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.syntax import Class
from xladoctor.lint.model.values import Arguments, Instance, Kind, Value

if TYPE_CHECKING:
    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.frames import Frame
    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Function


def of_base(
    flow: Flow, func: cst.Attribute, arguments: Arguments, frame: Frame
) -> tuple[Function, Value, Arguments] | None:
    """The method of a base class in the program that a call runs on the object it stands in.

    Args:
        flow: The run of the program.
        func: What is called: ``super().__init__``, ``Base.__init__`` (given ``self``).
        arguments: What it is given.
        frame: Where.

    Returns:
        The method, the object it is run on, and its arguments; None if it is no such call, or the
        base class is of another package.
    """
    name, holder = func.attr.value, func.value
    if type(holder) is cst.Call:
        owner = _around(frame) if is_super(holder, flow.names) else None
        method = flow.classes.inherited(owner, name) if owner is not None else None
        if owner is None or method is None:
            return None
        kind = Kind.MODEL if flow.hooks.is_module(owner) else Kind.OBJECT
        instance = frame.instance or Instance(owner, None)
        return method, Value(kind, certain=True, instance=instance), arguments
    base = flow.names.definition(holder) if type(holder) is cst.Name else None
    if not isinstance(base, Class) or not arguments or arguments[0][1].instance is None:
        return None
    method = flow.classes.method(base, name)
    if method is None or method.is_static or method.of_class:
        return None
    return method, arguments[0][1], arguments[1:]


def is_super(node: cst.CSTNode | None, names: Names | LinkedNames) -> bool:
    """``super()``."""
    return type(node) is cst.Call and names.resolve(node.func) == "builtins.super"


def _around(frame: Frame) -> Class | None:
    """The class whose method runs."""
    function = frame.function
    while function is not None and function.owner is None:
        function = function.outer
    return function.owner if function is not None else None
