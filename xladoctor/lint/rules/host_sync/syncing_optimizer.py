"""XLA110: an optimizer that reads its state on the host in every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor import catalogue
from xladoctor.lint.model import LoopKind, OnXla
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import loop_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Loop, Problem

#: Measured with four parameters: reads per step, and new compilations in five steps.
_MEASURED = {"LBFGS": (13, 40), "Rprop": (16, 60), "ASGD": (12, 0), "Adafactor": (8, 0)}


@rule("XLA110")
def syncing_optimizer(model: FileModel) -> Iterator[Problem]:
    """Find optimizers that were measured, or are known by their source, to read on the host."""
    if not model.is_xla:
        return
    loops = [loop for part in (model, *model.linked) for loop in part.loops]
    loop = next((loop for loop in loops if loop.kind is LoopKind.STEP), None)
    if loop is None:
        return
    yield from _of_packages(model, loop)
    for call in model.calls(*(f"torch.optim.{name}" for name in _MEASURED)):
        if model.on_xla(call.node) is not OnXla.YES:
            continue
        name = (call.name or "").rpartition(".")[2]
        reads, compilations = _MEASURED[name]
        also = f" and compiled {compilations} graphs in five steps" if compilations else ""
        yield model.problem(
            call.node,
            f"torch.optim.{name} reads values on the host in every step: with four parameters "
            f"{reads} reads a step{also}",
            suggestion="SGD, Adam, AdamW, RMSprop, Adagrad, Adadelta, Adamax and NAdam read "
            "nothing",
            related=[loop_place(model, loop)],
        )


def _of_packages(model: FileModel, loop: Loop) -> Iterator[Problem]:
    """Optimizers of other packages, whose source tells what they read."""
    for row in catalogue.table("frameworks")["optimizer"]:
        kept, _, wanted = row.get("unless", "").partition("=")
        for call in model.calls(*row["names"]):
            given = call.keywords.get(kept)
            spared = given is not None and model.tree.text(given).strip() == wanted
            if spared or call.has_star or model.on_xla(call.node) is not OnXla.YES:
                continue
            yield model.problem(
                call.node,
                f"{call.name} reads {row['reads']}, on the host in every step",
                suggestion=(f"{row['unless']}, or " if kept else "")
                + "torch.optim.AdamW, which reads nothing",
                related=[loop_place(model, loop)],
            )
