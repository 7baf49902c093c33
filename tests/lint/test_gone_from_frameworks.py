"""What transformers and TRL have lost, in programs for XLA devices, and what they still have."""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, rows, told_in_files

PROGRAMS = {
    "names that transformers has no more": """\
import torch_xla
import transformers
from transformers import AdamW, AutoModelWithLMHead  # !XLA905
from transformers.deepspeed import deepspeed_init  # !XLA905
from transformers.modeling_bert import BertModel  # !XLA905
from transformers.modeling_utils import PreTrainedModel
from transformers.trainer_pt_utils import (
    IterableDatasetShard,
    SequentialDistributedSampler,  # !XLA905
)

optimizer = AdamW(BertModel.from_pretrained("x").parameters())
other = transformers.TextDataset  # !XLA905
""",
    "names of torch, of today, and where the program is ready for the old ones to be missing": """\
import torch_xla
from torch.optim import AdamW
from transformers import Adafactor, get_scheduler
from transformers.models.bert.modeling_bert import BertModel
from transformers.modeling_outputs import ModelOutput
from transformers.configuration_utils import PretrainedConfig

try:
    from transformers import AdamW as Adam
except ImportError:
    from torch.optim import AdamW as Adam
""",
    "arguments of TrainingArguments": """\
import torch_xla
from transformers import Seq2SeqTrainingArguments, TrainingArguments

first = TrainingArguments(
    "out",
    overwrite_output_dir=True,  # !XLA905
    warmup_ratio=0.1,  # !XLA905
    logging_dir="logs",  # !XLA905
    warmup_steps=0.1,
    logging_strategy="steps",
)
second = Seq2SeqTrainingArguments("out", adafactor=True, predict_with_generate=True)  # !XLA905
third = TrainingArguments("out", train_sampling_strategy="group_by_length")  # !XLA905
""",
    "arguments of TRL's Trainer, which moved to its settings": """\
import torch_xla
from trl import SFTConfig, SFTTrainer


def train(model, data, tokenizer):
    old = SFTConfig("out", max_seq_length=512, packing=True)  # !XLA905
    settings = SFTConfig("out", max_length=512, packing=True, dataset_text_field="text")
    SFTTrainer(model, old, train_dataset=data, tokenizer=tokenizer)  # !XLA905
    SFTTrainer(
        model,
        settings,
        train_dataset=data,
        max_seq_length=512,  # !XLA905
        packing=True,  # !XLA905
    )
    return SFTTrainer(model, settings, train_dataset=data, processing_class=tokenizer)
""",
    "attributes of parsed arguments": """\
import os

import torch_xla
from transformers import HfArgumentParser, Trainer, TrainingArguments
from settings import Data


def main():
    parser = HfArgumentParser((Data, TrainingArguments))
    data, arguments = parser.parse_args_into_dataclasses()
    if os.path.isdir(data.folder) and not arguments.overwrite_output_dir:  # !XLA905
        raise ValueError(data.overwrite_output_dir)
    return arguments.output_dir
""",
    "methods and attributes of the Trainer itself": """\
import torch_xla
from transformers import Trainer


class Own(Trainer):
    def evaluation_loop(self, loader, description):
        for batch in loader:
            loss, logits, labels = self.prediction_step(self.model, batch, False)
            losses = self._nested_gather(loss)  # !XLA905
            losses = self._nested_gather(losses)
            logits = self.gather_function(logits)
        return self.tokenizer.pad_token_id  # !XLA905

    def _save_checkpoint(self, model, trial):
        self._rotate_checkpoints(use_mtime=True)  # !XLA905
        return self.processing_class


class WithBoth(Trainer):
    def __init__(self, model, tokenizer):
        super().__init__(model)
        self.kept = tokenizer

    def _nested_gather(self, tensors):
        return self.gather_function(tensors)

    def prediction_step(self, model, inputs, prediction_loss_only):
        return self._nested_gather(self.kept.pad(inputs))
""",
    "a Trainer of another package keeps its own tokenizer": """\
import torch_xla
from trl import SFTTrainer


class Own(SFTTrainer):
    def compute_loss(self, model, inputs):
        return inputs["labels"] != self.tokenizer.pad_token_id
""",
    "a program that brings its own transformers": """\
import torch_xla
from transformers import AdamW, Trainer
from transformers.our_losses import smoothed


def main(model, arguments, tokenizer):
    trainer = Trainer(model, arguments, tokenizer=tokenizer)
    trainer.train(model_path="out")
    return trainer.is_world_master()
""",
    "a class of the program may have them": """\
import torch_xla
from transformers import HfArgumentParser, Trainer
from settings import Arguments, Data


def main(config):
    data, arguments = HfArgumentParser((Data, Arguments)).parse_args_into_dataclasses()
    return arguments.overwrite_output_dir, config.logging_dir, data.warmup_ratio
""",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_what_is_gone(program):
    told = {(row, code) for row, code in found(program) if code == "XLA905"}
    assert told == {one for one in marks(program) if one[1] == "XLA905"}


def test_programs_without_xla_may_have_their_own_release():
    program = PROGRAMS["names that transformers has no more"].replace("import torch_xla\n", "")
    assert rows(program, "XLA905") == []


NEEDED = """
import sys

from transformers import TrainingArguments


def main():
    try:
        import torch_xla.core.xla_model as xm

        world = xm.xrt_world_size()
        device = xm.xla_device()
    except {caught}:
        {handled}
    return TrainingArguments("out", fp16=True, optim="adamw_torch", dataloader_drop_last=True)
"""


@pytest.mark.parametrize(
    ("caught", "handled"),
    [
        ("ImportError", "sys.exit('needs torch_xla')"),
        ("Exception as error", "raise RuntimeError('no TPU') from error"),
    ],
)
def test_a_program_that_gives_up_without_torch_xla_is_for_xla_devices(caught, handled):
    told = found(NEEDED.format(caught=caught, handled=handled))
    assert {(11, "XLA801"), (12, "XLA802"), (15, "XLA905")} <= set(told)


def test_one_that_goes_on_without_it_is_for_other_devices_too():
    told = found(NEEDED.format(caught="ImportError", handled="device = 'cuda'"))
    assert not [one for one in told if one[1] in ("XLA802", "XLA905")]


def test_a_function_that_takes_torch_xla_whatever_happens():
    program = """
    from transformers import TrainingArguments


    def on_tpu():
        import torch_xla

        return TrainingArguments("out", fp16=True, device=torch_xla.device())


    def anywhere():
        return TrainingArguments("out", fp16=True)
    """
    assert rows(program, "XLA905") == [8]


RUNNER = """
import torch.nn as nn


class Runner:
    def run(self, model, devices):
        model.to(devices[0])
        if {test}:
            model = nn.DataParallel(model)
        return model
"""

START = """
import sys

try:
    import torch_xla.core.xla_model as xm
except ImportError:
    sys.exit("needs torch_xla")
from runner import Runner


def main(model):
    return Runner().run(model, [xm.xla_device()])


main(None)
"""


@pytest.mark.parametrize(
    ("test", "told"), [("model is not None", True), ("len(devices) > 1", False)]
)
def test_devices_that_a_helper_counts_are_gpus(tmp_path, test, told):
    files = {"start.py": START, "runner.py": RUNNER.format(test=test)}
    found = told_in_files(tmp_path, files, {"XLA709"})
    assert found == ({("runner.py", 9, "XLA709")} if told else set())
