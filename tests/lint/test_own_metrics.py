"""Metrics that a program builds on torchmetrics, which bring themselves together."""

from __future__ import annotations

import pytest
from rule_helpers import codes

NET = """
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
import torchmetrics
from torchmetrics import Metric


class Overlap({base}):
    def __init__(self):
        super().__init__()
        self.{add}("hits", default=torch.tensor(0.0), dist_reduce_fx="sum")
        self.{add}("seen", default=torch.tensor(0), dist_reduce_fx="sum")

    def keep(self, name, default, dist_reduce_fx):
        self.register_buffer(name, default)

    def update(self, guesses, truths):
        self.hits += (guesses == truths).float().sum()
        self.seen += truths.numel()

    def compute(self):
        share = self.hits / self.seen
        return {answer}


class Finer(Overlap):
    pass


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        self.overlap = {made}()

    def training_step(self, batch, index):
        x, y = batch
        return F.cross_entropy(self.layer(x), y)

    def validation_step(self, batch, index):
        x, y = batch
        self.overlap.update(self.layer(x).argmax(1), y)

    def on_validation_epoch_end(self):
        {lines}
        self.overlap.reset()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main(rows):
    trainer = pl.Trainer(accelerator="tpu", devices=8)
    trainer.fit(Net(), rows)
"""

ANSWERS = [
    ("share", 'self.log("overlap", self.overlap.compute())'),
    ("share", 'share = self.overlap.compute()\n        self.log("overlap", share.detach())'),
    ("(share, self.hits)", 'share, _ = self.overlap.compute()\n        self.log("overlap", share)'),
    ('{"share": share}', 'self.log("overlap", self.overlap.compute()["share"])'),
    ("share", 'self.log_dict({"overlap": self.overlap.compute()})'),
]


def program(base, made, answer, lines, add="add_state"):
    text = NET.replace("{base}", base).replace("{made}", made).replace("{add}", add)
    return text.replace("{answer}", answer).replace("{lines}", lines)


@pytest.mark.parametrize(("answer", "lines"), ANSWERS)
@pytest.mark.parametrize(
    ("base", "made"),
    [("Metric", "Overlap"), ("torchmetrics.Metric", "Overlap"), ("Metric", "Finer")],
)
def test_metrics_built_on_torchmetrics_ask_all_cores(base, made, answer, lines):
    assert "XLA427" not in codes(program(base, made, answer, lines))


@pytest.mark.parametrize(("answer", "lines"), ANSWERS)
def test_what_a_module_counts_by_itself_is_of_one_core(answer, lines):
    text = program("torch.nn.Module", "Overlap", answer, lines, add="keep")
    assert "XLA427" in codes(text)


def test_what_an_update_returns_is_of_one_core():
    text = program("Metric", "Overlap", "share", "pass").replace(
        "self.overlap.update(self.layer(x).argmax(1), y)",
        'self.log("hits", (self.layer(x).argmax(1) == y).float().mean())',
    )
    assert "XLA427" in codes(text)


MOVED = """
import torch
import torch.distributed as dist
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_backend
import torchmetrics
from torchmetrics.classification import MulticlassAccuracy


def train(net, loader, optimizer):
    {start}
    rank = dist.get_rank()
    device = torch_xla.device()
    net.to(device)
    accuracy = {made}
    for at, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
        optimizer.zero_grad()
        out = net(x)
        torch.nn.functional.cross_entropy(out, y).backward()
        xm.optimizer_step(optimizer)
        accuracy.update(out.argmax(1), y)
    {lines}


if __name__ == "__main__":
    from mine.setup import net, loader, optimizer
    train(net, loader, optimizer)
"""
GROUP = 'dist.init_process_group("xla")'


def moved(made, lines, start=GROUP):
    text = MOVED.replace("{made}", made).replace("{lines}", lines)
    return codes(text.replace("{start}", start))


@pytest.mark.parametrize(
    "made",
    [
        "MulticlassAccuracy(10).to(device)",
        'torchmetrics.Accuracy(task="multiclass", num_classes=10).to(device)',
        "MulticlassAccuracy(num_classes=10)\n    accuracy.to(device)",
        "MulticlassAccuracy(num_classes=10)\n    accuracy = accuracy.to(device)",
    ],
)
def test_a_metric_that_is_moved_still_checks_its_labels(made):
    assert "XLA109" in moved(made, "accuracy.compute()")


def test_a_moved_metric_that_is_given_scores_reads_nothing():
    made = "MulticlassAccuracy(10).to(device)"
    program = MOVED.replace("out.argmax(1)", "out").replace("{made}", made)
    program = program.replace("{lines}", "accuracy.compute()").replace("{start}", GROUP)
    assert "XLA109" not in codes(program)


def test_a_moved_metric_that_checks_nothing_is_left_alone():
    made = "MulticlassAccuracy(10, validate_args=False).to(device)"
    assert "XLA109" not in moved(made, "accuracy.compute()")


@pytest.mark.parametrize(
    "lines",
    [
        "if dist.get_rank() == 0:\n        print(accuracy.compute())",
        "if xm.is_master_ordinal():\n        print(float(accuracy.compute()))",
        "if xm.get_ordinal() != 0:\n        return\n    print(accuracy.compute())",
        "share = accuracy.compute() if xm.is_master_ordinal() else 0\n    return share",
    ],
)
@pytest.mark.parametrize("made", ["MulticlassAccuracy(10).to(device)", "MulticlassAccuracy(10)"])
def test_a_metric_asked_by_one_core_waits_for_all(made, lines):
    assert "XLA405" in moved(made, lines)


@pytest.mark.parametrize(
    ("made", "lines", "start"),
    [
        # All cores ask, one prints.
        (
            "MulticlassAccuracy(10)",
            "share = accuracy.compute()\n    if dist.get_rank() == 0:\n        print(share)",
            GROUP,
        ),
        # The answer is kept.
        (
            "MulticlassAccuracy(10)",
            "best = accuracy.compute()\n    if rank == 0:\n        print(best, accuracy.compute())",
            GROUP,
        ),
        # Each core counts for itself.
        (
            "MulticlassAccuracy(10, sync_on_compute=False)",
            "if dist.get_rank() == 0:\n        print(accuracy.compute())",
            GROUP,
        ),
        # Without a process group nobody is asked.
        (
            "MulticlassAccuracy(10)",
            "if xm.is_master_ordinal():\n        print(accuracy.compute())",
            "pass",
        ),
        # Of another kind.
        (
            "Counter()",
            "if dist.get_rank() == 0:\n        print(accuracy.compute())",
            GROUP,
        ),
    ],
)
def test_metrics_that_wait_for_nobody_are_left_alone(made, lines, start):
    assert "XLA405" not in moved(made, lines, start)


TABLE = """
import lightning as L
import torch
from torchmetrics import Metric
{imports}


class Distance({base}):
    def __init__(self):
        super().__init__()
        self.add_state("total", default=torch.tensor(0.0), dist_reduce_fx="sum")

    def {method}(self, guesses: torch.Tensor, truths: torch.Tensor):
        self.total += {counted}

    def compute(self):
        return self.total


class Net(L.LightningModule):
    def __init__(self, kinds):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        {made}

    def training_step(self, batch, index):
        x, y = batch
        out = self.layer(x)
        {used}
        return out.sub(y).pow(2).mean()


def main(rows, kinds):
    L.Trainer(accelerator="tpu", devices=8).fit(Net(kinds), rows)
"""
MADE = """table = {"distance": Distance}
        self.metrics = torch.nn.ModuleDict({name: table[name]() for name in kinds})"""
USED = """for name in self.metrics:
            self.log(name, self.metrics[name](out.detach(), y))"""
READS = "(guesses - truths).abs().mean().item()"


def table(counted=READS, *, base="Metric", method="update", made=MADE, used=USED, imports=""):
    text = TABLE.replace("{made}", made).replace("{used}", used).replace("{imports}", imports)
    text = text.replace("{base}", base).replace("{method}", method)
    return codes(text.replace("{counted}", counted))


@pytest.mark.parametrize("made", [MADE, "self.metrics = kinds.metrics"])
def test_a_metric_of_a_table_counts_each_batch(made):
    assert "XLA101" in table(made=made)
    assert "XLA101" not in table("(guesses - truths).abs().mean()", made=made)


@pytest.mark.parametrize(
    "changed",
    [
        {"base": "torch.nn.Module"},
        {"method": "report"},
        # What it is given is to be seen.
        {"made": "self.distance = Distance()", "used": "self.distance.update(HOST, HOST)"},
    ],
)
def test_other_methods_and_metrics_in_sight_are_what_they_are(changed):
    assert "XLA101" not in table(**changed, imports="HOST = torch.ones(3)")
