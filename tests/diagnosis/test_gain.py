"""Figures of two runs side by side, with invented figures."""

from __future__ import annotations

import dataclasses

import pytest

from xladoctor.changes import Figures, Spread
from xladoctor.diagnosis import gain
from xladoctor.results import CoreSummary, Report, Summary

GOOD = Figures(
    compilations=4, after_warmup=1, syncs=2.0, fallbacks=1.0, per_step=True,
    step=Spread(0.5, 0.45, 0.55, 20), steps=10, cores=2,
)  # fmt: skip


def changed(**what):
    return dataclasses.replace(GOOD, **what)


def verdicts(after, before=GOOD):
    return {change.name: change.verdict for change in gain.changes(before, after)}


def test_fewer_is_better():
    found = verdicts(changed(compilations=5, syncs=0.0))
    assert found == {
        "compilations": "worse", "compilations_after_warmup": "same", "host_syncs": "better",
        "fallbacks": "same", "step_seconds": "same",
    }  # fmt: skip


def test_what_was_not_measured_is_unknown():
    assert verdicts(changed(syncs=None, step=None)) | {} == {
        "compilations": "same", "compilations_after_warmup": "same", "host_syncs": "unknown",
        "fallbacks": "same", "step_seconds": "unknown",
    }  # fmt: skip


def test_a_number_per_step_is_not_held_against_a_sum():
    pasted = changed(per_step=False, syncs=900.0, fallbacks=30.0, steps=None)
    found = verdicts(pasted)
    assert found["host_syncs"] == found["fallbacks"] == "unknown"
    [syncs] = [change for change in gain.changes(GOOD, pasted) if change.name == "host_syncs"]
    assert (syncs.before, syncs.after) == (2.0, None)
    both = verdicts(pasted, changed(per_step=False, syncs=800.0, fallbacks=30.0))
    assert (both["host_syncs"], both["fallbacks"]) == ("worse", "same")


@pytest.mark.parametrize(
    ("step", "verdict", "noise"),
    [
        (Spread(0.8, 0.7, 0.9, 20), "worse", ""),
        (Spread(0.2, 0.1, 0.3, 20), "better", ""),
        (Spread(0.8, 0.5, 0.9, 20), "same", "the interquartile ranges of the steps overlap"),
        (Spread(0.8, 0.7, 0.9, 3), "same", "too few steps after warm-up to tell"),
    ],
)
def test_steps_that_overlap_are_noise(step, verdict, noise):
    change = gain.changes(GOOD, changed(step=step))[-1]
    assert (change.verdict, change.noise) == (verdict, noise)


def test_percent_of_nothing_is_no_number():
    assert gain.percent(0, 4) is None
    assert gain.percent(None, 4) is None
    assert gain.percent(4, 1) == -75


def test_figures_of_a_report():
    steps = (9.0, 9.0, 9.0, 1.0, 2.0, 3.0)  # three steps of warm-up
    report = Report(
        Summary(
            "", "", "", cores=2, steps=6, compilations=3, compilations_after_warmup=0,
            fallbacks={"aten::nonzero": 6}, host_syncs=24,
        ),
        cores=(
            CoreSummary(0, steps=6, step_seconds_median=2.0),
            CoreSummary(1, steps=6, step_seconds_median=2.5),
        ),
        steps={0: steps, 1: (*steps[:3], 1.5, 2.5, 3.5)},
    )  # fmt: skip
    found = gain.figures(report)
    assert (found.syncs, found.fallbacks) == (2.0, 0.5)
    assert found.step == Spread(2.5, 1.625, 2.875, 6)


def test_figures_without_steps_are_sums():
    report = Report(Summary("", "", "", compilations=3, fallbacks={}, host_syncs=24))
    found = gain.figures(report)
    assert (found.syncs, found.fallbacks, found.per_step, found.step) == (24.0, 0.0, False, None)
