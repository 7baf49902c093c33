"""XLA326: gradients that no step sets back to zero."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xladoctor.lint.library import Effect
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._protocol import OPTIMIZER_STEP
from xladoctor.lint.rules._reads import loop_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

#: What a program writes that clears gradients, in whatever way; also in what it hands on.
_CLEARS = re.compile(
    r"zero_grad|\bset_to_none\b|\.grad\s*=(?!=)(?!.*\ball_reduce\()|\.grad\b.*\.(zero_|fill_|copy_)\(|"
    r"\bsetattr\([^)]*[\"']grad[\"']|\.grad\.detach_?\(|clear_grad|autograd\.grad\b|\bjax\b"
)


@rule("XLA326")
def kept_gradients(model: FileModel) -> Iterator[Problem]:
    """Find step loops with a backward pass and an optimizer step, and nothing that clears."""
    if not model.is_xla or model.looped_by:
        return
    backward = [event.node for event in model.effects.of(Effect.BACKWARD)]
    for event in model.effects.of(Effect.OPTIMIZER_STEP):
        loop = model.step_loop(event.node)
        if event.call is None or loop is None or loop.implicit or not _of_torch(model, event.call):
            continue
        if not any(model.step_loop(node) is loop for node in backward):
            continue
        if any(_CLEARS.search(one.text) for one in (model, *model.linked)):
            return
        yield model.problem(
            event.node,
            "no gradient is ever set to zero: each step adds the gradients of all steps before it",
            suggestion="optimizer.zero_grad() before the backward pass, or after this step",
            related=[loop_place(model, loop)],
        )
        return


def _of_torch(model: FileModel, call: CallSite) -> bool:
    """Whether the optimizer is one of torch's, which clears nothing by itself."""
    optimizer = call.argument(0, "optimizer") if call.name == OPTIMIZER_STEP else call.receiver
    made = model.value(optimizer).type_name if optimizer is not None else None
    return made is not None and made.startswith("torch.optim.")
