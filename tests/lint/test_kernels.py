"""Programs as people write them on Kaggle and Colab.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks, rows

from xladoctor.lint import engine, fixes, sources

HEAD = """\
import numpy as np
import torch
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from sklearn.metrics import roc_auc_score
from torch.utils.data import DataLoader
"""

FITTER = (
    HEAD
    + """
class Settings:
    lr = 1e-3
    Schedule = torch.optim.lr_scheduler.ReduceLROnPlateau
    schedule_settings = dict(mode="max", patience=2)

class AucMeter:
    def __init__(self):
        self.wanted = np.array([0, 1])
        self.given = np.array([0.5, 0.5])
        self.score = 0
    def update(self, wanted, given):
        self.wanted = np.hstack((self.wanted, wanted.cpu().numpy()))
        self.given = np.hstack((self.given, given.cpu().numpy()))
        self.score = roc_auc_score(self.wanted, self.given)
    @property
    def avg(self):
        return self.score

class Fitter:
    def __init__(self, model, device, config):
        self.model, self.device = model, device
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
        self.scheduler = config.Schedule(self.optimizer, **config.schedule_settings)
    def fit(self, loader, held_out):
        for epoch in range(3):
            batches = pl.ParallelLoader(loader, [self.device])
            self.train_epoch(batches.per_device_loader(self.device))
            batches = pl.ParallelLoader(held_out, [self.device])
            scores = self.validate(batches.per_device_loader(self.device))
            self.scheduler.step(SCORE)  # here
    def train_epoch(self, loader):
        for images, wanted in loader:
            self.optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.model(images), wanted).backward()
            xm.optimizer_step(self.optimizer)
    def validate(self, loader):
        scores = AucMeter()
        for images, wanted in loader:
            with torch.no_grad():
                scores.update(wanted, self.model(images))
        return scores

def run(index):
    torch.manual_seed(0)
    device = xm.xla_device()
    part = torch.utils.data.DistributedSampler(DATA, xm.xrt_world_size(), xm.get_ordinal())
    loader = DataLoader(DATA, 8, sampler=part, drop_last=True)
    fitter = Fitter(torch.nn.Linear(3, 1).to(device), device, Settings)
    fitter.fit(loader, loader)

if __name__ == "__main__":
    xmp.spawn(run)
"""
)


@pytest.mark.parametrize("score", ["scores.avg", "metrics=scores.avg", "scores.score"])
def test_a_plateau_follows_what_a_meter_says_in_a_property(score):
    assert "XLA419" in codes(FITTER.replace("SCORE", score))


@pytest.mark.parametrize("score", ["", "xm.mesh_reduce('auc', scores.avg, np.mean)", "epoch"])
def test_a_schedule_that_all_cores_follow_alike_is_fine(score):
    assert "XLA419" not in codes(FITTER.replace("SCORE", score))


TWICE = (
    HEAD
    + """
def fit(batches, model, optimizer, device):
    for batch in batches:
        ids = batch["ids"].to(device)  # !XLA603
        optimizer.zero_grad()
        loss = model(ids).mean()
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)

def run():
    device = torch.device("xla")
    model = torch.nn.Linear(3, 3).to(device)
    fit(DataLoader(DATA, 8, drop_last=True), model, torch.optim.AdamW(model.parameters()), device)

START

def fit(batches, model, optimizer, device):
    for batch in batches:
        ids = batch["ids"].to(device)
        optimizer.zero_grad()
        loss = model(ids).mean()
        loss.backward()
        xm.optimizer_step(optimizer)

def run_core(index):
    torch.manual_seed(1)
    device = torch.device("xla")
    model = torch.nn.Linear(3, 3).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    part = torch.utils.data.DistributedSampler(DATA, xr.world_size(), index, shuffle=False)
    loader = DataLoader(DATA, 8, drop_last=True, sampler=part)
    fit(pl.MpDeviceLoader(loader, device), model, optimizer, device)

if __name__ == "__main__":
    xmp.spawn(run_core)
"""
)


@pytest.mark.parametrize(
    "start", ["run()", "history = run()", "if __name__ == '__main__':\n    run()"]
)
def test_what_is_called_before_a_name_is_defined_anew(start):
    program = TWICE.replace("START", start)
    assert set(found(program)) == marks(program)


def test_the_second_definition_alone_is_healthy():
    program = HEAD + TWICE[TWICE.index("START") + len("START") :]
    assert rows(program, "XLA603") == []


PART = """\
from common import *

def train_epoch(loader, model, optimizer, device):
    for images, wanted in loader:
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(model(images.to(device)), wanted.to(device))  # !XLA603
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
        print(loss.item())  # !XLA101
        gc.collect()  # !XLA111

def run(train, model):
    device = torch.device("xla")
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3 * xm.xrt_world_size())  # !XLA801
    loader = torch.utils.data.DataLoader(train, 8)  # !XLA203
    train_epoch(loader, model, optimizer, device)
"""


def test_a_part_of_a_program_whose_imports_stand_elsewhere():
    assert set(found(PART)) == marks(PART)


def test_names_that_mean_something_else_in_a_part_of_a_program():
    bound = PART.replace("from common import *", "from common import *\nfrom common import xm")
    assert rows(bound, "XLA801") == []
    others = PART.replace("xm.optimizer_step(optimizer, barrier=True)", "optimizer.step()").replace(
        "xm.xrt_world_size()", "xm.of_mine()"
    )
    assert found(others) == []


CHOSEN = (
    HEAD
    + """
from tqdm import tqdm

def train_epoch(loader, model, optimizer, CFG):
    for images, wanted in ITERABLE:
        loss = torch.nn.functional.mse_loss(model(images), wanted)
        loss.backward()
        xm.optimizer_step(optimizer)
        optimizer.zero_grad()

def run(index, CFG):
    device = torch.device("xla")
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 3).to(device)
    part = torch.utils.data.DistributedSampler(DATA, xr.world_size(), index, shuffle=False)
    batches = pl.MpDeviceLoader(DataLoader(DATA, 8, drop_last=True, sampler=part), device)
    train_epoch(batches, model, torch.optim.AdamW(model.parameters()), CFG)

if __name__ == "__main__":
    xmp.spawn(run, args=({},))
"""
)


@pytest.mark.parametrize(
    "iterable",
    [
        "(tqdm(loader, total=len(loader)) if CFG['bar'] else loader)",
        "loader if CFG['quiet'] else tqdm(iterable=loader)",
        "tqdm(iterable=loader)",
    ],
)
def test_a_loop_over_one_of_two_spellings_of_a_device_loader(iterable):
    assert {code for _, code in found(CHOSEN.replace("ITERABLE", iterable))} <= {"XLA401"}


TRIED = """\
import os
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

def cores():
    try:
        return xm.xrt_world_size()
    HANDLER
"""


@pytest.mark.parametrize(
    "handler",
    [
        "except Exception:\n        return 1",
        "except Exception as error:\n        print(error)\n    return 1",
        "except:\n        pass",
        "except (ImportError, RuntimeError):\n        return 1",
        "except ImportError:\n        return 1",
    ],
)
def test_a_handler_takes_a_missing_name_for_missing_devices(handler):
    assert rows(TRIED.replace("HANDLER", handler), "XLA801") == [7]


@pytest.mark.parametrize(
    "handler",
    [
        "except AttributeError:\n        return 1",
        "except (ImportError, AttributeError):\n        return 1",
        "except Exception:\n        return xr.world_size()",
        "except Exception:\n        return getattr(xr, 'world_size')()",
        "except Exception:\n        return int(os.environ['WORLD_SIZE'])",
    ],
)
def test_a_handler_that_asks_in_another_way(handler):
    assert rows(TRIED.replace("HANDLER", handler), "XLA801") == []


def test_the_old_name_where_the_new_one_fails():
    program = TRIED.replace("xm.xrt_world_size", "xr.world_size").replace(
        "HANDLER", "except Exception:\n        return xm.xrt_world_size()"
    )
    assert rows(program, "XLA801") == []


LORA = """\
import torch_xla.distributed.xla_multiprocessing as xmp
from datasets import load_dataset
from transformers import AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

def run(index):
    tokenizer = AutoTokenizer.from_pretrained("name")
    def encode(examples):
        encoded = tokenizer(examples["text"], truncation=True, max_length=384, PADDING)
        encoded["labels"] = encoded["input_ids"].copy()
        return encoded
    data = load_dataset("texts").map(encode, batched=True)
    collate = DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=8, padding=True)
    args = TrainingArguments("out", dataloader_drop_last=True)
    Trainer(model=build(), train_dataset=data["train"], args=args, data_collator=collate).train()

if __name__ == "__main__":
    xmp.spawn(run)
"""


@pytest.mark.parametrize(
    ("padding", "told"), [("padding='max_length'", []), ("padding=False", [12])]
)
def test_a_collator_of_texts_that_all_have_one_length_already(padding, told):
    assert rows(LORA.replace("PADDING", padding), "XLA209") == told


SAVED = """\
import torch
import torch_xla

def state(model, epoch):
    HELPER

def main(model, run, path, epoch):
    model.to(torch_xla.device())
    run(model)
    SAVING
"""


@pytest.mark.parametrize(
    "saving",
    [
        "obj = {'epoch': epoch}\n    obj['model'] = model.state_dict()\n    torch.save(obj, path)",
        "obj = {}\n    if path:\n        obj['m'] = model.state_dict()\n    torch.save(obj, path)",
        "torch.save(dict(model=model.state_dict(), epoch=epoch), path)",
        "obj = dict(model=model.state_dict())\n    torch.save(obj, path)",
        "torch.save(state(model, epoch), path)",
        "obj = state(model, epoch)\n    torch.save(obj, path)",
    ],
)
def test_a_state_that_is_put_together_before_it_is_saved(saving):
    program = SAVED.replace("SAVING", saving).replace(
        "HELPER", "return {'model': model.state_dict(), 'epoch': epoch}"
    )
    assert len(rows(program, "XLA721")) == 1


@pytest.mark.parametrize(
    "saving",
    [
        "obj = {'epoch': epoch}\n    torch.save(obj, path)",
        "obj = {}\n    model.cpu()\n    obj['m'] = model.state_dict()\n    torch.save(obj, path)",
        "torch.save(dict(epoch=epoch), path)",
        "torch.save({'m': model.cpu().state_dict()}, path)",
        "torch.save(model.to('cpu').state_dict(), path)",
        "torch.save(state(model, epoch), path)",
    ],
)
def test_a_state_on_the_host(saving):
    program = SAVED.replace("SAVING", saving).replace(
        "HELPER", "return {k: v.cpu() for k, v in model.state_dict().items()}"
    )
    assert rows(program, "XLA721") == []


GENERATED = """\
import torch
import torch_xla.core.xla_model as xm
from transformers import T5ForConditionalGeneration

def validate(model, loader, device):
    model.eval()
    made = []
    with torch.no_grad():
        for batch in loader:
            ids = batch["ids"].to(device)
            made.append(MADE)

def main(loader):
    device = xm.xla_device()
    model = T5ForConditionalGeneration.from_pretrained("t5").to(DEVICE)
    validate(model, loader, device)
"""


@pytest.mark.parametrize(
    ("made", "device", "told"),
    [
        ("model.generate(input_ids=ids, max_length=150, num_beams=2)", "device", [11]),
        ("model.generate(ids, max_new_tokens=9)", "device", [11]),
        ("model.generate(ids.cpu(), max_new_tokens=9)", "'cpu'", []),
        ("model.generate(ids)", "device", [11]),
        ("model.generate(**batch.to(device), max_new_tokens=9)", "device", [11]),
        ("model.generate(ids, **settings)", "device", []),
        ("model.generate(ids, cache_implementation='static', max_length=9)", "device", []),
    ],
)
def test_generation_on_the_device(made, device, told):
    program = GENERATED.replace("MADE", made).replace("DEVICE", device)
    assert rows(program, "XLA206") == told


def test_one_sample_at_the_end_is_as_many_graphs():
    program = GENERATED.replace(
        "for batch in loader:\n            ids", "if loader:\n            ids"
    )
    made = program.replace("MADE", "model.generate(ids, max_new_tokens=9)").replace(
        "DEVICE", "device"
    )
    assert rows(made.replace("batch", "loader[0]"), "XLA206") == [11]


LOGGED = """\
import evaluate
import torch
import torch_xla
import wandb
import torch_xla.distributed.parallel_loader as pl

metric = evaluate.load("glue")

def train(model, loader, optimizer, tokenizer, lr):
    device = torch_xla.device()
    model.to(device)
    for step, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        LINES
"""


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("logs = {'loss': loss, 'lr': lr}\n        wandb.log(logs, step=step)", "XLA101"),
        ("wandb.log(dict(loss=loss))", "XLA101"),
        ("values = [loss, loss * 2]\n        torch.tensor(values)", "XLA101"),
        ("logs = {'lr': lr, 'step': step}\n        wandb.log(logs)", None),
        ("logs = {'loss': loss}\n        keep(logs)", None),
        ("tokenizer.batch_decode(y)", "XLA101"),
        ("[tokenizer.decode(one) for one in y]", "XLA101"),
        ("tokenizer.batch_decode([1, 2])", None),
        ("model.decode(y)", None),
        ("metric.add_batch(predictions=y, references=y)", "XLA101"),
        ("metric.add_batch(predictions=[1], references=[2])", None),
    ],
)
def test_what_is_logged_decoded_and_kept_is_read(lines, told):
    assert codes(LOGGED.replace("LINES", lines)) == ([told] if told else [])


TABLE = """\
import torch
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, Subset, TensorDataset, random_split

def fit(x, y, model):
    device = xm.xla_device()
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters())
    PREPARE
    for a, b in DataLoader(data, batch_size=64, drop_last=True):
        optimizer.zero_grad()
        loss = (model(a) - b).pow(2).mean()
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
        print(loss.item())
"""


@pytest.mark.parametrize(
    "prepare",
    [
        "data = TensorDataset(x.to(device), y.to(device))",
        "x, y = x.to(device), y.to(device)\n    data = TensorDataset(x, y)",
        "data = Subset(TensorDataset(x.to(device), y.to(device)), range(99))",
        "whole = TensorDataset(x.to(device), y)\n    data, rest = random_split(whole, [99, 9])",
    ],
)
def test_a_dataset_of_tensors_that_are_on_the_device(prepare):
    told = codes(TABLE.replace("PREPARE", prepare))
    assert {"XLA605", "XLA101"} <= set(told)
    assert "XLA603" not in told


@pytest.mark.parametrize(
    "prepare",
    ["data = TensorDataset(x, y)", "data = Subset(TensorDataset(torch.tensor(x), y), range(99))"],
)
def test_a_dataset_of_tensors_of_the_host(prepare):
    assert "XLA605" not in codes(TABLE.replace("PREPARE", prepare))


ONE_BY_ONE = """\
import torch
import torch_xla.core.xla_model as xm

device = xm.xla_device()
model = torch.nn.Linear(3, 1).to(device)
BEFORE
for name in NAMES:
    image = read(name).unsqueeze(0).to(device)
    with CONTEXT:
        score = model(image).max()
    print(name, score.item())
"""


@pytest.mark.parametrize(
    ("before", "context", "told"),
    [
        ("model.eval()", "torch.no_grad()", [11]),
        ("", "torch.inference_mode()", [11]),
        ("model.eval()", "open(name)", [11]),
        ("model.eval()\nmodel.train()", "open(name)", []),
        ("", "open(name)", []),
    ],
)
def test_pictures_that_are_looked_at_one_by_one(before, context, told):
    program = ONE_BY_ONE.replace("BEFORE", before or "pass").replace("CONTEXT", context)
    assert rows(program, "XLA101") == told


ALONE = (
    HEAD
    + """
def run():
    device = xm.xla_device()
    model = torch.nn.Linear(3, 3)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3 * xr.world_size())
    part = torch.utils.data.DistributedSampler(DATA, xr.world_size(), xr.global_ordinal())
    for epoch in range(2):
        part.set_epoch(epoch)
        loader = DataLoader(DATA, 8, sampler=part, drop_last=True)
        for x, y in pl.MpDeviceLoader(loader, device):
            optimizer.zero_grad()
            (model(x) - y).pow(2).mean().backward()
            xm.optimizer_step(optimizer)

def started(index, flags):
    run()

if __name__ == "__main__":
    xmp.spawn(started, args=({},), nprocs=PROCESSES)
"""
)


@pytest.mark.parametrize(("processes", "told"), [("None", ["XLA426"]), ("1", [])])
def test_one_process_has_no_other_weights(processes, told):
    assert [
        code for code in codes(ALONE.replace("PROCESSES", processes)) if code == "XLA426"
    ] == told


EXPORTED = """\
!python pytorch-xla-env-setup.py --version nightly
%matplotlib inline
import torch_xla.core.xla_model as xm

if True:
    !pip install -q timm
device = xm.xla_device()
n = xm.xrt_world_size()
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_notebook_that_was_saved_as_python_with_its_shell_lines(newline):
    text = EXPORTED.replace("\n", newline)
    data = text.encode()
    told = engine.lint(sources.from_bytes(data, "kernel.py"))
    assert [(item.locations[0].row, item.code) for item in told.findings] == [
        (1, "XLA716"),
        (7, "XLA802"),
        (8, "XLA801"),
    ]
    fixed = fixes.fix(data, "kernel.py", engine.lint).data.decode()
    assert "xr.world_size()" in fixed
    kept = [line for line in fixed.splitlines() if line.lstrip().startswith(("!", "%"))]
    assert kept == [line for line in EXPORTED.splitlines() if line.lstrip().startswith(("!", "%"))]


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("import torch_xla\n!pip install x\ndef broken(:\n", 2),
        ("import torch_xla\nx = 1 !\n", 2),
    ],
)
def test_what_is_no_python_either_way(text, row):
    assert [
        (item.locations[0].row, item.code)
        for item in engine.lint(sources.from_bytes(text.encode(), "kernel.py")).findings
    ] == [(row, "XLA001")]


CALLED_TEST = """\
import torch
import torch_xla.core.xla_model as xm

class Runner:
    def fit(self, loader, model, criterion):
        model.to(xm.xla_device())
        for epoch in range(5):
            print(CALLED)

    def test_loop_fn(self, loader, model, criterion):
        total = 0.0
        model.eval()
        for data, target in loader:
            output = model(data.to(xm.xla_device()))
            total += criterion(output, target.to(xm.xla_device())).item()
        return total
"""


@pytest.mark.parametrize(
    ("called", "told"),
    [("self.test_loop_fn(loader, model, criterion)", [15]), ("epoch", [])],
)
def test_a_method_that_tests_a_model_is_no_unit_test(called, told):
    assert rows(CALLED_TEST.replace("CALLED", called), "XLA101") == told
