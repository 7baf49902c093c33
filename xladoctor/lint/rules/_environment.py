"""What rules about environment variables share: where a file sets them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.parts import index_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel

#: A variable that a shell line or magic of a notebook sets.
SHELL = re.compile(
    r"(?:%(?:set_)?env\s+|\bexport\s+|^\s*!\s*|\benv\s+)(?P<name>[A-Z][A-Z0-9_]+)(?:=|\s+\S)"
)

#: A shell line that exports one variable and does nothing else.
_EXPORTS = re.compile(r"""^\s*export\s+(?P<name>[A-Z][A-Z0-9_]+)=('[^']*'|"[^"]*"|[^;&|\s]*)\s*$""")


def exported_alone(line: str) -> str | None:
    """The variable that a shell line exports and nothing uses: it is gone with the shell."""
    match = _EXPORTS.match(line)
    return match["name"] if match is not None else None


def is_of_ipython(call: CallSite) -> bool:
    """``get_ipython().system("pip install x")`` of a notebook that was made a script."""
    asked = call.receiver.func if isinstance(call.receiver, cst.Call) else None
    return is_name(asked, "get_ipython")


def settings(model: FileModel) -> Sequence[tuple[str, cst.CSTNode, cst.CSTNode]]:
    """The variables that a file sets: the name, the node to report, and the one that sets it."""
    return model.once(_settings)


def _settings(model: FileModel) -> Sequence[tuple[str, cst.CSTNode, cst.CSTNode]]:
    return [
        (name, spot, node)
        for node in model.nodes(cst.Assign, cst.Call)
        for name, spot in _set_by(model, node)
    ]


def _set_by(model: FileModel, node: cst.CSTNode) -> Iterator[tuple[str, cst.CSTNode]]:
    if isinstance(node, cst.Assign):
        for item in node.targets:
            if isinstance(item.target, cst.Subscript) and is_environ(model, item.target.value):
                name = key_of(model, item.target)
                if name is not None:
                    yield name, node
    elif isinstance(node, cst.Call):
        call = model.call(node)
        if call.name in {"os.environ.setdefault", "os.putenv"}:
            first = call.argument(0, "key")
            if first is not None:
                yield from _literal_name(model, first, node)
        elif call.name == "os.environ.update":
            yield from call.keywords.items()
            yield from _keys(model, call)


#: Values with which a variable is off.
OFF = ("", "0", "false", "False", 0, False, None)


def is_off(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a node that sets a variable turns off what the variable is for."""
    value = node.value if isinstance(node, cst.Assign) else None
    if isinstance(node, cst.Call):
        value = model.call(node).argument(1, "value")
    if isinstance(value, cst.Call) and model.name(value.func) == "builtins.str" and value.args:
        value = value.args[0].value
    return value is not None and model.literal(value) in OFF


def _keys(model: FileModel, call: CallSite) -> Iterator[tuple[str, cst.CSTNode]]:
    """The keys of dictionaries that are given as they stand."""
    for argument in call.positional:
        if isinstance(argument, cst.Dict):
            for element in argument.elements:
                if isinstance(element, cst.DictElement):
                    yield from _literal_name(model, element.key, element.key)


def _literal_name(
    model: FileModel, expression: cst.BaseExpression, spot: cst.CSTNode
) -> Iterator[tuple[str, cst.CSTNode]]:
    name = model.literal(expression)
    if isinstance(name, str):
        yield name, spot


def is_environ(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether an expression is ``os.environ``."""
    return model.name(node) == "os.environ"


def key_of(model: FileModel, node: cst.Subscript) -> str | None:
    """The literal text in ``x["text"]``, or None."""
    index = index_of(node)
    key = model.literal(index) if index is not None else None
    return key if isinstance(key, str) else None
