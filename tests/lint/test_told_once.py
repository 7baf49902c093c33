"""One finding for one cause, at the line that is changed; silent where nothing repeats.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import textwrap

import pytest
from rule_helpers import found, marks, rows

from xladoctor.lint import engine
from xladoctor.lint.sources import Source

LAUNCHED = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


def main(index, net, loader, optimizer, criterion, limit):
    device = torch_xla.device()
    net.to(device)
    step = 0
    while step < limit:
        for x, y in pl.ParallelLoader(loader, [device]).per_device_loader(device):
            {leave}
                break
            loss = criterion(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            xm.optimizer_step(optimizer)
            step += 1


torch_xla.launch(main, args=())
"""


@pytest.mark.parametrize(
    "leave",
    ["if step >= limit:", "if limit <= step:", "if not step < limit:", "if step == limit:"],
)
def test_leaving_the_last_epoch_keeps_no_threads(leave):
    assert rows(LAUNCHED.replace("{leave}", leave), "XLA608") == []


@pytest.mark.parametrize("leave", ["if step >= 100:", "if step < limit:", "if x.shape[0] < 8:"])
def test_leaving_every_epoch_is_told(leave):
    assert rows(LAUNCHED.replace("{leave}", leave), "XLA608") == [15]


GUARDED = """
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch


def main(index, net, loader, optimizer, criterion):
    device = torch_xla.device()
    net.to(device)
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = criterion(net(x), y)
        if torch.isnan(loss):  # !XLA104
            continue  # !XLA420
        loss.backward()
        xm.optimizer_step(optimizer)
    xm.rendezvous("over")


torch_xla.launch(main, args=())
"""


def test_a_skipped_step_is_told_where_it_is_skipped_and_not_again_at_the_collective():
    asked = {"XLA104", "XLA405", "XLA420"}
    assert {item for item in found(GUARDED) if item[1] in asked} == marks(GUARDED)


def test_a_collective_under_the_condition_is_told():
    program = GUARDED.replace("if torch.isnan(loss):  # !XLA104", "if not torch.isnan(loss):")
    program = program.replace("            continue  # !XLA420\n", "            loss.backward()\n")
    program = program.replace(
        "        loss.backward()\n        xm.optimizer_step(optimizer)",
        "            xm.optimizer_step(optimizer)",
    )
    assert rows(program, "XLA405") == [15]
    assert rows(program, "XLA420") == []


READ = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


def main(index, net, loader, optimizer, criterion, log):
    device = torch_xla.device()
    net.to(device)
    for step, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
        out = net(x)
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        xm.optimizer_step(optimizer)
        if xm.is_master_ordinal():
            if step % 500 == 0:
                log(out.cpu())


torch_xla.launch(main, args=())
"""


def test_what_the_master_alone_reads_is_one_finding():
    told = [code for row, code in found(READ) if row == 19]
    assert told == ["XLA425"]


def test_without_the_finding_that_stands_for_it_the_other_is_told():
    result = engine.lint(
        Source("train.py", textwrap.dedent(READ)),
        engine.LintOptions(codes=frozenset({"XLA113"})),
    )
    assert [item.code for item in result.findings] == ["XLA113"]


SHARDED = """
import torch
import torch_xla
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP


def main(index, args, net, loader, optimizer):
    net.to(torch_xla.device())
    {sharded}
        net = FSDP(net)
    for x in loader:
        net(x).sum().backward()
        {clipped}
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("sharded", "clipped"),
    [
        ("if args.fsdp:", "if not args.fsdp:"),
        ("if args.fsdp:", "if args.fsdp:\n            net.clip_grad_norm_(1.0)\n        else:"),
        ("if not args.plain:", "if args.plain:"),
        ("if args.kind == 'fsdp':", "if args.clip and not args.kind == 'fsdp':"),
    ],
)
def test_what_is_clipped_otherwise_than_sharded_is_silent(sharded, clipped):
    program = SHARDED.replace("{sharded}", sharded).replace("{clipped}", clipped)
    if " and " in clipped:
        program = program.replace(clipped, "if args.clip:\n          if not args.kind == 'fsdp':")
    assert rows(program, "XLA436") == []


@pytest.mark.parametrize(
    ("sharded", "clipped"),
    [("if args.fsdp:", "if args.fsdp:"), ("if args.fsdp:", "if not args.plain:")],
)
def test_what_is_clipped_where_it_may_be_sharded_is_told(sharded, clipped):
    program = SHARDED.replace("{sharded}", sharded).replace("{clipped}", clipped)
    assert rows(program, "XLA436") == [14]


EMBEDDED = """
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def embedded(net, loader, most, kept):
    device = torch_xla.device()
    net.to(device).eval()
    done = 0
    with torch.no_grad():
        for x in pl.MpDeviceLoader(loader, device):
            if done >= most:
                break
            {cut}
            kept.append(net(x))
            done += x.shape[0]
"""


@pytest.mark.parametrize(
    "cut",
    [
        "if done + x.shape[0] > most:\n                x = x[: most - done]",
        "if done + len(x) > most:\n                n = most - done\n                x = x[:n]",
        "if most < done + x.size(0):\n                x = x[: most - done]",
    ],
)
def test_the_last_batch_may_be_cut(cut):
    assert rows(EMBEDDED.replace("{cut}", cut), "XLA205") == []


def test_a_cut_of_every_batch_is_told():
    assert rows(EMBEDDED.replace("{cut}", "x = x[:, : most - done]"), "XLA205") == [15]


SAMPLED = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm


def score(net, batches, device):
    net.eval()
    with torch.no_grad():
        for x in batches:
            out = net(x.to(device))
            {inner}
    return out


def main(index, net, loader, tests, optimizer, criterion):
    device = torch_xla.device()
    net.to(device)
    for epoch in range(3):
        for x, y in loader:
            criterion(net(x.to(device)), y.to(device)).backward()
            xm.optimizer_step(optimizer)
        if xm.is_master_ordinal():  # here
            score(net, tests, device)


torch_xla.launch(main, args=())
"""


def test_a_sample_that_the_master_alone_writes_is_no_evaluation():
    assert rows(SAMPLED.replace("{inner}", "print(out.argmax())"), "XLA418")
    sampled = SAMPLED.replace("{inner}", "out = torch.multinomial(out.softmax(-1), 1)")
    assert rows(sampled, "XLA418") == []


KEPT = """
import random

import torch_xla


class Bank:
    def __init__(self, size):
        self.at = 0
        self.size = size

    def put(self, rows):
        n = len(rows)
        self.kept[self.at : self.at + n] = rows
        self.at = (self.at + n) % self.size
        self.size = self.size + random.choice([0, self.at])


def train(net, loader, optimizer, bank):
    device = torch_xla.device()
    net.to(device)
    for x in loader:
        x = x.to(device)
        net(x).sum().backward()
        optimizer.step()
        torch_xla.sync()
        bank.kept = x
        x[bank.at :]
        bank.put(x)


train(None, [], None, Bank(4))
"""


def test_an_attribute_that_is_computed_of_itself_is_followed_once():
    assert found(KEPT) is not None


TRIED = """
import torch
import torch.nn as nn
import torch_xla


def measured(sizes):
    device = torch_xla.device()
    net = nn.Linear(8, 2).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for length in {lengths}:
        loss = net(torch.ones(length, 8).to(device)).mean()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize("lengths", ["[2048]", "(2048,)", "[1_024]"])
def test_a_list_of_one_is_no_loop(lengths):
    told = {code for _, code in found(TRIED.replace("{lengths}", lengths))}
    assert not {"XLA301", "XLA326"} & told


@pytest.mark.parametrize("lengths", ["[1024, 2048]", "[*sizes]", "sizes"])
def test_a_loop_over_several_is_one(lengths):
    assert "XLA326" in {code for _, code in found(TRIED.replace("{lengths}", lengths))}


SUMMED = """
import os

import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl

os.environ["XLA_USE_BF16"] = "1"


def validate(net, criterion, batches):
    device = torch_xla.device()
    net.to(device).eval()
    total = 0.0
    with torch.no_grad():
        for x, y in pl.MpDeviceLoader(batches, device):
            parts = criterion(net(x), y)
            total += {added}
    return total
"""


@pytest.mark.parametrize(
    "added",
    [
        'parts["a"].item() if torch.is_tensor(parts["a"]) else parts["a"]',
        'parts.get("a", 0).item() if torch.is_tensor(parts.get("a", 0)) else parts.get("a", 0)',
        "parts.a.item() if isinstance(parts.a, torch.Tensor) else parts.a",
    ],
)
def test_what_is_no_tensor_is_not_added_up_on_the_device(added):
    assert rows(SUMMED.replace("{added}", added), "XLA712") == []


def test_what_may_be_a_tensor_is_added_up_there():
    added = 'parts["a"] if torch.is_tensor(parts["a"]) else 0.0'
    assert rows(SUMMED.replace("{added}", added), "XLA712") == [18]


STOPPED = """
import time

import torch_xla
import torch_xla.core.xla_model as xm
from elsewhere import compat


def main(index, net, loader, optimizer, end):
    device = torch_xla.device()
    net.to(device)
    for x in loader:
        mine = int(time.time() > end) if xm.is_master_ordinal() else 0
        flags = {asked}
        if flags & 1:
            break
        net(x.to(device)).sum().backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync()


torch_xla.launch(main, args=())
"""


@pytest.mark.parametrize(
    "asked",
    [
        'xm.mesh_reduce("stop", mine, max)',
        'compat.mesh_reduce("stop", mine, max)',
        "compat.all_reduce(mine)",
        "compat.comm.allgather(mine)",
    ],
)
def test_what_a_wrapper_reduces_is_equal_on_all_cores(asked):
    assert rows(STOPPED.replace("{asked}", asked), "XLA420") == []


def test_what_nobody_reduces_is_not():
    assert rows(STOPPED.replace("{asked}", "compat.checked(mine)"), "XLA420") == [16]


NORMED = """
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from torch.nn.utils import weight_norm


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        first = torch.nn.Linear(8, 8)
        self.first = weight_norm(first, name="weight")  # !XLA501
        self.rest = torch.nn.Sequential(
            weight_norm(torch.nn.Linear(8, 8)),  # !XLA501
            torch.nn.ReLU(),
        )

    def forward(self, x):
        return self.rest(self.first(x))


def train(loader, optimizer):
    device = torch_xla.device()
    net = Net().to(device)
    for x in pl.MpDeviceLoader(loader, device):
        net(x).sum().backward()
        optimizer.step()
"""


def test_a_layer_is_changed_where_it_is_made():
    assert {item for item in found(NORMED) if item[1] == "XLA501"} == marks(NORMED)


NORM = """
import math

import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def norm_of(parameters, kind{usual}):
    kind = float(kind)
    grads = [p.grad for p in parameters if p.grad is not None]
    if kind == {asked}:
        return max(g.abs().max() for g in grads)
    return torch.norm(torch.stack([torch.norm(g, kind) for g in grads]), kind)


def train(net, loader, optimizer, kinds):
    device = torch_xla.device()
    net.to(device)
    for x in pl.MpDeviceLoader(loader, device):
        net(x).sum().backward()
        norm = norm_of(net.parameters(){given})
        optimizer.step()
    return norm
"""


@pytest.mark.parametrize(
    ("usual", "asked", "given", "told"),
    [
        ("=2.0", "math.inf", "", []),
        ("=2", "torch.inf", "", []),
        ("=2.0", 'float("inf")', "", []),
        (": float = 2.0", "1.0", "", []),
        ("=2.0", "math.inf", ", kinds[0]", [13]),
        ("=2.0", "math.inf", ", kind=math.inf", [13]),
        ("=2.0", "2.0", "", [13]),
        ("=math.inf", "math.inf", "", [13]),
        ("=2.0", "math.inf", ", *kinds", [13]),
    ],
)
def test_a_branch_that_no_call_asks_for_never_runs(usual, asked, given, told):
    program = NORM.replace("{usual}", usual).replace("{asked}", asked).replace("{given}", given)
    assert rows(program, "XLA104") == told


WHOLE = """
import torch
import torch_xla
import torch_xla.runtime as xr

xr.use_spmd()


class Net(torch.nn.Module):
    def forward(self, x, ids):
        places = torch.nonzero(ids)
        return x[places.to(x.device)]


def train(net, data, optimizer):
    device = torch_xla.device()
    net = Net().to(device)
    for x, ids in data:
        x, ids = x.to(device), ids.to(device)  # here
        net(x, ids).sum().backward()
        optimizer.step()
        torch_xla.sync()
"""


def test_a_batch_is_whole_where_it_is_uploaded():
    assert rows(WHOLE, "XLA429") == [19]


EMBEDS = """
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.body(x)


def embed(index, loader, kept):
    device = torch_xla.device()
    net = Net().to(device).eval()  # here
    with torch.no_grad():
        for x in pl.MpDeviceLoader(loader, device):
            kept.append(net(x))
    {more}


def train(loader):
    device = torch_xla.device()
    net = torch.nn.Linear(8, 8).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(loader, device):
        net(x).sum().backward()
        optimizer.step()


torch_xla.launch(embed, args=([], []))
"""


def test_what_only_evaluates_does_not_train_different_models():
    assert rows(EMBEDS.replace("{more}", "return kept"), "XLA426") == []
    trained = EMBEDS.replace("{more}", "train(loader)")
    assert 18 in rows(trained, "XLA426")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ('xr.initialize_cache("/tmp/kept")', []),
        ("xr.world_size()", [6]),
        ("xr.global_runtime_device_count()", [6]),
    ],
)
def test_a_cache_folder_may_be_named_before_the_cores_are_started(call, told):
    program = f"""
import torch_xla
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr

{call}


def main(index):
    print(torch_xla.device())


if __name__ == "__main__":
    xmp.spawn(main)
"""
    assert rows(program, "XLA407") == told


IN_TURN = """
import contextlib

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr


class Cores:
    def meet(self):
        xm.rendezvous("turn")


CORES = Cores()


def meet():
    CORES.meet()


@contextlib.contextmanager
def first(rank=0):
    mine = xr.global_ordinal()
    if mine != rank:
        meet()
    yield
    if {last}:
        meet()


def main(index, make):
    with first():
        make()
    return torch_xla.device()


torch_xla.launch(main, args=(None,))
"""


@pytest.mark.parametrize("last", ["mine == rank", "rank == mine"])
def test_the_first_core_and_then_the_rest_all_meet_once(last):
    assert rows(IN_TURN.replace("{last}", last), "XLA405") == []


def test_a_core_that_never_comes_is_told():
    assert rows(IN_TURN.replace("{last}", "mine != rank"), "XLA405")
