"""What is certainly equal on all cores: a path, a counter, a setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, Kind, walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.rules._cores import SETTINGS, differs
from xladoctor.lint.rules._lightning_hooks import run_by_lightning

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel
    from xladoctor.lint.model.definitions import Binding
    from xladoctor.lint.model.values import Value

#: What Lightning counts, on all cores alike.
_COUNTED = frozenset({"current_epoch", "global_step"})
_Asked = frozenset["tuple[Function | None, str]"]
#: Functions of numbers, and methods that cut one out of a text.
_COUNTS = (
    "builtins.int",
    "builtins.len",
    "builtins.round",
    "builtins.max",
    "builtins.min",
    "math.",
)
_DEEPEST = 10
_CUTS = frozenset({"replace", "split", "strip", "rpartition", "partition", "removeprefix"})


def same_everywhere(
    model: FileModel, node: cst.BaseExpression, depth: int = 0, asked: _Asked = frozenset()
) -> bool:
    """Whether an expression is certainly equal on all cores: literals and what is made of them.

    Settings (``args.out``, ``CONFIG["out"]``) are equal too: all cores get the same command line.
    A name that is made of itself (``folder = os.path.join(out, folder)``) is if the rest is
    (``asked``: the names whose bindings are looked at).
    """
    if depth > _DEEPEST or differs(model, node):
        return False
    if isinstance(node, cst.SimpleString | cst.Integer | cst.Float):
        return True
    if isinstance(node, cst.FormattedString):
        return all(
            same_everywhere(model, part.expression, depth + 1, asked)
            for part in node.parts
            if isinstance(part, cst.FormattedStringExpression)
        )
    if isinstance(node, cst.BinaryOperation | cst.ConcatenatedString):
        return all(same_everywhere(model, x, depth + 1, asked) for x in (node.left, node.right))
    if isinstance(node, cst.Tuple):
        return all(same_everywhere(model, x.value, depth + 1, asked) for x in node.elements)
    if isinstance(node, cst.Call):
        return _call_is_same(model, node, depth, asked) or _is_same_number(model, node)
    if isinstance(node, cst.IfExp):
        sides = (node.body, node.orelse)
        return all(same_everywhere(model, x, depth + 1, asked) for x in sides)
    if isinstance(node, cst.Name):
        constant = node.value in {"None", "True", "False"}
        return constant or _name_is_same(model, node, depth, asked)
    if isinstance(node, cst.Attribute):
        same = same_everywhere(model, node.value, depth + 1, asked) or _is_setting(node.value)
        return same or _is_kept(model, node, depth, asked)
    if isinstance(node, cst.Subscript):
        return _is_setting(node.value) or _is_cut(model, node.value, depth, asked)
    return False


def _is_cut(model: FileModel, node: cst.BaseExpression, depth: int, asked: _Asked) -> bool:
    """``args.path.split(".")``, of which ``[-1]`` is the same too."""
    call = model.call(node) if isinstance(node, cst.Call) else None
    if call is None or call.receiver is None or call.method not in _CUTS:
        return False
    return same_everywhere(model, call.receiver, depth + 1, asked)


def _is_kept(model: FileModel, node: cst.Attribute, depth: int, asked: _Asked) -> bool:
    """``self.path`` of a module of Lightning, which is made before the cores; ``global_step``."""
    if node.attr.value in _COUNTED:
        return True
    if "lightning" not in model.frameworks:
        return False
    function = model.function_of(node)
    if function is None or function.owner is None or not is_name(node.value, "self"):
        return False
    made = model.kept(function.owner).get(node.attr.value, ())
    return (
        bool(made)
        and run_by_lightning(model, function) is function
        and all(
            model.is_here(one) and same_everywhere(model, one, depth + 1, asked) for one in made
        )
    )


def _call_is_same(model: FileModel, node: cst.Call, depth: int, asked: _Asked) -> bool:
    call = model.call(node)
    plain = call.name is not None and call.name.startswith(("os.path.", "pathlib.", "builtins.str"))
    method = call.method in {"format", "joinpath", "join", "with_suffix"} and call.receiver
    if not plain and not method:
        return False
    parts = [argument.value for argument in node.args]
    if method and not plain:
        assert call.receiver is not None
        parts.append(call.receiver)
    return all(same_everywhere(model, part, depth + 1, asked) for part in parts)


def _name_is_same(model: FileModel, node: cst.Name, depth: int, asked: _Asked) -> bool:
    home = (model.function_of(node), node.value)
    bindings = model.bindings(node.value, node)
    if home in asked:
        return bool(bindings)
    return bool(bindings) and all(
        _binds_the_same(model, node, binding, depth, asked | {home}) for binding in bindings
    )


def _binds_the_same(
    model: FileModel, node: cst.Name, binding: Binding, depth: int, asked: _Asked
) -> bool:
    if binding.kind == "assign" and isinstance(binding.node, cst.BaseExpression):
        return same_everywhere(model, binding.node, depth + 1, asked)
    if binding.kind == "param":
        return _argument_is_same(model, node, depth, asked)
    if binding.kind != "other":
        return binding.kind == "import"
    line = model.parent(binding.node)
    if isinstance(line, cst.AugAssign):
        return same_everywhere(model, line.value, depth + 1, asked)
    # A loop variable: an epoch or a step counter is equal, a value of a batch is not.
    value = model.value(node)
    return value.kind is Kind.NUMBER and not value.local


def _is_same_number(model: FileModel, node: cst.Call) -> bool:
    """``math.ceil(len(loader) / args.every)``: counted, and not by this core's data."""
    values = [model.value(part) for part in walk(node) if isinstance(part, cst.Name)]
    number = model.value(node).kind is Kind.NUMBER
    if not number or any(map(_is_number_of_core, values)) or differs(model, node):
        return False
    calls = (model.call(part) for part in walk(node) if isinstance(part, cst.Call))
    return all(
        (call.name or "").startswith(_COUNTS) or (call.name is None and call.method in _CUTS)
        for call in calls
    )


def _is_number_of_core(value: Value) -> bool:
    return value.kind is Kind.CORE_NUMBER or (value.local and value.kind is Kind.NUMBER)


def _argument_is_same(model: FileModel, node: cst.Name, depth: int, asked: _Asked) -> bool:
    function = model.function_of(node)
    if function is None or node.value not in function.parameters:
        return False
    index = function.parameters.index(node.value) - function.is_bound
    callers = model.callers(function)
    entry = model.on_every_core(node)
    if entry is not None and entry.function is function and not callers:
        return index > 0  # what spawn passes on; the first is the core's number
    if index < 0 or not callers:
        return _is_setting(node)
    for call in callers:
        value = call.argument(index, node.value)
        if value is None:
            continue  # the default is the same for all
        if not same_everywhere(model, value, depth + 1, asked):
            return False
    return True


def _is_setting(node: cst.BaseExpression) -> bool:
    """Whether an expression is by its name the program's settings."""
    last = node.attr.value if isinstance(node, cst.Attribute) else getattr(node, "value", None)
    return isinstance(last, str) and last.lower() in SETTINGS
