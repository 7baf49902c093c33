"""What all cores have reduced together, and the master core alone reads."""

from __future__ import annotations

import pytest
from rule_helpers import marks, rows

PROGRAM = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr


def run(index, loader, net):
    device = torch_xla.device()
    net = net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(3):
        total = torch.zeros(1, device=device)
        for x in pl.MpDeviceLoader(loader, device):
            optimizer.zero_grad()
            loss = net(x).sum()
            loss.backward()
            xm.optimizer_step(optimizer)
            total += loss.detach()
        mean = xm.all_reduce(xm.REDUCE_SUM, total) / xr.world_size()
        if xm.is_master_ordinal():
            print("mean", mean.item())  # !XLA425


if __name__ == "__main__":
    torch_xla.launch(run, args=(None, None))
"""
LINE = '            print("mean", mean.item())  # !XLA425'
MASTER = "        if xm.is_master_ordinal():\n"


def test_the_master_reads_what_is_still_pending():
    assert [(row, "XLA425") for row in rows(PROGRAM, "XLA425")] == sorted(marks(PROGRAM))


@pytest.mark.parametrize(("on", "told"), [("True", False), ("False", True)])
def test_nothing_is_pending_in_eager_mode(on, told):
    eager = f"    torch_xla.experimental.eager_mode({on})\n    device = torch_xla.device()"
    program = PROGRAM.replace("    device = torch_xla.device()", eager)
    assert bool(rows(program, "XLA425")) is told


@pytest.mark.parametrize(
    "read",
    [
        "print(float(mean))",
        'print(f"mean {mean}")',
        "print(mean)",
        "history.append(mean.cpu())",
        "torch.save(mean.detach().cpu(), path)",
    ],
)
def test_however_it_is_read(read):
    text = PROGRAM.replace(LINE, f"            {read}")
    row = next(at for at, line in enumerate(text.splitlines(), 1) if read in line)
    assert rows(text, "XLA425") == [row]


@pytest.mark.parametrize("master", ["if index == 0:", "if xr.global_ordinal() == 0:"])
def test_whoever_is_the_master(master):
    text = PROGRAM.replace(MASTER, f"        {master}\n")
    assert [(row, "XLA425") for row in rows(text, "XLA425")] == sorted(marks(text))


def test_gathered_values_too():
    text = PROGRAM.replace("xm.all_reduce(xm.REDUCE_SUM, total)", "xm.all_gather(total)")
    assert [(row, "XLA425") for row in rows(text, "XLA425")] == sorted(marks(text))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (MASTER, "        torch_xla.sync()\n" + MASTER),
        (MASTER, "        xm.rendezvous('epoch')\n" + MASTER),
        (MASTER, "        mean = mean.item()\n" + MASTER),
        (" / xr.world_size()", ".item() / xr.world_size()"),
        (MASTER, "        told = mean.item()\n" + MASTER),
        (MASTER, "        if True:\n"),
        ("xm.all_reduce(xm.REDUCE_SUM, total)", 'xm.mesh_reduce("t", total.item(), sum)'),
        ("xm.all_reduce(xm.REDUCE_SUM, total)", "total"),
        ("mean.item())", "mean.shape)"),
        ("torch_xla.launch(run, args=(None, None))", "run(0, None, None)"),
    ],
)
def test_what_has_run_before_or_is_read_by_all_is_left_alone(old, new):
    text = PROGRAM.replace(old, new)
    if "mean = mean.item()" in new or ".item() / " in new or "mesh_reduce" in new:
        text = text.replace('print("mean", mean.item())', 'print("mean", mean)')
    assert rows(text, "XLA425") == []


def test_a_loader_s_loop_between_them_ends_the_graph():
    more = "        for x in pl.MpDeviceLoader(loader, device):\n            net(x)\n"
    assert rows(PROGRAM.replace(MASTER, more + MASTER), "XLA425") == []


def test_a_function_that_nobody_has_read_may_have_ended_it():
    text = PROGRAM.replace(MASTER, "        finish()\n" + MASTER)
    text = text.replace("import torch\n", "import torch\nfrom work import finish\n", 1)
    assert rows(text, "XLA425") == []
