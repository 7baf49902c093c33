"""How code turns device tensors into text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

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
        if not isinstance(node.left, cst.SimpleString | cst.ConcatenatedString):
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
    if call.name in _PRINTS:
        return _first(model, f"`{call.name.rpartition('.')[2]}` reads", values, nested=True)
    assert call.receiver is not None
    texts = cst.SimpleString | cst.ConcatenatedString
    if call.method == "format" and isinstance(call.receiver, texts):
        return _first(model, "`.format()` reads", values)
    if call.method in _BAR_METHODS:
        values = [*values, *_of_dicts(values)]
        return _first(model, f"`.{call.method}()` reads", values)
    if call.method in _LOG_METHODS and _is_logger(model, call.receiver):
        return _first(model, f"`.{call.method}()` of a logger reads", values)
    return None


def _first(
    model: FileModel, how: str, values: list[cst.BaseExpression], *, nested: bool = False
) -> tuple[str, cst.BaseExpression] | None:
    for value in values:
        known = model.value(value)
        if known.is_device_tensor or (nested and known.holds_device_tensor):
            return how, value
    return None


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
    """The message of an exception or assertion is made once, when all is lost anyway."""
    child, parent = node, model.parent(node)
    while parent is not None and not isinstance(parent, cst.BaseSuite):
        if isinstance(parent, cst.Raise):
            return True
        if isinstance(parent, cst.Assert) and parent.msg is child:
            return True
        child, parent = parent, model.parent(parent)
    return False
