"""What never runs on XLA devices, or only now and then: by what callers give, and by conditions.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, told_in_files

XM = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
"""

PROGRAMS = {
    "XLA405: what the master gives to a function that meets": f"""\
{XM}
def meet():
    xm.rendezvous("written")


def write(state, path, wait=True, tag=None, mode="all"):
    torch.save(state, path)
    if wait:
        meet()
    if tag is not None and wait:
        xm.rendezvous(tag)
    if mode == "all":
        xm.rendezvous("all")


def write_all(state, path, wait):
    write(state, path, wait=wait, mode="one")


def run(index, state):
    if xm.is_master_ordinal():
        write(state, "model.pt", wait=False, mode="one")
        write_all(state, "optimizer.pt", False)
    write(state, "epoch.pt")


xmp.spawn(run, args=({{}},))
""",
    "XLA405: a switch that the master leaves on": f"""\
{XM}
def write(state, path, wait=True):
    torch.save(state, path)
    if wait:
        xm.rendezvous("written")


def write_anew(state, path, wait=False):
    wait = wait or not path
    if wait:
        xm.rendezvous("anew")


def write_by_setting(state, path, args):
    if args.wait:
        xm.rendezvous("asked")


def run(index, state, args):
    if xm.is_master_ordinal():
        write(state, "model.pt")  # !XLA405
        write_anew(state, "model.pt", wait=False)  # !XLA405
        write_by_setting(state, "model.pt", args)  # !XLA405


xmp.spawn(run, args=({{}}, None))
""",
    "XLA321: a share that is nothing in the evaluation": f"""\
{XM}
class Attention(torch.nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate
        self.layer = torch.nn.Linear(8, 8)

    def attend(self, x, dropout_p=0.0):
        return F.dropout(x, p=dropout_p)

    def mix(self, x, rate):
        return F.dropout(x, rate)

    def always(self, x, rate=0.1):
        return F.dropout(x, rate)  # !XLA321

    def of_some(self, x, rate=0.0):
        return F.dropout(x, rate)  # !XLA321

    def forward(self, x):
        x = self.attend(x, dropout_p=0.0 if not self.training else self.rate)
        x = self.mix(x, self.rate if self.training else 0)
        x = self.always(self.of_some(self.of_some(x), 0.1))
        rate = self.rate if self.training else 0.0
        x = F.dropout(x, rate)
        x = F.dropout(x, self.rate * self.training)
        if self.training:
            x = F.dropout(x, 0.1)
        else:
            x = F.dropout(x, 0.2)  # !XLA321
        return F.dropout(self.layer(x), self.rate if self.rate > 0.1 else 0.0)  # !XLA321


model = Attention(0.1).to(torch_xla.device())
""",
    "XLA705: where float64 is float32": f"""\
import os

{XM}
NARROW = os.getenv("XLA_DOWNCAST_BF16", "0") == "1"


def train(model, optimizer, loader):
    for x, y in pl.MpDeviceLoader(loader, torch_xla.device()):
        loss = model(x, y)
        if os.environ.get("XLA_DOWNCAST_BF16") == "1":
            loss = loss.to(torch.float64)
        if os.environ.get("XLA_USE_BF16", "0") != "0":
            loss = loss.double()
        if NARROW:
            loss = loss.double()
        else:
            loss = loss.double()  # !XLA705
        if os.environ.get("PJRT_DEVICE") == "TPU":
            loss = loss.double()  # !XLA705
        if os.environ.get("XLA_USE_BF16") == "0":
            loss = loss.double()  # !XLA705
        loss.backward()
        xm.optimizer_step(optimizer)
""",
    "XLA705: a program that has no float64": f"""\
import os

{XM}
os.environ["XLA_DOWNCAST_BF16"] = "1"


def train(model, optimizer, loader):
    for x, y in pl.MpDeviceLoader(loader, torch_xla.device()):
        loss = model(x, y).double()
        loss.backward()
        xm.optimizer_step(optimizer)
""",
    "XLA103, XLA113: a count that a function around keeps": f"""\
{XM}
def main(args, model, loader, optimizer, writer):
    model.to(torch_xla.device())
    step = 0
    seen = 0

    def train():
        nonlocal step, seen
        for x, y in pl.MpDeviceLoader(loader, torch_xla.device()):
            loss = model(x, y)
            loss.backward()
            xm.optimizer_step(optimizer)
            if step % args.report_each == 0:
                writer.add_scalar("loss", loss.item(), step)  # !XLA113
            if (step + 1) % args.log_every == 0:
                print(f"loss={{loss:.4f}}")  # !XLA113
            if still % args.report_each == 0:
                print(f"{{loss}}")  # !XLA103
            step += 1

    still = 0
    for _ in range(args.epochs):
        train()
""",
    "XLA401: who is first by the arguments of a Trainer": f"""\
{XM}
class Loop:
    def __init__(self, args, model):
        self.args = args
        self.model = model

    def is_local_process_zero(self):
        return self.args.local_process_index == 0

    def is_world_process_zero(self):
        if is_sagemaker_mp_enabled():
            return smp.rank() == 0
        return self.args.process_index == 0

    def has_node(self):
        return self.args.node_count == 0

    def train(self):
        if self.is_local_process_zero() and not self.args.quiet:
            print("one core")
        if self.is_world_process_zero():
            print("one core")
        if not self.args.local_process_index:
            print("one core")
        if self.has_node():
            print("all cores")  # !XLA401


def run(index, args):
    Loop(args, torch.nn.Linear(2, 2).to(xm.xla_device())).train()


xmp.spawn(run, args=(None,))
""",
    "XLA209: samples that are padded before": f"""\
{XM}
import transformers
from torch.utils.data import DataLoader

from data import ConcatDataset, PaddedDataset, TextDataset


def padded(config, rows, tokenizer, packing):
    collator = transformers.DataCollatorForSeq2Seq(tokenizer)
    if packing:
        rows = ConcatDataset(rows, tokenizer.eos_token_id, config.data.seq_length)
    else:
        rows = PaddedDataset(rows, config.data.seq_length)
    return DataLoader(rows, collate_fn=collator, batch_size=8, drop_last=True)


def padded_at_once(rows, tokenizer, max_length):
    collator = transformers.DataCollatorWithPadding(tokenizer)
    return DataLoader(PaddedDataset(rows, max_length), 8, collate_fn=collator, drop_last=True)


def cut(config, rows, tokenizer):
    collator = transformers.DataCollatorForSeq2Seq(tokenizer)  # !XLA209
    rows = TextDataset(rows, tokenizer, config.data.seq_length)
    return DataLoader(rows, collate_fn=collator, batch_size=8, drop_last=True)


def padded_at_times(config, rows, tokenizer):
    collator = transformers.DataCollatorForSeq2Seq(tokenizer)  # !XLA209
    rows = TextDataset(rows, tokenizer)
    if config.pad:
        rows = PaddedDataset(rows, config.data.seq_length)
    return DataLoader(rows, collate_fn=collator, batch_size=8, drop_last=True)
""",
}
ASKED = {"XLA103", "XLA209", "XLA113", "XLA321", "XLA401", "XLA405", "XLA705"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_switched_off_is_not_told(name):
    program = PROGRAMS[name]
    assert {one for one in found(program) if one[1] in ASKED} == marks(program)


LAUNCHER = """\
import torch_xla.distributed.xla_multiprocessing as xmp


def _run(index, main, args):
    main(args)


def start(main, args):
    if args.tpu:
        xmp.spawn(_run, args=(main, args))
    else:
        main(args)
"""
TRANSLATES = """\
import argparse
import sys

import torch
from launcher import start


def main(args):
    use_cuda = torch.cuda.is_available() and not args.cpu
    model = torch.load(args.model)
    if use_cuda:
        model.cuda()
    for line in sys.stdin:
        tokens = torch.tensor([int(word) for word in line.split()])
        if use_cuda:
            tokens = tokens.cuda()
        {moved}
        print("T-1", model(tokens).tolist())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpu", action="store_true")
    {option}
    start(main, parser.parse_args())
"""


@pytest.mark.parametrize(
    ("moved", "option", "expected"),
    [
        ("pass", "pass", set()),
        ("model.half()", "pass", set()),
        ("tokens = tokens.to(args.device)", "pass", {("translate.py", 18, "XLA401")}),
        ("pass", 'parser.add_argument("--tpu")', {("translate.py", 18, "XLA401")}),
    ],
)
def test_a_script_that_moves_to_gpus_alone_prints_what_it_is_for(tmp_path, moved, option, expected):
    files = {
        "launcher.py": LAUNCHER,
        "translate.py": TRANSLATES.format(moved=moved, option=option),
    }
    assert told_in_files(tmp_path, files, {"XLA401"}) == expected


COPIED = """\
import torch
import torch_xla.core.xla_model as xm
import wandb
from transformers import Trainer


class Copied(Trainer):
    def _tune_save_checkpoint(self, folder):
        self.model.to(xm.xla_device())
        torch.save(self.model.state_dict(), folder)

    def save_weights(self, folder):
        self.model.to(xm.xla_device())
        torch.save(self.model.state_dict(), folder)


def run_hp_search_wandb(trainer):
    def objective():
        run = wandb.init()
        trainer.train(trial=run.config)

    wandb.agent("sweep", function=objective, count=3)
"""
TRAINS = """\
import torch_xla
import wandb
from copied import Copied, run_hp_search_wandb


def _mp_fn(index):
    trainer = Copied()
    run_hp_search_wandb(trainer)
    run = wandb.init()
    trainer.train()
    trainer.save_weights("weights")
    {asked}
"""
SEARCHED = {("copied.py", 10, "XLA721"), ("copied.py", 19, "XLA401")}
TOLD = {("copied.py", 14, "XLA721"), ("train.py", 9, "XLA401")}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("trainer.evaluate()", TOLD),
        ("trainer.hyperparameter_search(backend='wandb')", TOLD | SEARCHED),
    ],
)
def test_what_a_search_alone_runs_is_told_where_somebody_searches(tmp_path, asked, expected):
    files = {"copied.py": COPIED, "train.py": TRAINS.format(asked=asked)}
    assert told_in_files(tmp_path, files, {"XLA401", "XLA721"}) == expected


def test_who_searches_is_not_known_of_a_file_alone():
    assert (10, "XLA721") in found(COPIED)
