"""Numbers of Python that are the same in every step: written, settings, sizes of the batch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import dotted_text, text_of
from xladoctor.lint.model.parts import index_of
from xladoctor.lint.rules._sources import of_parameter
from xladoctor.lint.words import SETTINGS_WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.lint.model import CallSite, FileModel

#: Names and calls on the way to what is written.
_DEPTH = 6
_COMPUTES = ("math.", "builtins.int", "builtins.float", "builtins.min", "builtins.max")


def is_fixed(model: FileModel, node: cst.BaseExpression, depth: int = _DEPTH) -> bool:
    """Whether a number is the same in every step, as long as the batches have one shape.

    Args:
        model: The file.
        node: The number.
        depth: How many names and calls it is followed through.
    """
    if model.literal(node) is not NotImplemented:
        return True
    if not depth:
        return False
    if isinstance(node, cst.Name):
        return _name(model, node, depth - 1)
    if isinstance(node, cst.Attribute):
        return is_setting(node) or bool(by_constructor(model, node))
    if isinstance(node, cst.Subscript):
        shape = isinstance(node.value, cst.Attribute) and node.value.attr.value == "shape"
        return shape or is_item_of_settings(node)
    if isinstance(node, cst.Call):
        call = model.call(node)
        if is_of_shape(call):
            return True
        computes = (call.name or "").startswith(_COMPUTES)
        return computes and _all(model, [item.value for item in node.args], depth - 1)
    if isinstance(node, cst.UnaryOperation):
        return is_fixed(model, node.expression, depth)
    if isinstance(node, cst.BinaryOperation):
        return _all(model, [node.left, node.right], depth)
    return False


def is_of_shape(call: CallSite) -> bool:
    """``x.size(0)``, ``len(x)``: the same as long as the batches have one shape."""
    return call.name == "builtins.len" or call.method in {"size", "dim", "numel"}


def is_setting(node: cst.Attribute) -> bool:
    """``self.hparams.atoms``, ``config.model.width``."""
    text = dotted_text(node)
    return text is not None and not SETTINGS_WORDS.isdisjoint(text.lower().split(".")[:-1])


def is_item_of_settings(node: cst.Subscript) -> bool:
    """``FLAGS["batch_size"]``, ``config["model"]["width"]``."""
    held: cst.BaseExpression = node
    while isinstance(held, cst.Subscript):
        if text_of(index_of(held)) is None:
            return False
        held = held.value
    text = dotted_text(held)
    return text is not None and not SETTINGS_WORDS.isdisjoint(re.split(r"[._]", text.lower()))


def _all(model: FileModel, nodes: Sequence[cst.BaseExpression], depth: int) -> bool:
    return bool(nodes) and all(is_fixed(model, node, depth) for node in nodes)


def _name(model: FileModel, node: cst.Name, depth: int) -> bool:
    """A name that holds nothing but fixed numbers, or a part of a shape."""
    bindings = model.bindings(node.value, node)
    for binding in bindings:
        if binding.kind == "param":
            if not _all(model, of_parameter(model, node) or (), depth):
                return False
            continue
        made = model.assigned_by(binding)
        if made is None or not (of_shape(model, made) or is_fixed(model, made, depth)):
            return False
    return bool(bindings)


def of_shape(model: FileModel, node: cst.BaseExpression) -> bool:
    """``x.shape`` and ``x.size()``, which names take apart, and parts of them."""
    if isinstance(node, cst.Subscript):
        node = node.value  # ``x.shape[-2:]``
    if isinstance(node, cst.Attribute):
        return node.attr.value == "shape"
    return isinstance(node, cst.Call) and model.call(node).method == "size"


def by_constructor(model: FileModel, node: cst.Attribute) -> Sequence[cst.BaseExpression]:
    """What ``__init__`` gives to ``self.size``; nothing where other methods set it too."""
    given = model.kept_in(node)
    functions = {model.function_of(one) for one in given}
    made = all(function is not None and function.name == "__init__" for function in functions)
    return given if made else ()
