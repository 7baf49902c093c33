"""Loops of a Trainer's own, learning without gradients, one file for two kinds of devices.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, marks_in_files, told, told_in_files

XM = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
"""
TRAINER = """\
import numpy as np
import torch
import torch.nn as nn
import torch_xla.core.xla_model as xm
from transformers import Trainer


class Zeroth(Trainer):
    def _inner_training_loop(self, batch_size=None, args=None):
        batches = self.get_train_dataloader()
        model = self.model
        for step, inputs in enumerate(batches):
"""
HEBBIAN = """\
import torch
import torch_xla


class Hebbian:
    def __init__(self, size):
        self.device = torch_xla.device()
        self.weights = (torch.randn(size, size) * 0.1).to(self.device)
        self.seen = 0

    @torch.no_grad()
    def respond(self, row):
        return self.weights @ row > 1.0
"""
LINES = f"""\
{XM}
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, lines, size):
        self.rows = [line[:size] for line in lines]

    def __getitem__(self, i):
        return self.rows[i]

    def __len__(self):
        return len(self.rows)


def core():
    try:
        return xr.global_ordinal()
    except Exception:
        return 0


def fit(loader, device):
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in pl.MpDeviceLoader(loader, device):
        (model(x) - y).pow(2).mean().backward()
        xm.optimizer_step(optimizer)
        optimizer.zero_grad()


def _mp_fn(index, flags):
    torch.manual_seed(1)
    lines = open(flags.path).readlines()
"""

#: Spellings by the rules that they are about.
PROGRAMS = {
    "XLA303: the clip of a Trainer's own loop": f"""\
{TRAINER}\
            loss = self.training_step(model, inputs)
            nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)  # !XLA303
            xm.optimizer_step(self.optimizer)
            model.zero_grad()
""",
    "XLA303: a program that takes the arguments alone": f"""\
{XM}
from transformers import HfArgumentParser, TrainingArguments


def _mp_fn(index):
    args = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()[0]
    device = torch_xla.device()
    torch.manual_seed(args.seed)
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in pl.MpDeviceLoader(rows(index), device):
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)  # !XLA303
        xm.optimizer_step(optimizer)
        optimizer.zero_grad()
""",
    "XLA303: reduced before": f"""\
{TRAINER}\
            loss = self.training_step(model, inputs)
            xm.reduce_gradients(self.optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
            self.optimizer.step()
            model.zero_grad()
""",
    "XLA101 XLA102: what the methods of a Trainer give": f"""\
{TRAINER}\
            if args.zeroth:
                loss = self.zeroth_step(model, inputs)
            else:
                loss = self.training_step(model, inputs)
                xm.optimizer_step(self.optimizer)
                model.zero_grad()
            self.last = float(self.training_step(model, inputs))  # !XLA102

    def ahead(self, model, inputs):
        with torch.inference_mode():
            inputs = self._prepare_inputs(inputs)
            loss = self.compute_loss(model, inputs)
        return loss.detach()

    def zeroth_step(self, model, inputs):
        seed = np.random.randint(10000)
        there, back = self.ahead(model, inputs), self.ahead(model, inputs)
        self.slope = ((there - back) / (2 * self.args.eps)).item()  # !XLA101
        self.names = self.floating_point_ops(inputs)
        return there
""",
    "XLA101 XLA104: weights that learn without gradients": f"""\
{HEBBIAN}\

    @torch.no_grad()
    def adapt(self, row, spikes):
        self.weights = self.weights + 0.01 * torch.outer(spikes.float(), row)

    def one_batch(self, lines):
        for line in lines:
            row = torch.tensor([ord(c) / 255 for c in line]).to(self.device)
            spikes = self.respond(row)
            if spikes.any():  # !XLA104
                self.adapt(row, spikes)
            self.seen += int(spikes.sum().item())  # !XLA101

    def train(self, lines):
        for at in range(0, len(lines), 8):
            self.one_batch(lines[at : at + 8])
        print(self.weights.norm().item())
""",
    "XLA101 XLA102 XLA104: a cache of an object that nothing trains": f"""\
{HEBBIAN}\

    def extend(self, row):
        self.weights = torch.cat([self.weights, row[None]])

    def show(self, lines):
        for line in lines:
            row = torch.tensor([ord(c) / 255 for c in line]).to(self.device)
            self.extend(row)
            print(int(self.respond(row).sum().item()))
""",
    "XLA423: the meeting of each step of several batches": f"""\
{XM}

def _mp_fn(index, flags):
    device = torch_xla.device()
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    count = 0
    for i, (x, y) in enumerate(pl.MpDeviceLoader(flags.loader, device)):
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        if (i + 1) % flags.every == 0:
            xm.optimizer_step(optimizer)
            optimizer.zero_grad()
            count += 1
            if count > 0:
                mean = xm.mesh_reduce("loss", loss, sum)  # !XLA423
            if count % 50 == 0:
                rare = xm.mesh_reduce("rare", loss, sum)
            if flags.verbose:
                told = xm.mesh_reduce("told", loss, sum)


xmp.spawn(_mp_fn, args=(None,))
""",
    "XLA404 XLA423 XLA319 XLA315: cores that a thread starts": f"""\
import threading
from functools import partial

{XM}

class Manager:
    def __init__(self, model, rows, nprocs: int = 8):
        self.model, self.rows, self.nprocs = model, rows, nprocs

    def run(self):
        start = partial(xmp.spawn, self.runner, nprocs=self.nprocs)  # !XLA404
        threading.Thread(target=start, daemon=True).start()

    def runner(self, index):
        device = torch_xla.device()
        model = self.model.to(device)
        batches = iter(pl.MpDeviceLoader(self.rows, device))
        xm.rendezvous("begun")
        while True:
            xm.rendezvous("before the step")  # !XLA423
            total = 0.0
            for i in range(self.grad_accumulation_steps):
                loss = model(next(batches)).mean()
                loss.backward()
                total += loss
            grads = [p.grad for p in model.parameters()]
            xm.all_reduce(xm.REDUCE_SUM, grads)
            xm.do_on_ordinals(print, data=tuple(grads))  # !XLA423
            model.zero_grad()
""",
    "XLA404: a partial of something else": f"""\
from functools import partial

{XM}

def _mp_fn(index, rows):
    print(index, rows)


start = partial(xmp.spawn, _mp_fn, args=([],), nprocs=None)
pool = partial(Pool, _mp_fn, nprocs=8)
""",
    "XLA402: samples that were shared out two lines before": f"""\
{LINES}
    rank = core()
    lines = lines[rank :: xr.world_size()]
    mine = Rows(lines, 32)
    fit(DataLoader(mine, batch_size=8, drop_last=True), torch_xla.device())


xmp.spawn(_mp_fn, args=(None,))
""",
    "XLA402: samples that are said to be shared out": f"""\
{LINES}
    if flags.sharded_by_folder:
        rows = Rows(lines, 32)
        fit(DataLoader(rows, batch_size=8, drop_last=True), torch_xla.device())


xmp.spawn(_mp_fn, args=(None,))
""",
    "XLA405 XLA420: an error ends all cores": f"""\
{XM}

def _mp_fn(index, flags):
    device = torch_xla.device()
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for i, (x, y) in enumerate(pl.MpDeviceLoader(flags.loader, device)):
        loss = (model(x) - y).pow(2).mean()
        if torch.isnan(loss):
            raise ValueError("not a number")
        loss.backward()
        xm.optimizer_step(optimizer)
        optimizer.zero_grad()
        if flags.debug:
            break
        if loss > 100:
            break  # !XLA420


xmp.spawn(_mp_fn, args=(None,))
""",
    "XLA402: samples of which nobody gets a part": f"""\
{LINES}
    rows = Rows(lines, 32)
    fit(DataLoader(rows, batch_size=8, drop_last=True), torch_xla.device())  # !XLA402


xmp.spawn(_mp_fn, args=(None,))
""",
    "XLA108: the last rows, as many as the batch says": f"""\
{XM}

def train(loader, model, optimizer):
    for ids, lengths in pl.MpDeviceLoader(loader, torch_xla.device()):
        out, parts = model(ids), []
        for i, length in enumerate(lengths):
            parts.append(out[i, -length:])  # !XLA108
            parts.append(out[i, -3:] + out[i, -ids.shape[1] :])
        torch.cat(parts).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
""",
    "XLA305: moved if there is a device": f"""\
{XM}

class Squares(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        return (self.model(x) - y).pow(2).mean()


def make_optimizer(model):
    return torch.optim.AdamW(model.parameters())  # !XLA305


def fit_epoch(criterion, batches, optimizer, *, device=None):
    if device is not None:
        criterion.model.to(device)
    for x, y in batches:
        optimizer.zero_grad()
        criterion(x, y).backward()
        optimizer.step()


def fit(index, rows):
    device = torch_xla.device()
    model = torch.nn.Linear(4, 4)
    optimizer = make_optimizer(model)
    fit_epoch(Squares(model), pl.MpDeviceLoader(rows, device), optimizer, device=device)
""",
    "XLA305: moved if somebody asks for it": f"""\
{XM}

def make_optimizer(model):
    return torch.optim.AdamW(model.parameters())


def fit_epoch(model, batches, optimizer, device, late=False):
    if late:
        model.to(device)
    for x, y in batches:
        optimizer.zero_grad()
        (model(x) - y).pow(2).mean().backward()
        optimizer.step()


def fit(index, rows):
    device = torch_xla.device()
    model = torch.nn.Linear(4, 4)
    optimizer = make_optimizer(model)
    fit_epoch(model, pl.MpDeviceLoader(rows, device), optimizer, device)
""",
    "XLA201: sizes that come of what was read": f"""\
{XM}

def tables(ids, size=None, most=100):
    rows = int(torch.max(ids).item()) + 1 if size is None else int(size)
    few = min(round(ids.min().item()), most)
    fixed = min(most, ids.shape[0]) + 1
    wide = torch.zeros(rows, device=ids.device)  # !XLA201
    some = torch.zeros(few, device=ids.device)  # !XLA201
    return wide, some, torch.zeros(fixed, device=ids.device)


def train(loader, model, optimizer):
    for ids in pl.MpDeviceLoader(loader, torch_xla.device()):
        model(ids, *tables(ids)).backward()
        optimizer.step()
        optimizer.zero_grad()
""",
    "XLA801: the second of two ways to ask": f"""\
{XM}
import torch_xla.runtime as xr


def cores():
    try:
        return xr.world_size()
    except Exception:
        try:
            return xm.xrt_world_size()
        except Exception:
            return 1


def core():
    try:
        return xm.get_ordinal()  # !XLA801
    except Exception:
        return 0
""",
}

LOSSES = """\
import torch
import torch.nn as nn
import torch.nn.functional as F


class Smooth(nn.Module):
    def __init__(self, model, smoothing):
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, inputs, labels):
        logits = self.model(**inputs).logits
        target = torch.full(labels.shape + (9,), self.smoothing).to(labels.device)  # !XLA604
        return -(F.log_softmax(logits, dim=-1) * target).sum()
"""
ROWS = """\
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, config, data):
        self.config, self.data = config, data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i]

    def collate(self, batch, device=None):
        if device is None:
            device = self.config.device
        ids = torch.LongTensor(batch)
        return {"inputs": {"input_ids": ids.to(device)}, "labels": ids[:, 1:].to(device)}  # !XLA605


def make_loader(config, data, device=None):
    rows = Rows(config, data)
    return DataLoader(rows, batch_size=8, collate_fn=lambda b: rows.collate(b, device))
"""
FIT = """\
import torch
from losses import Smooth
from rows import make_loader
from transformers import BartForConditionalGeneration


def load_model(config):
    return BartForConditionalGeneration.from_pretrained(config.name)


def fit_epoch(batches, criterion, optimizer, *, quiet=False):
    total = 0
    for step, inputs in enumerate(batches):
        loss = criterion(**inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()  # !XLA101
        if not quiet:
            print(f"{step} {loss}")  # !XLA103
    return total / len(batches.dataset)  # !XLA422


def fit(config):
    device = torch.device("cpu") if config.cpu else torch.device("cuda:0")
    model = load_model(config).to(device)
    loader = make_loader(config, config.data, device)
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(3):
        fit_epoch(loader, Smooth(model, 0.1), optimizer)


if __name__ == "__main__":
    fit(configure())
"""
FIT_XLA = """\
import torch
import torch_xla
from fit import fit_epoch, load_model
from losses import Smooth
from rows import make_loader
from torch_xla.distributed.parallel_loader import ParallelLoader


def xla_fit(index, config):
    device = torch_xla.device()
    model = load_model(config).to(device)
    loader = make_loader(config, config.data, device)
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(3):
        loader = ParallelLoader(loader, [device]).per_device_loader(device)  # !XLA415
        fit_epoch(batches=loader, criterion=Smooth(model, 0.1), optimizer=optimizer)
"""
NETS = """\
import torch.nn as nn

decoder = nn.Sequential(nn.Conv2d(3, 3, 3), nn.ReLU())
encoder = nn.Sequential(nn.Conv2d(3, 3, 3), nn.ReLU())


def make():
    return nn.Sequential(nn.Conv2d(3, 3, 3), nn.ReLU())
"""
RUN = f"""\
import copy
import nets
{XM}

def load(device):
    decoder = nets.decoder
    decoder.load_state_dict(torch.load("decoder.pth"))
    decoder.to(device).eval()  # !XLA424
    return decoder, copy.deepcopy(nets.encoder).to(device), nets.make().to(device)


def _mp_fn(index, rows):
    torch.manual_seed(1)
    device = torch_xla.device()
    decoder, encoder, net = load(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(rows, device):
        optimizer.zero_grad()
        (net(x) - decoder(encoder(x))).pow(2).mean().backward()
        xm.optimizer_step(optimizer)


xmp.spawn(_mp_fn, args=([],))
"""
#: Files of a project by the rules that they are about.
PROJECTS = {
    "XLA424: the models of an imported module": {"nets.py": NETS, "run.py": RUN},
    "XLA101 XLA103 XLA415 XLA422 XLA604 XLA605: a script for GPUs has what this one runs": {
        "losses.py": LOSSES, "rows.py": ROWS, "fit.py": FIT, "fit_xla.py": FIT_XLA,
    },
    "XLA101 XLA103 XLA415 XLA422 XLA604 XLA605: the program for GPUs alone": {
        name: text.replace("# !", "# ")
        for name, text in {"losses.py": LOSSES, "rows.py": ROWS, "fit.py": FIT}.items()
    },
    "XLA415: a device loader with a name of its own": {
        "losses.py": LOSSES, "rows.py": ROWS, "fit.py": FIT,
        "fit_xla.py": FIT_XLA.replace("        loader = P", "        fed = P")
        .replace("batches=loader", "batches=fed").replace("# !XLA415", ""),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_told_where_it_is(name):
    assert told(name, PROGRAMS[name]) == marks(PROGRAMS[name])


@pytest.mark.parametrize("name", PROJECTS)
def test_over_the_files_of_a_project(name, tmp_path):
    asked = name.partition(":")[0].split()
    files = PROJECTS[name]
    assert told_in_files(tmp_path, files, asked) == marks_in_files(files, asked)
