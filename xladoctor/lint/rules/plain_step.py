"""XLA302: ``optimizer.step()`` on several cores, with gradients that nobody reduced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._protocol import reduces_gradients, steps_optimizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem


@rule("XLA302")
def plain_optimizer_step(model: FileModel) -> Iterator[Problem]:
    """Find plain optimizer steps on several cores in files that reduce no gradients."""
    if not model.is_xla or not model.multi_core or model.frameworks or reduces_gradients(model):
        return
    if not any(True for _ in model.methods("backward")):
        return
    for call in model.methods("step"):
        entry = model.on_every_core(call.node) if steps_optimizer(model, call) else None
        if entry is None or model.master_only(call.node) is not None:
            continue
        related = []
        if entry.call is not None:
            related.append(model.place(entry.call, "the cores are started here"))
        yield model.problem(
            call.node,
            "each core applies the gradients of its own batch only: the cores train different "
            "models, without any error",
            suggestion="xm.optimizer_step(optimizer) averages the gradients over the cores and "
            "then steps",
            related=related,
            fix=_fix(model, call),
        )


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    spelled = model.spelled("torch_xla.core.xla_model.optimizer_step", call.node)
    if spelled is None or call.node.args or call.receiver is None:
        return None
    optimizer = model.tree.text(call.receiver).strip()
    return model.fix(
        "Reduce the gradients over the cores",
        model.replace(call.node, f"{spelled}({optimizer})"),
        safe=False,
    )
