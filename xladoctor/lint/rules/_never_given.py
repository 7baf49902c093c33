"""Branches for a value of a parameter that no call of the program gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel, Function, Guard

#: ``norm_type = float(norm_type)``: the same value.
_SAME = frozenset({"builtins.float", "builtins.int", "builtins.str"})


def asked_by_nobody(model: FileModel, guard: Guard) -> bool:
    """``if norm_type == inf:`` of a parameter that is 2.0 unless a call says so, and none does."""
    test = guard.test
    if not isinstance(test, cst.Comparison) or not isinstance(test.left, cst.Name):
        return False
    [asked, *more] = test.comparisons
    if more or not isinstance(asked.operator, cst.Equal if guard.when else cst.NotEqual):
        return False
    function = model.with_parameter(test.left)
    if function is None or not _stays(model, test.left):
        return False
    usual = function.default(test.left.value)
    value, other = _constant(model, usual), _constant(model, asked.comparator)
    if value is None or other is None or value == other:
        return False
    return _is_left_out(model, function, test.left.value)


def _stays(model: FileModel, name: cst.Name) -> bool:
    """Whether a parameter is given nothing else in its function, but for its type."""
    for binding in model.bindings(name.value, name):
        node = binding.node
        if binding.kind == "param":
            continue
        same = isinstance(node, cst.Call) and model.name(node.func) in _SAME and len(node.args) == 1
        given = node.args[0].value if isinstance(node, cst.Call) and same else None
        if not isinstance(given, cst.Name) or given.value != name.value:
            return False
    return True


def _constant(model: FileModel, node: cst.BaseExpression | None) -> float | str | None:
    """A number or text as written, ``inf`` too; None of anything else, of truth values too."""
    if node is None:
        return None
    if isinstance(node, cst.Name | cst.Attribute):
        return float("inf") if (model.name(node) or "").rpartition(".")[2] == "inf" else None
    if isinstance(node, cst.Call):
        text = model.literal(node.args[0].value) if len(node.args) == 1 else None
        infinite = model.name(node.func) == "builtins.float" and text in {"inf", "infinity"}
        return float("inf") if infinite else None
    value = model.literal(node)
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else None


def _is_left_out(model: FileModel, function: Function, name: str) -> bool:
    """Whether there are calls of a function, and none gives a parameter."""
    calls = model.callers(function)
    return bool(calls) and not any(
        call.has_star or model.gives_name(call) or call.given_to(function, name) is not None
        for call in calls
    )
