"""What subclasses and copies of the Trainer of transformers do with its own methods."""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks, rows

TEXTS = """
from typing import List

import torch
import torch_xla.core.xla_model as xm
from transformers import Trainer


class Summaries(Trainer):
    def __init__(self, tokenizer, beams, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.tokenizer = tokenizer
        self.beams = beams

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        inputs = self._prepare_inputs(inputs)
        settings = {"max_length": 64, "num_beams": self.beams}
        with torch.no_grad():
            tokens = self.model.generate(inputs["input_ids"], **settings)  # !XLA109 !XLA206
            lines = self.lines_of(tokens)
            wanted = self.lines_of(self.narrow(inputs["decoder_input_ids"]))
        return None, tokens, inputs["labels"]

    def narrow(self, ids, mask=None):
        seen = ids.ne(1)
        if mask is None:
            return ids * seen
        return ids * seen, mask * seen

    def lines_of(self, ids: List[int]):
        lines = self.tokenizer.batch_decode(ids, skip_special_tokens=True)  # !XLA101
        return [line.strip() for line in lines]
"""


def test_texts_of_an_evaluation():
    told = {item for item in found(TEXTS) if item[1] in {"XLA101", "XLA109", "XLA206"}}
    assert told == marks(TEXTS)


def test_a_cache_of_full_size_in_the_dictionary():
    static = TEXTS.replace('"max_length": 64', '"cache_implementation": "static"')
    assert "XLA206" not in codes(static)
    assert "XLA109" in codes(static)


def test_settings_that_are_not_in_sight():
    hidden = TEXTS.replace('{"max_length": 64, "num_beams": self.beams}', "self.beams.settings()")
    assert "XLA206" not in codes(hidden)


CALLBACK = """
import torch_xla
from transformers import TrainerCallback


class Samples(TrainerCallback):
    def __init__(self, tokenizer, prompts):
        self.tokenizer = tokenizer
        self.prompts = prompts

    def on_evaluate(self, args, state, control, model=None, **kwargs):
        asked = self.tokenizer(self.prompts, return_tensors="pt", padding="max_length")
        written = model.generate(**asked.to(model.device), max_new_tokens=64)  # !XLA109 !XLA206

    def on_epoch_end(self, args, state, control, **kwargs):
        model = kwargs["model"]
        for prompt in self.prompts:
            asked = self.tokenizer(prompt, return_tensors="pt").to(args.device)
            model.generate(**asked, max_new_tokens=64)  # !XLA109 !XLA206
"""


def test_texts_that_a_callback_shows():
    told = {item for item in found(CALLBACK) if item[1] in {"XLA109", "XLA206"}}
    assert told == marks(CALLBACK)


def test_texts_of_what_no_trainer_calls():
    alone = CALLBACK.replace("(TrainerCallback)", "")
    assert not {"XLA109", "XLA206"} & set(codes(alone))
    plain = CALLBACK.replace("import torch_xla\n", "")
    assert codes(plain) == []


LOOP = """
import torch
import torch_xla.core.xla_model as xm
from transformers import Trainer


class Gathering(Trainer):
    def evaluation_loop(self, dataloader, description, prediction_loss_only=None):
        model = self._wrap_model(self.model, training=False)
        model.eval()
        kept = None
        for step, inputs in enumerate(dataloader):
            loss, logits, labels = self.prediction_step(model, inputs, prediction_loss_only)
            if loss is not None:
                losses = self._nested_gather(loss.repeat(8))  # here
                kept = losses if kept is None else torch.cat((kept, losses), dim=0)
        return kept
"""


def test_gathering_through_the_host_for_each_batch():
    assert rows(LOOP, "XLA423") == [15]
    assert rows(LOOP, "XLA206") == []  # what was gathered is on the host


def test_gathering_once():
    once = LOOP.replace("self._nested_gather(loss.repeat(8))  # here", "loss.repeat(8)").replace(
        "return kept", "return self._nested_gather(kept)"
    )
    assert rows(once, "XLA423") == []
    assert rows(once, "XLA206") != []


COPY = """
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from transformers import Trainer


class Copied(Trainer):
    def train(self, epochs):
        loader = self.get_train_dataloader()
        model = self.model
        total = torch.tensor(0.0).to(self.args.device)
        for epoch in range(epochs):
            batches = loader
            for step, inputs in enumerate(batches):  # !XLA603
                total += self.training_step(model, inputs)
                xm.optimizer_step(self.optimizer)  # !XLA301
                model.zero_grad()
        return total.item()
"""


def test_the_plain_loader_of_an_old_trainer():
    told = {item for item in found(COPY) if item[1] in {"XLA301", "XLA603"}}
    assert told == marks(COPY)


def test_a_device_loader_over_it():
    wrapped = COPY.replace(
        "batches = loader", "batches = pl.MpDeviceLoader(loader, self.args.device)"
    )
    assert not {"XLA301", "XLA603"} & set(codes(wrapped))


def test_a_batch_that_is_moved_in_its_dictionary():
    moved = COPY.replace(
        "                total +=",
        "                for key in inputs:\n"
        "                    inputs[key] = inputs[key].to(self.args.device)\n"
        "                total +=",
    )
    assert rows(moved, "XLA101") == []


def test_the_loader_of_a_trainer_that_accelerate_prepares():
    today = COPY.replace("xm.optimizer_step(self.optimizer)", "self.optimizer.step()")
    assert not {"XLA301", "XLA603"} & set(codes(today))


SHARED = """
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, DistributedSampler
from transformers import Trainer


class Pairs(Trainer):
    def train(self):
        if xm.is_master_ordinal():
            print("starts")
        for step, inputs in enumerate(self.get_train_dataloader()):
            self.training_step(self.model, inputs)
            xm.optimizer_step(self.optimizer)
            xm.mark_step()

    def get_train_dataloader(self) -> DataLoader:
        \"\"\"One batch after the other, also where training is distributed.\"\"\"
        return DataLoader(
            self.train_dataset,
            batch_size=self.args.train_batch_size,
            sampler=None,
            drop_last=True,
            shuffle=False,
        )
"""


def test_a_loader_without_a_sampler_in_a_copy_that_nobody_makes_here():
    assert rows(SHARED, "XLA402") == [18]


def test_a_loader_with_a_sampler_of_all_cores():
    shared = SHARED.replace("sampler=None", "sampler=DistributedSampler(self.train_dataset)")
    assert rows(shared, "XLA402") == []


LAYERS = """
import torch.nn as nn
import torch_xla.core.xla_model as xm
from transformers import Trainer


class Contrast(Trainer):
    head = None

    def compute_loss(self, model, inputs, return_outputs=False):
        hidden = model(**inputs)["encoder_last_hidden_state"]
        return self.project(hidden).mean()

    def project(self, x):
        self.head = nn.Linear(x.size(1), 128).to(x.device)  # here
        return self.head(x)
"""


def test_layers_that_each_step_makes():
    assert rows(LAYERS, "XLA604") == [15]


def test_layers_that_are_made_once():
    once = LAYERS.replace(
        "        self.head = nn", "        if self.head is None:\n            self.head = nn"
    )
    assert rows(once, "XLA604") == []
    without = LAYERS.replace("nn.Linear(x.size(1), 128)", "nn.Softmax(dim=1)")
    assert rows(without, "XLA604") == []


OWN_ARGUMENTS = """
import torch_xla.core.xla_model as xm
from transformers import Trainer, TrainingArguments
{made}
settings = {cls}(
    output_dir="out",
    num_train_epochs=3,
    per_device_train_batch_size=8,
    warmup_ratio=0.1,
    evaluation_strategy="epoch",
    dataloader_drop_last=True,
    optim="adamw_torch",
)
Trainer(net, settings, train_dataset=rows.to(xm.xla_device())).train()
"""
ARGUMENT_CLASSES = {
    "on them": (
        "class Settings(TrainingArguments):\n    decay: float = 0.0",
        "Settings",
        {"warmup_ratio", "evaluation_strategy"},
    ),
    "on them, with one of its own": (
        "class Settings(TrainingArguments):\n    warmup_ratio: float = 0.0",
        "Settings",
        {"evaluation_strategy"},
    ),
    "of a file that is not there": (
        "from project.settings import TrainingArgumentsWithDecay",
        "TrainingArgumentsWithDecay",
        {"warmup_ratio", "evaluation_strategy"},
    ),
    "of a package that says nothing": ("from project.settings import Settings", "Settings", set()),
}


def test_a_class_that_nobody_has_read_in_a_file_for_any_device():
    made, cls, _ = ARGUMENT_CLASSES["of a file that is not there"]
    program = OWN_ARGUMENTS.format(made=made, cls=cls).replace("torch_xla", "project")
    assert "XLA905" not in codes(program.replace("xm.xla_device()", '"xla"'))


@pytest.mark.parametrize("case", ARGUMENT_CLASSES)
def test_a_class_on_the_arguments_takes_what_they_take(case):
    made, cls, lost = ARGUMENT_CLASSES[case]
    program = OWN_ARGUMENTS.format(made=made, cls=cls)
    lines = program.split("\n")
    told = {row for row, code in found(program) if code == "XLA905"}
    assert {lines[row - 1].strip().partition("=")[0] for row in told} == lost
