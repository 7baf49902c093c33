"""XLA307: gradients changed through ``.data`` or ``.detach()`` before they are reduced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import in_order
from xladoctor.lint.rules._protocol import OPTIMIZER_STEP, REDUCE
from xladoctor.lint.rules._reads import snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem


@rule("XLA307")
def gradient_alias(model: FileModel) -> Iterator[Problem]:
    """Find in-place changes of ``p.grad.data`` before a reduction in the same function."""
    if model.spmd:
        return
    for call in model.calls():
        gradient = _gradient(call)
        if gradient is None or call.receiver is None:
            continue
        reduction = next(
            (
                later
                for later in model.calls(OPTIMIZER_STEP, REDUCE)
                if later.function is call.function and in_order(model, call.node, later.node)
            ),
            None,
        )
        if reduction is None:
            continue
        yield model.problem(
            call.node,
            f"changed through {snippet(model, call.receiver)} the gradient becomes a different "
            "tensor to torch_xla: its all-reduce is lost, and the cores drift apart without any "
            "error",
            suggestion="change the gradient itself: p.grad.div_(n)",
            related=[model.place(reduction.node, "its all-reduce is lost")],
            fix=model.fix(
                "Change the gradient itself",
                model.replace(call.receiver, model.tree.text(gradient).strip()),
                safe=True,
            ),
        )


def _gradient(call: CallSite) -> cst.Attribute | None:
    """``p.grad`` of ``p.grad.data.div_(...)`` or ``p.grad.detach().div_(...)``."""
    method = call.method or ""
    if call.name is not None or not method.endswith("_") or method.startswith("_"):
        return None
    inner = call.receiver
    if isinstance(inner, cst.Call):
        detached = isinstance(inner.func, cst.Attribute) and inner.func.attr.value == "detach"
        inner = inner.func.value if detached and isinstance(inner.func, cst.Attribute) else None
    elif isinstance(inner, cst.Attribute) and inner.attr.value == "data":
        inner = inner.value
    else:
        return None
    return inner if isinstance(inner, cst.Attribute) and inner.attr.value == "grad" else None
