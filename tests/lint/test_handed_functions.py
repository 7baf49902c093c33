"""Functions that are handed to somebody else, who calls them: cores, libraries.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

HEAD = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
"""
STARTS = {
    "the function is called, and its result started": """\
def train(index, net=None):
    net.to(torch_xla.device())
xmp.spawn(train(NET))  # !XLA408
""",
    "the same with lines of its own": """\
def train(index, net):
    if net is None:
        return
    net.to(torch_xla.device())
xmp.spawn(
    train(  # !XLA408
        0,
        net=NET,
    ),
)
""",
    "a function that makes the one that runs": """\
def training(net):
    def train(index):
        net.to(torch_xla.device())
    return train
xmp.spawn(training(NET), start_method="fork")  # !XLA408
""",
    "a function that a decorator replaced": """\
import click
@click.command()
def training(net):
    print(net)
xmp.spawn(training(NET), start_method="fork")
""",
    "a method that nobody can read": """\
from engine import Engine
xmp.spawn(Engine().train(NET), start_method="fork")
""",
}
APPLIED = """\
def apply(work, data, **options):
    if isinstance(data, dict):
        return {{key: apply(work, data[key], **options) for key in data}}
    return work(data, **options)
def gathered(data):
    def gather_one(x):
        return xm.all_gather(x)
    return apply(gather_one, data)
def halved(data):
    def halve(x):
        return x[: len(x) // 2]
    return apply(halve, data)
def main(index):
    for batch in LOADER:
        gathered(batch)
        if xm.is_master_ordinal():
            print({shown})
xmp.spawn(main)
"""
SCORES = """\
import senteval
from transformers import Trainer
class Scored(Trainer):
    def evaluate(self, rows=None):
        def batcher(params, batch):
            texts = [" ".join(words) for words in batch]
            batch = self.tokenizer(texts, return_tensors="pt", padding={padding}){padded}
            batch = {{name: value.to(self.args.device) for name, value in batch.items()}}
            with torch.no_grad():
                out = self.model(**batch).pooler_output
            return out{read}
        {handed}
def _mp_fn(index):
    trainer = Scored(MODEL, ARGS)
    trainer.train()
"""


@pytest.mark.parametrize("name", STARTS)
def test_what_the_cores_are_started_with(name):
    program = HEAD + STARTS[name]
    told = {(row, code) for row, code in found(program) if code == "XLA408"}
    assert told == set(marks(program))


@pytest.mark.parametrize(
    ("shown", "meet"),
    [
        ("halved(batch)", False),
        ("apply(lambda x: x.shape, batch)", False),
        ("gathered(batch)", True),
        ("apply(xm.all_gather, batch), gathered(batch)", True),
    ],
)
def test_a_helper_runs_what_this_call_gives_it(shown, meet):
    program = HEAD + APPLIED.format(shown=shown)
    row = next(i for i, line in enumerate(program.splitlines(), 1) if "print" in line)
    told = {line for line, code in found(program) if code == "XLA405"}
    assert told == ({row} if meet else set())


@pytest.mark.parametrize(
    ("handed", "padding", "padded", "read"),
    [
        (
            "return senteval.engine.SE({}, batcher).eval(['STS'])",
            "True",
            "  # !XLA209",
            ".cpu()  # !XLA101",
        ),
        (
            "return senteval.engine.SE({}, batcher=batcher).eval(['STS'])",
            '"max_length"',
            "",
            ".cpu()  # !XLA101",
        ),
        ("return batcher", "True", "", ".cpu()"),
    ],
)
def test_what_senteval_runs_for_each_batch(handed, padding, padded, read):
    program = HEAD + SCORES.format(handed=handed, padding=padding, padded=padded, read=read)
    told = {(row, code) for row, code in found(program) if code in {"XLA101", "XLA209"}}
    assert told == set(marks(program))


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ('xmp.spawn(train, start_method="forkserver")', True),
        ('xmp.spawn(train, start_method="spawn")', True),
        ("torch_xla.launch(train)", True),
        ('xmp.spawn(train, start_method="fork")', False),
        ('torch_xla.launch(train, start_method="fork")', False),
        ("xmp.spawn(train, nprocs=1)", False),
        ("torch_xla.launch(train, debug_single_process=True)", False),
        ("torch_xla.launch(work.train)", False),
    ],
)
def test_functions_of_notebooks_in_new_processes(how, told):
    program = f"""\
import torch_xla
import torch_xla.distributed.xla_multiprocessing as xmp
import work


def train(index):
    return torch_xla.device()


{how}
"""
    said = [code for _, code in found(program, filename="train.ipynb")]
    assert ("XLA408" in said) is told
