"""Settings that ask for no cores, batches of lists, and counts before the cores are started."""

from __future__ import annotations

import pytest
from rule_helpers import codes, rows

from xladoctor.lint import engine
from xladoctor.lint.sources import Source

FITTED = """
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader


class Net(pl.LightningModule):
    def __init__(self, data):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)
        self.data = data

    def training_step(self, batch, number):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.layer(x), y)
        print(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

    def train_dataloader(self):
        return DataLoader(self.data, batch_size=48)


def main(data):
    pl.Trainer(SETTINGS).fit(Net(data))
"""


@pytest.mark.parametrize(
    ("settings", "filename", "told"),
    [
        ("tpu_cores=8", "train.py", True),
        ("tpu_cores=None, gpus=2", "train.py", False),
        ("num_tpu_cores=None, gpus=1, precision=16", "try_tpu.py", False),
        ("gpus=1", "train_tpu.py", False),
        # Whoever starts it, or another line, says which devices.
        ("gpus=0", "train_tpu.py", True),
        ("max_epochs=4", "train_tpu.py", True),
        ("tpu_cores=8, gpus=0", "train.py", True),
        ("tpu_cores=cores", "train.py", True),
    ],
)
def test_a_trainer_that_is_given_no_cores_is_for_other_devices(settings, filename, told):
    program = FITTED.replace("SETTINGS", settings)
    if "=cores" in settings:
        program = program.replace("def main(data)", "def main(data, cores)")
    assert ("XLA203" in codes(program, filename=filename)) is told


PARTS = """
import torch
import torch_xla


def parts_of(rows, size):
    return [torch.stack(rows[i : i + size]) for i in range(0, len(rows), size)]


def train(model, optimizer, rows, turns):
    device = torch_xla.device()
    model.to(device)
    rows = [torch.tensor(row) for row in rows]
    parts = parts_of(rows, 16)
    LOOP
        loss = model(part.to(device)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch_xla.sync()
"""


@pytest.mark.parametrize(
    ("loop", "told"),
    [
        ("for part in parts:", False),
        ("for turn, part in enumerate(parts):", False),
        ("for turn in range(turns):\n        part = parts[turn % 4]", False),
        # The same tensor in each turn.
        ("part = torch.stack(rows)\n    for turn in range(turns):", True),
        ("part = parts[0]\n    for turn in range(turns):", True),
    ],
)
def test_a_batch_of_a_list_is_not_the_same_tensor_in_each_step(loop, told):
    assert ("XLA604" in codes(PARTS.replace("LOOP", loop))) is told


MASKED = """
import torch
import torch_xla


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        self.masks = [torch.rand(8) for _ in range(4)]

    def forward(self, x):
        for mask in self.masks:
            x = self.layer(x) * mask.to(x.device)  # here
        return x


def train(loader, optimizer):
    device = torch_xla.device()
    net = Net().to(device)
    for x in loader:
        net(x.to(device)).mean().backward()
        optimizer.step()
        torch_xla.sync()
"""


def test_tensors_that_each_step_goes_through_are_uploaded_again():
    assert rows(MASKED, "XLA604")


STARTED = """
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr


def run(index):
    print(index)


if __name__ == "__main__":
    cores = {}
    xmp.spawn(run, nprocs=cores, start_method="fork")
"""


@pytest.mark.parametrize(
    ("count", "said"),
    [
        ("xr.world_size()", "is 1 in the process that starts the cores"),
        ("xr.global_runtime_device_count()", "raises ValueError"),
        ("None", None),
    ],
)
def test_the_count_of_the_parent_is_one(count, said):
    source = Source("train.py", STARTED.replace("{}", count))
    found = engine.lint(source, engine.LintOptions()).findings
    messages = [problem.message for problem in found if problem.code == "XLA404"]
    assert [str(said) in message for message in messages] == ([True] if said else [])


EVALUATED = """
import torch
import torch_xla


def chunks(lines, size):
    lines = [torch.tensor(line) for line in lines]
    return [torch.stack(lines[i : i + size]) for i in range(0, len(lines), size)]


@torch.no_grad()
def measure(model, parts):
    total = 0
    for part in parts:
        part = part.to(torch_xla.device())
        total += model(part).mean()
        torch_xla.sync()
    return total


def main(lines):
    model = torch.nn.Linear(8, 8).to(torch_xla.device())
    model.eval()
    print(measure(model, chunks(lines, 16)))
"""


def test_an_evaluation_that_moves_its_batches_from_a_list_is_told_once():
    assert "XLA603" in codes(EVALUATED)
    assert "XLA604" not in codes(EVALUATED)


ATTENTION = """
import torch
import torch_xla


class Plain(torch.nn.Module):
    def forward(self, x, places):
        return x * (places.max().item() + 1)  # here


class Flash(Plain):
    def forward(self, x, places):
        return x + places.max().item()


KINDS = {"eager": Plain, "KEY": Flash}


class Block(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = KINDS[config._attn_implementation]()

    def forward(self, x, places):
        return self.attention(x, places)


def train(config, loader, optimizer):
    device = torch_xla.device()
    block = Block(config).to(device)
    for x, places in loader:
        block(x.to(device), places.to(device)).mean().backward()
        optimizer.step()
        torch_xla.sync()
"""


def test_what_stands_for_flash_attention_runs_on_gpus_alone():
    [kept] = [row for row, line in enumerate(ATTENTION.splitlines(), 1) if "# here" in line]
    assert rows(ATTENTION.replace("KEY", "flash_attention_2"), "XLA101") == [kept]
    assert rows(ATTENTION.replace("KEY", "sdpa"), "XLA101") == [kept, kept + 5]
