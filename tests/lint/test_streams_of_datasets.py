"""Loaders over streams of Hugging Face's datasets: they take no sampler."""

from __future__ import annotations

import pytest

from xladoctor.lint import engine
from xladoctor.lint.sources import Source

PROGRAM = """\
import datasets
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from datasets import load_dataset
from torch.utils.data import DataLoader

def work(index, lazy=True):
    device = torch_xla.device()
    net = torch.nn.Linear(4, 2).to(device)
    adam = torch.optim.Adam(net.parameters())
    {rows}
    loader = DataLoader(rows, batch_size=8, drop_last=True)
    for batch in pl.MpDeviceLoader(loader, device):
        adam.zero_grad()
        net(batch["x"]).mean().backward()
        xm.optimizer_step(adam)

torch_xla.launch(work)
"""
STREAMS = {
    'rows = load_dataset("c4", split="train", streaming=True)': True,
    'rows = load_dataset("c4", split="train", streaming=lazy)': True,
    'rows = datasets.load_dataset("c4", streaming=True)["train"].map(len).shuffle(seed=0)': True,
    'rows = load_dataset("c4")["train"]\n    rows = rows.to_iterable_dataset()': True,
    "rows = datasets.IterableDataset.from_generator(read)": True,
    'rows = load_dataset("c4", split="train", streaming=False)': False,
    'rows = load_dataset("c4", split="train")': False,
}


def linted(program):
    return engine.lint(Source("train.py", program), engine.LintOptions()).findings


@pytest.mark.parametrize("rows", STREAMS)
def test_a_stream_is_shared_out_without_a_sampler(rows):
    (told,) = [one for one in linted(PROGRAM.replace("{rows}", rows)) if one.code == "XLA402"]
    streams = STREAMS[rows]
    assert ("split_dataset_by_node" in told.suggestion) is streams
    assert ("DistributedSampler" in told.suggestion) is not streams
    assert (told.fix is None) is streams


def test_a_stream_that_is_shared_out_is_not_told():
    shared = (
        'rows = load_dataset("c4", split="train", streaming=True)\n'
        "    rows = datasets.distributed.split_dataset_by_node(rows, index, 8)"
    )
    found = {one.code for one in linted(PROGRAM.replace("{rows}", shared))}
    assert "XLA402" not in found
