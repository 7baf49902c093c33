"""``accelerator.prepare(*parts)``: what is prepared stands in a list.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line of a program may have a finding of a code that its name asks for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, told

HEAD = """\
import torch
import torch_xla.core.xla_model as xm
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import GPT2LMHeadModel
"""
FIT = """\
class Fitting:
    def __init__(self, net, adam, seen, kept):
        self.tool = Accelerator()
        self.net, self.adam = net, adam
        self.rows = DataLoader(seen, batch_size=8, shuffle=True)
        self.held = DataLoader(kept, batch_size=8)
        {parts}
        self.net, self.adam, self.rows, self.held = self.tool.prepare({given})
    def measure(self):
        costs = []
        for inputs, wanted in self.held:
            cost = torch.nn.functional.mse_loss(self.net(inputs), wanted)
            costs.append(cost.item())  # !XLA101
        return sum(costs) / len(costs)
    def fit(self, turns):
        for turn in range(turns):
            for inputs, wanted in self.rows:
                cost = torch.nn.functional.mse_loss(self.net(inputs), wanted)
                self.tool.backward(cost)
                self.adam.step()
                self.adam.zero_grad()
                print(cost.item())  # !XLA101
            self.measure()
def main(net, adam, seen, kept):
    Fitting(net, adam, seen, kept).fit(10)
if __name__ == "__main__":
    main(build(), optimizer(), rows("a"), rows("b"))
"""
ALL = "self.net, self.adam, self.rows, self.held"


@pytest.mark.parametrize(
    ("parts", "given"),
    [
        ("pass", ALL),
        (f"parts = [{ALL}]", "*parts"),
        (f"parts = ({ALL})", "*parts"),
        ("parts = [self.net, self.adam]", "*parts, self.rows, self.held"),
        ("pass", f"*[{ALL}]"),
    ],
)
def test_what_is_prepared_is_known(parts, given):
    program = HEAD + FIT.format(parts=parts, given=given)
    assert told("XLA101", program) == marks(program)


TIED = """\
def main(rows):
    tool = Accelerator()
    net = GPT2LMHeadModel.from_pretrained("gpt2")
    adam = torch.optim.AdamW(net.parameters())
    parts = [net, adam, rows]
    net, adam, rows = tool.prepare(*parts)  # !XLA306
    for inputs in rows:
        tool.backward(net(**inputs).loss)
        adam.step()
        adam.zero_grad()
main(load())
"""


def test_a_tied_model_of_a_list():
    assert told("XLA306", HEAD + TIED) == marks(HEAD + TIED)
