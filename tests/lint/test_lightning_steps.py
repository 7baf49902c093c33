"""What runs in each step of a Lightning module, and on what: hooks, batches, layers, settings."""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, marks_in_files, told_in_files

CHECKED = """
import torch
from torch import nn
import lightning as L

LEVELS = 3


def pooled(hidden, lengths, dim=1):
    if dim == 1:
        return hidden[torch.arange(hidden.size(0)), lengths - 1]  # !XLA604
    return hidden.mean(dim)


def picked(x, y, how=0):
    if how == 0:
        return x[y > 0]  # !XLA202
    return x


class Head(nn.Module):
    def __init__(self, levels, every):
        super().__init__()
        self.levels = levels
        self.every = every
        self.calls = 0

    def forward(self, x, y):
        self.calls += 1
        if len(y) != LEVELS:
            raise ValueError("another number of levels")
        if self.levels == 3:
            x = x[y > 0]  # !XLA202
        elif self.levels == 2:
            x = x[y > 1]  # !XLA202
        if self.calls == 10:
            torch.save(x.mean().item(), "mean.pt")
        if self.calls % self.every == 0:
            torch.save(x.mean().item(), "mean.pt")
        return x


class Net(L.LightningModule):
    def __init__(self, size):
        super().__init__()
        self.net = nn.Linear(3, 3)
        self.head = Head(3, 50)
        self.size = size

    def training_step(self, batch, number):
        x, y = batch
        if len(x) != self.size:
            raise ValueError("another batch size")
        out = self.head(self.net(x), y)
        if number == 0:
            torch.save(out.mean().item(), "first.pt")
        if self.global_step == 100:
            torch.save(out.mean().item(), "later.pt")
        if number + 1 == len(self.trainer.train_dataloader):
            torch.save(out.mean().item(), "last.pt")
        loss = pooled(out, y).mean() + picked(out, y).sum()
        if loss.item() > 3:  # !XLA101
            loss = loss / 2
        return loss


L.Trainer(accelerator="tpu", devices=1).fit(Net(3))
"""


def test_settings_and_checks_do_not_count_steps():
    codes = {"XLA101", "XLA202", "XLA604"}
    told = {(row, code) for row, code in found(CHECKED) if code in codes}
    assert told == marks(CHECKED)


@pytest.mark.parametrize(
    "test", ["step == 0", "i == every - 1", "len(seen) == limit", "not step % 50", "turn == 3"]
)
def test_counts_are_no_settings(test):
    program = f"""
    import torch_xla

    def train(loader, model, optimizer, every, limit):
        device = torch_xla.device()
        model.to(device)
        step = turn = 0
        seen = []
        for i, x in enumerate(loader):
            loss = model(x.to(device)).mean()
            loss.backward()
            optimizer.step()
            torch_xla.sync()
            seen.append(i)
            if {test}:
                print(loss.item())
            step += 1
            turn += 1
    """
    assert "XLA101" not in {code for _, code in found(program)}


LAYERS = """
import torch
from torch import nn

try:
    from apex.{module} import {name} as Norm
except ImportError:
    from torch.nn import LayerNorm as Norm


class Places(nn.Embedding):
    def forward(self, ids):
        return super().forward(torch.arange(ids.shape[1]).to(ids.device))  # !XLA604


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.places = Places(10, 4)
        self.norm = Norm(4)

    def forward(self, ids):
        return self.norm(self.places(ids))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()

    def forward(self, ids):
        return self.encoder(ids)
"""
LAYERS_TRAIN = """
import lightning as L

from layers import Tagger


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Tagger()

    def training_step(self, batch, number):
        return self.net(batch["ids"]).mean()


L.Trainer(accelerator="tpu", devices=1).fit(Net())
"""


@pytest.mark.parametrize(
    ("module", "name", "told"),
    [("normalization", "FusedLayerNorm", True), ("parallel", "DistributedDataParallel", False)],
)
def test_layers_of_apex_do_not_make_a_model_one_for_gpus(tmp_path, module, name, told):
    layers = LAYERS.replace("{module}", module).replace("{name}", name)
    files = {"layers.py": layers, "train.py": LAYERS_TRAIN}
    assert told_in_files(tmp_path, files, {"XLA604"}) == (marks_in_files(files) if told else set())


BATCHES = """
import lightning as L
import torch
from torch import nn


class Known(nn.Module):
    def known(self, targets, scores):
        told = targets >= 0
        return torch.masked_select(targets, told), scores[told]  # !XLA201 !XLA202

    def __call__(self, targets, scores, stage=None, **rest):
        labels, kept = self.known(targets, scores)
        return (labels - kept).mean()


class Around(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def __call__(self, x):
        return super().__call__(x) * 2

    def forward(self, x):
        return self.lin(x[x.sum(1) > 0])  # !XLA202


def scored(ids, mask, **rest):
    return ids[mask > 0].mean()  # !XLA202


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Around()
        self.losses = {"one": Known(), "two": Known()}

    def all_losses(self, stage=None, **parts):
        return sum(loss(stage=stage, **parts) for loss in self.losses.values())

    def training_step(self, batch, number):
        parts = {"targets": batch["y"], "scores": self.net(batch["x"])}
        return self.all_losses(stage="train", **parts) + scored(**batch)


L.Trainer(accelerator="tpu", devices=1).fit(Net())
"""


def test_what_a_batch_holds_is_handed_on_by_names():
    told = {(row, code) for row, code in found(BATCHES) if code in {"XLA201", "XLA202"}}
    assert told == marks(BATCHES)
    assert not found(BATCHES.replace('accelerator="tpu"', 'accelerator="gpu"'))


HOOKS = """
import lightning as L
import torch
from torch import nn


class Pool(nn.Module):
    def forward(self, hidden, mask):
        lengths = mask.sum(1).tolist()  # !XLA101
        rows = [row[:n].mean(0) for row, n in zip(hidden, lengths)]  # !XLA201
        for i, (row, n) in enumerate(zip(hidden, mask.sum(1).tolist())):  # !XLA101
            rows[i] = rows[i] + row[:n].sum(0)  # !XLA201
        for i, (row, few) in enumerate(zip(hidden, (3, 4))):
            rows[i] = rows[i] + row[:few].sum(0)
        return torch.stack(rows)


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 3)
        self.pool = Pool()

    def on_after_batch_transfer(self, batch, number):
        if batch["x"].sum() > 0:  # !XLA104
            batch["x"] = batch["x"] / 2
        return batch

    def on_train_batch_start(self, batch, number):
        if number % 100 == 0:
            self.first = batch["x"][0].tolist()

    def transfer_batch_to_device(self, batch, device, number):
        if batch["x"].sum() > 0:
            batch["x"] = batch["x"] / 2
        return super().transfer_batch_to_device(batch, device, number)

    def training_step(self, batch, number):
        return self.pool(self.net(batch["x"]), batch["mask"]).mean()

    def on_before_optimizer_step(self, optimizer):
        named = self.named_parameters()
        norms = {name: p.grad.norm().item() for name, p in named if p.grad is not None}  # !XLA101
        total = nn.utils.clip_grad_norm_(self.parameters(), 1.0)
        if torch.isfinite(total):  # !XLA104
            self.trainer.logger.log_metrics(norms)

    def on_fit_start(self):
        self.sizes = {name: p.norm().item() for name, p in self.named_parameters()}


L.Trainer(accelerator="tpu", devices=1).fit(Net())
"""


def test_hooks_get_the_module_and_its_batch_on_the_device():
    codes = {"XLA101", "XLA104", "XLA201"}
    told = {(row, code) for row, code in found(HOOKS) if code in codes}
    assert told == marks(HOOKS)
    assert not found(HOOKS.replace('accelerator="tpu"', 'accelerator="gpu"'))


SEVERAL = """
import lightning as L
import torch


class Gan(L.LightningModule):
    def training_step(self, batch, number, optimizer_idx):
        x, y = batch
        if optimizer_idx == 0:
            return self.generator(x[y > 0]).mean()  # !XLA202
        if optimizer_idx == 1:
            return self.critic(x[y > 1]).mean()  # !XLA202

    def validation_step(self, batch, number, dataloader_idx=0):
        x, y = batch
        if dataloader_idx == 0:
            self.scores = x[y > 0]  # !XLA202
        if number == 0:
            self.first = x[y > 0]


L.Trainer(accelerator="tpu", devices=1).fit(Gan())
"""


def test_each_batch_goes_to_each_optimizer():
    told = {(row, code) for row, code in found(SEVERAL) if code == "XLA202"}
    assert told == marks(SEVERAL)


LAYERED = """
import lightning as L
from torch import nn


class Net(L.LightningModule):
    def __init__(self, blocks=3):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(3, 3) for _ in range(blocks)])

    def forward(self, x):
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i == 0:
                x = x * x[x > 0].mean()  # !XLA202
            if i == len(self.blocks) - 1:
                x = x + x[x > 1].mean()  # !XLA202
            if i % 2 == 0:
                x = x + x[x > 2].mean()  # !XLA202
        for k in range(4):
            if k == 2:
                self.middle = x.mean().item()  # !XLA101
        return x

    def training_step(self, batch, number):
        out = self(batch["x"])
        if number == 0:
            self.first = out.mean().item()
        return out.mean()


L.Trainer(accelerator="tpu", devices=1).fit(Net())
"""


def test_each_step_comes_to_the_first_layer():
    told = {(row, code) for row, code in found(LAYERED) if code in {"XLA101", "XLA202"}}
    assert told == marks(LAYERED)


def test_first_batch_of_a_loop_is_one_of_many():
    program = """
    import torch_xla

    def train(loader, model, optimizer, epochs):
        device = torch_xla.device()
        model.to(device)
        for epoch in range(epochs):
            for i, x in enumerate(loader):
                loss = model(x.to(device)).mean()
                loss.backward()
                optimizer.step()
                torch_xla.sync()
                if i == 0:
                    print(loss.item())
                if epoch == 0 and i % 10 == 0:
                    print(loss.item())
    """
    assert "XLA101" not in {code for _, code in found(program)}
