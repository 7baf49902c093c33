"""Whether a change to a program may stay, with invented runs."""

from __future__ import annotations

import dataclasses

import pytest

from tests.diagnosis.test_gain import GOOD as FIGURES
from xladoctor.changes import Noise, Spread, Trial
from xladoctor.diagnosis import printed, trial
from xladoctor.results import Report, Summary

LOSSES = printed.losses("epoch 0 loss 1.5000\nepoch 1 loss 0.7500")
GOOD = Trial(ran=True, figures=FIGURES, losses=LOSSES)


def changed(losses=LOSSES, **figures):
    return Trial(ran=True, figures=dataclasses.replace(FIGURES, **figures), losses=losses)


def problem(before, after, noise=None, *, keeps_numbers=True):
    return trial.judge(before, after, noise or Noise(), keeps_numbers=keeps_numbers).problem


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (changed(), None),
        (changed(printed.losses("epoch 0 loss 1.5040\nepoch 1 loss 0.7520"), syncs=0.0), None),
        (changed(syncs=3.0), "more host syncs per step: 3 instead of 2"),
        (changed(after_warmup=2), "more compilations after warm-up: 2 instead of 1"),
        (changed(after_warmup=2, compilations=FIGURES.compilations - 1), None),
        (changed(syncs=2.5, steps=8), None),  # the same number of them, over fewer steps
        (changed(syncs=2.5, steps=9), "more host syncs per step: 2.5 instead of 2"),
        (changed(fallbacks=1.5), "more CPU fallbacks per step: 1.5 instead of 1"),
        (changed(compilations=5), None),  # a new line may have a graph of its own
        (changed(step=Spread(1.0, 0.9, 1.1, 20)), "a step takes 2.0 times as long"),
        (changed(step=Spread(1.0, 0.5, 1.1, 20)), None),  # the steps overlap
        (changed(step=Spread(1.0, 0.9, 1.1, 20), syncs=0.0), None),
        (
            changed(printed.losses("epoch 0 loss 1.5000\nepoch 1 loss 9.0000")),
            "only 1 of 2 printed losses are as before",
        ),
        (changed(()), None),
        (changed(syncs=None), None),
        (Trial(ran=False, failed="boom"), "the program fails with it (boom)"),
    ],
)
def test_a_change_stays_unless_it_makes_something_worse(after, reason):
    assert problem(GOOD, after) == reason


def test_device_time_on_a_tpu_may_grow_only_for_something_better():
    before = changed(on_tpu={"v3-8": (100.0, 1000)})
    slower = changed(on_tpu={"v3-8": (120.0, 1000)})
    assert problem(before, slower) == (
        "more device time of a step on v3-8: 120 us instead of 100 us"
    )
    assert problem(before, changed(on_tpu={"v3-8": (104.0, 1000)})) is None
    assert problem(before, changed(on_tpu={"v3-8": (100.0, 9000)})) is None  # it may still fit
    assert problem(before, changed(on_tpu={"v3-8": (120.0, 1000)}, syncs=0.0)) is None
    assert problem(before, changed()) is None


def test_a_change_that_is_meant_to_change_the_numbers_may():
    after = changed(printed.losses("epoch 0 loss 9.0"))
    assert problem(GOOD, after, keeps_numbers=False) is None
    assert problem(GOOD, after) == "only 0 of 1 printed losses are as before"


def test_nothing_is_worse_than_a_program_that_fails():
    failed = Trial(ran=False)
    assert problem(failed, changed(syncs=99.0)) is None
    assert problem(failed, failed) is None


def test_what_differs_by_itself_does_not_count():
    again = changed(
        printed.losses("epoch 0 loss 1.5000\nepoch 1 loss 5.0000"),
        syncs=2.5,
        step=Spread(1.0, 0.9, 1.1, 20),
    )
    noise = trial.noise(GOOD, again)
    assert noise.counts["host_syncs"] == 0.5
    assert noise.step_ratio == 2.0
    assert noise.unsteady == {"loss (1)"}
    assert problem(GOOD, again, noise) is None
    assert problem(GOOD, again) is not None


def test_a_program_that_was_stopped_ran_if_it_made_steps():
    summary = Summary("v", "w", "n", cores=1, steps=40, host_syncs=80)
    found = trial.trial(Report(summary), ran=False, output="loss 0.5", stopped=True)
    assert (found.ran, found.stopped, found.figures.syncs) == (True, True, 2.0)
    assert len(found.losses) == 1
    idle = trial.trial(Report(Summary("v", "w", "n")), ran=False, output="", stopped=True)
    assert (idle.ran, idle.failed) == (
        False, "it made no step within the time limit, too few to compare",
    )  # fmt: skip
    short = trial.trial(
        Report(dataclasses.replace(summary, steps=1)), ran=False, output="", stopped=True
    )
    assert short.failed == "it made 1 step within the time limit, too few to compare"


def test_of_a_run_that_was_stopped_only_what_both_printed_is_compared():
    text = "\n".join(f"loss {1 / (step + 1):.4f}" for step in range(30))
    more = text + "\nloss 0.0010\nloss 0.0001"
    longer = dataclasses.replace(changed(printed.losses(more)), stopped=True)
    first = dataclasses.replace(GOOD, losses=printed.losses(text), stopped=True)
    assert problem(first, longer) is None
    found = trial.judge(first, longer, Noise(), keeps_numbers=True).losses
    assert (found.compared, found.agreeing) == (30, 30)
    assert problem(dataclasses.replace(first, stopped=False), changed(longer.losses)) is not None


def test_a_failed_run_says_the_verdict_where_no_core_failed():
    found = trial.trial(Report(Summary("all is lost", "w", "n")), ran=False, output="")
    assert (found.ran, found.failed) == (False, "all is lost")


def test_what_may_be_chance_is_told_from_counts_that_do_not_vary():
    def doubtful(after, noise):
        return trial.is_doubtful(trial.judge(GOOD, after, noise, keeps_numbers=True), noise)

    steady = Noise(True, counts={"host_syncs": 0.0})
    assert not doubtful(changed(), steady)
    assert not doubtful(changed(syncs=3.0), steady)
    assert doubtful(changed(syncs=3.0), Noise())
    assert doubtful(changed(syncs=9.0), Noise(True, counts={"host_syncs": 1.0}))
    assert doubtful(changed(step=Spread(1.0, 0.9, 1.1, 20)), steady)
    assert doubtful(changed(printed.losses("epoch 0 loss 9.0")), steady)
