"""Batches that go into a model as a loader gave them, and models that are kept as such."""

from __future__ import annotations

import pytest

from tests.lint.rule_helpers import marks_in_files, told_in_files

LEARNER = """\
import torch
import torch_xla.core.xla_model as xm


class Learner:
    def __init__(self, model, train_dl, valid_dl=None, optimizer=None):
        self.model = model.to(xm.xla_device())
        self.train_dl, self.valid_dl, self.optimizer = train_dl, valid_dl, optimizer

    def train(self):
        for images, labels in self.train_dl:
            loss = self.model(images, labels)
            loss.backward()
            xm.optimizer_step(self.optimizer)

    def evaluate(self):
        seen = []
        for number, batch in enumerate(self.valid_dl):
            images, labels = batch{more}
            with torch.no_grad():
                outputs = self.model(images)
            seen.append((number, outputs.cpu()))  # !XLA101
            seen.append(labels.cpu()){mark}
        return seen
"""


@pytest.mark.parametrize(
    ("more", "fed"),
    [
        ("", True),
        # Who moves a part of the batch may leave the rest where it was.
        ("\n            images = images.to(xm.xla_device())", False),
        ("\n            labels = self.targets[number]", False),
    ],
)
def test_what_comes_with_a_batch_that_is_fed_unmoved(tmp_path, more, fed):
    files = {"learner.py": LEARNER.format(more=more, mark="  # !XLA101" if fed else "")}
    assert told_in_files(tmp_path, files, {"XLA101"}) == marks_in_files(files, {"XLA101"})


LOADED = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr


def create(config):
    {kept} = build(config.name)(config).to(torch_xla.device())
    if xr.global_ordinal() == 0:
        load_checkpoint({kept}, config){mark}
    xm.rendezvous("loaded")
    return {kept}


def main(index, config, loader, optimizer):
    net = create(config)
    for batch in loader:
        net(batch).backward()
        xm.optimizer_step(optimizer, barrier=True)


torch_xla.launch(main)
"""


@pytest.mark.parametrize(("kept", "told"), [("model", True), ("backbone", True), ("table", False)])
def test_weights_that_a_function_of_another_file_loads_on_the_master(tmp_path, kept, told):
    files = {"train.py": LOADED.format(kept=kept, mark="  # !XLA426" if told else "")}
    assert told_in_files(tmp_path, files, {"XLA426"}) == marks_in_files(files, {"XLA426"})


ON_TPUS = """\
import torch
import torch_xla.core.xla_model as xm
import config

if config.TPUs:
    device = xm.xla_device()
else:
    device = torch.device("cuda")


def save(model, path):
    model.to(device)
    if not config.TPUs:
        torch.save(model.state_dict(), path)
    else:
        torch.save(model.state_dict(), path)  # !XLA721
"""


def test_tpus_in_the_plural_are_tpus(tmp_path):
    files = {"train.py": ON_TPUS}
    assert told_in_files(tmp_path, files, {"XLA721"}) == marks_in_files(files, {"XLA721"})


LOADS = """\
import importlib
import torch_xla.core.xla_model as xm

{line}


def main(index, model, loader, optimizer):
    for batch in loader:
        step.run(model, batch, optimizer)
"""
STEP = """\
import torch_xla.core.xla_model as xm


def run(model, batch, optimizer):
    loss = model(batch)
    loss.backward()
    xm.optimizer_step(optimizer, barrier=True)
    print(loss.item()){mark}
"""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('step = importlib.import_module("parts.step")', True),
        ("import parts.step as step", True),
        ('step = importlib.import_module(f"parts.{xm.name}")', False),
    ],
)
def test_a_module_that_is_loaded_by_a_written_name(tmp_path, line, told):
    files = {
        "train.py": LOADS.format(line=line),
        "parts/__init__.py": "",
        "parts/step.py": STEP.format(mark="  # !XLA101" if told else ""),
    }
    assert told_in_files(tmp_path, files, {"XLA101"}) == marks_in_files(files, {"XLA101"})
