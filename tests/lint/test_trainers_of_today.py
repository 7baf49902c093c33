"""Classes on the Trainer of transformers: what it lost, what it does seldom, where it runs."""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks

LOST = """
import torch_xla
import transformers
from accelerate import utils as tools
from transformers import Trainer, utils


class Scorer(Trainer):
    def __init__(self, *args, tokenizer=None, **kwargs):
        super().__init__(*args, tokenizer=tokenizer, **kwargs)  # !XLA905

    def evaluate(self, loader):
        loop = self.prediction_loop if self.args.legacy else self.evaluation_loop  # !XLA905
        super()._log({})  # !XLA905
        if transformers.is_torch_tpu_available():  # !XLA905
            print("a TPU")
        if utils.is_torch_tpu_available():  # !XLA905
            print("a TPU")
        if tools.is_tpu_available():  # !XLA906
            print("a TPU")
        return loop
"""

KEPT = """
import torch_xla
import transformers
from parts import BaseTrainer
from transformers import Trainer


class Scorer(Trainer):
    def __init__(self, *args, tokenizer=None, **kwargs):
        super().__init__(*args, processing_class=tokenizer, **kwargs)

    def prediction_loop(self, loader):
        return loader

    def evaluate(self, loader):
        self.inner.prediction_loop(loader)
        return self.prediction_loop(loader)


class Other(BaseTrainer):
    def __init__(self, tokenizer):
        super().__init__(tokenizer=tokenizer)


def asks():
    if hasattr(transformers, "is_torch_tpu_available"):
        return transformers.is_torch_tpu_available()
    return False
"""


def test_what_the_trainer_lost_is_told_where_a_class_on_it_asks():
    assert {one for one in found(LOST) if one[1] in {"XLA905", "XLA906"}} == set(marks(LOST))


def test_what_a_class_defines_itself_or_asks_with_care_is_left_alone():
    assert "XLA905" not in codes(KEPT)


SELDOM = """
import torch_xla.core.xla_model as xm
from transformers import Trainer


class Watcher(Trainer):
    def compute_loss(self, model, inputs):
        loss = model(**inputs).loss
        if self.control.should_log:
            self.log({"loss": loss.item()})
        self.seen = loss.item()  # !XLA101
        return loss

    def _maybe_log_save_evaluate(self, tr_loss, grad_norm, model, trial, epoch):
        self.norms.append(grad_norm.item())  # !XLA101
        self.sums.append(float(tr_loss))  # !XLA102
        if self.control.should_log and self.state.global_step > self.last:
            xm.mark_step()
            logs = {"loss": tr_loss.item(), "lr": self._get_learning_rate()}
            if grad_norm is not None:
                logs["grad_norm"] = grad_norm.item()
            self.log(logs)
"""


def test_what_the_trainer_does_when_it_logs_is_not_done_in_each_step():
    asked = {"XLA101", "XLA102", "XLA103", "XLA113"}
    assert {one for one in found(SELDOM) if one[1] in asked} == set(marks(SELDOM))


ON_EACH_CORE = """
import torch_xla.core.xla_model as xm
from transformers import Trainer


class Report(Trainer):
    def train(self, path=None):
        total = self.args.train_batch_size * xm.xrt_world_size()
        print("samples", total)  # !XLA401
        return super().train(path)

    def evaluate_and_show(self, step):
        print("metrics", self.evaluate())  # !XLA401
        self.tokenizer.save_pretrained(self.args.output_dir)  # !XLA406
        if self.is_world_process_zero():
            print("only once")
        name = f"{self.args.output_dir}/rank-{xm.get_ordinal()}.txt"
        print(f"written to {name}")

    @staticmethod
    def usage():
        print("report.py FILE")
"""


def test_a_trainer_that_asks_for_the_cores_runs_on_each():
    asked = {"XLA401", "XLA406"}
    assert {one for one in found(ON_EACH_CORE) if one[1] in asked} == set(marks(ON_EACH_CORE))


def test_one_that_asks_for_none_may_run_alone():
    alone = ON_EACH_CORE.replace("xm.xrt_world_size()", "1").replace("xm.get_ordinal()", "0")
    assert not {"XLA401", "XLA406"} & set(codes(alone))


DUE = """
import torch
import torch_xla.core.xla_model as xm
from accelerate import Accelerator


def main(net, optimizer, train_loader, test_loader, args):
    accelerator = Accelerator()
    net, optimizer, train_loader, test_loader = accelerator.prepare(
        net, optimizer, train_loader, test_loader
    )
    losses = []
    for step, batch in enumerate(train_loader):
        loss = net(batch).mean()
        losses.append(loss.detach())
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if step % args.often == 0:
            accelerator.print(loss.item())  # !XLA113
        if step % args.every == 0:
            accelerator.wait_for_everyone()
            kept = torch.stack(losses[-5:])
            accelerator.print(kept.mean().item())
        if step % args.seldom == 0:
            scores = []
            mean = torch.stack(losses[-5:]).mean()
            for one in test_loader:
                with torch.no_grad():
                    scores.append(net(one).mean())
            total = torch.stack(scores).mean()
            accelerator.print(total.item(), mean.item())
"""


def test_behind_a_meeting_or_an_evaluation_nothing_of_the_step_is_pending():
    assert {one for one in found(DUE) if one[1] == "XLA113"} == set(marks(DUE))


@pytest.mark.parametrize(
    "path",
    [
        'os.path.join(folder, "losses.npz")',
        'f"losses_{done}.npz"',
        'f"losses_{first * math.ceil(len(loader) / args.every)}.npz"',
    ],
)
def test_counters_name_the_same_file_on_every_core(path: str):
    program = f"""
import math, os
import numpy as np
import torch_xla


def run(index, args, loader):
    done = 0
    first = int(args.resume.replace("step_", "")) if args.resume else 0
    for batch in loader:
        done += 1
        folder = f"step_{{done}}"
        if args.out is not None:
            folder = os.path.join(args.out, folder)
        name = {path}
        np.savez(name, x=1)


torch_xla.launch(run, args=(1, 2))
"""
    assert "XLA406" in codes(program)
    apart = program.replace("done = 0", "done = index").replace('f"step_', 'f"{index}_step_')
    if "first" not in path:
        assert "XLA406" not in codes(apart)


def test_what_lightning_fetches_before_the_cores_is_there():
    program = """
from pathlib import Path
import lightning.pytorch as pl
import requests


class Talks:
    def __init__(self, root, download=True):
        if download:
            Talks.fetch(root)

    @staticmethod
    def fetch(root):
        root = Path(root)
        path = root / "talks.csv"
        if path.exists():
            return
        with path.open("wb") as file:
            file.write(requests.get("https://example.com/talks.csv").content)


class Data(pl.LightningDataModule):
    def __init__(self, folder="data"):
        super().__init__()
        self.folder = folder

    def prepare_data(self):
        Talks.fetch(self.folder)

    def setup(self, stage):
        self.rows = Talks(self.folder, download=False)


trainer = pl.Trainer(accelerator="tpu", devices=8)
trainer.fit(Net(), datamodule=Data())
"""
    assert "XLA406" not in codes(program)


LEFT = """
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from tqdm import tqdm


def train(args, model, loader, optimizer, writer):
    device = xm.xla_device()
    for epoch in range(args.epochs):
        batches = pl.ParallelLoader(loader, [device]).per_device_loader(device)
        bar = tqdm(batches, disable=not xm.is_master_ordinal())
        for step, (x, y) in enumerate(bar):
            model(x).sum().backward()
            xm.optimizer_step(optimizer)
            optimizer.zero_grad()
            if args.most < step:
                bar.close()
                break  # !XLA608
    writer.close()
"""


def test_closing_a_bar_leaves_the_loader_under_it_open():
    assert {one for one in found(LEFT) if one[1] == "XLA608"} == set(marks(LEFT))


def test_a_loader_that_is_closed_is_left_alone():
    closed = LEFT.replace("bar.close()", "parallel_loader.close()")
    assert "XLA608" not in codes(closed)


def test_a_folder_named_by_the_global_step_is_one_for_all_cores():
    program = """
import os
import torch_xla.core.xla_model as xm
from transformers import Trainer


class Report(Trainer):
    def train(self):
        return super().train() if xm.xrt_world_size() else None

    def evaluate(self, rows):
        folder = os.path.join(self.args.output_dir, f"checkpoint-{self.state.global_step}")
        self._keep(folder)

    def _keep(self, folder):
        self.tokenizer.save_pretrained(folder)
"""
    assert "XLA406" in codes(program)
    assert "XLA406" not in codes(program.replace("self.state.global_step", "self.args.local_rank"))


ON_REQUEST = """
import torch_xla.core.xla_model as xm
from transformers import Trainer


class Ranker(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        loss = outputs.loss
        return (loss, outputs) if return_outputs else loss

    def training_step(self, model, inputs, num_items_in_batch=None):
        loss = self.compute_loss(model, inputs)
        loss.backward()
        self.last = float(loss)  # !XLA102
        if loss > 10:  # !XLA104
            print("high")
        return loss.detach()

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        found = self.compute_loss(model, inputs, return_outputs=True)
        self.sum += self.compute_loss(model, inputs).item()  # !XLA101
        loss, outputs = found
        return loss, outputs.logits, inputs["labels"]
"""


def test_a_loss_with_outputs_on_request_is_a_tensor_where_it_is_used_as_one():
    asked = {"XLA101", "XLA102", "XLA104"}
    assert {one for one in found(ON_REQUEST) if one[1] in asked} == set(marks(ON_REQUEST))


def test_what_may_stand_on_the_host_on_another_road_is_not_judged():
    program = ON_REQUEST.replace("else loss", "else loss.cpu()")
    rows = {row for row, _ in marks(ON_REQUEST)}
    assert not [one for one in found(program) if one[0] in rows and one[1] != "XLA401"]


GONE = """
import torch_xla
from parts import TrainingArguments as OwnArguments
from transformers import Seq2SeqTrainingArguments, TrainingArguments

first = TrainingArguments(
    output_dir="out",
    overwrite_output_dir=True,  # !XLA905
    warmup_ratio=0.1,  # !XLA905
    warmup_steps=0.1,
    logging_dir="logs",  # !XLA905
    save_strategy="epoch",
)
options = {"save_safetensors": False, "bf16": True}  # !XLA905
second = Seq2SeqTrainingArguments("out", generation_max_length=64, **options)
third = Seq2SeqTrainingArguments("out", adafactor=True)  # !XLA905
own = OwnArguments("out", overwrite_output_dir=True, warmup_ratio=0.1)
"""


def test_arguments_that_transformers_lost_are_told_in_both_classes_and_from_a_dictionary():
    assert {one for one in found(GONE) if one[1] == "XLA905"} == set(marks(GONE))


def test_arguments_that_it_lost_are_left_alone_without_devices_of_xla():
    assert codes(GONE.replace("import torch_xla", "import torch")) == []
