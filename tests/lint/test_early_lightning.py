"""Programs of Lightning's early releases: what is told, where, and what is left alone."""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, rows

MODULE = """
from collections import OrderedDict

import pytorch_lightning as pl
import torch
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader


class Tagger(pl.LightningModule):
    def __init__(self, net, rows):
        super().__init__()
        self.net, self.rows = net, rows

    def training_step(self, batch, at):
        loss = self.net(*batch).loss
        shown = {"train_loss": loss}
        told = OrderedDict({"loss": loss, "log": shown})  # !XLA910
        return told

    def validation_step(self, batch, at):
        told = OrderedDict({"val_loss": self.net(*batch).loss})
        return told

    @pl.data_loader  # !XLA901
    def train_dataloader(self):
        return DataLoader(self.rows["train"], batch_size=8, num_workers=4, drop_last=True)

    @pl.data_loader  # !XLA901
    def val_dataloader(self):
        return DataLoader(self.rows["dev"], batch_size=8, num_workers=4)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-4)


def main(args, net, rows, savers):
    if args.tpu:
        trainer = pl.Trainer(tpu_cores=8, max_epochs=3)  # !XLA901
    else:
        trainer = pl.Trainer(max_epochs=3)
    folder = trainer.default_save_path  # !XLA910
    trainer.checkpoint_callback = savers[0]  # !XLA910
    trainer.max_epochs = 12  # !XLA910
    trainer.logger = None
    trainer.fit(Tagger(net, rows), train_dataloader=None)  # !XLA901
    return folder, trainer.checkpoint_callback.best_model_path, trainer.max_epochs
"""


def test_keys_uses_and_properties_are_told_at_the_line_to_change():
    told = {item for item in found(MODULE) if item[1] in {"XLA901", "XLA910"}}
    assert told == marks(MODULE)


def test_an_object_of_the_program_may_have_such_an_attribute():
    text = MODULE.replace("pl.Trainer(max_epochs=3)", "Engine(max_epochs=3)")
    lines = text.splitlines()
    told = [lines[row - 1] for row in rows(text, "XLA910")]
    assert [line for line in told if "trainer." in line] == []


DATA = """
import os

import numpy as np
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, Dataset


class Pieces(Dataset):
    def __init__(self, text, size):
        self.text, self.size = text, size

    def __len__(self):
        return len(self.text) // self.size

    def __getitem__(self, at):
        start = np.random.randint(0, len(self.text) - self.size)
        return torch.tensor(self.text[start : start + self.size])


class Texts(pl.LightningDataModule):
    def setup(self, stage=None):
        if not os.path.exists("text.txt"):
            os.system("wget https://example.org/text.txt")
        with open("text.txt") as file:
            self.pieces = Pieces([ord(sign) for sign in file.read()], 64)

    def train_dataloader(self):
        return DataLoader(self.pieces, batch_size=16, num_workers=4, drop_last=True)


class Net(pl.LightningModule):
    def training_step(self, batch, at):
        return self(batch).mean()


if __name__ == "__main__":
    pl.seed_everything(7)
    data = Texts()
    data.setup()
    trainer = pl.Trainer(accelerator="tpu", devices=8, max_epochs=2)
    trainer.fit(Net(), datamodule=data)
"""
DRAW = "start = np.random.randint(0, len(self.text) - self.size)"


def line_of(text, part):
    return next(row for row, line in enumerate(text.splitlines(), 1) if part in line)


@pytest.mark.parametrize(
    "draw",
    [
        DRAW,
        "start = random.randint(0, len(self.text) - self.size)",
        "start = torch.randint(len(self.text) - self.size, (1,)).item()",
    ],
)
def test_samples_that_a_data_set_picks_by_chance_are_equal_on_all_cores(draw):
    text = DATA.replace(DRAW, draw).replace("import os\n", "import os\nimport random\n")
    assert rows(text, "XLA434") == [line_of(text, draw.partition("=")[2].strip())]


def test_a_sample_that_is_chosen_itself_is_such_a_pick():
    text = DATA.replace(
        "return torch.tensor(self.text[start : start + self.size])",
        "return random.choice(self.text)",
    )
    text = text.replace(DRAW, "pass").replace("import os\n", "import os\nimport random\n")
    assert rows(text, "XLA434") == [line_of(text, "random.choice")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    pl.seed_everything(7)\n", ""),
        ("pl.seed_everything(7)", "pl.seed_everything(7 + xr.global_ordinal())"),
        (DRAW, "start = at * self.size"),
        (DRAW, "start = at + np.random.randint(0, 3)"),
        (DRAW, "start = self.rng.integers(len(self.text) - self.size)"),
        ("devices=8", "devices=1"),
        ('accelerator="tpu"', 'accelerator="gpu"'),
        ("num_workers=4", "num_workers=4, worker_init_fn=seed_by_core"),
        ("self.text, self.size = text, size", "self.text, self.size, self.rank = text, size, 0"),
    ],
)
def test_other_data_sets_and_seeds_are_left_alone(old, new):
    text = DATA.replace(old, new).replace(
        "import os\n", "import os\nimport torch_xla.runtime as xr\n"
    )
    assert rows(text, "XLA434") == []


def test_augmentation_that_looks_at_the_index_is_left_alone():
    text = DATA.replace("self.text[start :", "self.text[at][start :")
    assert rows(text, "XLA434") == []


def test_cores_that_a_program_spawns_pick_the_same_too():
    text = """
import random

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, Dataset


class Crops(Dataset):
    def __init__(self, waves):
        self.waves = waves

    def __len__(self):
        return 4096

    def __getitem__(self, at):
        return self.waves[random.randrange(len(self.waves))]  # !XLA434


def run(index, waves):
    random.seed(3)
    torch.manual_seed(3)
    device = torch_xla.device()
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Crops(waves), batch_size=8, drop_last=True)
    for x in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        model(x).sum().backward()
        xm.optimizer_step(optimizer)


if __name__ == "__main__":
    torch_xla.launch(run, args=(None,))
"""
    assert [(row, "XLA434") for row in rows(text, "XLA434")] == sorted(marks(text))
    assert rows(text.replace("random.seed(3)", "random.seed(3 + index)"), "XLA434") == []


def test_a_file_that_the_script_has_fetched_before_is_there():
    assert rows(DATA, "XLA406") == []
    command = line_of(DATA, "wget")
    alone = DATA.replace("    data.setup()\n", "")
    assert rows(alone, "XLA406") == [command]
    late = DATA.replace("    data.setup()\n", "") + "    data.setup()\n"
    assert rows(late, "XLA406") == [command]
    unasked = DATA.replace('        if not os.path.exists("text.txt"):\n    ', "")
    assert rows(unasked, "XLA406") == [line_of(unasked, "wget")]


def test_the_script_may_fetch_it_by_itself():
    text = DATA.replace(
        "    data.setup()\n",
        '    if not os.path.exists("text.txt"):\n'
        '        os.system("wget https://example.org/text.txt")\n',
    )
    assert rows(text, "XLA406") == []
