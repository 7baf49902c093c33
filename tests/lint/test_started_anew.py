"""Seeds of the process that starts the cores, meetings in both branches, models saved whole.

All programs are invented. ``# !XLA426`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks, rows, told_in_files

NET = """\
import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        return self.last(x)


def seed_all(number):
    np.random.seed(number)
    torch.manual_seed(number)


def train(index, data):
    {first}
    device = torch_xla.device()
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(data, device):
        optimizer.zero_grad()
        model(x).sum().backward()
        xm.optimizer_step(optimizer)


{start}
"""
MAIN = 'if __name__ == "__main__":\n    '
#: How the cores are started, and whether they then draw weights of their own.
STARTS = {
    "spawned": ("def main(data):\n    torch.manual_seed(0)\n    xmp.spawn(train, (data,))", True),
    "launched": (
        "def main(data):\n    torch.manual_seed(0)\n    torch_xla.launch(train, args=(data,))",
        True,
    ),
    "by a helper": ("def main(data):\n    seed_all(3)\n    xmp.spawn(train, args=(data,))", True),
    "one call above": (
        "def go(x):\n    xmp.spawn(train, (x,))\ndef main(data):\n    seed_all(0)\n    go(data)",
        True,
    ),
    "in the script's own part": (MAIN + "seed_all(1)\n    xmp.spawn(train, args=([],))", True),
    "said to be spawned": (
        'def main(data):\n    seed_all(1)\n    xmp.spawn(train, (data,), start_method="spawn")',
        True,
    ),
    "forked": (
        'def main(data):\n    seed_all(1)\n    xmp.spawn(train, (data,), start_method="fork")',
        False,
    ),
    "as the program is told": (
        "def main(data, how):\n    seed_all(1)\n    xmp.spawn(train, (data,), start_method=how)",
        False,
    ),
    "one process": (
        "def main(data):\n    seed_all(1)\n    xmp.spawn(train, (data,), nprocs=1)",
        False,
    ),
    "at the top, which each process reads again": (
        "torch.manual_seed(0)\ndef main(data):\n    xmp.spawn(train, args=(data,))",
        False,
    ),
}


@pytest.mark.parametrize("start", STARTS)
def test_new_processes_inherit_no_seed(start):
    text, told = STARTS[start]
    program = NET.format(first="print(index)", start=text)
    assert ("XLA426" in codes(program)) is told


def test_a_seed_of_the_core_itself_counts():
    start = "def main(data):\n    seed_all(0)\n    xmp.spawn(train, args=(data,))"
    assert "XLA426" not in codes(NET.format(first="seed_all(0)", start=start))


MEETINGS = """\
import copy
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr


def train(index, model, optimizer, data, every, path):
    device = torch_xla.device()
    model = model.to(device)
    for step, x in enumerate(pl.MpDeviceLoader(data, device)):
        optimizer.zero_grad()
        model(x).sum().backward()
        xm.optimizer_step(optimizer)
        if {test}:
            xm.rendezvous("before")
            copy.deepcopy(model).to("cpu").save_pretrained(path)
            xm.rendezvous("after")
        {other}


torch_xla.launch(train, args=(None, None, None, 10, "out"))
"""
BOTH = """else:
            xm.rendezvous("before")  # !XLA423
            xm.rendezvous("after")  # !XLA423"""


@pytest.mark.parametrize(
    "test",
    [
        "(xr.global_ordinal() == 0) & ((step + 1) % every == 0)",
        "xr.global_ordinal() == 0 and step % every == 0",
        "xm.is_master_ordinal() and (step + 1) % 500 == 0",
        "(step % 100 == 0) & (xr.global_ordinal() == 0)",
    ],
)
def test_what_a_rare_condition_leaves_over_is_nearly_each_step(test):
    program = MEETINGS.format(test=test, other=BOTH)
    asked = {"XLA405", "XLA423", "XLA425"}
    assert {item for item in found(program) if item[1] in asked} == marks(program)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ("pass", True),
        ('else:\n            xm.rendezvous("before")', True),
        (BOTH, False),
    ],
)
def test_cores_that_meet_at_other_lines_meet_as_often(other, told):
    test = "(xr.global_ordinal() == 0) & (step % every == 0)"
    assert ("XLA405" in codes(MEETINGS.format(test=test, other=other))) is told


def test_an_open_condition_holds_nobody_back():
    program = MEETINGS.format(test="(xr.global_ordinal() == 0) | (step % every == 0)", other="pass")
    assert "XLA425" not in codes(program)


ONCE_IN_A_WHILE = """\
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


def train(model, optimizer, data, every, several):
    device = torch_xla.device()
    model = model.to(device)
    for step, x in enumerate(pl.MpDeviceLoader(data, device)):
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        xm.optimizer_step(optimizer)
        if step % every == 0:
            if several:
                mean = xm.mesh_reduce("loss", loss.item(), max)  # !XLA113
            else:
                mean = loss.item()  # !XLA113
            print(mean)
        if step % 7 == 0:
            xm.mark_step()
            print(loss.item())
"""


def test_a_meeting_ends_nothing_before_what_it_is_given():
    told = {item for item in found(ONCE_IN_A_WHILE) if item[1] == "XLA113"}
    assert told == marks(ONCE_IN_A_WHILE)


SAVED = """\
import torch
import torch_xla
from torch import nn


def keep(path):
    net = nn.Linear(4, 4).to(torch_xla.device())
    torch.save(net, path)  # !XLA721
    torch.save({"net": net, "epoch": 3}, path)  # !XLA721
    torch.save(obj=net, f=path)  # !XLA721
    torch.save(net.cpu(), path)


class Trainer:
    def __init__(self):
        self.net = nn.Linear(4, 4).to(torch_xla.device())

    def save(self, path):
        torch.save(self.net, path)  # !XLA721


def on_the_host(path):
    net = nn.Linear(4, 4)
    torch.save(net, path)
    other = nn.Linear(4, 4).to(torch_xla.device())
    other.cpu()
    torch.save(other, path)
    torch.save([1, 2], path)
"""


def test_a_model_that_is_saved_whole_remembers_the_device():
    assert {item for item in found(SAVED) if item[1] == "XLA721"} == marks(SAVED)
    plain = SAVED.replace("torch_xla.device()", '"cuda"').replace("import torch_xla\n", "")
    assert found(plain) == []


OWN = """\
import torch
import torch_xla
from torch.optim import Optimizer
from torch.utils.data import DataLoader


class Slow(Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(p.grad, alpha=-group["lr"])


def train(model, data):
    device = torch_xla.device()
    model = model.to(device)
    loader = DataLoader(data, batch_size=8, drop_last=True)
    optimizer = Slow(model.parameters(), lr=0.1)
    for x in loader:
        optimizer.zero_grad()
        model(x.to(device)).sum().backward()
        optimizer.step()
        [end]
"""


def test_the_step_of_an_optimizer_of_the_program_is_one():
    assert rows(OWN.replace("[end]", ""), "XLA301") == [25]
    assert "XLA301" not in codes(OWN.replace("[end]", "torch_xla.sync()"))


CUT = """\
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows, args):
        whole = {whole}
        self.rows = rows[:whole]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, at):
        return self.rows[at]


def read(rows, args):
    return Rows(rows, args)


def train(model, optimizer, rows, args):
    device = torch_xla.device()
    model = model.to(device)
    loader = DataLoader(read(rows, args), batch_size=args.batch_size, shuffle=True)
    for x in pl.MpDeviceLoader(loader, device):
        model(x).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("whole", "told"),
    [
        ("len(rows) // args.batch_size * args.batch_size", False),
        ("(len(rows) // (8 * args.batch_size)) * (8 * args.batch_size)", False),
        ("len(rows) // 8 * args.batch_size", True),
        ("len(rows) // args.parts * args.parts", True),
        ("len(rows)", True),
    ],
)
def test_a_dataset_that_keeps_whole_batches_has_no_short_one(whole, told):
    assert ("XLA203" in codes(CUT.format(whole=whole))) is told


CHOSEN = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from transformers import BertConfig, BertForMaskedLM


def train(index, data, args):
    device = torch_xla.device()
    {made}
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(data, device):
        optimizer.zero_grad()
        model(x).loss.backward()
        xm.optimizer_step(optimizer)


torch_xla.launch(train, args=([], None))
"""
READ, DRAWN = 'BertForMaskedLM.from_pretrained("bert-base-uncased")', "BertForMaskedLM(config)"


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (f"if args.path: model = {READ}\n    else: model = {DRAWN}", True),
        (f"model = {READ} if args.path else {DRAWN}", True),
        (f"if args.path:\n        model = {READ}\n    else:\n        model = {READ}", False),
        (f"model = {DRAWN}\n    model = {READ}", False),
        (f"model = {READ}", False),
    ],
)
def test_one_of_two_branches_draws_the_weights(made, told):
    program = CHOSEN.format(made=made).replace(
        "    if args.path: model", "    config = BertConfig()\n    if args.path:\n        model"
    )
    program = program.replace("\n    else: model", "\n    else:\n        model")
    assert ("XLA426" in codes(program)) is told


SHOWN = """\
import torch
import torch_xla
from torch.utils.data import DataLoader
from tqdm import tqdm


def evaluate(model, data, every):
    device = torch_xla.device()
    model = model.to(device).eval()
    outputs = []
    bar = tqdm(DataLoader(data, batch_size=8))
    with torch.no_grad():
        for step, (x, y) in enumerate(bar):  # loop
            output = model(x.to(device))
            right = (output.argmax(1) == y.to(device)).float()
            {kept}
            {shown}
    return outputs
"""


@pytest.mark.parametrize(
    ("kept", "shown", "place"),
    [
        ("outputs.append(right)", 'bar.set_description("%.3f" % right.mean())', "kept"),
        ("outputs.append(right)", 'bar.set_postfix(right=f"{right.mean():.3f}")', "kept"),
        ("outputs.append(1)", 'bar.set_description("%.3f" % right.mean())', None),
        ("outputs.append(right)", 'bar.set_description("%d" % step)', "loop"),
        ("outputs.append(right)", "if step % 10 == 0: print(right.mean())", "loop"),
    ],
)
def test_an_evaluation_that_shows_each_batch_runs_what_it_shows(kept, shown, place):
    program = SHOWN.format(kept=kept, shown=shown)
    lines = program.splitlines()
    told = [kept if kept in lines[row - 1] else "loop" for row in rows(program, "XLA301")]
    assert told == ([] if place is None else [kept if place == "kept" else "loop"])


HELPED = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp


def get_device():
    return torch_xla.device()


def prepare(args):
    print(args)
    return get_device()


def name_of(args):
    if args.cores:
        return "cores"
    return str(torch_xla.device())


def train(index, args):
    print(index, get_device())


def lazily(args):
    yield torch_xla.device()


def main(args):
    {before}
    xmp.spawn(train, args=(args,))
    print(get_device())
"""


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ("device = get_device()", True),
        ("args.device = prepare(args)", True),
        ("print(get_device(), args)", True),
        ("if args.one: return train(0, args)", False),
        ("print(name_of(args))", False),
        ("make = lambda: get_device()", False),
        ("devices = lazily(args)", False),
        ("device = torch.device('xla')", False),
    ],
)
def test_a_helper_starts_the_runtime_before_the_cores(before, told):
    program = HELPED.format(before=before)
    line = program.splitlines().index("    " + before) + 1
    assert rows(program, "XLA407") == [line] * told


def test_nothing_is_started_where_one_process_runs():
    program = HELPED.format(before="device = get_device()")
    assert "XLA407" not in codes(program.replace("args=(args,))", "args=(args,), nprocs=1)"))
    host = program.replace("return torch_xla.device()", 'return torch.device("cpu")')
    assert "XLA407" not in codes(host)


LOOP_OF_OTHERS = """
import torch
import torch_xla.core.xla_model as xm


class Looper:
    def __init__(self, net, adam):
        self.net, self.adam = net, adam

    def train(self, batches):
        for x in batches:
            self.adam.zero_grad()
            self.net(x).sum().backward()
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)  # !XLA303
            xm.optimizer_step(self.adam)


def sizes(net):
    return [p.numel() for p in net.parameters()]
"""
BESIDE = """
import torch_xla
from looper import {names}


def one(index):
    print(sizes(NET), index)


torch_xla.launch(one)
{line}
"""


@pytest.mark.parametrize(
    ("names", "line", "told"),
    [("sizes", "", True), ("Looper, sizes", "Looper(NET, ADAM).train(ROWS)", False)],
)
def test_a_loop_that_nobody_runs_beside_cores_that_run_something_else(tmp_path, names, line, told):
    files = {"looper.py": LOOP_OF_OTHERS, "start.py": BESIDE.format(names=names, line=line)}
    expected = {("looper.py", row, code) for row, code in marks(LOOP_OF_OTHERS)}
    assert told_in_files(tmp_path, files, {"XLA303"}) == (expected if told else set())


ONE_CORE = """
import torch
import torch_xla.core.xla_model as xm


def fit(net, adam, batches):
    device = xm.xla_device()
    net.to(device)
    for x in batches:
        adam.zero_grad()
        net(x.to(device)).sum().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0){mark}
        xm.optimizer_step(adam)
        {behind}
"""


@pytest.mark.parametrize(
    ("behind", "told"),
    [
        ("xm.mark_step()", False),
        ("xm.mark_step(); xm.master_print(xm.get_ordinal())", True),
        ("adam.zero_grad()", True),
    ],
)
def test_a_step_that_ends_its_graph_by_hand_says_nothing_of_other_cores(behind, told):
    mark = "  # !XLA303" if told else ""
    program = ONE_CORE.format(behind=behind, mark=mark)
    assert {(row, code) for row, code in found(program) if code == "XLA303"} == marks(program)


def test_the_other_way_to_run_in_the_file_that_starts_the_cores():
    program = (
        ONE_CORE.format(behind="adam.zero_grad()", mark="")
        + """

def one(index):
    print(index)


def main():
    fit(NET, ADAM, ROWS)


import torch_xla.distributed.xla_multiprocessing as xmp
xmp.spawn(one)
"""
    )
    assert "XLA303" not in {code for _, code in found(program)}
