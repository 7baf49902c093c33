"""Trainers on a base class that nobody has read, and graphs that end in their losses.

``# !XLA101`` marks what has to be found.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

TRAINER = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from transformers.utils import is_torch_xla_available
from ..common import {base}


class PairTrainer({base}):
    def _pairs(self, model, batch):
        logits = model(batch["input_ids"]).logits
        return logits[::2].mean(), logits[1::2].mean()

    def _measured(self, model, batch):
        {before}
        liked, other = self._pairs(model, batch)
        loss = other - liked
        shown = {{"margin": liked - other}}
        {behind}
        for key, value in shown.items():
            shown[key] = value.item(){read}
        return loss, shown

    def compute_loss(self, {given}, return_outputs=False, num_items_in_batch=None):
        loss, shown = self._measured({given})
        self.log(shown)
        return loss
"""
ASKED = {"XLA101", "XLA319"}


def told(program):
    return {(row, code) for row, code in found(program) if code in ASKED}


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ("pass", "pass"),
        ("xm.mark_step()", "pass"),
        ("pass", "xm.mark_step()  # !XLA319"),
        ("pass", "torch_xla.sync()  # !XLA319"),
        ("pass", "if is_torch_xla_available(): xm.mark_step()  # !XLA319"),
        ("pass", "if self.state.global_step % 50 == 0: xm.mark_step()"),
    ],
)
def test_the_trainer_goes_backward_behind_the_loss(before, behind):
    program = TRAINER.format(
        base="OwnTrainer", before=before, behind=behind, given="model, inputs", read="  # !XLA101"
    )
    assert told(program) == marks(program)


@pytest.mark.parametrize(
    ("base", "given"), [("OwnTrainer", "logits, labels"), ("Losses", "model, inputs")]
)
def test_what_is_no_trainer_of_transformers(base, given):
    program = TRAINER.format(
        base=base, before="pass", behind="xm.mark_step()", given=given, read=""
    )
    assert told(program) == set()
