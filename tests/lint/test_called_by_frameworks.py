"""Methods that the Trainer and Lightning call: whether what programs write anew fits."""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, told_in_files

from xladoctor.lint import engine
from xladoctor.lint.sources import Source

ASKED = {"XLA905", "XLA910"}
PROGRAMS = {
    "the Trainer gives more than it did": """\
import torch_xla
from transformers import Trainer


class Weighted(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):  # !XLA905
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = self.criterion(outputs.logits, labels)
        return (loss, outputs) if return_outputs else loss

    def log(self, logs):  # !XLA905
        logs["epoch"] = self.state.epoch
        super().log(logs)

    def _get_train_sampler(self):  # !XLA905
        return None

    def save_model(self, output_dir):  # !XLA905
        self.model.save_pretrained(output_dir)

    def prediction_step(self, model, inputs, prediction_loss_only):  # !XLA905
        return super().prediction_step(model, inputs, prediction_loss_only)
""",
    "what it gives is taken": """\
import torch_xla
from transformers import Seq2SeqTrainer


class Weighted(Seq2SeqTrainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        return super().compute_loss(model, inputs, return_outputs, **kwargs)

    def training_step(self, *args, **kwargs):
        return super().training_step(*args, **kwargs)

    def log(self, logs, *args):
        super().log(logs, *args)

    def _get_train_sampler(self, train_dataset=None):
        return None

    def save_model(self, folder=None, _internal_call=False):
        super().save_model(folder, _internal_call)

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix="eval", **more):
        return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix, **more)
""",
    "a program that writes the step anew calls its loss itself": """\
import torch_xla
from transformers import Trainer


class Own(Trainer):
    def compute_loss(self, model, inputs):
        return model(**inputs).loss

    def training_step(self, model, inputs, num_items_in_batch=None):
        loss = self.compute_loss(model, self._prepare_inputs(inputs))
        self.accelerator.backward(loss)
        return loss.detach()


class Handed(Trainer):
    def compute_loss(self, model, inputs):  # !XLA905
        return model(**inputs).loss

    def training_step(self, model, inputs, num_items_in_batch=None):
        inputs["step"] = self.state.global_step
        return super().training_step(model, inputs, num_items_in_batch)
""",
    "ready for both releases": """\
import torch_xla
import transformers
from packaging import version
from transformers import Trainer

if version.parse(transformers.__version__) < version.parse("4.46"):

    class Own(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False):
            return model(**inputs).loss
""",
    "what the Trainer's own methods no longer take": """\
import torch_xla
from transformers import Trainer


class Saves(Trainer):
    def _maybe_log_save_evaluate(
        self, tr_loss, grad_norm, model, trial, epoch, ignore_keys, start_time, learning_rate=None
    ):
        metrics = self.evaluate() if self.control.should_evaluate else None
        if self.control.should_save:
            self._save_checkpoint(model, trial, metrics=metrics)  # !XLA905
            self._save_checkpoint(model, trial)
        super()._maybe_log_save_evaluate(tr_loss, model, trial, epoch, ignore_keys)  # !XLA905


class Another(Trainer):
    def _save_checkpoint(self, model, trial, metrics=None):
        if metrics is not None:
            self._save_checkpoint(model, trial, metrics=metrics)
""",
    "callbacks of the Trainer": """\
import torch_xla
from transformers import TrainerCallback


class Told(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        print(logs)

    def on_step_end(self, args, state, control):  # !XLA905
        control.should_save = state.global_step == 10

    def on_save(self, args, state, control, tokenizer, **kwargs):  # !XLA905
        tokenizer.save_pretrained(args.output_dir)

    def on_evaluate(self, args, state, control, metrics, model=None, **kwargs):
        print(metrics)
""",
    "arguments of the Trainer, by another name": """\
import torch_xla
from transformers import Trainer, TrainerCallback


class Own(Trainer):
    def evaluation_loop(self, dataloader, description, *more, **named):
        args = self.args
        if args.past_index >= 0:  # !XLA905
            self.kept = None
        return super().evaluation_loop(dataloader, description, *more, **named)

    def _inner_training_loop(self, batch_size=None, args=None, *more, **named):
        args = self.args if args is None else args
        return args.past_index  # !XLA905

    def mine(self, args):
        return args.past_index


class Told(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        return args.past_index  # !XLA905


def main(model, settings):
    trainer = Own(model, settings)
    return trainer.args.past_index, settings.past_index  # !XLA905
""",
    "names that a star no longer brings": """\
import torch_xla
from transformers.trainer import *  # !XLA905
from transformers.trainer_seq2seq import Seq2SeqTrainer


class Own(Seq2SeqTrainer):
    def predict(self, data, keys: Optional[List[str]] = None):
        return nested_concat(data, data) if is_torch_tpu_available() else data
""",
    "another star may bring them": """\
import torch_xla
from ours.shared import *
from transformers.trainer import *


def predict(data, keys: Optional[List[str]] = None):
    return nested_concat(data, data)
""",
    "what a star still brings": """\
import torch_xla
from typing import *
from transformers.trainer import *


def predict(data, loader: DataLoader, scaled):
    if scaled:
        amp.scale_loss(data)
    return has_length(loader), torch.stack(data), os.getcwd()
""",
    "hooks of Lightning": """\
import lightning.pytorch as pl
import torch


class Net(pl.LightningModule):
    def setup(self):  # !XLA910
        self.table = torch.zeros(4)

    def on_train_batch_start(self, batch):  # !XLA910
        self.seen = batch

    def lr_scheduler_step(self, scheduler, index, metric):  # !XLA910
        scheduler.step()

    def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure=None):
        optimizer.step(closure=optimizer_closure)


class Data(pl.LightningDataModule):
    def setup(self, step=None):  # !XLA910
        self.kept = step


class Told(pl.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch):  # !XLA910
        self.last = outputs

    def on_train_epoch_end(self, trainer, module):
        self.last = None


trainer = pl.Trainer(accelerator="tpu", devices=8)
""",
    "hooks of Lightning that fit": """\
import lightning.pytorch as pl


class Net(pl.LightningModule):
    def setup(self, stage=None):
        self.kept = stage

    def on_train_batch_end(self, *args):
        self.last = args

    def transfer_batch_to_device(self, batch, device, dataloader_idx=0):
        return batch.to(device)

    def configure_gradient_clipping(self, optimizer, gradient_clip_val, gradient_clip_algorithm):
        self.clip_gradients(optimizer, gradient_clip_val)


class Data(pl.LightningDataModule):
    def setup(self, *_, **__):
        self.kept = 1


class Told(pl.Callback):
    def setup(self, trainer, module, stage):
        self.stage = stage


trainer = pl.Trainer(accelerator="tpu", devices=8)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_frameworks_call_fits(name):
    program = PROGRAMS[name]
    told = {(row, code) for row, code in found(program) if code in ASKED}
    assert told == marks(program), name


def test_the_message_says_who_calls_and_what_to_write():
    text = PROGRAMS["the Trainer gives more than it did"]
    finding = engine.lint(Source("train.py", text), engine.LintOptions()).findings[0]
    assert finding.message.startswith(
        "since transformers 4.46, the Trainer calls compute_loss with num_items_in_batch=, which "
        "it does not take: this raises TypeError"
    )
    assert finding.suggestion.startswith(
        "def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None)"
    )


def test_a_package_imports_itself_by_its_name_wherever_it_stands(tmp_path):
    """``from training.base import Base`` of a file in ``training/``, in a folder without a mark."""
    files = {
        "training/base.py": """\
from transformers import Trainer


class Base(Trainer):
    pass
""",
        "training/own.py": """\
import torch_xla
from training.base import Base


class Own(Base):
    def predict(self, loader):
        return self.prediction_loop(loader)
""",
    }
    assert told_in_files(tmp_path, files, ASKED) == {("training/own.py", 7, "XLA905")}
