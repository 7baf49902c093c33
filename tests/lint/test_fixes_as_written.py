"""Fixes leave what people have written as it is: lines, short names, conditions."""

from __future__ import annotations

import textwrap

import pytest

from xladoctor.lint import engine, fixes
from xladoctor.lint.sources import Source


def fixed(program, *codes):
    """What the fixes of some rules make of a program."""
    options = engine.LintOptions(codes=frozenset(codes))
    done = fixes.fix(
        textwrap.dedent(program).encode(),
        "train.py",
        lambda source: engine.lint(source, options),
        unsafe=True,
    )
    assert done.stable
    return done.data.decode()


LOADER = """\
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader


def loader_of(data, part, size):
    return DataLoader({arguments})


def train(net, data, optimizer):
    device = torch_xla.device()
    net.to(device)
    train_loader = loader_of(data, "train", 8)
    for x in pl.MpDeviceLoader(train_loader, device):
        net(x).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("arguments", "added"),
    [
        ("data, size, shuffle=True", "data, size, shuffle=True, drop_last=True"),
        (
            "data, size, shuffle=part == 'train'",
            "data, size, shuffle=part == 'train', drop_last=(part == 'train')",
        ),
        (
            "data, size, shuffle=(part == 'train')",
            "data, size, shuffle=(part == 'train'), drop_last=(part == 'train')",
        ),
        (
            "\n        data,\n        batch_size=size,\n    ",
            "\n        data,\n        batch_size=size,\n        drop_last=True,\n    ",
        ),
        (
            "\n        data,\n        batch_size=size  # of a core\n    ",
            "\n        data,\n        batch_size=size, drop_last=True  # of a core\n    ",
        ),
        ("data,\n        size", "data,\n        size,\n        drop_last=True"),
        (
            "data, size, shuffle=train_sampler is None",
            "data, size, shuffle=train_sampler is None, drop_last=True",
        ),
        ("data, batch_size=size", "data, batch_size=size, drop_last=True"),
    ],
)
def test_an_argument_is_added_as_the_others_are_written(arguments, added):
    done = fixed(LOADER.replace("{arguments}", arguments), "XLA203")
    assert done == LOADER.replace("{arguments}", added)


def test_the_shortest_name_of_the_file_is_taken():
    program = """\
    import torch_xla as xla
    import torch_xla.core.xla_model as xm


    def main(index):
        print("started")


    xla.launch(main, args=())
    """
    assert 'xm.master_print("started")' in fixed(program, "XLA401")
    program = program.replace("import torch_xla.core.xla_model as xm\n", "")
    assert 'xla.core.xla_model.master_print("started")' not in fixed(program, "XLA802")


def test_lines_of_what_is_added_up_stay():
    program = """\
    import torch
    import torch_xla
    import torch_xla.distributed.parallel_loader as pl


    def train(net, loader, optimizer):
        device = torch_xla.device()
        net.to(device)
        hits = 0.0
        for x, y in pl.MpDeviceLoader(loader, device):
            out = net(x)
            out.sum().backward()
            optimizer.step()
            hits += torch.mean((out[:, 0] > 0.5) * (
                y[:, 0] > 0.5
            )).item() / len(loader)
        return hits
    """
    done = fixed(program, "XLA101")
    assert "            )).detach() / len(loader)\n" in textwrap.indent(done, "    ")
    assert "                y[:, 0] > 0.5\n" in textwrap.indent(done, "    ")


OPTIONAL = """\
from transformers import (
    Trainer,
    is_torch_xla_available,
)
from transformers.utils import logging

if is_torch_xla_available():
    import torch_xla.core.xla_model as xm


class Own(Trainer):
    def end(self):
        if is_torch_xla_available():
            xm.mark_step()
"""


def test_an_optional_torch_xla_stays_optional():
    done = fixed(OPTIONAL, "XLA802")
    assert done.startswith(OPTIONAL[: OPTIONAL.index("class Own")].rstrip())
    assert "    import torch_xla.core.xla_model as xm\n    import torch_xla\n" in done
    assert "torch_xla.sync()" in done


def test_what_streams_gets_no_sampler():
    """``DataLoader`` raises ValueError for one, and the sampler asks for a length."""
    program = """\
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, {base}


class Lines({base}):
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        yield from open(self.path)


def run(index, net, optimizer):
    device = torch_xla.device()
    lines = Lines("a.txt")
    loader = DataLoader(lines, batch_size=64, drop_last=True)
    for x in pl.MpDeviceLoader(loader, device):
        net(x).mean().backward()
        xm.optimizer_step(optimizer)


torch_xla.launch(run, args=(None, None))
"""
    stream, rows = (program.format(base=base) for base in ("IterableDataset", "Dataset"))
    assert fixed(stream, "XLA402") == stream
    assert "sampler=sampler" in fixed(rows, "XLA402")
    options = engine.LintOptions(codes=frozenset({"XLA402"}))
    [told] = engine.lint(Source("train.py", stream), options).findings
    assert "itertools.islice" in told.suggestion
