"""What a file does not say by itself: a class of another file, an option, a folder of data sets.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, found_in_files, marks

SPAWNED = """
import os
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch.utils.data import DataLoader, Subset, ConcatDataset
from torchvision import datasets
"""

RUNNER = """
import torch_xla.distributed.xla_multiprocessing as xmp
from accelerate import Accelerator
class Runner(Accelerator):
    def start(self, work):
        xmp.spawn(work, args=(8,), start_method="fork")
class Quick(Runner):
    pass
class Plain:
    def prepare(self, *things):
        return things
"""
TASK = """
import torch
from torch import nn
from torchvision import datasets
from runner import {made}
class Task:
    def __init__(self, runner):
        self.runner = runner
    def data(self):
        self.digits = datasets.FakeDigits("data", download=True)
        rows = torch.utils.data.DataLoader(self.digits, batch_size=48, shuffle=True)
        self.batches = self.runner.prepare(rows)
    def net(self):
        net = nn.Linear(784, 10)
        adam = torch.optim.Adam(net.parameters())
        self.network, self.adam = self.runner.prepare(net, adam)
    def learn(self):
        for x, y in self.batches:
            self.adam.zero_grad()
            error = nn.functional.cross_entropy(self.network(x), y)
            error.backward()
            self.adam.step()
    def run(self, core, cores):
        with self.runner.local_main_process_first():
            self.data()
        self.net()
        self.learn()
    def begin(self):
        self.runner.start(self.run)
if __name__ == "__main__":
    Task({made}()).begin()
"""


@pytest.mark.parametrize("made", ["Runner", "Quick"])
def test_a_class_that_is_built_on_accelerate_prepares_as_it_does(made, tmp_path):
    files = {"runner.py": RUNNER, "task.py": TASK.format(made=made)}
    told = found_in_files(tmp_path, files)["task.py"]
    assert not {code for _, code in told} & {"XLA302", "XLA203", "XLA603"}


def test_a_class_of_another_file_that_is_built_on_nothing_prepares_nothing(tmp_path):
    text = TASK.format(made="Plain").replace("Plain()", "Plain()")
    starts = RUNNER.replace("class Plain:", "class Plain:\n    def start(self, work):\n"
                            '        xmp.spawn(work, args=(8,), start_method="fork")')  # fmt: skip
    told = found_in_files(tmp_path, {"runner.py": starts, "task.py": text})["task.py"]
    assert "XLA302" in {code for _, code in told}


DOWNLOADS = {
    "asked whether it is there": """
def work(core):
    data = datasets.CIFAR10("data", download=not os.path.exists("data/cifar"))  # !XLA406
    learn(data)
""",
    "asked before": """
def work(core):
    missing = not os.path.isdir("data")
    data = datasets.STL10("data", split="train", download=missing)  # !XLA406
    learn(data)
""",
    "a setting": """
def work(core, args):
    data = datasets.CIFAR10("data", download=args.download)
    learn(data)
""",
    "one core": """
def work(core):
    data = datasets.CIFAR10("data", download=core == 0)  # !XLA406
    test = datasets.CIFAR10("data", train=False, download=core == 0)
    learn(data)
""",
    "one core, by what it is called": """
def work(core):
    first = xm.is_master_ordinal()
    data = datasets.CIFAR10("data", download=first)  # !XLA406
    more = datasets.SVHN("data", download=xm.is_master_ordinal(local=False))  # !XLA406
    rest = datasets.MNIST("data", download=core.wants)
    learn(data)
""",
    "one core, in a function": """
def rows(rank):
    return datasets.CIFAR10("data", download=(rank == 0))  # !XLA406
def work(core):
    learn(rows(xm.get_ordinal()))
""",
    "one core, for which the others wait": """
def work(core):
    if core != 0:
        xm.rendezvous("data")
    data = datasets.CIFAR10("data", download=core == 0)
    if core == 0:
        xm.rendezvous("data")
    learn(data)
""",
    "one core, after all have met": """
def rows(core):
    return datasets.CIFAR10("data", download=core == 0)
def work(core):
    if core == 0:
        fetch("data")
    xm.rendezvous("data")
    learn(rows(core))
""",
    "one core, of what is there": """
def work(core):
    data = datasets.CIFAR10("data", download=core == 0)
    learn(data)
datasets.CIFAR10("data", download=True)
""",
    "one core alone": """
def work(core):
    if core == 0:
        data = datasets.CIFAR10("data", download=core == 0)
        learn(data)
""",
    "one process first": """
def work(core, state):
    with state.main_process_first():
        data = datasets.CIFAR10("data", download=True)
    learn(data)
""",
    "one process first, in a function": """
def load():
    return datasets.CIFAR10("data", download=True)
def work(core, state):
    with rank_zero_first(core):
        data = load()
    learn(data)
""",
    "all at once, in a function": """
def load():
    return datasets.CIFAR10("data", download=True)  # !XLA406
def work(core, state):
    data = load()
    learn(data)
""",
}


@pytest.mark.parametrize("name", DOWNLOADS)
def test_downloads_of_all_cores_at_once(name):
    program = f"{SPAWNED}\n{DOWNLOADS[name]}\nxmp.spawn(work, args=())\n"
    told = {(row, code) for row, code in found(program) if code == "XLA406"}
    assert told == marks(program)


LOADERS = {
    "made by a function": """
def pictures(name, root):
    if name == "numbers":
        rows = datasets.CIFAR10(root)
    else:
        rows = datasets.ImageFolder(root)
    return rows
def main(root, name):
    rows = pictures(name, root)
    fit(DataLoader(rows, batch_size=32, shuffle=True, drop_last=True))  # !XLA606
""",
    "a part": """
def main(root):
    rows = Subset(datasets.Food101(root), range(1000))
    fit(DataLoader(rows, batch_size=32, shuffle=True, drop_last=True))  # !XLA606
""",
    "several": """
def main(root):
    rows = ConcatDataset([datasets.CIFAR10(root), datasets.DTD(root)])
    fit(DataLoader(rows, batch_size=32, shuffle=True, drop_last=True))  # !XLA606
""",
    "chosen": """
def main(root, marked):
    if marked:
        rows, marks = poisoned(root)
    else:
        rows = datasets.ImageFolder(root)
    fit(DataLoader(rows, batch_size=32, shuffle=True, drop_last=True))  # !XLA606
""",
    "in memory": """
def digits(root):
    return Subset(datasets.MNIST(root), range(1000))
def main(root):
    rows = digits(root)
    fit(DataLoader(rows, batch_size=32, shuffle=True, drop_last=True))
""",
    "with workers": """
def pictures(root):
    return datasets.ImageFolder(root)
def main(root):
    rows = pictures(root)
    fit(DataLoader(rows, batch_size=32, shuffle=True, drop_last=True, num_workers=4))
""",
}
FIT = """
def fit(rows):
    device = torch_xla.device()
    net = torch.nn.Linear(8, 8).to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(rows, device):
        adam.zero_grad()
        net(x).sum().backward()
        adam.step()
"""


@pytest.mark.parametrize("name", LOADERS)
def test_what_a_loader_reads_through_functions_and_parts(name):
    program = f"{SPAWNED}\n{FIT}\n{LOADERS[name]}"
    told = {(row, code) for row, code in found(program) if code == "XLA606"}
    assert told == marks(program)


def test_a_property_that_can_be_set_is_still_read_as_one():
    program = f"""{SPAWNED}
class Loop:
    def __init__(self, out):
        self._out = out
    @property
    def out(self):
        return self._out
    @out.setter
    def out(self, value):
        self._out = value
    def wait(self):
        xm.rendezvous("wait")
    def save(self, state):
        self.wait()
        if xm.is_master_ordinal():
            self.out.save(state)
def work(core, out):
    Loop(out).save(dict())
xmp.spawn(work, args=(open,))
"""
    assert "XLA405" not in {code for _, code in found(program)}


WRAPPED = """
import torch
import torch_xla
from apex.parallel import DistributedDataParallel as Parallel
def train(args, batches):
    device = torch_xla.device()
    net = torch.nn.Linear(8, 8).to(device)
    if args.many:
        net = Parallel(net)
    state = {{"epoch": 3}}
    state["net"] = net{back}.state_dict()
    torch.save(state, "net.pt")
"""


def test_a_model_in_a_wrapper_of_apex_is_the_model():
    assert "XLA721" in {code for _, code in found(WRAPPED.format(back=""))}
    assert "XLA721" not in {code for _, code in found(WRAPPED.format(back=".cpu()"))}


OWN = """
def work(core, seeds):
    device = torch_xla.device()
    torch.manual_seed(seeds[core])
    net = torch.nn.Linear(8, 8).to(device)
    adam = torch.optim.Adam(net.parameters())
    rows = DataLoader(data, batch_size=32, drop_last=True{sampler})
    for x, y in pl.MpDeviceLoader(rows, device):
        adam.zero_grad()
        net(x).sum().backward()
        adam.step()
    {save}
xmp.spawn(work, args=([3, 4, 5, 6],))
"""
SAVES = {
    'torch.save(net.cpu().state_dict(), f"seed_{core}.pt")': False,
    'folder = os.path.join("out", str(core)); torch.save(net.cpu().state_dict(), folder)': False,
    'torch.save(net.cpu().state_dict(), "net.pt")': True,
    'xm.save(net.state_dict(), "net.pt")': True,
}


@pytest.mark.parametrize("save", SAVES)
def test_a_model_that_each_core_keeps_needs_no_reduction(save):
    told = found(SPAWNED + OWN.format(save=save, sampler=""))
    assert ("XLA302" in {code for _, code in told}) is SAVES[save]


def test_shares_of_the_data_are_for_one_model():
    sampler = ", sampler=torch.utils.data.DistributedSampler(data, 4, core)"
    told = found(SPAWNED + OWN.format(save=next(iter(SAVES)), sampler=sampler))
    assert "XLA302" in {code for _, code in told}


CLASS_FOR_CORES = """
import torch
import torch_xla.core.xla_model as xm
class Learner:
    def __init__(self, net, rows, device):
        self.net, self.rows, self.device = net.to(device), rows, device
        self.adam = torch.optim.AdamW(self.net.parameters())
    def epoch(self):
        for x, y in self.rows:
            self.adam.zero_grad()
            error = torch.nn.functional.mse_loss(self.net(x.to(self.device)), y.to(self.device))
            error.backward()
            {step}
            xm.mark_step()
    def judge(self):
        {judge}
    def fit(self, epochs):
        for epoch in range(epochs):
            self.epoch()
            self.judge()
"""
CLASSES_OF_CORES = {
    "one of several": (
        "self.adam.step()",
        "if xm.is_master_ordinal():\n            print(1)",
        True,
    ),
    "asks nothing": ("self.adam.step()", "print(1)", False),
    "reduces": ("xm.optimizer_step(self.adam)", "if xm.is_master_ordinal(): print(1)", False),
}


@pytest.mark.parametrize("case", CLASSES_OF_CORES)
def test_a_class_whose_methods_ask_which_core_it_is_trains_on_several(case):
    step, judge, told = CLASSES_OF_CORES[case]
    program = CLASS_FOR_CORES.format(step=step, judge=judge)
    assert ("XLA302" in {code for _, code in found(program)}) is told
