"""XLA406: which files every core writes, however they are opened and their paths are made."""

import pytest
from rule_helpers import found, marks


def told(program):
    return {(row, code) for row, code in found(program) if code == "XLA406"}


SPAWNED = """\
import json
import logging
import os
import subprocess
import uuid
from datetime import datetime
from pathlib import Path

import numpy as np
import torch
import torchvision
from torchvision import datasets
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
"""
START = """

if __name__ == "__main__":
    xmp.spawn(work, args=(read_settings(),))
"""

WRITERS = {
    "logs that begin anew": """
def work(rank, args):
    logging.basicConfig(filename="train.log", filemode="w")  # !XLA406
    handler = logging.FileHandler("run.log", mode="w")  # !XLA406
    logging.FileHandler(f"run-{rank}.log", mode="w")
    logging.basicConfig(level=logging.INFO)
""",
    "logs that go on": """
def work(rank, args):
    handler = logging.FileHandler("run.log")
    logging.getLogger().addHandler(handler)
    logging.getLogger().addHandler(logging.FileHandler("more.log", mode="a"))
    logging.basicConfig(filename="train.log")
""",
    "a file that is opened in whatever way": """
def work(rank, args):
    with open("train.log", args.mode) as file:
        file.read()
""",
    "arrays and profiles": """
def work(rank, args, prof, rows):
    prof.export_chrome_trace("trace.json")  # !XLA406
    np.array(rows).tofile("rows.bin")  # !XLA406
    np.memmap("rows.bin", dtype="float32", mode="w+", shape=(2,))  # !XLA406
    np.memmap("rows.bin", dtype="float32", mode="r", shape=(2,))
    prof.export_chrome_trace(f"trace-{rank}.json")
""",
    "tables, charts and vocabularies": """
def work(rank, args, frame, chart, tokenizer):
    frame.write_parquet("rows.parquet")  # !XLA406
    chart.save("losses.html")  # !XLA406
    tokenizer.save("tokenizer.json")  # !XLA406
    tokenizer.save("tokenizer")
    frame.to_markdown()
""",
    "files that are moved": """
def work(rank, args):
    Path("best.tmp").rename("best.pt")  # !XLA406
    Path("part").with_suffix(f".{rank}").rename("x")
    (Path(args.out) / "new").replace("old")  # !XLA406
    os.rmdir(args.old)  # !XLA406
    name = args.name.replace("-")
    table = file_table.rename(str.lower)
""",
    "commands that copy": """
def work(rank, args):
    os.system("cp -r data /tmp/data")  # !XLA406
    subprocess.run(["mv", "a", "b"])  # !XLA406
    os.system(f"cp -r data /tmp/data{rank}")
    os.system("cpuinfo")
""",
    "torchvision's helpers": """
def work(rank, args):
    torchvision.datasets.utils.download_url(args.url, "data")  # !XLA406
    torchvision.datasets.utils.download_url(args.url, f"data{rank}")
""",
}

PATHS = {
    "a step that was loaded": """
def load(path, device):
    kept = torch.load(path, map_location=device)
    return kept["step"]

def work(rank, args):
    device = xm.xla_device()
    step = 0
    if args.resume:
        step = load(args.resume, device)
    for batch in batches(args):
        step += 1
        if step % 100 == 0:
            torch.save(args, f"state-{step}.pt")  # !XLA406
            torch.save(args, f"state-{device}-{step}.pt")
            torch.save(args, "state-" + str(device))
""",
    "one of two ways is seen": """
class Saver:
    def save(self, model, folder=None):
        folder = folder if folder is not None else self.args.out
        torch.save(model, os.path.join(folder, "net.pt"))  # !XLA406

    def save_for(self, model, rank, folder):
        folder = os.path.join(folder, str(rank)) if folder else "out"
        torch.save(model, os.path.join(folder, "net.pt"))

    def train(self, model, rank, trial):
        out = os.path.join(self.args.out, "best")
        if trial is not None:
            out = os.path.join(self.args.out, trial.label(self))
        self.save(model, out)
        self.save_for(model, rank, self.args.out)

def work(rank, args):
    Saver().train(torch.nn.Linear(2, 2), rank, None)
""",
    "a method that makes the path": """
class Run:
    def __init__(self, out, rank):
        self.out, self.rank = out, rank
    def path(self):
        return os.path.join(self.out, "net.pt")
    def own(self):
        return os.path.join(self.out, f"net-{self.rank}.pt")
    def save(self, model):
        torch.save(model, self.path())  # !XLA406
        torch.save(model, self.own())

def work(rank, args):
    Run(args.out, rank).save(torch.nn.Linear(2, 2))
""",
    "a setting that each core sets": """
def work(rank, args):
    args.out = os.path.join(args.out, f"core{rank}")
    args.kept["path"] = fetch(args.url, core=rank)
    torch.save(args, os.path.join(args.out, "net.pt"))
    os.remove(args.kept["path"])
    torch.save(args, os.path.join(args.folder, "net.pt"))  # !XLA406
""",
    "a name that grows": """
def save(model, name):
    name = "out"
    name = name + chosen(name, next(args))
    torch.save(model, name)

def work(rank, args):
    save(torch.nn.Linear(2, 2), "x")
""",
    "a name of the time, made on each core": """
def work(rank, args):
    stamp = datetime.now().strftime("%H%M%S")
    torch.save(args, f"{stamp}.pt")
""",
    "where there is one core": """
def work(rank, args):
    world_size = xm.xrt_world_size()
    if world_size == 1:
        torch.save(args, "net.pt")
    if args.world_size <= 1:
        torch.save(args, "net.pt")
    else:
        torch.save(args, "several.pt")  # !XLA406
    if world_size == 8:
        torch.save(args, "eight.pt")  # !XLA406
    if not world_size > 1:
        return
    torch.save(args, "more.pt")  # !XLA406
""",
}

DATASETS = {
    "two parts": """
def work(rank, args):
    data = datasets.CIFAR10("data", train=True, download=True)  # !XLA406
    test = datasets.CIFAR10("data", train=False, download=True)
""",
    "one part, or both": """
def work(rank, args):
    if args.test:
        return datasets.CIFAR10("data", train=False, download=True)  # !XLA406
    data = datasets.CIFAR10("data", train=True, download=True)  # !XLA406
    test = datasets.CIFAR10("data", train=False, download=True)
""",
    "one of two": """
def work(rank, args):
    kind = datasets.CIFAR10 if args.small else datasets.CIFAR100
    data = kind("data", train=True, download=True)  # !XLA406
""",
    "in a table": """
KINDS = {"small": datasets.CIFAR10, "large": datasets.CIFAR100}
def work(rank, args):
    data = KINDS[args.kind]("data", train=True, download=True)  # !XLA406
""",
    "by its name": """
def work(rank, args):
    data = getattr(datasets, args.kind)("data", download=True)  # !XLA406
    other = getattr(args.hub, args.kind)("data", download=True)
""",
    "a class of the program": """
class Pairs(datasets.CIFAR10):
    def __getitem__(self, index):
        return super().__getitem__(index)[0]

class Careful(datasets.CIFAR10):
    def __init__(self, root, download):
        super().__init__(root, download=download and xm.get_local_ordinal() == 0)

def work(rank, args):
    data = Pairs("data", download=True)  # !XLA406
    data = Careful("data", download=True)
""",
    "another class of the program": """
class Pairs(torch.utils.data.Dataset):
    def __init__(self, root, download):
        self.root = root

def work(rank, args):
    data = Pairs("data", download=True)
""",
}


@pytest.mark.parametrize("name", [*WRITERS, *PATHS, *DATASETS])
def test_what_every_core_writes(name):
    program = SPAWNED + {**WRITERS, **PATHS, **DATASETS}[name] + START
    assert told(program) == marks(program)


BEFORE = """
def work(rank, args, name):
    torch.save(args, f"{name}.pt"){mark}
    torch.save(args, args.out){mark}

def main(args):
    name = str(uuid.uuid4())
    args.out = os.path.join(args.out, str(datetime.now()))
    {start}

if __name__ == "__main__":
    main(read_settings())
"""


@pytest.mark.parametrize("alone", [True, False])
def test_a_name_that_one_process_draws_is_one_for_all(alone):
    """Before the start it is drawn once; each of torchrun's processes draws its own."""
    start = "xmp.spawn(work, args=(args, name))"
    if not alone:
        start = 'torch.distributed.init_process_group("xla"); work(0, args, name)'
    text = BEFORE.replace("{start}", start).replace("{mark}", "  # !XLA406" if alone else "")
    program = SPAWNED + text
    assert told(program) == marks(program)


ACCELERATED = """\
import argparse
import json

import torch
import torch_xla.core.xla_model as xm
from accelerate import Accelerator

args = {settings}
accelerator = Accelerator()
model, loader = accelerator.prepare(torch.nn.Linear(2, 2), read(args))


def save(path):
    torch.save(model.state_dict(), path)  # !XLA406


for epoch in range(3):
    train(model, loader)
    save(f"net-{{epoch}}.pt")
    with open("results.json", "w") as file:  # !XLA406
        json.dump({{}}, file)
if accelerator.is_main_process:
    torch.save(model.state_dict(), "main.pt")
accelerator.save(model.state_dict(), "last.pt")
"""


def test_accelerate_runs_the_lines_of_a_script_on_each_core():
    program = ACCELERATED.format(settings="argparse.ArgumentParser().parse_args()")
    assert told(program) == marks(program)


def test_accelerate_in_lines_that_are_no_script_may_be_one_process():
    """A notebook, or what was one: nobody starts it on several cores."""
    program = ACCELERATED.format(settings="None").replace("import argparse\n", "")
    assert told(program) == set()


TRAINER = """\
import json
import os

import pandas as pd
import torch
from transformers import Trainer, TrainerCallback
{asks}

class Report(TrainerCallback):
    def __init__(self, folder):
        self.folder = folder

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        with open(os.path.join(self.folder, f"{{state.epoch}}.json"), "w") as file:  # !XLA406
            json.dump(metrics, file)
        if state.is_world_process_zero:
            pd.DataFrame(state.log_history).to_csv("log.csv")

    def on_train_end(self, args, state, control, **kwargs):
        os.system("gsutil -m cp -r " + args.output_dir + " gs://bucket")  # !XLA406


class Mine(Trainer):
    def training_step(self, model, inputs):
        loss = super().training_step(model, inputs)
        {ends}
        return loss

    def _save(self, output_dir=None, state_dict=None):
        torch.save(state_dict, os.path.join(output_dir, "net.bin"))

    def save_model(self, output_dir=None, _internal_call=False):
        super().save_model(output_dir, _internal_call)
        torch.save(self.extra, os.path.join(output_dir, "extra.pt"))  # !XLA406

    def predict_all(self, data):
        result = self.predict(data)
        torch.save(result, os.path.join(self.args.output_dir, "result.pt"))  # !XLA406
        if self.is_world_process_zero():
            torch.save(result, os.path.join(self.args.output_dir, "first.pt"))
"""
ASKS = """
from transformers import is_torch_xla_available
if is_torch_xla_available():
    import torch_xla.core.xla_model as xm
"""


def test_a_trainer_and_callbacks_that_ask_for_torch_xla_run_on_each_core():
    program = TRAINER.format(asks=ASKS, ends="if is_torch_xla_available(): xm.mark_step()")
    assert told(program) == marks(program)


def test_a_trainer_without_a_word_of_torch_xla_is_not_asked():
    program = TRAINER.format(asks="", ends="pass")
    assert told(program) == set()


CALLBACK = """
import os
import torch
import pytorch_lightning as pl

class Keep(pl.Callback):
    def on_train_epoch_end(self, trainer, pl_module):
        net = pl_module.state_dict()
        torch.save(net, os.path.join(trainer.default_root_dir, "net.pt"))  # !XLA406
        torch.save(pl_module.state_dict(), f"net-{trainer.global_rank}.pt")
        trainer.save_checkpoint("last.ckpt")

def main(net, data):
    trainer = pl.Trainer(accelerator="tpu", devices=8, callbacks=[Keep()])
    trainer.fit(net, data)
"""


def test_what_lightning_hands_to_callbacks_is_the_same_on_all_cores():
    assert told(CALLBACK) == marks(CALLBACK)
