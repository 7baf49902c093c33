"""Programs that go through a class of their own for each kind of device: the one for XLA is meant.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that the program is named after.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks_in_files, told_in_files

ENGINES = """\
import abc

import torch
from torch import nn


class Engine(abc.ABC):
    device: torch.device

    @property
    @abc.abstractmethod
    def cores(self) -> int: ...

    def place(self, batch):
        if isinstance(batch, torch.Tensor):
            return batch.to(self.device)
        if isinstance(batch, dict):
            return {{key: self.place(one) for key, one in batch.items()}}
        if isinstance(batch, (list, tuple)):
            return [self.place(one) for one in batch]
        return batch

    def backward(self, loss):
        loss.backward()

    def clip(self, weights, most):
        return nn.utils.clip_grad_norm_(weights, most)

    def step(self, optimizer):
        optimizer.step()

    def largest(self, value):
        return value

    def flush(self):
        pass
{kinds}

def engine_for(kind: str) -> Engine:
    {chosen}
"""
KINDS = """

class CpuEngine(Engine):
    def __init__(self):
        self.device = torch.device("cpu")

    @property
    def cores(self):
        return 1


class CudaEngine(Engine):
    def __init__(self):
        self.device = torch.device("cuda", 0)

    @property
    def cores(self):
        return torch.cuda.device_count()

    def place(self, batch):
        return batch.to(self.device, non_blocking=True)


class {ours}(Engine):
    def __init__(self):
        import torch_xla
        import torch_xla.core.xla_model as xm

        self.xm = xm
        self.xla = torch_xla
        self.device = xm.xla_device()

    @property
    def cores(self):
        return self.xla.runtime.world_size()

    def step(self, optimizer):
        self.xm.optimizer_step(optimizer, barrier=False)

    def flush(self):
        self.xm.mark_step()
"""
CHOSEN = """\
if kind == "cpu":
        return CpuEngine()
    if kind == "cuda":
        return CudaEngine()
    return {ours}()
"""
TABLE = """\
return {{"cpu": CpuEngine, "cuda": CudaEngine, "tpu": {ours}}}[kind]()
"""
TRAINER = """\
import torch

from engines import Engine, engine_for


class Trainer:
    def __init__(self, net, optimizer, batches, method, kind="tpu", engine: Engine | None = None):
        self.engine = engine or engine_for(kind)
        self.net, self.optimizer, self.batches = net, optimizer, batches
        self.method = method

    def train(self, rounds):
        for _ in range(rounds):
            for raw in self.batches:
                batch = self.engine.place(raw)
                result = self.method.forward_and_loss(self.net, batch)
                if not bool(torch.isfinite(result.total.detach()).all()):{finite}
                    raise ValueError("the loss is not finite")
                self.engine.backward(result.total)
                norm = self.engine.clip(self.net.parameters(), 1.0)
                print(float(norm.detach().cpu())){norm}
                self.engine.step(self.optimizer)
                self.optimizer.zero_grad()
                self.engine.flush()
                self.keep(result)

    def keep(self, result):
        self.last = float(result.total.detach().float().cpu()){kept}
"""
READS = {"finite": "  # !XLA102", "norm": "  # !XLA101", "kept": "  # !XLA101"}
#: What is clipped is on the device whichever it is.
NORM = {**dict.fromkeys(READS, ""), "norm": READS["norm"]}


def program(ours, chosen, reads):
    kinds = KINDS.format(ours=ours)
    chosen = chosen.format(ours=ours)
    return {
        "engines.py": ENGINES.format(kinds=kinds, chosen=chosen),
        "trainer.py": TRAINER.format(**reads),
    }


PROJECTS = {
    "one of a chain of conditions": program("XlaEngine", CHOSEN, READS),
    "one of a table": program("TpuEngine", TABLE, READS),
    # Its name does not say so, but it calls torch_xla.
    "by what it calls": program("PodEngine", CHOSEN, READS),
    # The others may run on XLA devices as well as this one.
    "of other kinds": {
        name: text.replace("CpuEngine", "SmallEngine").replace("CudaEngine", "WideEngine")
        for name, text in program("XlaEngine", CHOSEN, NORM).items()
    },
}


@pytest.mark.parametrize("name", PROJECTS)
def test_what_is_told_of_reads(name, tmp_path):
    told = told_in_files(tmp_path, PROJECTS[name], {"XLA101", "XLA102"})
    assert told == marks_in_files(PROJECTS[name])


LAUNCHED = """\
import torch
import torch_xla
from trainer import Trainer


def run(index, net, batches, method):
    adam = torch.optim.Adam(net.parameters())
    Trainer(net, adam, batches, method).train(3)


if __name__ == "__main__":
    torch_xla.launch(run, args=(net, data, method))
"""


@pytest.mark.parametrize("ours", ["XlaEngine", "PodEngine"])
def test_its_step_reduces_behind_the_clip(ours, tmp_path):
    files = {**program(ours, CHOSEN, READS), "main.py": LAUNCHED}
    told = told_in_files(tmp_path, files, {"XLA303"})
    assert told == {("trainer.py", 20, "XLA303")}
