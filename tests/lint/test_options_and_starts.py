"""What options decide: numbers of processes, 16-bit sums, single runs; and splits of samples."""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks, rows, told_in_files

HEAD = """\
import argparse, os
import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
"""
#: The training of each core, up to its step.
WORK = """\
def work(index, batches):
    net = torch.nn.Linear(4, 4).to(torch_xla.device())
    xm.broadcast_master_param(net)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    step = 0
    while step < 1000:
        x, y = next(batches)
        torch.nn.functional.mse_loss(net(x), y).backward()
        xm.optimizer_step(sgd)
"""
PROGRAMS = {
    "a number of processes that a condition asks for": """\
HEAD
def work(index, args):
    print(index)
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cores", type=int, default=None)
    args = parser.parse_args()
    if args.cores is not None:
        xmp.spawn(work, args=(args,), nprocs=args.cores)  # !XLA404
    elif args.cores is None:
        xmp.spawn(work, args=(args,), nprocs=args.cores)
    if args.cores:
        xmp.spawn(work, args=(args,), nprocs=args.cores)  # !XLA404
    if args.cores == None or args.lonely:
        xmp.spawn(work, args=(args,), nprocs=args.cores)
    xmp.spawn(work, args=(args,), nprocs=args.cores)
    if hasattr(torch_xla, "launch") and args.cores is None:
        torch_xla.launch(work, args=(args,))
        return
    xmp.spawn(work, args=(args,), nprocs=args.cores)  # !XLA404
""",
    "one process where the option is given, cores where it is not": """\
HEAD
def work(index, args):
    if args.smoke:
        print("one short run")
        return
    print("starting")  # !XLA401
    print("Workers: {}".format(xr.world_size()))  # !XLA401
    workers = xr.world_size()
    print(f"Workers: {workers} x {args.batch}, worker {index}")
def main():
    a = argparse.ArgumentParser().parse_args()
    if a.smoke:
        work(0, a)
    else:
        xmp.spawn(work, args=(a,))
main()
""",
}


def _whole(program):
    return program.replace("HEAD\n", HEAD).replace("WORK\n", WORK)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_what_options_decide(program):
    program = _whole(program)
    asked = {"XLA401", "XLA404"}
    assert {one for one in found(program) if one[1] in asked} == {*marks(program)}


#: An evaluation that reads what it has reduced, then the master alone.
EVALUATED = """\
HEAD
def add(xm, t):
    if xr.world_size() < 2:
        return t
    return xm.all_reduce(xm.REDUCE_SUM, t)
def evaluate(net, batches):
    total = torch.zeros(1, device=torch_xla.device())
    for x, y in batches:
        total += torch.nn.functional.mse_loss(net(x), y).detach()
    total = add(xm, total)
    mean = total / len(batches)
    return mean.item()
def unread(net, batches):
    total = torch.zeros(1, device=torch_xla.device())
    return add(xm, total)
WORK
        torch_xla.sync()
        step += 1
        {before}
        if step % 100 == 0 and xm.is_master_ordinal():
            print(net(x).sum().item())
xmp.spawn(work, args=(BATCHES,))
"""


@pytest.mark.parametrize(
    ("before", "told"),
    [("score = evaluate(net, batches)", False), ("score = unread(net, batches)", True)],
)
def test_a_reduction_that_all_cores_have_read_is_not_pending(before, told):
    program = _whole(EVALUATED).replace("{before}", before)
    assert ("XLA425" in codes(program)) is told


ALONE = """\
HEAD
WORK
        {end}
        step += 1
        if step % 100 == 0 and xm.is_master_ordinal():
            shown = net(x)
            open("log.txt", "a").write(str(shown.cpu().tolist()))
xmp.spawn(work, args=(BATCHES,))
"""


@pytest.mark.parametrize(("end", "told"), [("torch_xla.sync()", False), ("pass", True)])
def test_what_the_master_alone_computes_and_reads_behind_the_end_of_the_graph(end, told):
    program = _whole(ALONE).replace("{end}", end)
    assert ("XLA425" in codes(program)) is told


SUM = """\
import os, argparse
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
{setting}
def train(net, sgd, batches, args):
    device = torch_xla.device()
    net.to(device)
    total = torch.zeros((), device=device)
    for x, y in pl.MpDeviceLoader(batches, device):
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        sgd.step()
        total += loss.detach()
    return total
"""
FLAG = """\
args = argparse.ArgumentParser().parse_args()
if args.{name}:
    os.environ["XLA_USE_BF16"] = "1"
"""


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ('os.environ["XLA_USE_BF16"] = "1"', True),
        (FLAG.format(name="bf16"), True),
        (FLAG.format(name="use_bfloat16"), True),
        # What this asks is not known.
        (FLAG.format(name="verbose"), False),
        (FLAG.format(name="bf16").replace('"1"', '"0"'), False),
    ],
)
def test_sixteen_bits_that_an_option_asks_for(setting, told):
    assert bool(rows(SUM.format(setting=setting), "XLA712")) is told


START = 'import os\nos.environ.setdefault("XLA_USE_BF16", "1")\nimport work\nwork.train(*WHAT)\n'


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"start.py": START}, True),
        ({"start.py": START, "other.py": START}, True),
        # This one starts it in 32 bits.
        ({"start.py": START, "other.py": "import work\nwork.train(*WHAT)\n"}, False),
        ({"start.py": START.replace('"1"', '"0"')}, False),
    ],
)
def test_sixteen_bits_that_the_file_which_starts_it_asks_for(tmp_path, files, told):
    files = {"work.py": SUM.format(setting=""), **files}
    assert bool(told_in_files(tmp_path, files, {"XLA712"})) is told


def test_sixteen_bits_of_a_file_that_is_imported(tmp_path):
    files = {
        "work.py": SUM.format(setting="import places"),
        "places.py": 'import os\nos.environ["XLA_USE_BF16"] = "1"\n',
    }
    assert told_in_files(tmp_path, files, {"XLA712"})
    files["places.py"] = 'import os\ndef ask():\n    os.environ["XLA_USE_BF16"] = "1"\n'
    assert not told_in_files(tmp_path, files, {"XLA712"})


SPLIT = """\
import random
import numpy as np
import torch
import torch_xla
import torch_xla.distributed.xla_backend
from datasets import load_from_disk
from sklearn.model_selection import train_test_split
{seed}
torch.distributed.init_process_group("xla")
data = load_from_disk("rows")
{line}
sampler = torch.utils.data.DistributedSampler(parts)
net = torch.nn.Linear(4, 4).to(torch_xla.device())
"""


@pytest.mark.parametrize(
    ("line", "seed", "told"),
    [
        ("parts = data.train_test_split(0.1)", "", True),
        ('parts = data["train"].train_test_split(test_size=0.1)["train"]', "", True),
        # NumPy's numbers, which PyTorch's seed leaves as they are.
        ("parts = data.train_test_split(0.1)", "torch.manual_seed(0)", True),
        ("parts = data.train_test_split(0.1)", "random.seed(0)", True),
        ("parts = train_test_split(range(9))[0]", "torch.manual_seed(0)", True),
        ("parts = data.train_test_split(0.1)", "np.random.seed(0)", False),
        ("parts = data.train_test_split(0.1)", "from mine import set_seed\nset_seed(0)", False),
        ("parts = data.train_test_split(0.1, seed=3)", "", False),
        ("parts = data.train_test_split(0.1, shuffle=False)", "", False),
        ("parts = train_test_split(range(9), random_state=1)[0]", "", False),
    ],
)
def test_splits_that_each_process_draws(line, seed, told):
    assert ("XLA448" in codes(SPLIT.format(line=line, seed=seed))) is told


WRITES = """\
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
{imported}
def fit(batches):
    device = torch_xla.device()
    net = build(CONFIG).to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for ids in pl.MpDeviceLoader(batches, device):
        net(ids).mean().backward()
        sgd.step()
        words = net.generate(ids, max_new_tokens=20, temperature=0.8)
    return words
"""


def test_the_generate_of_a_small_model_of_ones_own_may_be_any():
    assert "XLA206" not in codes(WRITES.format(imported="from models import build"))
    assert "XLA206" in codes(
        WRITES.format(imported="from models import build\nimport transformers")
    )
