"""XLA903: Lightning reads a device value on every step, for the progress bar or the logger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.rewrites.lightning import is_module
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import given_true
from xladoctor.lint.rules._given import given
from xladoctor.lint.rules._lightning_hooks import hooks_of, logs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Function, Problem

_STEP = "training_step"
_EVALS = frozenset({"validation_step", "test_step"})
_TRAINERS = ("lightning.pytorch.Trainer",)


@rule("XLA903")
def lightning_step_logging(model: FileModel) -> Iterator[Problem]:
    """Find ``self.log(..., prog_bar=True)`` and ``return None`` in ``training_step`` on TPU."""
    if not model.is_xla or "lightning" not in model.frameworks:
        return
    shown = not _bar_is_off(model)
    for call in _logged_in(model, frozenset({_STEP})) if shown else ():
        if not model.throttled(call.node):
            yield from _bar(model, call)
    for function in model.functions:
        if function.name == _STEP and is_module(model, function):
            yield from _nothing_returned(model, function)
    yield from _each_batch(model)
    for call in model.calls(*_TRAINERS):
        every = given(model, call).get("log_every_n_steps")
        if every is not None and model.literal(every) == 1 and not model.in_unit_test(call.node):
            yield model.problem(
                every,
                "the logger reads what training_step logs on every step: the host waits for the "
                "device each time",
                suggestion="log_every_n_steps=50, which is the default",
            )


def _each_batch(model: FileModel) -> Iterator[Problem]:
    """``self.log("loss", loss, on_step=True)`` in an evaluation: no ``log_every_n_steps`` there."""
    if any(_has_no_logger(model, call) for call in model.calls(*_TRAINERS)):
        return
    for call in _logged_in(model, _EVALS):
        value = call.argument(1, "value")
        number = value is not None and model.literal(value) is not NotImplemented
        if number or given_true(model, call, "on_step") is None or model.throttled(call.node):
            continue
        yield model.problem(
            call.node,
            "in an evaluation Lightning logs this for every batch, whatever log_every_n_steps "
            "says, and reads it from the device each time",
            suggestion="leave on_step out: an evaluation logs the mean of the epoch",
        )


def _logged_in(model: FileModel, hooks: frozenset[str]) -> Iterator[CallSite]:
    """``self.log(...)`` in one of these hooks, or in a method of the module that it calls."""
    for call, function, _ in logs(model):
        if is_module(model, function) and not hooks.isdisjoint(hooks_of(model, call.node)):
            yield call


def _has_no_logger(model: FileModel, trainer: CallSite) -> bool:
    logger = given(model, trainer).get("logger")
    return logger is not None and model.literal(logger) is False


def _bar(model: FileModel, call: CallSite) -> Iterator[Problem]:
    shown = given_true(model, call, "prog_bar")
    on_step = given(model, call).get("on_step")
    if shown is None or (on_step is not None and model.literal(on_step) is not True):
        return
    value = call.argument(1, "value")
    if call.method == "log" and value is not None and model.literal(value) is not NotImplemented:
        return
    yield model.problem(
        call.node,
        "the progress bar shows this value, and Lightning reads it from the device at every "
        "refresh, which is on every step by default",
        suggestion="on_step=False, on_epoch=True, or callbacks=[TQDMProgressBar(refresh_rate=50)]",
    )


def _nothing_returned(model: FileModel, function: Function) -> Iterator[Problem]:
    """``return None``, or a bare ``return``, where Lightning takes the optimizer's step itself."""
    if function.owner is None or _is_manual(model, function):
        return
    for node in walk(function.node, into_functions=False):
        if not isinstance(node, cst.Return):
            continue
        if node.value is None or is_name(node.value, "None"):
            yield model.problem(
                node,
                "a training_step that returns None is not possible on XLA devices: Lightning's "
                "XLA precision raises MisconfigurationException",
                suggestion="return a loss of zero (loss * 0.0), so that every step has a backward "
                "pass",
            )


def _is_manual(model: FileModel, function: Function) -> bool:
    """``self.automatic_optimization = False``, or the module calls ``manual_backward``."""
    assert function.owner is not None
    text = model.rows_of(function.owner.node)
    return "automatic_optimization" in text or "manual_backward" in text


def _bar_is_off(model: FileModel) -> bool:
    """The program turns the progress bar off, or sets how often it is drawn."""
    for call in model.calls():
        if (call.name or "").endswith("ProgressBar"):
            return True
        named = given(model, call) if call.name in _TRAINERS else call.keywords
        bar = named.get("enable_progress_bar", named.get("progress_bar_refresh_rate"))
        if bar is not None and model.literal(bar) != 1:
            return True
    return False
