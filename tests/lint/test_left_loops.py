"""What runs right before a loop is left: once for each turn of the loop around that one."""

from __future__ import annotations

import pytest
from rule_helpers import rows

SEARCH = """
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def spell(net, ids, how):
    seen = []
    for turn in range(8):
        scores = net(ids)
        if how == "all":
            {read}
            {leave}
        ids = scores.argmax(1)
    return seen


@torch.no_grad()
def evaluate(net, loader, how):
    device = torch_xla.device()
    net.to(device).eval()
    for ids in pl.MpDeviceLoader(loader, device):
        {used}
"""
READ = "seen.append(scores[0].item())"


def search(read, leave, used):
    text = SEARCH.replace("{read}", read).replace("{leave}", leave).replace("{used}", used)
    return rows(text, "XLA101")


@pytest.mark.parametrize("leave", ["break", "return seen", "continue", "pass"])
@pytest.mark.parametrize(
    "read", [READ, "for at in range(4):\n                seen.append(scores[at].item())"]
)
def test_what_leaves_a_loop_within_an_evaluation_reads_for_each_batch(read, leave):
    assert search(read, leave, "print(spell(net, ids, how))") == [12 + read.count("\n")]


def test_what_leaves_a_loop_reads_as_rarely_as_that_runs():
    used = 'if how == "never":\n            print(spell(net, ids, how))\n            break'
    assert search(READ, "break", used) == []


@pytest.mark.parametrize("end", ["break", "return", 'raise ValueError("lost")'])
def test_what_ends_the_steps_themselves_reads_once(end):
    program = f"""
    import torch_xla
    import torch_xla.distributed.parallel_loader as pl

    def train(net, optimizer, loader, enough):
        device = torch_xla.device()
        net.to(device)
        for epoch in range(3):
            for at, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
                loss = net(x).sub(y).pow(2).mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                if at == enough:
                    torch_xla.sync()
                    print(loss.item())
                    {end}
    """
    assert rows(program, "XLA101") == []


@pytest.mark.parametrize("test", ["torch.isnan(weight.grad).any()", "weight.grad.isinf().any()"])
def test_a_search_for_faults_is_no_such_loop(test):
    program = f"""
    import torch
    import torch_xla
    import torch_xla.distributed.parallel_loader as pl

    def train(net, optimizer, loader):
        device = torch_xla.device()
        net.to(device)
        for x, y in pl.MpDeviceLoader(loader, device):
            loss = net(x).sub(y).pow(2).mean()
            loss.backward()
            for weight in net.parameters():
                if {test}:
                    print(loss.item())
                    break
            optimizer.step()
            optimizer.zero_grad()
    """
    assert rows(program, "XLA101") == []
