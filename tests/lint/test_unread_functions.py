"""What functions give back that nobody has read, of what came out of a model."""

from __future__ import annotations

import pytest
from rule_helpers import rows

PROGRAM = """
import torch
import torch_xla.core.xla_model as xm
from transformers import Trainer
from mine.parts import *


def pick(kind):
    if kind == "least":
        return torch.min
    elif kind == "mean":
        return torch.mean


class Judge(Trainer):
    @torch.no_grad()
    def evaluate(self, data=None):
        net = self.model
        for inputs in self.get_eval_dataloader(data):
            inputs = self._prepare_inputs(inputs)
            hidden = net.encoder(input_ids=inputs["input_ids"])[0]
            {lines}
            self.told.append(score.{read})
"""


def read(lines, how):
    text = PROGRAM.replace("{read}", how)
    return rows(text.replace("{lines}", lines.replace("\n", "\n            ")), "XLA101")


@pytest.mark.parametrize("how", ["cpu().numpy()", "detach().cpu()"])
@pytest.mark.parametrize(
    "lines",
    [
        "score = pick(self.args.kind)(hidden)",
        "of = pick(self.args.kind)\nscore = of(hidden, dim=-1)",
        "of = pick(self.args.kind)\nscore = of(hidden, dim=-1)\nscore = score[0]",
        "score = pooled(hidden)",
    ],
)
def test_what_came_out_of_a_model_stays_there(lines, how):
    assert read(lines, how) == [23 + lines.count("\n")]


@pytest.mark.parametrize("how", ["cpu().numpy()", "detach().cpu()"])
@pytest.mark.parametrize(
    "lines",
    [
        "score = pick(self.args.kind)(torch.ones(3))",
        "score = pooled(self.args.kind)",
        "score = pooled(3)",
    ],
)
def test_what_did_not_is_not_known(lines, how):
    assert read(lines, how) == []
