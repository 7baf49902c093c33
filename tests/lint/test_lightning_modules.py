"""Modules of Lightning: bases of the program's own, helpers that log, what all cores write."""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

from xladoctor.lint import engine
from xladoctor.lint.run import Plan, lint_files


def _told(tmp_path, files, codes):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    results = lint_files(sorted(tmp_path.iterdir()), Plan(engine.LintOptions()))
    return {
        (name, item.locations[0].row, item.code)
        for name, result in zip(sorted(files), results, strict=True)
        for item in result.result.findings
        if item.code in codes
    }


def _expected(files):
    return {(name, row, code) for name, text in files.items() for row, code in marks(text)}


BASE = """
import lightning as L
import torch
from sklearn.metrics import roc_auc_score


class Task(L.LightningModule):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate
        self.kept = []

    def training_step(self, batch, number):
        loss, _ = self.compute(batch)
        return loss

    def validation_step(self, batch, number):
        loss, scores = self.compute(batch)
        self.log("val/loss", loss)  # !XLA427
        self.kept.append((scores, batch[1]))

    def on_validation_epoch_end(self):
        scores = torch.cat([one for one, _ in self.kept]).cpu().numpy()
        labels = torch.cat([one for _, one in self.kept]).cpu().numpy()
        auc = roc_auc_score(labels, scores)
        self.log("val/auc", auc)  # !XLA419 !XLA427
        print(f"auc {auc:.3f}")  # !XLA401
        self.kept.clear()

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.rate)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max")
        return {"optimizer": optimizer, "lr_scheduler": plateau, "monitor": "val/auc"}
"""
HEIR = """
import json

import torch
from torch import nn

from base import Task


class Tagger(Task):
    def __init__(self, rate):
        super().__init__(rate)
        self.body = nn.Linear(8, 1)

    def forward(self, x):
        return self.body(x)

    def compute(self, batch):
        x, y = batch
        out = self(x).squeeze(-1)
        known = y >= 0
        loss = nn.functional.binary_cross_entropy_with_logits(out[known], y[known])  # !XLA202
        if loss > 10:  # !XLA104
            keep({"loss": 10})
        return loss, torch.sigmoid(out)


def keep(numbers):
    with open("numbers.json", "w") as file:  # !XLA406
        json.dump(numbers, file)
"""
TRAIN = """
import lightning as L

from tagger import Tagger


def main():
    L.Trainer({where}, max_epochs=3).fit(Tagger(1e-3))


main()
"""
CODES = {"XLA104", "XLA202", "XLA401", "XLA406", "XLA419", "XLA427"}


def _files(where):
    return {"base.py": BASE, "tagger.py": HEIR, "train.py": TRAIN.format(where=where)}


def test_hooks_of_a_base_class_run_the_methods_of_its_heirs(tmp_path):
    files = _files('accelerator="tpu", devices=8')
    assert _told(tmp_path, files, CODES) == _expected(files)


def test_hooks_for_gpus_are_left_alone(tmp_path):
    assert _told(tmp_path, _files('accelerator="gpu", devices=8'), CODES) == set()


def test_one_core_prints_and_writes_for_itself(tmp_path):
    told = _told(tmp_path, _files('accelerator="tpu", devices=1'), CODES)
    assert {code for _, _, code in told} == {"XLA104", "XLA202"}


LOGS = """
import lightning as L
import torch
import torchmetrics
from sklearn.metrics import f1_score
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 3)
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=3)
        self.kept = []

    def shared(self, batch, stage="train"):
        x, y = batch
        out = self.net(x)
        loss = nn.functional.cross_entropy(out, y)
        self.log(f"{stage}_loss", loss, prog_bar=True)  # !XLA419 !XLA427 !XLA903
        self.log(stage + "_rate", 0.1)
        return loss, out

    def note(self, loss):
        self.log("running", loss, on_step=True, sync_dist=True)  # !XLA903

    def training_step(self, batch, number):
        return self.shared(batch)[0]

    def validation_step(self, batch, number):
        loss, out = self.shared(batch, "val")
        self.note(loss)
        self.kept.append({"loss": loss, "out": out, "y": batch[1]})
        scores = {"val_f1": f1_score(batch[1].cpu(), out.argmax(1).cpu()), "val_again": loss}
        self.log_dict(scores)  # !XLA427
        self.log_dict({"val_mean": loss}, sync_dist=True)
        self.accuracy.update(out, batch[1])

    def on_validation_epoch_end(self):
        out = torch.cat([one["out"] for one in self.kept])
        y = torch.cat([one["y"] for one in self.kept])
        whole, labels = self.all_gather(out), self.all_gather(y)
        self.log("val_whole", (whole.argmax(-1) == labels).float().mean())
        self.log("val_accuracy", self.accuracy.compute())
        f1 = f1_score(y.cpu().numpy(), out.argmax(1).cpu().numpy())
        self.log("val_f1_whole", f1)  # !XLA427
        mean = self.trainer.strategy.reduce(torch.stack([x["loss"] for x in self.kept]).mean())
        self.log("val_reduced", mean)
        self.log("epoch", float(self.current_epoch))
        self.kept.clear()

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters())
        plateau = ReduceLROnPlateau(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": plateau, "monitor": "val_loss"}


L.Trainer(accelerator="tpu", devices=8, max_epochs=3).fit(Net())
"""


def test_logs_in_helpers_and_at_the_end_of_an_evaluation():
    codes = {"XLA419", "XLA427", "XLA903"}
    told = {(row, code) for row, code in found(LOGS) if code in codes}
    assert told == marks(LOGS)


DATA = """
import lightning as L
import pandas as pd
from torch.utils.data import DataLoader, random_split


class Rows(L.LightningDataModule):
    def __init__(self, path):
        super().__init__()
        print("rows of", path)
        self.path = path

    def prepare_data(self):
        pd.read_json(self.path).to_csv("rows.csv")

    def setup(self, stage=None):
        frame = pd.read_csv("rows.csv")
        print("rows", len(frame))  # !XLA401
        self.write(frame)
        self.train, self.val = random_split(frame, [0.8, 0.2])

    def write(self, frame):
        frame.to_csv("clean.csv")  # !XLA406

    def describe(self):
        print("for whoever asks")

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=8, drop_last=True)


class Net(L.LightningModule):
    def training_step(self, batch, number):
        return self.net(batch).mean()


L.Trainer(accelerator="tpu", devices=8).fit(Net(), Rows("rows.json"))
"""


def test_data_modules_are_set_up_on_each_core():
    told = {(row, code) for row, code in found(DATA) if code in {"XLA401", "XLA406"}}
    assert told == marks(DATA)


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
    assert _told(tmp_path, files, {"XLA604"}) == (_expected(files) if told else set())


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


STAGES = """
import lightning as L
import torch
from torch import nn


class Net(L.LightningModule):
    def shared(self, batch, stage="train"):
        loss = self.net(batch["x"]).mean()
        if stage == "train":
            self.log("train_loss", loss, prog_bar=True)  # !XLA903
            self.log_dict({"loss": loss}, on_step=True)
        elif stage in ("val", "test"):
            self.log("val_loss", loss, on_step=True)  # !XLA903 !XLA427
        else:
            self.log("other", loss)
        if self.training:
            self.log("now", loss, on_step=True)
        if not self.training:
            self.log("rest", loss, prog_bar=True)  # !XLA427
        return loss

    def training_step(self, batch, number):
        return self.shared(batch)

    def validation_step(self, batch, number):
        self.shared(batch, stage="val")


L.Trainer(accelerator="tpu", devices=8).fit(Net())
"""


def test_what_is_logged_for_one_stage_is_told_for_that_stage():
    told = {(row, code) for row, code in found(STAGES) if code in {"XLA427", "XLA903"}}
    assert told == marks(STAGES)


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
