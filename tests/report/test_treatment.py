"""What ``treat`` shows, of an invented treatment."""

from __future__ import annotations

import dataclasses
import json

import pytest

from xladoctor.changes import Figures, Noise, Spread, Step, Treatment, Trial
from xladoctor.diagnosis import printed, trial
from xladoctor.report import treatment

FIRST = Trial(
    ran=True,
    figures=Figures(25, 11, 3.0, 2.0, True, Spread(0.684, 0.6, 0.8, 40), 14, 8),
    losses=printed.losses("epoch 0 loss 1.50\nepoch 1 loss nan"),
    run=".xladoctor/runs/one",
)
SECOND = dataclasses.replace(
    FIRST, figures=dataclasses.replace(FIRST.figures, syncs=0.38, step=Spread(0.6, 0.5, 0.7, 40))
)
WORSE = dataclasses.replace(
    SECOND, losses=printed.losses("epoch 0 loss 9.00\nepoch 1 loss nan"), stopped=True
)
NOISE = Noise(True, frozenset({"loss (3)"}), {"host_syncs": 0.0, "compilations": 1.0}, 1.25)


def made(**what):
    steps = (
        Step(
            "2 x XLA101 host-sync-in-step", {"XLA101": 2}, SECOND,
            trial.judge(FIRST, SECOND, NOISE, keeps_numbers=True),
        ),
        Step(
            "1 x XLA603 manual-transfer-in-loop", {"XLA603": 1}, WORSE,
            trial.judge(SECOND, WORSE, NOISE, keeps_numbers=True),
        ),
    )  # fmt: skip
    whole = Treatment(
        script="train.py", args=("--small",), cores=8, files=("train.py",), original=FIRST,
        final=SECOND, noise=NOISE, steps=steps, diff="--- train.py\n+++ train.py\n@@ -1 +1 @@\n",
        written=(), interrupted=False,
    )  # fmt: skip
    return dataclasses.replace(whole, **what)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_fits_and_says_what_happened(width):
    text = treatment.render(made(), width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    whole = " ".join(text.split())
    assert "kept 2 x XLA101 host-sync-in-step: host syncs per step 3 -> 0.38" in whole
    assert (
        "left out 1 x XLA603 manual-transfer-in-loop: only 1 of 2 printed losses are as before "
        "(stopped by the time limit)"
    ) in whole
    assert "line 1 of the output: loss (0) 9 instead of 1.5" in whole
    assert "~600 ms" in whole  # its steps overlap with those before
    assert "Two runs of one version gave other compilations" in whole
    assert "a factor of 1.25 apart" in whole
    assert "differ in 1 place, which is not compared" in whole
    assert text.endswith("@@ -1 +1 @@\n")


def test_json_has_what_the_text_says():
    data = json.loads(treatment.render(made(), "json"))
    assert [fix["kept"] for fix in data["fixes"]] == [True, False]
    assert data["original"]["compilations"] == 25
    assert data["original"]["losses"][1] == {"label": "loss (1)", "value": None}  # nan
    assert data["fixes"][1]["losses"]["first_disagreement"] == {
        "label": "loss (0)", "before": 1.5, "after": 9.0, "row": 1,
    }  # fmt: skip
    assert data["fixes"][1]["run"]["stopped_by_time_limit"] is True
    assert data["noise"]["losses_that_differ"] == ["loss (3)"]


def test_what_was_not_measured_is_a_dash_and_null():
    blind = Trial(ran=True)
    text = treatment.render(made(original=blind, final=blind, noise=Noise(), steps=()), width=80)
    assert "no process of the program used torch_xla on a device" in " ".join(text.split())
    assert "Two runs" not in text
    data = json.loads(treatment.render(made(original=blind, noise=Noise(), steps=()), "json"))
    assert data["original"]["compilations"] is None
    assert data["original"]["host_syncs_per_step"] is None
    assert data["noise"] is None
