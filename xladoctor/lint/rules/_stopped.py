"""Decisions of one core alone to end a training that a framework runs on several.

Each core looks at its own flag: ``Trainer.should_stop`` (Lightning 2.6,
loops/training_epoch_loop.py), ``TrainerControl`` (transformers 5.23, trainer.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.dotted import is_name, last_name
from xladoctor.lint.model.frameworks import CALLBACKS, LIGHTNING_TRAINER, TRAINER_METRICS, TRAINERS
from xladoctor.lint.rules._cores import CoresOfTrainer, trainer_of_cores
from xladoctor.lint.rules._lightning_hooks import run_by_lightning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Guard, Problem

_OF_ONE_CORE = "may be true on one core and false on another"
#: Flags of the Trainer of transformers.
_FLAGS = frozenset({"should_training_stop", "should_epoch_stop"})
_OF_TRAINER = TRAINERS | CALLBACKS


def stopped_alone(model: FileModel) -> Iterator[Problem]:
    """Find flags that end a training, set on a condition that one core may answer alone."""
    trainer = trainer_of_cores(model) if "lightning" in model.frameworks else None
    for line in model.nodes(cst.Assign):
        if trainer is not None:
            yield from _by_lightning(model, line, trainer)
        yield from _by_callback(model, line)


def _by_lightning(model: FileModel, line: cst.Assign, trainer: CoresOfTrainer) -> Iterator[Problem]:
    """``if torch.isnan(loss): trainer.should_stop = True`` in a hook."""
    function = model.function_of(line)
    if function is None or not any(_is_flag(model, one.target) for one in line.targets):
        return
    guard = _of_one_core(model, line)
    if guard is not None and run_by_lightning(model, function) is not None:
        yield model.problem(
            line,
            "a core that stops by itself leaves the others waiting for it in their next step: "
            "Lightning does not share should_stop between cores",
            suggestion="stop = trainer.strategy.reduce_boolean_decision(stop, all=False) on all "
            "cores first, or EarlyStopping",
            related=[
                model.place(guard.written, _OF_ONE_CORE),
                *trainer.places(model),
            ],
        )


def _by_callback(model: FileModel, line: cst.Assign) -> Iterator[Problem]:
    """``control.should_training_stop = True`` in a callback, by a loss of this core's batches.

    What the Trainer gives its callbacks (``metrics``, ``logs``, ``state``) is gathered before.
    """
    if last_name(line.targets[0].target) not in _FLAGS or not is_name(line.value, "True"):
        return
    function = model.function_of(line)
    owner = function.owner if function is not None else None
    if owner is None or _OF_TRAINER.isdisjoint(model.library_bases(owner)):
        return
    guard = model.core_guard(line)
    if guard is not None:
        yield model.problem(
            line,
            "each core decides this for itself, and the Trainer stops on those where it holds: "
            "the others wait for them in the next step",
            suggestion="decide by what all cores know: metrics and logs that the Trainer hands "
            'over, or xm.mesh_reduce("stop", flag, max)',
            related=[model.place(guard.written, _OF_ONE_CORE)],
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
