"""Whether what is moved whole is a model, where nobody knows what made it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.dotted import last_name

if TYPE_CHECKING:
    from xladoctor.lint.model.syntax import Tree


def is_moved_model(tree: Tree, move: cst.Call, func: cst.Attribute) -> bool:
    """Whether ``....to(device)`` moves a model: by what makes it, or by what it is kept as.

    ``net = build(name)(config).to(device)``.

    Args:
        tree: The file or files.
        move: The call of the method that moves.
        func: What it calls.
    """
    if _makes_model(func.value):
        return True
    line = tree.parents.get(move)
    if not isinstance(line, cst.Assign) or not isinstance(func.value, cst.Call):
        return False
    return bool(know.MODEL_NAME.search(last_name(line.targets[0].target)))


def _makes_model(node: cst.BaseExpression) -> bool:
    """``get_model(args)``, ``model_cls(args)``: a name of another file says that a model is made.

    Or a class of a module that is imported with a star: what is moved whole is a model there too.
    """
    if not isinstance(node, cst.Call):
        return False
    last = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
    if not isinstance(last, cst.Name):
        return False
    name = last.value.lower().removesuffix("_cls").removesuffix("_class")
    return name.endswith(("model", "net")) or (last is node.func and _is_class_name(last.value))


def _is_class_name(name: str) -> bool:
    return name[:1].isupper() and not name.isupper() and not name.endswith(("Tensor", "Variable"))
