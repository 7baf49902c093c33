"""FSDP on simulated cores: what torch_xla keeps once for a process belongs to each core."""

from __future__ import annotations

import pytest
import simulated

PROGRAM = """
import json, time
import torch, torch_xla
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP, checkpoint_module


class Block(torch.nn.Module):
    def __init__(self, index):
        super().__init__()
        self.index = index
        self.norm, self.linear = torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)

    def forward(self, value):
        # Cores that run their layers again at different times, as a busy machine makes them.
        time.sleep(0.02 * ((self.index + int(torch.is_grad_enabled())) % 3))
        return value + self.linear(self.norm(value))


def main(index, case):
    device = torch_xla.device()
    torch.manual_seed(0)
    blocks = [FSDP(checkpoint_module(Block(index).to(device))) for _ in range(3)]
    model = FSDP(torch.nn.Sequential(*blocks))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8, device=device) * (step + 1)).pow(2).mean()
        loss.backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.item())
    with open(f"result{index}.json", "w") as file:
        json.dump(losses, file)
"""


@pytest.mark.slow
@pytest.mark.xla
def test_a_core_that_runs_checkpointed_layers_again_leaves_the_others_their_weights(tmp_path):
    done = simulated.run_cases(tmp_path, 4, PROGRAM, ["checkpointed"])["checkpointed"]
    assert done.code == 0, done.stderr
    assert done.events == []
    # All cores train the same model on the same data.
    losses = [done.results[core] for core in range(4)]
    assert losses == losses[:1] * 4
