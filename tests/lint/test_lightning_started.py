"""How programs of Lightning say how many cores they take."""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

STARTED = """
from argparse import ArgumentParser

import lightning.pytorch as pl
from lightning.pytorch.cli import LightningCLI


class Net(pl.LightningModule):
    def training_step(self, batch, number):
        return self.net(batch).mean()

    def on_train_epoch_end(self):
        print("epoch")  # !XLA401


def main():
    {start}
"""
OPTIONS = """parser = pl.Trainer.add_argparse_args(ArgumentParser())
    {set}
    pl.Trainer.from_argparse_args(parser.parse_args()).fit(Net())"""

ASKED = """parser = ArgumentParser()
    parser.add_argument("--cores"{how})
    args = parser.parse_args()
    pl.Trainer(accelerator="tpu", devices=args.cores).fit(Net())"""


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ('LightningCLI(Net, trainer_defaults={"accelerator": "tpu", "devices": 8})', True),
        ('LightningCLI(Net, trainer_defaults=dict(accelerator="tpu", devices=1))', False),
        ('LightningCLI(Net, trainer_defaults={"accelerator": "gpu", "devices": 8})', False),
        (OPTIONS.format(set="parser.set_defaults(tpu_cores=8)"), True),
        (OPTIONS.format(set='parser.set_defaults(accelerator="tpu", devices=1)'), False),
        (OPTIONS.format(set='parser.add_argument("--tpu_cores", type=int, default=8)'), True),
        (OPTIONS.format(set='parser.add_argument("--tpu_cores", type=int)'), False),
        (ASKED.format(how=", type=int"), True),
        (ASKED.format(how=", type=int, default=None"), True),
        (ASKED.format(how=", type=int, default=1"), False),
        (ASKED.format(how=", type=int, choices=[1]"), False),
        (ASKED.format(how=""), False),
    ],
)
def test_cores_of_command_lines(start, told):
    program = STARTED.format(start=start)
    found_ones = {(row, code) for row, code in found(program) if code == "XLA401"}
    assert found_ones == (marks(program) if told else set())


@pytest.mark.parametrize(
    ("given", "told"), [("tpu_cores=8", True), ('accelerator="tpu", devices=8', False)]
)
def test_arguments_that_are_gone_beside_options(given, told):
    start = f"pl.Trainer.from_argparse_args(ArgumentParser().parse_args(), {given}).fit(Net())"
    said = [row for row, code in found(STARTED.format(start=start)) if code == "XLA901"]
    assert len(said) == (2 if told else 1)  # the method itself is gone too


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        ('"--tpu_cores", type=int', True),
        ('"--n_tpu_cores", dest="tpu_cores", type=int', True),
        ('"--n_tpu_cores", type=int', False),
        ('"--gpus", type=int', False),
    ],
)
def test_an_option_for_cores_that_the_trainer_takes(flag, told):
    start = f"""parser = ArgumentParser()
    parser.add_argument({flag})
    pl.Trainer.from_argparse_args(parser.parse_args(), weights_summary=None).fit(Net())"""
    said = [row for row, code in found(STARTED.format(start=start)) if code == "XLA901"]
    assert bool(said) is told
