"""How code turns device tensors into text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules._constants import constant
from xladoctor.lint.rules._exact import assigned

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel

_PRINTS = frozenset(
    {
        "builtins.print",
        "builtins.str",
        "builtins.repr",
        "builtins.format",
        "torch_xla.core.xla_model.master_print",
        "tqdm.tqdm.write",
        "warnings.warn",
    }
)
#: Not ``debug``: with the level off, as it is by default, nothing is formatted.
_LOG_METHODS = frozenset({"info", "warning", "error", "critical", "exception", "log"})
_BAR_METHODS = frozenset({"set_postfix", "set_postfix_str", "set_description"})
_METHODS = _LOG_METHODS | _BAR_METHODS | {"format"}
_TEXT_NAME = re.compile(r"fmt|format|template|message|text$", re.IGNORECASE)
#: The nodes that ``formats`` may find something in.
FORMATTING = (cst.FormattedString, cst.BinaryOperation, cst.Call)


def formats(model: FileModel, node: cst.CSTNode) -> tuple[str, cst.BaseExpression] | None:
    """How a node turns a device tensor into text, and which tensor; None if it does not."""
    # By type and not by isinstance, which LibCST's abstract classes make slow.
    if type(node) is cst.FormattedString:
        pieces = [
            part.expression
            for part in node.parts
            if isinstance(part, cst.FormattedStringExpression)
        ]
        return _first(model, "an f-string reads", pieces)
    if type(node) is cst.BinaryOperation and type(node.operator) is cst.Modulo:
        if not _is_text(model, node.left):
            return None
        right = node.right
        values = [e.value for e in right.elements] if isinstance(right, cst.Tuple) else [right]
        return _first(model, "`%` formatting reads", values)
    if type(node) is cst.Call:
        return _call_formats(model, model.call(node))
    return None


def _call_formats(model: FileModel, call: CallSite) -> tuple[str, cst.BaseExpression] | None:
    if call.name not in _PRINTS and (call.receiver is None or call.method not in _METHODS):
        return None
    values = [*call.positional, *call.keywords.values()]
    values += [argument.value for argument in call.node.args if argument.star]
    if call.name in _PRINTS:
        return _first(model, f"`{call.name.rpartition('.')[2]}` reads", values)
    assert call.receiver is not None
    if call.target is not None:
        return None  # a method of the program, which is looked into
    if call.method == "format" and _is_text(model, call.receiver):
        return _first(model, "`.format()` reads", values)
    if call.method in _BAR_METHODS:
        values = [*values, *_of_dicts(values)]
        return _first(model, f"`.{call.method}()` reads", values)
    if call.method in _LOG_METHODS and _is_logger(model, call.receiver):
        return _first(model, f"`.{call.method}()` of a logger reads", values)
    return None


def _first(
    model: FileModel, how: str, values: list[cst.BaseExpression]
) -> tuple[str, cst.BaseExpression] | None:
    """The first value that is a device tensor, or a list or dictionary of them."""
    return next(((how, value) for value in values if model.value(value).holds_device_tensor), None)


def _is_text(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether an expression is a text: written, put together of some, or under a name."""
    if isinstance(node, cst.SimpleString | cst.ConcatenatedString | cst.FormattedString):
        return True
    if isinstance(node, cst.BinaryOperation):
        if isinstance(node.operator, cst.Add | cst.Multiply):
            return _is_text(model, node.left) or _is_text(model, node.right)
        return isinstance(node.operator, cst.Modulo) and _is_text(model, node.left)
    if isinstance(node, cst.Attribute):
        return _TEXT_NAME.search(node.attr.value) is not None  # ``self.fmt``
    if not isinstance(node, cst.Name):
        return False
    made = assigned(model, node)
    if made and all(isinstance(one, cst.BinaryOperation) for one in made):
        return all(_is_text(model, one) for one in made)
    return isinstance(constant(model, node), str)


def _of_dicts(values: list[cst.BaseExpression]) -> list[cst.BaseExpression]:
    return [
        element.value
        for value in values
        if isinstance(value, cst.Dict)
        for element in value.elements
        if isinstance(element, cst.DictElement)
    ]


def _is_logger(model: FileModel, receiver: cst.BaseExpression) -> bool:
    if model.name(receiver) == "logging":
        return True
    last = receiver.attr if isinstance(receiver, cst.Attribute) else receiver
    return isinstance(last, cst.Name) and last.value.lower().strip("_") in {"log", "logger"}


def only_on_failure(model: FileModel, node: cst.CSTNode) -> bool:
    """The message of an exception or assertion is made once, when all is lost anyway.

    ``torch._check(holds, lambda: f"got {x}")`` too.
    """
    child, parent = node, model.parent(node)
    while parent is not None and not isinstance(parent, cst.BaseSuite):
        if isinstance(parent, cst.Lambda) and not parent.params.params:
            return True
        if isinstance(parent, cst.Raise):
            return True
        if isinstance(parent, cst.Assert) and parent.msg is child:
            return True
        child, parent = parent, model.parent(parent)
    return False
