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


IN_PLACE = """
import os
import torch
import torch.distributed as dist
import torch_xla
import torch_xla.distributed.xla_backend


class Teacher:
    def __init__(self, settings):
        self.settings = settings

    def join(self):
        dist.init_process_group(backend={backend}, init_method={method})

    def epoch(self, net, batches, optimizer, device):
        sums = torch.zeros(2).to(device)
        for x, y in batches:
            optimizer.zero_grad()
            loss = net(x.to(device), y.to(device))
            loss.backward()
            optimizer.step()
            torch_xla.sync()
            sums[0] += loss.detach()
            sums[1] += 1
        dist.all_reduce(sums, op=dist.ReduceOp.SUM)
        mean = sums[0] / sums[1]
        if self.settings.rank == 0:
            print(f"loss {{mean:.3f}}")  # !XLA425
        return mean

    def teach(self, net, batches):
        self.join()
        device = torch_xla.device()
        net = net.to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for turn in range(3):
            mean = self.epoch(net, batches, optimizer, device)
            if self.settings.rank == 0:
                print(mean.item())
"""
#: Where the group is joined by a method, and the training is what calls that.
JOINED = {"backend": '"xla"', "method": '"xla://"'}


def test_reduced_in_place_behind_a_group_that_a_method_joins():
    text = IN_PLACE.format(**JOINED)
    assert [(row, "XLA425") for row in rows(text, "XLA425")] == sorted(marks(text))


def test_what_is_on_the_host_waits_in_no_graph():
    text = IN_PLACE.format(**JOINED).replace("torch.zeros(2).to(device)", "torch.zeros(2)")
    assert rows(text, "XLA425") == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "        mean = sums[0] / sums[1]\n",
            "        torch_xla.sync()\n        mean = sums[0]\n",
        ),
        ("        mean = sums[0] / sums[1]\n", "        mean = (sums[0] / sums[1]).item()\n"),
        ("        dist.all_reduce(sums, op=dist.ReduceOp.SUM)\n", ""),
    ],
)
def test_in_place_and_run_before_the_master_reads(old, new):
    text = IN_PLACE.format(**JOINED).replace(old, new)
    if "item" in new:
        text = text.replace("print(mean.item())", "print(mean)")
    assert rows(text, "XLA425") == []


HELPER = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr


def averaged(value):
    copy = value.clone().detach()
    {reduced}
    copy /= xr.world_size()
    return copy


def run(index, loader, net):
    device = torch_xla.device()
    net = net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        loss = net(x).sum()
        loss.backward()
        xm.optimizer_step(optimizer)
        shown = averaged(loss)
        if xm.is_master_ordinal():
            print(shown.item())  # !XLA425


if __name__ == "__main__":
    torch_xla.launch(run, args=(None, None))
"""


@pytest.mark.parametrize(
    "reduced", ['xm.all_reduce("sum", [copy])', 'copy = xm.all_reduce("sum", copy)']
)
def test_what_a_function_has_reduced_and_gives_back(reduced):
    text = HELPER.format(reduced=reduced)
    assert [(row, "XLA425") for row in rows(text, "XLA425")] == sorted(marks(text))


def test_a_function_that_reads_what_it_gives_back():
    text = HELPER.format(reduced='copy = xm.all_reduce("sum", copy)')
    assert rows(text.replace("return copy", "return copy.cpu()"), "XLA425") == []
