"""XLA439: a function where its answer is meant: ``if xm.is_master_ordinal:``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_XM = "torch_xla.core.xla_model."
_XR = "torch_xla.runtime."
#: Functions without required arguments whose answer programs decide by.
_ASKED = frozenset(
    {
        *(_XM + name for name in (
            "is_master_ordinal", "get_ordinal", "get_local_ordinal", "xrt_world_size",
        )),
        *(_XR + name for name in (
            "global_ordinal", "local_ordinal", "world_size", "process_index", "process_count",
            "host_index", "device_type", "is_spmd", "using_pjrt", "global_device_count",
            "global_runtime_device_count", "addressable_device_count",
        )),
        *("torch.distributed." + name for name in (
            "get_rank", "get_world_size", "is_initialized", "is_available",
        )),
    }
)  # fmt: skip


@rule("XLA439")
def function_as_condition(model: FileModel) -> Iterator[Problem]:
    """Find functions that are tested or compared instead of called."""
    if not model.is_xla:
        return
    for node in (node for name in sorted(_ASKED) for node in model.named.get(name, ())):
        if not _is_surely(model, node):
            continue
        outcome = _outcome(model, node)
        if outcome is not None:
            yield model.problem(
                node,
                f"{snippet(model, node)} is the function, not its result: {outcome}",
                suggestion=f"call it: {model.tree.text(node).strip()}()",
            )


def _is_surely(model: FileModel, node: cst.BaseExpression) -> bool:
    """A name that is imported and nothing else: ``except ImportError: is_master = None``."""
    if not isinstance(node, cst.Name):
        return True
    bindings = model.bindings(node.value, node)
    return len(bindings) == 1 and bindings[0].kind == "import"


def _outcome(model: FileModel, node: cst.BaseExpression) -> str | None:
    """What a test of the function gives on every core, None if it is not tested."""
    parent = model.parent(node)
    if isinstance(parent, cst.ComparisonTarget):
        whole = model.parent(parent)
        if isinstance(whole, cst.Comparison) and len(whole.comparisons) == 1:
            return _compared(model, parent.operator, whole.left)
        return None
    if isinstance(parent, cst.Comparison):
        if len(parent.comparisons) != 1:
            return None
        target = parent.comparisons[0]
        return _compared(model, target.operator, target.comparator)
    if isinstance(parent, cst.UnaryOperation) and isinstance(parent.operator, cst.Not):
        return "`not` of it is always false"
    return "it is always true, on every core" if _is_test(model, node) else None


def _is_test(model: FileModel, node: cst.BaseExpression) -> bool:
    parent = model.parent(node)
    if isinstance(parent, cst.BooleanOperation):
        # `a or f` outside of a test gives the function on, to be called later.
        return _is_test(model, parent)
    if isinstance(parent, cst.UnaryOperation):
        return isinstance(parent.operator, cst.Not)
    return isinstance(parent, cst.If | cst.IfExp | cst.While | cst.Assert) and parent.test is node


def _compared(model: FileModel, operator: cst.BaseCompOp, other: cst.BaseExpression) -> str | None:
    if not isinstance(model.literal(other), bool | int | str):
        return None  # `is not None`, or another function: the function itself is meant
    if isinstance(operator, cst.Equal | cst.Is):
        return f"it never equals {snippet(model, other)}, on any core"
    if isinstance(operator, cst.NotEqual | cst.IsNot):
        return f"it always differs from {snippet(model, other)}, on every core"
    if isinstance(operator, cst.LessThan | cst.GreaterThan | cst.LessThanEqual):
        return "this raises TypeError"
    return "this raises TypeError" if isinstance(operator, cst.GreaterThanEqual) else None
