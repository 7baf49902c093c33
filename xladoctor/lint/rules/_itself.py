"""Whose object an expression is, of the classes of the program: ``self``, and who is handed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

if TYPE_CHECKING:
    from xladoctor.lint.model import Class, FileModel

#: How many functions and names may hand an object on.
_DEEP = 3


def itself(model: FileModel, node: cst.BaseExpression, depth: int = _DEEP) -> Class | None:
    """The class in one of whose methods an expression is the object itself.

    ``self`` in a method, and in functions within it; a parameter that all callers of a function
    give such an object (``def gathered(trainer, loss)``, ``gathered(self, loss)``); a name that is
    bound once to one (``trainer = self``).
    """
    if not isinstance(node, cst.Name) or not depth:
        return None
    bindings = model.bindings(node.value, node)
    if len(bindings) != 1:
        return None
    if bindings[0].kind == "assign":
        made = bindings[0].node
        return itself(model, made, depth - 1) if isinstance(made, cst.Name) else None
    function = model.with_parameter(node) if bindings[0].kind == "param" else None
    if function is None:
        return None
    if function.owner is not None and node.value == function.parameters[0]:
        return None if function.is_static else function.owner
    given = [call.given_to(function, node.value) for call in model.callers(function)]
    owners = {None if one is None else itself(model, one, depth - 1) for one in given}
    return owners.pop() if len(owners) == 1 else None


def whose(model: FileModel, node: cst.BaseExpression) -> Class | None:
    """The same, and for ``super()`` the class in whose method that stands."""
    return model.class_around(node) if model.is_super(node) else itself(model, node)
