"""Projects in which XLA is one backend of several: what was told wrongly, and what stays told.

All programs are invented. ``# !XLA405`` marks a line on which that rule has to find something; no
other line may have a finding of a code that the program is named after, or that a mark names.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, marks_in_files, told_in_files

XM = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
"""

WHOLE_BATCHES = f"""\
{XM}
from torch.utils.data import DataLoader, Dataset


class Shard(Dataset):
    def __init__(self, data, size, drop_last):
        self.data, self.size, self.drop_last = data, size, drop_last

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index]


def loader(data, size, cut):
    data = Shard(data, size, drop_last=cut)
    return DataLoader(data, batch_size=size)


def train(net, adam, batches):
    device = torch_xla.device()
    net = net.to(device)
    for x in batches:
        net(x.to(device)).sum().backward()
        xm.optimizer_step(adam, barrier=True)
        adam.zero_grad()


net = torch.nn.Linear(8, 10)
adam = torch.optim.SGD(net.parameters(), lr=0.1)
train(net, adam, loader(DATA, 8, True))
"""
PROGRAMS = {
    "XLA405: both branches call the helper that meets": f"""\
{XM}
def total(x):
    return xm.all_reduce("sum", x)


def share(data, source, device):
    if xr.global_ordinal() == source:
        total(torch.tensor([len(data)], device=device))
        total(data)
    else:
        size = total(torch.tensor([0], device=device))
        data = total(torch.zeros(int(size.item()), device=device))
    return data


def run(index):
    share(torch.ones(4), 1, torch_xla.device())


if __name__ == "__main__":
    torch_xla.launch(run, args=())
""",
    "XLA405: one branch calls it more often": f"""\
{XM}
def total(x):
    return xm.all_reduce("sum", x)


def share(x, source):
    if xr.global_ordinal() == source:
        total(x)  # !XLA405
        total(x + 1)
    else:
        total(x)


def run(index):
    share(torch.ones(4, device=torch_xla.device()), 1)


if __name__ == "__main__":
    torch_xla.launch(run, args=())
""",
    "XLA405: the other branch does so by a condition of its own": f"""\
{XM}
def total(x):
    return xm.all_reduce("sum", x)


def share(x, source, due):
    if xr.global_ordinal() == source:
        total(x)  # !XLA405
    else:
        if due:
            total(x)


def run(index, due):
    share(torch.ones(4, device=torch_xla.device()), 1, due)


if __name__ == "__main__":
    torch_xla.launch(run, args=(False,))
""",
    "XLA405: another core of the rest takes no part": f"""\
{XM}
def total(x):
    return xm.all_reduce("sum", x)


def share(x, source, other):
    if xr.global_ordinal() == source:
        total(x)  # !XLA405
    elif xr.global_ordinal() == other:
        total(x)


def run(index):
    share(torch.ones(4, device=torch_xla.device()), 1, 2)


if __name__ == "__main__":
    torch_xla.launch(run, args=())
""",
    "XLA106: Fabric over GPUs, with a question that is left over": """\
import lightning as L
from lightning.fabric.strategies import FSDPStrategy


def main(loader, net, adam):
    strategy = FSDPStrategy(state_dict_type="full")
    fabric = L.Fabric(devices=8, strategy=strategy, precision="bf16-mixed")
    fabric.launch()
    net, adam = fabric.setup(net, adam)
    if fabric.device.type == "xla":
        import torch_xla.core.xla_model as xm

        xm.mark_step()
    for x in fabric.setup_dataloaders(loader):
        loss = net(x).mean()
        fabric.backward(loss)
        fabric.clip_gradients(net, adam, max_norm=1.0)
        adam.step()
        adam.zero_grad()
        fabric.print(loss.item())
""",
    "XLA106: Fabric over GPUs or cores": """\
import lightning as L
from lightning.fabric.strategies import FSDPStrategy, XLAStrategy


def main(loader, net, adam, tpu):
    if tpu:
        strategy = XLAStrategy(sync_module_states=False)
    else:
        strategy = FSDPStrategy(state_dict_type="full")
    fabric = L.Fabric(devices=8, strategy=strategy, precision="bf16-mixed")
    fabric.launch()
    net, adam = fabric.setup(net, adam)
    if fabric.device.type == "xla":
        import torch_xla.core.xla_model as xm

        xm.mark_step()
    for x in fabric.setup_dataloaders(loader):
        loss = net(x).mean()
        fabric.backward(loss)
        fabric.clip_gradients(net, adam, max_norm=1.0)  # !XLA106
        adam.step()
        adam.zero_grad()
        fabric.print(loss.item())  # !XLA101
""",
    "XLA101: a function that only SageMaker has": f"""\
{XM}
from cluster import is_sagemaker_mp_enabled

if is_sagemaker_mp_enabled():
    import smdistributed.modelparallel.torch as smp

    def gathered(x):
        return torch.cat([part.cpu() for part in smp.allgather(x.cpu())])

else:

    def gathered(x):
        return x


def train(net, loader, adam):
    device = torch_xla.device()
    net = net.to(device)
    for x in loader:
        loss = net(x.to(device)).sum()
        loss.backward()
        xm.optimizer_step(adam, barrier=True)
        adam.zero_grad()
        gathered(loss)
        print(loss.cpu())  # !XLA101
""",
    "XLA112: a private wait, a meeting, and a loop that asks for each token": f"""\
{XM}
import time


def rate(net, x, steps):
    net = net.to(torch_xla.device())
    start = time.perf_counter()
    for _ in range(steps):
        y = net(x)
        torch_xla._XLAC._xla_sync_multi([y], devices=[], wait=True)
    return time.perf_counter() - start


def together(net, x):
    net = net.to(torch_xla.device())
    start = time.perf_counter()
    net(x)
    xm.rendezvous("done")
    return time.perf_counter() - start


def written(net, x, end, most):
    for _ in range(most):
        token = net(x).argmax(dim=-1)
        if token == end:
            break
    return x


def spoken(net, x, end):
    net = net.to(torch_xla.device())
    start = time.perf_counter()
    y = written(net, x.to(torch_xla.device()), end, 20)
    print(time.perf_counter() - start)
    return y


def queued(net, x):
    net = net.to(torch_xla.device())
    start = time.perf_counter()
    y = net(x)
    torch_xla._XLAC._xla_sync_multi([y], devices=[], wait=False)
    print(time.perf_counter() - start)  # !XLA112
    return y
""",
    "XLA426: a script that only evaluates": f"""\
{XM}
from transformers import HfArgumentParser, TrainingArguments
from .engine import Trainer


class Echo(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.head(x)


def main(data):
    (args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
    trainer = Trainer(model=Echo(), args=args, eval_dataset=data)
    print(xr.global_ordinal(), trainer.evaluate(), trainer.predict(data))


def _mp_fn(index):
    main(DATA)
""",
    "XLA203: sizes that are written down": f"""\
{XM}
from torch.utils.data import DataLoader, TensorDataset


def loader(length=6400, size=64):
    x, y = torch.randn(length, 8), torch.randint(10, (length,))
    data = TensorDataset(x, y)
    return DataLoader(data, batch_size=size, shuffle=True)


def odd(length=6400, size=60):
    x, y = torch.randn(length, 8), torch.randint(10, (length,))
    data = TensorDataset(x, y)
    return DataLoader(data, batch_size=size, shuffle=True)  # !XLA203


def train(net, adam, batches):
    device = torch_xla.device()
    net = net.to(device)
    for x, y in batches:
        loss = torch.nn.functional.cross_entropy(net(x.to(device)), y.to(device))
        loss.backward()
        xm.optimizer_step(adam, barrier=True)
        adam.zero_grad()


net = torch.nn.Linear(8, 10)
adam = torch.optim.SGD(net.parameters(), lr=0.1)
train(net, adam, loader())
train(net, adam, odd())
""",
    "XLA203: the loaders of tests": f"""\
{XM}
import pytest
from torch.utils.data import DataLoader


def batches(data):
    return DataLoader(data, batch_size=32, shuffle=True)  # !XLA203


def steps(net, adam, data):
    device = torch_xla.device()
    net = net.to(device)
    for x in data:
        net(x.to(device)).sum().backward()
        xm.optimizer_step(adam, barrier=True)
        adam.zero_grad()
    return net


def main(net, adam, data):
    steps(net, adam, batches(data))


class TestSteps:
    @pytest.fixture
    def train_batches(self):
        return DataLoader(torch.ones(40, 4), batch_size=32, shuffle=True)

    def test_steps(self, train_batches):
        net = torch.nn.Linear(4, 1)
        assert steps(net, torch.optim.SGD(net.parameters(), lr=0.1), train_batches)


@pytest.fixture(scope="module")
def train_loader():
    return DataLoader(torch.ones(40, 4), batch_size=32, shuffle=True)
""",
    "XLA203: a dataset that gives whole batches": WHOLE_BATCHES,
    "XLA203: a dataset that gives what there is": WHOLE_BATCHES.replace(
        "drop_last=cut", "cut"
    ).replace("batch_size=size)", "batch_size=size)  # !XLA203"),
    "XLA101: a class for SageMaker": f"""\
{XM}
from cluster import has_smdistributed

if has_smdistributed():
    import smdistributed.modelparallel.torch as smp


class Engine:
    def __init__(self, net, adam):
        self.net, self.adam = net.to(torch_xla.device()), adam

    def train(self, loader):
        for x in loader:
            loss = self.net(x.to(torch_xla.device())).sum()
            loss.backward()
            xm.optimizer_step(self.adam, barrier=True)
            print(loss.item())  # !XLA101


class SageMakerEngine(Engine):
    def train(self, loader):
        for x in loader:
            loss = self.net(x.to(torch_xla.device())).sum()
            loss.backward()
            self.adam.step()
            print(loss.item(), smp.rank())
""",
    "XLA406: DeepSpeed's own parts of Accelerate": """\
import json
from accelerate import Accelerator, DistributedType
from accelerate.utils import DummyOptim, DummyScheduler


def main(net, loader, path):
    accelerator = Accelerator()
    if accelerator.distributed_type == DistributedType.XLA:
        raise ValueError("GPUs only")
    adam = DummyOptim(net.parameters())
    net, adam, loader = accelerator.prepare(net, adam, loader)
    with open(path + "/results.json", "w") as file:
        json.dump({"steps": len(loader)}, file)
""",
    "XLA406: DeepSpeed as a plugin": """\
import json
from accelerate import Accelerator, DeepSpeedPlugin, DistributedType


def main(net, adam, loader, path):
    plugins = {"student": DeepSpeedPlugin(zero_stage=2), "teacher": DeepSpeedPlugin(zero_stage=3)}
    accelerator = Accelerator(deepspeed_plugins=plugins)
    if accelerator.distributed_type == DistributedType.XLA:
        print("cores")
    net, adam, loader = accelerator.prepare(net, adam, loader)
    with open(path + "/results.json", "w") as file:
        json.dump({"steps": len(loader)}, file)
""",
    "XLA406: DeepSpeed as a plugin if it is asked for": """\
import json
from accelerate import Accelerator, DeepSpeedPlugin, DistributedType


def main(net, adam, loader, path, zero):
    plugin = None
    if zero:
        plugin = DeepSpeedPlugin(zero_stage=2)
    accelerator = Accelerator(deepspeed_plugin=plugin)
    if accelerator.distributed_type == DistributedType.XLA:
        print("cores")
    net, adam, loader = accelerator.prepare(net, adam, loader)
    with open(path + "/results.json", "w") as file:  # !XLA406
        json.dump({"steps": len(loader)}, file)
""",
    "XLA406: Accelerate on all cores": """\
import json
import torch
from accelerate import Accelerator, DistributedType


def main(net, loader, path):
    accelerator = Accelerator()
    if accelerator.distributed_type == DistributedType.XLA:
        print("cores")
    adam = torch.optim.Adam(net.parameters())
    net, adam, loader = accelerator.prepare(net, adam, loader)
    with open(path + "/results.json", "w") as file:  # !XLA406
        json.dump({"steps": len(loader)}, file)
""",
    "XLA608: a flag that nobody sets": f"""\
{XM}
import torch_xla.distributed.parallel_loader as pl


class Control:
    def __init__(self):
        self.stop, self.stop_epoch = False, False

    def begin(self):
        self.stop_epoch = False


class Engine:
    def __init__(self, net, adam):
        self.net, self.adam, self.control, self.done = net, adam, Control(), 0

    def train(self, loader, epochs, most):
        device = torch_xla.device()
        for epoch in range(epochs):
            batches = pl.ParallelLoader(loader, [device]).per_device_loader(device)
            for x in batches:
                self.net(x).sum().backward()
                xm.optimizer_step(self.adam)
                self.adam.zero_grad()
                self.done += 1
                if self.done >= most:
                    self.control.stop = True
                if self.control.stop_epoch or self.control.stop:
                    break
            if self.control.stop:
                break
""",
    "XLA608: a flag that somebody sets": f"""\
{XM}
import torch_xla.distributed.parallel_loader as pl


class Engine:
    def __init__(self, net, adam, control):
        self.net, self.adam, self.control, self.done = net, adam, control, 0

    def train(self, loader, epochs, most):
        device = torch_xla.device()
        for epoch in range(epochs):
            self.control.stop_epoch = False
            batches = pl.ParallelLoader(loader, [device]).per_device_loader(device)
            for x in batches:
                self.net(x).sum().backward()
                xm.optimizer_step(self.adam)
                self.adam.zero_grad()
                self.done += 1
                self.control.stop_epoch = self.done % most == 0
                if self.control.stop_epoch or self.control.stop:
                    break  # !XLA608
            if self.control.stop:
                break
""",
    "XLA707: what is left where neither cores nor the CPU are asked for": """\
import torch
from gear import is_npu_available, is_tpu_available

if is_tpu_available():
    import torch_xla.core.xla_model as xm


class State:
    def __init__(self, rank, cpu=False):
        if is_tpu_available() and not cpu:
            self.device = xm.xla_device()
        elif is_npu_available():
            self.device = torch.device("npu", rank)
        else:
            self.device = torch.device("cuda", rank)
            torch.cuda.set_device(self.device)
""",
    "XLA905: a question that the program gives back": f"""\
{XM}
import transformers.training_args

transformers.training_args.is_torch_tpu_available = lambda: False
print(transformers.training_args.is_torch_tpu_available())  # !XLA905
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told(name):
    asked = {name[:6], *(code for _, code in marks(PROGRAMS[name]))}
    told = {(row, code) for row, code in found(PROGRAMS[name]) if code in asked}
    assert told == marks(PROGRAMS[name])


PROJECTS = {
    "XLA401: a run of what the master alone is given": {
        "train.py": f"""\
{XM}
from bars import shown


def run(index, args):
    device = torch_xla.device()
    for step, x in enumerate(shown(args.data, args.name if xm.is_master_ordinal() else None)):
        x.to(device)


if __name__ == "__main__":
    torch_xla.launch(run, args=(ARGS,))
""",
        "bars.py": """\
import wandb


class Logged:
    def __init__(self, inner, project):
        self.inner = inner
        wandb.init(project=project)

    def __iter__(self):
        return iter(self.inner)


def shown(data, project=None):
    if project:
        data = Logged(data, project)
    return data
""",
    },
    "XLA401: a run of what all are given": {
        "train.py": f"""\
{XM}
from bars import shown


def run(index, args):
    device = torch_xla.device()
    for step, x in enumerate(shown(args.data, args.name if args.logs else None)):
        x.to(device)


if __name__ == "__main__":
    torch_xla.launch(run, args=(ARGS,))
""",
        "bars.py": """\
import wandb


class Logged:
    def __init__(self, inner, project):
        self.inner = inner
        wandb.init(project=project)  # !XLA401

    def __iter__(self):
        return iter(self.inner)


def shown(data, project=None):
    if project is not None:
        data = Logged(data, project)
    return data
""",
    },
    "XLA707: parts for GPUs of a library that has cores too": {
        "engine.py": """\
import torch
from parts import divided, ready

try:
    import torch_xla.core.xla_model as xm
except ImportError:
    xm = None


class Engine:
    def __init__(self, net, device, parts=None):
        if parts is not None:
            net = divided(net, parts)
        self.net = net.to(xm.xla_device() if device == "tpu" else device)
""",
        "parts.py": """\
import torch


def divided(net, parts):
    def empty(module):
        return module.to_empty(device=f"cuda:{torch.cuda.current_device()}")

    return parts.wrap(net, empty)


def ready(net):
    return net
""",
    },
    "XLA707: a helper of a program for cores": {
        "train_tpu.py": """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from parts import placed


def run(index, net):
    net = placed(net).to(torch_xla.device())
    xm.mark_step()


if __name__ == "__main__":
    torch_xla.launch(run, args=(torch.nn.Linear(2, 2),))
""",
        "parts.py": """\
import torch


def placed(net):
    net.where = torch.cuda.current_device()  # !XLA707
    return net
""",
    },
}


@pytest.mark.parametrize("name", PROJECTS)
def test_what_is_told_of_files(name, tmp_path):
    told = told_in_files(tmp_path, PROJECTS[name], {name[:6]})
    assert told == marks_in_files(PROJECTS[name])
