"""Decisions of one core alone to end a training that Lightning runs on several."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.frameworks import LIGHTNING_TRAINER, TRAINER_METRICS
from xladoctor.lint.rules._cores import trainer_of_cores
from xladoctor.lint.rules._lightning_hooks import run_by_lightning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Guard, Problem


def stopped_alone(model: FileModel) -> Iterator[Problem]:
    """``if torch.isnan(loss): trainer.should_stop = True`` in a hook.

    Each core looks at its own flag (Lightning 2.6, loops/training_epoch_loop.py).
    """
    if "lightning" not in model.frameworks:
        return
    trainer = trainer_of_cores(model)
    for line in model.nodes(cst.Assign) if trainer is not None else ():
        assert isinstance(line, cst.Assign)
        function = model.function_of(line)
        if function is None or not any(_is_flag(model, one.target) for one in line.targets):
            continue
        guard = _of_one_core(model, line)
        if guard is None or run_by_lightning(model, function) is None:
            continue
        assert trainer is not None
        yield model.problem(
            line,
            "a core that stops by itself leaves the others waiting for it in their next step: "
            "Lightning does not share should_stop between cores",
            suggestion="stop = trainer.strategy.reduce_boolean_decision(stop, all=False) on all "
            "cores first, or EarlyStopping",
            related=[
                model.place(guard.written, "may be true on one core and false on another"),
                model.place(trainer.node, "several cores"),
            ],
        )


def _is_flag(model: FileModel, target: cst.BaseAssignTargetExpression) -> bool:
    return (
        isinstance(target, cst.Attribute)
        and target.attr.value == "should_stop"
        and model.value(target.value).type_name == LIGHTNING_TRAINER
    )


def _of_one_core(model: FileModel, line: cst.Assign) -> Guard | None:
    """The condition that one core may answer in another way than the rest.

    What stands in ``trainer.callback_metrics`` may have been reduced.
    """
    guard = model.effects.some_cores(line)
    asked = (part for part in walk(guard.test) if isinstance(part, cst.Attribute)) if guard else ()
    return None if any(part.attr.value in TRAINER_METRICS for part in asked) else guard
