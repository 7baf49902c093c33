"""Files whose path nobody sees whole: nothing says that it is another one on each core."""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, rows

START = """
import json
import os
import shutil

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from tqdm import tqdm
"""

RUNNER = """
class Runner:
    def __init__(self, folder, net, options):
        self.folder = folder
        self.options = options
        self.net = net.to(xm.xla_device())
        self.losses = []
        with open("%s/net.txt" % self.folder, "w") as out:  # !XLA406
            out.write(str(self.net))

    @property
    def kept_in(self):
        return os.path.join(self.folder, "weights")

    def train(self, loader, optimizer, criterion):
        for epoch in range(self.options.epochs):
            loader.sampler.set_epoch(epoch)
            device_loader = pl.MpDeviceLoader(loader, xm.xla_device())
            for x, y in device_loader:
                optimizer.zero_grad()
                criterion(self.net(x), y).backward()
                xm.optimizer_step(optimizer)
            self.save(epoch)

    def save(self, epoch, name=None):
        name = f"epoch-{epoch}.pt" if name is None else name
        folder, last = os.path.split(os.path.join(self.kept_in, name))
        with open(os.path.join(folder, "latest.txt"), "w") as out:  # !XLA406
            out.write(last)
        np.save(f"{folder}/losses.npy", self.losses)  # !XLA406


def _mp_fn(index, folder, net, options, loader, optimizer, criterion):
    runner = Runner(folder, net, options)
    runner.train(loader, optimizer, criterion)


def main(folder, net, options, loader, optimizer, criterion):
    xmp.spawn(_mp_fn, args=(folder, net, options, loader, optimizer, criterion))
"""

#: How a path may differ from core to core though no core's number stands in it.
OWN = """
class Runner:
    def __init__(self, net, tmp_dir, run_id):
        self.net = net.to(xm.xla_device())
        self.tmp_dir = tmp_dir
        self.mine = self._folder(xm.get_ordinal())
        self.unique_name = run_id

    def _folder(self, number):
        return f"out/{number}"

    def train(self, loader, optimizer, names):
        for name, x in pl.MpDeviceLoader(loader, xm.xla_device()):
            optimizer.zero_grad()
            self.net(x).sum().backward()
            xm.optimizer_step(optimizer)
            np.save(f"{name}.npy", [1])
        np.save(os.path.join(self.tmp_dir, "a.npy"), [1])
        np.save(os.path.join(self.mine, "a.npy"), [1])
        np.save(f"{self.unique_name}.npy", [1])
        np.save(os.environ["LOCAL_RANK"] + ".npy", [1])
        np.save(os.path.join(os.getenv("REPLICA_FOLDER"), "a.npy"), [1])
        for sample in loader.dataset:
            np.save(sample.path, sample.pixels)
        with make_folder() as folder:
            np.save(os.path.join(folder, "a.npy"), [1])


def _mp_fn(index, net, loader, optimizer, run_id):
    runner = Runner(net, "out", run_id)
    runner.train(loader, optimizer, [])


def main(net, loader, optimizer, run_id):
    xmp.spawn(_mp_fn, args=(net, loader, optimizer, run_id))
"""


def test_a_path_is_the_same_on_all_cores_unless_something_says_otherwise() -> None:
    """Parameters, attributes, properties and what is taken apart lead back to no core's number."""
    told = {(row, code) for row, code in found(START + RUNNER) if code == "XLA406"}
    assert told == marks(START + RUNNER)


def test_a_path_of_its_own_is_silent() -> None:
    """Its number, its environment, its share of the data, a word that says it is its own."""
    assert rows(START + OWN, "XLA406") == []


@pytest.mark.parametrize(
    "path",
    [
        "names[-1]",
        "resumed.replace('.pt', '') + '.json'",
        "{'a': out, 'b': folder}['a']",
        "(out if count else folder) + '.json'",
        "str(steps) + '.json'",
        "'/'.join([folder, 'all.json'])",
        "layout.place_of(folder)",
    ],
)
def test_what_paths_are_made_of(path: str) -> None:
    """Folders that are listed, counters, dictionaries, helpers of other files."""
    program = f"""
import layout


def _mp_fn(index, folder, out, done):
    names = [one.name for one in os.scandir(folder) if one.is_file()]
    resumed = sorted(names)[-1]
    count = len(names)
    steps = int(resumed.replace("step-", ""))
    steps += count
    with open({path}, "w") as file:
        file.write("x")


def main(folder, out, done):
    xmp.spawn(_mp_fn, args=(folder, out, done))
"""
    assert len(rows(START + program, "XLA406")) == 1


ALONE = """
def first():
    return int(os.environ.get("RANK", "0")) == 0


class Saver:
    def __init__(self, path):
        self.path = path

    def on_end(self):
        with open(self.path, "w") as out:
            out.write("x")


def _mp_fn(index, path):
    hooks = []
    if ASKED:
        hooks.append(Saver(path))
        with open("a.json", "w") as out:
            out.write("x")
    for hook in hooks:
        hook.on_end()


def main(path):
    xmp.spawn(_mp_fn, args=(path,))
"""


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("index == 0", []),
        ("first()", []),
        ("os.environ['RANK'] == '0'", []),
        ("int(os.getenv('LOCAL_RANK')) == 0", []),
        ("path is not None", [23, 31]),
        ("int(os.environ.get('SAVES', '0')) == 0", [23, 31]),
    ],
)
def test_what_one_core_makes_writes_by_itself(asked: str, told: list[int]) -> None:
    """An object that one core alone has, and the numbers that torchrun gives in variables."""
    assert rows(START + ALONE.replace("ASKED", asked), "XLA406") == told


SPECIFIED = """
import yaml
def main(index, spec):
    with open(OPENED) as stream:
        read = yaml.safe_load(stream)
    folder = os.path.join(read["folder"], "weights")
    np.save(os.path.join(folder, "net.npy"), np.zeros(3))
xmp.spawn(main, args=(SPEC,))
"""


@pytest.mark.parametrize(("opened", "told"), [("spec", True), ("f'{spec}.{index}'", False)])
def test_what_is_read_from_one_file_is_the_same_on_all_cores(opened: str, told: bool) -> None:
    assert bool(rows(START + SPECIFIED.replace("OPENED", opened), "XLA406")) is told


KEYS = """
def scored(net, batches):
    texts = []
    for x in pl.MpDeviceLoader(batches, xm.xla_device()):
        texts.append(net(x).cpu())
    data = {"texts": texts, "count": [len(texts)]}
    return data
def main(index, net, batches, folder):
    data = scored(net, batches)
    for LOOP:
        with open(f"{folder}/{name}.json", "w") as out:
            json.dump(str(data), out)
xmp.spawn(main, args=(NET, BATCHES, FOLDER))
"""


@pytest.mark.parametrize(
    ("loop", "told"),
    [
        ("name in data", True),
        ("name in data.keys()", True),
        ("name, part in data.items()", True),
        ("part, name in data.items()", False),
        ("name in data['texts']", False),
        ("name in batches", False),
    ],
)
def test_keys_that_are_written_are_the_same_on_all_cores(loop: str, told: bool) -> None:
    program = START + KEYS.replace("LOOP", loop)
    assert bool(rows(program, "XLA406")) is told
