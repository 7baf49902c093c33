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
        if _is_of_fairseq(model, call) and (reduction := _reduced_then(model, call)) is not None:
            yield model.problem(
                call.node,
                "fairseq multiplies p.grad.data, which is a different tensor to torch_xla: the "
                "all-reduce of the gradients is lost, and the cores drift apart without any error",
                suggestion="reduce the gradients first, then multiply them",
                related=[model.place(reduction.node, "its all-reduce is lost")],
            )
        gradient = _gradient(call)
        if gradient is None or call.receiver is None:
            continue
        reduction = _reduced_then(model, call)
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


def _is_of_fairseq(model: FileModel, call: CallSite) -> bool:
    """``self.optimizer.multiply_grads(c)`` of fairseq: it takes ``p.grad.data``."""
    if call.method != "multiply_grads" or call.target is not None:
        return False
    return any(name.partition(".")[0] == "fairseq" for name in model.named)


def _reduced_then(model: FileModel, call: CallSite, depth: int = 2) -> CallSite | None:
    """The reduction behind a call: in its function, or where that is called."""
    for later in model.calls(OPTIMIZER_STEP, REDUCE):
        if later.function is call.function and in_order(model, call.node, later.node):
            return later
    callers = model.callers(call.function) if call.function is not None and depth else ()
    found = (_reduced_then(model, one, depth - 1) for one in callers if model.is_here(one.node))
    return next((one for one in found if one is not None), None)


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
