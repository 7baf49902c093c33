"""What is uploaded in each step, loaders of a program's own, and modules that never were."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from rule_helpers import codes, found, marks, rows

from xladoctor.lint import engine, run
from xladoctor.lint.engine import LintOptions
from xladoctor.lint.sources import Source

UPLOADS = """
import numpy as np
import torch
import torch.nn as nn
import torch_xla
import torch_xla.distributed.parallel_loader as pl

MEANS = [0.5, 0.25, 0.125]


class Stem(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.width = width
        self.table = torch.rand(64, 3)

    def shift(self, x):
        matrix = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [4.0, 0.0, 5.0]]).to(x)  # !XLA604
        bias = torch.tensor([4, 8, 16]).view(1, 3).type_as(x)  # !XLA604
        return x @ matrix + bias

    def forward(self, x, picked):
        rows, columns = x.shape
        step = 2 / columns
        places = torch.linspace(-1 + step, 1 - step, columns).to(x.device)  # !XLA604
        more = torch.linspace(0, self.width, 3).to(x.device)  # !XLA604
        mask = torch.zeros(rows, 3).type_as(x)  # !XLA604
        means = torch.tensor(MEANS, device=x.device)  # !XLA604
        halves = x.new_tensor([0.5, 0.5, 1.0])  # !XLA604
        listed = torch.from_numpy(np.array([1.0, 2.0, 3.0])).to(x.device)  # !XLA604
        known = self.table[:rows].to(x.device)  # !XLA604
        total = places + more + mask + means + halves + listed + known
        return self.layer(self.shift(x)) + total


def train(loader, optimizer, criterion):
    device = torch_xla.device()
    model = Stem(8).to(device)
    scale = torch.tensor([1.0, 2.0]).to(device)
    for number, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
        optimizer.zero_grad()
        ramp = torch.linspace(0, number, 3).to(device)
        turned = y.float().type_as(x)
        loss = criterion(model(x, y), turned) + ramp.sum() + scale.sum()
        loss.backward()
        optimizer.step()
"""


def test_constants_that_each_step_uploads_are_told_however_they_are_moved():
    assert {pair for pair in found(UPLOADS) if pair[1] == "XLA604"} == marks(UPLOADS)


def test_the_fix_gives_a_factory_no_tensor_for_a_device():
    result = engine.lint(Source("train.py", UPLOADS))
    edits = [
        e.content for f in result.findings if f.code == "XLA604" and f.fix for e in f.fix.edits
    ]
    assert edits
    assert not any("device=x)" in text for text in edits)


LOADERS = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader


def onto(data, device):
    if isinstance(data, (list, tuple)):
        return [onto(part, device) for part in data]
    return data.to(device)


class Moving:
    def __init__(self, loader, device):
        self.loader = loader
        self.device = device

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        for batch in self.loader:
            yield [part.to(self.device) for part in batch]  # !XLA603


class Ahead:
    def __init__(self, loader, device):
        self.batches = iter(loader)
        self.device = device

    def __iter__(self):
        return self

    def __next__(self):
        x, y = next(self.batches)
        return x.to(self.device), y.to(self.device)  # !XLA603


class Counted:
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        return iter(self.loader)


def fit(model, loader, optimizer, criterion):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
        print(loss.item())  # !XLA101


def main(dataset, model, optimizer, criterion):
    device = torch_xla.device()
    model.to(device)
    loader = DataLoader(dataset, batch_size=64, drop_last=True)
    fit(model, Moving(loader, device), optimizer, criterion)
    for number, (x, y) in enumerate(Ahead(loader, device)):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
    for x, y in Counted(loader):
        x = x.to(device)  # !XLA603
        optimizer.zero_grad()
        loss = criterion(model(x), y.to(device))
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
"""


def test_loaders_of_a_programs_own_give_what_their_iterators_yield():
    kept = {pair for pair in found(LOADERS) if pair[1] in {"XLA603", "XLA101"}}
    assert kept == marks(LOADERS)


def test_a_loader_of_its_own_over_a_device_loader_moves_nothing():
    healthy = LOADERS.replace(
        "    loader = DataLoader(dataset, batch_size=64, drop_last=True)\n",
        "    loader = pl.MpDeviceLoader(DataLoader(dataset, batch_size=64), device)\n",
    ).replace(
        "import torch_xla\n",
        "import torch_xla\nimport torch_xla.distributed.parallel_loader as pl\n",
    )
    assert rows(healthy, "XLA603") == []


GATHERED = """
import torch
import torch_xla


def train(model, optimizer, criterion, tokens, length, size):
    device = torch_xla.device()
    model.to(device)
    start = 0
    while start < 1000:
        rows = []
        for number in range(size):
            at = start + number * length
            part = tokens[at : at + length + 1]
            rows.append(part[:-1])
        x = torch.stack(rows).to(device)  # here
        optimizer.zero_grad()
        loss = criterion(model(x), x)
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        start += size * length
"""


def test_a_batch_that_is_put_together_of_cut_rows_is_one_that_is_moved():
    [row] = rows(GATHERED, "XLA603")
    assert "# here" in GATHERED.splitlines()[row - 1]
    there = GATHERED.replace("    start = 0\n", "    start = 0\n    tokens = tokens.to(device)\n")
    assert rows(there, "XLA603") == []


@pytest.mark.parametrize(
    "line",
    [
        "import torch_xla.distributed.xla_launch",
        "import torch_xla.core.device_model as dm",
        "from torch_xla.core import xla_models as xm",
        "from torch_xla.amp import bf16_autocast",
        "from torch_xla.distributed.fsdp import FullyShardedDataParallel",
        "from torch_xla import autocast",
        "from torch_xla.utils.data import DeviceLoader",
    ],
)
def test_modules_and_names_that_never_were_are_told(line):
    assert codes(line) == ["XLA801"]


@pytest.mark.parametrize(
    "line",
    [
        "import torch_xla.distributed.fsdp.wrap",
        "from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel, checkpoint_module",
        "from torch_xla.amp import autocast, syncfree",
        "from torch_xla.experimental.custom_kernel import flash_attention",
        "from torch_xla.experimental.distributed_checkpoint import CheckpointManager",
        "import torch_xla.distributed.xla_backend",
        "from torch_xla.stablehlo import exported_program_to_stablehlo",
        "from torch_xla._internal import tpu, pjrt",
        "import _XLAC",
        "from torch_xla import _XLAC",
        "from torch_xla.version import __version__",
        "from torch_xla.utils.checkpoint import checkpoint",
    ],
)
def test_modules_and_names_that_are_there_are_not(line):
    assert rows(line, "XLA801") == []


WORKERS = """
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, Dataset
from transformers import AutoTokenizer


class Texts(Dataset):
    def __init__(self, texts):
        self.texts = texts
        self.tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return self.tokenizer(self.texts[index], padding="max_length", return_tensors="pt")


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return torch.tensor(self.rows[index])


def train(model, optimizer, loader, device):
    for batch in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()


def main(texts, rows, model, optimizer):
    device = torch_xla.device()
    model.to(device)
    first = DataLoader(Texts(texts), batch_size=32, drop_last=True)  # !XLA606
    second = DataLoader(Rows(rows), batch_size=32, drop_last=True)
    third = DataLoader(Texts(texts), batch_size=32, drop_last=True, num_workers=4)
    train(model, optimizer, first, device)
    train(model, optimizer, second, device)
    train(model, optimizer, third, device)
"""


def test_a_dataset_that_tokenizes_each_text_needs_workers():
    assert {pair for pair in found(WORKERS) if pair[1] == "XLA606"} == marks(WORKERS)


COLLATED = """
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from PIL import Image
from torch.utils.data import DataLoader
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("gpt2")


def one_by_one(rows, length=128):
    out = []
    for row in rows:
        encoded = tokenizer(row["text"], padding="max_length", max_length=length, truncation=True)
        out.append(torch.tensor(encoded["input_ids"]))
    return torch.stack(out)


class Collator:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, rows):
        rows = [self.tokenizer.encode(row, max_length=64, padding="max_length") for row in rows]
        return torch.tensor(rows)


def pictures(paths, transform=None):
    return torch.stack([transform(Image.open(path)) for path in paths])


def at_once(rows):
    return tokenizer(rows, padding="max_length", max_length=128, return_tensors="pt")


def stacked(rows):
    return torch.stack([row["ids"] for row in rows])


def main(data, model, optimizer):
    device = torch_xla.device()
    model.to(device)
    loader = DataLoader(data, batch_size=8, drop_last=True, {given})
    for batch in pl.MpDeviceLoader(loader, device):
        model(batch).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("collate_fn=lambda rows: one_by_one(rows)", True),
        ("collate_fn=Collator(tokenizer)", True),
        ("collate_fn=pictures", True),
        ("collate_fn=pictures, num_workers=4", False),
        ("collate_fn=at_once", False),
        ("collate_fn=stacked", False),
    ],
)
def test_a_collate_function_that_works_on_each_sample_needs_workers(given, told):
    codes = {code for _, code in found(COLLATED.replace("{given}", given))}
    assert ("XLA606" in codes) is told


PHOTOS = """
    from PIL import Image
    from torch.utils.data import Dataset


    class Photos(Dataset):
        def __init__(self, paths, transform):
            self.paths = paths
            self.transform = transform

        def __getitem__(self, index):
            return self.transform(Image.open(self.paths[index]))
"""
FITS = """
    import torch_xla
    import torch_xla.distributed.parallel_loader as pl


    def fit(model, optimizer, loader):
        for batch in pl.MpDeviceLoader(loader, torch_xla.device()):
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
"""
STARTS = """
    import torch_xla
    from torch.utils.data import DataLoader

    from fits import fit
    from photos import Photos


    def main(args, paths, model, optimizer, transform):
        model.to(torch_xla.device())
        fit(model, optimizer, DataLoader(Photos(paths, transform), batch_size=8, drop_last=True))
"""


def test_dataset_loader_and_loop_may_stand_in_three_files(tmp_path):
    for name, text in (("photos", PHOTOS), ("fits", FITS), ("train", STARTS)):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    plan = run.Plan(LintOptions(codes=run.chosen_codes(("XLA606",), (), ())))
    results = run.lint_files(sorted(tmp_path.glob("*.py")), plan)
    told = [one for item in results if item.result is not None for one in item.result.findings]
    assert [finding.locations[0].row for finding in told] == [11]


CLOCKS = """
import time
from datetime import datetime
from timeit import default_timer

import torch_xla
import torch_xla.core.xla_model as xm


class Runner:
    def __init__(self, model, optimizer, criterion):
        self.device = torch_xla.device()
        self.model = model.to(self.device)
        self.optimizer = optimizer
        self.criterion = criterion

    def step(self, x, y):
        self.began = time.time()
        noon = datetime.now()
        early = default_timer()
        loss = self.criterion(self.model(x), y)
        loss.backward()
        xm.optimizer_step(self.optimizer, barrier=True)
        took = time.time() - self.began  # !XLA112
        whole = datetime.now() - noon  # !XLA112
        part = default_timer() - early  # !XLA112
        return took, whole, part

    def fit(self, loader):
        for x, y in loader:
            self.step(x.to(self.device), y.to(self.device))
"""


def test_every_clock_is_one():
    assert {pair for pair in found(CLOCKS) if pair[1] == "XLA112"} == marks(CLOCKS)
    waits = CLOCKS.replace("        took =", "        torch_xla.sync(wait=True)\n        took =")
    assert rows(waits, "XLA112") == []


def test_arguments_that_the_trainer_no_longer_takes_are_told():
    program = """
import torch_xla
from transformers import TrainingArguments

TrainingArguments(
    output_dir="out",
    evaluation_strategy="epoch",  # !XLA905
    no_cuda=True,  # !XLA905
    optim="adamw_torch",
)
"""
    assert {pair for pair in found(program) if pair[1] == "XLA905"} == marks(program)
    assert rows(program.replace("import torch_xla\n", ""), "XLA905") == []


FOR_GPUS = """
    import torch

    from nets import Net


    class State:
        step = 0


    class Trainer:
        def __init__(self, rank):
            torch.cuda.set_device(rank)
            self.net = Net().cuda(rank)

        def fit(self, loader, optimizer, criterion):
            scaler = torch.cuda.amp.GradScaler()
            for x, y in loader:
                with torch.cuda.amp.autocast():
                    loss = criterion(self.net(x.cuda()), y.cuda())
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
"""
FOR_TPUS = """
    import torch_xla
    import torch_xla.core.xla_model as xm

    from gpus import State
    from nets import Net


    def fit(loader, optimizer, criterion):
        state, net = State(), Net().to(torch_xla.device())
        for x, y in loader:
            loss = criterion(net(x), y)
            loss.backward()
            xm.optimizer_step(optimizer, barrier=True)
"""
NETS = """
    import torch


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x) + torch.ones(4).cuda()
"""
ON_CUDA = ("XLA703", "XLA704", "XLA706", "XLA707", "XLA708", "XLA709")


def _told(tmp_path, **files):
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    plan = run.Plan(LintOptions(codes=run.chosen_codes(ON_CUDA, (), ())))
    results = run.lint_files(sorted(tmp_path.glob("*.py")), plan)
    told = [one for item in results if item.result is not None for one in item.result.findings]
    return {(Path(item.locations[0].filename).stem, item.code) for item in told}


def test_a_script_for_gpus_beside_one_for_tpus_is_left_alone(tmp_path):
    start = "from gpus import Trainer\n\nTrainer(0).fit([], None, None)\n"
    assert _told(tmp_path, gpus=FOR_GPUS, tpus=FOR_TPUS, nets=NETS, start=start) == {
        ("nets", "XLA706")
    }


def test_a_helper_for_gpus_that_the_script_for_tpus_runs_is_told(tmp_path):
    runs = FOR_TPUS.replace("import State", "import State, Trainer").replace(
        "    for x, y in loader:",
        "    Trainer(0).fit(loader, optimizer, criterion)\n        for x, y in loader:",
        1,
    )
    told = _told(tmp_path, gpus=FOR_GPUS, tpus=runs, nets=NETS)
    assert {code for name, code in told if name == "gpus"} >= {"XLA706", "XLA707"}


def test_a_registry_that_the_script_for_tpus_alone_imports_is_told(tmp_path):
    rewards = """
        import torch


        def brightness():
            def measure(images):
                return images.cuda().mean()

            return measure
    """
    picks = """
        import torch_xla
        import rewards


        def main(name, images):
            measure = getattr(rewards, name)()
            return measure(images.to(torch_xla.device()))
    """
    assert _told(tmp_path, rewards=rewards, picks=picks) == {("rewards", "XLA706")}
    other = rewards + "\n        LIMIT = 3\n\n\n        def limit():\n            return LIMIT\n"
    only = picks.replace("import rewards", "from rewards import limit").replace(
        "getattr(rewards, name)()", "abs if limit() else name"
    )
    assert _told(tmp_path, rewards=other, picks=only) == set()


def test_what_a_factory_fills_of_the_batchs_size_is_no_batch():
    program = """
import torch
import torch_xla
from torch.utils.data import DataLoader


def places(images, device):
    count, _, height, width = images.shape
    return torch.ones(count, height * width, 3).to(device)  # !XLA604


def train(model, dataset, optimizer):
    device = torch_xla.device()
    model.to(device)
    for batch in DataLoader(dataset, batch_size=8, drop_last=True):
        images = batch["image"].to(device)  # !XLA603
        optimizer.zero_grad()
        loss = model(images, places(images, device))
        loss.backward()
        optimizer.step()
        torch_xla.sync()
"""
    assert {pair for pair in found(program) if pair[1] in {"XLA603", "XLA604"}} == marks(program)


def test_pinned_memory_of_a_script_for_gpus_is_its_own_matter(tmp_path):
    pinned = FOR_GPUS.replace(
        "from nets import Net", "from nets import Net\n    from torch.utils.data import DataLoader"
    )
    pinned = pinned.replace(
        "for x, y in loader:", "for x, y in DataLoader(loader, pin_memory=True):"
    )
    for name, text in (("gpus", pinned), ("tpus", FOR_TPUS), ("nets", NETS)):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    plan = run.Plan(LintOptions(codes=run.chosen_codes(("XLA718",), (), ())))
    results = run.lint_files(sorted(tmp_path.glob("*.py")), plan)
    assert [x for item in results if item.result is not None for x in item.result.findings] == []
