"""What a program does on purpose, beside what only looks like it.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, told

XM = """\
import gc
import time

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
"""

PROGRAMS = {
    "XLA112: how long the end of the graph takes": f"""\
{XM}
def train(model, batches, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    for step in range(1000):
        began = time.time()
        loss = model(next(batches).to(device)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        before = time.time()
        torch_xla.sync()
        waited = time.time() - before
        if waited > 5:
            print("compiled anew?", step, waited)
        torch_xla.sync()
        whole = time.time() - began  # !XLA112
        print(whole)
""",
    "XLA721: moved to the host in a row of calls": f"""\
{XM}
def keep(model, path):
    model = model.to(torch_xla.device())
    fit(model)
    narrow = model.half()
    torch.save(narrow.state_dict(), path + ".half")  # !XLA721
    whole = model.cpu().float().eval()
    torch.save(whole.state_dict(), path)


def keep_there(model, path):
    device = torch_xla.device()
    model = model.to(device)
    fit(model)
    back = model.cpu().to(device)
    torch.save(back.state_dict(), path)  # !XLA721
""",
    "XLA801: asked of older releases behind the present one": f"""\
{XM}
def numbers():
    try:
        return xr.world_size(), xr.global_ordinal()
    except Exception:
        pass
    try:
        cores = xm.xrt_world_size()
        return cores, xm.get_ordinal()
    except Exception:
        return 1, 0


def first_the_old():
    try:
        print("asking")
    except Exception:
        pass
    try:
        return xm.xrt_world_size()  # !XLA801
    except Exception:
        return 1
""",
    "XLA111: at the first step of a run that goes on": f"""\
{XM}
def train(model, batches, optimizer, args):
    device = torch_xla.device()
    model = model.to(device)
    resuming = args.begin != -1
    step = args.begin if resuming else 0
    while True:
        loss = model(next(batches).to(device)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch_xla.sync()
        first = step == 0 or (resuming and step == args.begin)
        due = step == 0 or (resuming and step == turn)
        turn = step + 1
        step += 1
        if first:
            gc.collect()
        if due:
            gc.collect()  # !XLA111
""",
    "XLA113 XLA802: a name for each device": """\
import torch

kind = which()
xm = None
if kind == "xla":
    import torch_xla.core.xla_model as xm
if kind == "cuda":
    settle = torch.cuda.synchronize
elif kind == "xla":
    settle = xm.mark_step  # !XLA802
else:

    def settle():
        return None


def summed(total):
    if kind == "xla":
        xm.all_reduce(xm.REDUCE_SUM, [total])
    return total


def train(model, batches, optimizer):
    device = xm.xla_device()  # !XLA802
    model = model.to(device)
    sofar = 0.0
    for step in range(1000):
        loss = model(next(batches).to(device)).mean()
        loss.backward()
        if step % 50 == 0:
            print(loss.item())  # !XLA113
        optimizer.step()
        optimizer.zero_grad()
        settle()
        sofar += 1.0
        if step % 10 == 0:
            total = torch.tensor(sofar, device=device)
            total = summed(total)
            print(total.item(), loss.item())
            again = summed(loss * 2)
            print(again.item())
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told(name):
    assert told(name, PROGRAMS[name]) == marks(PROGRAMS[name])
