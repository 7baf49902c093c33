"""Loops that run a model in a function which they call without gradients: steps of an agent."""

import pytest

from tests.lint.rule_helpers import rows

AGENT = """\
import torch
import torch_xla

from tools import net, which_device


class Agent:
    device = {device}

    def __init__(self, model):
        self.model = model.to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def decide(self, games):
        seen = torch.as_tensor([game.seen for game in games], device=self.device)
        values, moves = self.model(seen)
        values = values.detach().cpu().numpy()
        moves = moves.detach().cpu().numpy()
        return values, moves

    def collect(self, games, turns):
        found = []
        for _ in range(turns):
            {called}
        return found

    def train(self, games):
        for _ in range(1000):
            found = self.collect(games, 20)
            for part in range(4):
                self.optimizer.zero_grad()
                self.loss(found, part).backward()
                self.optimizer.step()
                torch_xla.sync()
"""
WITHOUT = "with torch.no_grad(): found.append(self.decide(games))"


@pytest.mark.parametrize("device", ["torch_xla.device()", "which_device()"])
def test_what_it_reads_waits_for_each_turn(device):
    program = AGENT.format(device=device, called=WITHOUT)
    if device == "which_device()":
        program = program.replace(
            "torch_xla.sync()", 'if self.device.type == "xla": torch_xla.sync()'
        )
    assert rows(program, "XLA101") == [17, 18]


def test_a_function_that_runs_no_model_makes_no_loop_over_batches():
    program = AGENT.format(device="torch_xla.device()", called=WITHOUT)
    program = program.replace("self.model(seen)", "seen, seen + 1")
    assert rows(program, "XLA101") == []
