"""Models of transformers that tie their weights by themselves, and come apart by the move."""

from __future__ import annotations

import pytest
from rule_helpers import marks, rows

PROGRAM = """
import torch
import torch_xla
import transformers
from accelerate import Accelerator
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, BertForMaskedLM
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

NAME = "gpt2-medium"


class Writer(T5ForConditionalGeneration):
    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.lm = BertForMaskedLM.from_pretrained("bert-base-cased")

    def forward(self, ids):
        return self.lm(ids).logits


def build(path):
    return GPT2LMHeadModel.from_pretrained(path)


def main(batches, path):
    device = torch_xla.device()
    accelerator = Accelerator()
    config = AutoConfig.from_pretrained(path)
    model = {made}
    {moved}  # !XLA306
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for batch in batches:
        adam.zero_grad()
        model(**batch).loss.backward()
        adam.step()
        torch_xla.sync()
"""
MOVE = "model = model.to(device)"


def told(made, moved=MOVE, *changes):
    """The rows where the program is told, and the one where it moves its model."""
    text = PROGRAM.replace("{made}", made).replace("{moved}", moved)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return rows(text, "XLA306"), [row for row, _ in marks(text)]


@pytest.mark.parametrize(
    "made",
    [
        "GPT2LMHeadModel(GPT2Config(n_layer=2))",
        "GPT2LMHeadModel.from_pretrained(path)",
        "transformers.EsmForMaskedLM(config)",
        "transformers.EsmForMaskedLM(config).train()",
        "build(path)",
        "Reader()",
        "Writer(T5Config())",
        "Writer.from_pretrained('t5-small')",
        "AutoModelForCausalLM.from_pretrained(NAME)",
        "AutoModelForCausalLM.from_pretrained('facebook/opt-125m', dtype=torch.bfloat16)",
        "AutoModelForCausalLM.from_pretrained('meta-llama/Llama-3.2-1B')",
        "AutoModelForCausalLM.from_config(GPT2Config())",
        "AutoModelForCausalLM.from_config(AutoConfig.from_pretrained('distilgpt2'))",
        "AutoModelForSeq2SeqLM.from_pretrained('google-t5/t5-base')",
        "BertForMaskedLM.from_pretrained(path) if path else Reader()",
    ],
)
@pytest.mark.parametrize("moved", [MOVE, "model.to(device, torch.bfloat16)"])
def test_a_model_that_ties_by_default_is_told_at_its_move(made, moved):
    found, wanted = told(made, moved)
    assert found == wanted != []


@pytest.mark.parametrize(
    "made",
    [
        "AutoModelForCausalLM.from_pretrained(path)",
        "AutoModelForCausalLM.from_pretrained('meta-llama/Llama-3.1-8B')",
        "AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B-Instruct')",
        "AutoModelForSeq2SeqLM.from_pretrained('google/flan-t5-base')",
        "AutoModelForCausalLM.from_config(config)",
        "T5ForConditionalGeneration.from_pretrained(path)",
        "T5ForConditionalGeneration(config)",
        "GPT2LMHeadModel(GPT2Config(tie_word_embeddings=False))",
        "transformers.LlamaForCausalLM(config)",
        "transformers.BertForSequenceClassification.from_pretrained('bert-base-cased')",
        "transformers.BertModel.from_pretrained('bert-base-cased')",
    ],
)
def test_a_model_that_may_tie_nothing_is_left_alone(made):
    assert told(made)[0] == []


@pytest.mark.parametrize(
    ("moved", "changes"),
    [
        (f"{MOVE}\n    model.tie_weights()", ()),
        (f"{MOVE}\n    model.resize_token_embeddings(99)", ()),
        (f"{MOVE}\n    model.lm_head.weight = model.transformer.wte.weight", ()),
        ('model = model.to("cpu")', ()),
        (f"{MOVE}\n    model.requires_grad_(False)", ()),
        (f"{MOVE}\n    for p in model.parameters():\n        p.requires_grad = False", ()),
        # Nothing trains: both stay what they are.
        (MOVE, (("adam = torch.optim.AdamW(model.parameters(), lr=1e-3)", "adam = None"),)),
        (MOVE, (("AdamW(model.parameters()", "AdamW(nn.Linear(2, 2).parameters()"),)),
        (MOVE, (("model = GPT2", "from peft import get_peft_model\n    model = GPT2"),)),
        # The Trainer moves it once more, and ties.
        (f"{MOVE}\n    transformers.Trainer(model=model).train()", ()),
        # It is made on the device, and tied there.
        (MOVE, (("    model = GPT2", "    torch.set_default_device(device)\n    model = GPT2"),)),
    ],
)
def test_what_ties_again_or_trains_nothing_is_left_alone(moved, changes):
    assert told("GPT2LMHeadModel.from_pretrained(path)", moved, *changes)[0] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.lm(ids).logits", "self.lm.bert(ids).last_hidden_state"),
        ("self.lm = ", "self.lm = nn.Identity()\n        self.other = "),
    ],
)
def test_a_module_that_runs_no_output_layer_is_left_alone(old, new):
    assert told("Reader()", MOVE, (old, new))[0] == []


def test_a_class_with_an_output_layer_of_its_own_is_left_alone():
    own = (
        "    def __init__(self, config):\n        super().__init__(config)\n        {}\n\n    def f"
    )
    made = "Writer(T5Config())"
    head = own.format("self.lm_head = nn.Linear(8, 8)")
    assert told(made, MOVE, ("    def forward(self, *", f"{head}orward(self, *"))[0] == []
    other = own.format("self.more = nn.Linear(8, 8)")
    found, wanted = told(made, MOVE, ("    def forward(self, *", f"{other}orward(self, *"))
    assert found == wanted != []


def test_a_frozen_teacher_says_nothing_of_what_is_trained():
    teacher = "teacher = build(path)\n    teacher.requires_grad_(False)"
    found, wanted = told(
        "BertForMaskedLM(config)", f"{MOVE}", (f"    {MOVE}", f"    {teacher}\n    {MOVE}")
    )
    assert found == wanted != []


def test_prepare_of_accelerate_ties_nothing_again():
    found, wanted = told("build(path)", "model = accelerator.prepare(model)")
    assert found == wanted != []
    assert (
        told("build(path)", "model = accelerator.prepare(model)\n    model.tie_weights()")[0] == []
    )


def test_a_trainer_of_the_program_that_gets_the_model_and_moves_it():
    text = """
import torch
import torch_xla
from transformers import BartForConditionalGeneration


class Engine:
    def __init__(self, model, batches):
        self.model = model.to(torch_xla.device())  # !XLA306
        self.batches = batches
        self.adam = torch.optim.Adam(self.model.parameters())

    def fit(self):
        for batch in self.batches:
            self.adam.zero_grad()
            self.model(**batch).loss.backward()
            self.adam.step()
            torch_xla.sync()


def main(batches, path):
    Engine(BartForConditionalGeneration.from_pretrained(path), batches).fit()
"""
    assert [(row, "XLA306") for row in rows(text, "XLA306")] == sorted(marks(text))


@pytest.mark.parametrize(
    ("name", "told"), [("bert-base-uncased", True), ("some/checkpoint", False)]
)
def test_a_checkpoint_that_an_option_names_by_default(name, told):
    text = f"""
import argparse
import torch
import torch_xla
from transformers import AutoModelForMaskedLM

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="{name}")


class Learner:
    def __init__(self, args):
        self.model = AutoModelForMaskedLM.from_pretrained(args.model)
        self.model.to("xla")
        self.adam = self.optimizer()

    def optimizer(self):
        return torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def fit(self, batches):
        for batch in batches:
            self.adam.zero_grad()
            self.model(**batch).loss.backward()
            self.adam.step()
            torch_xla.sync()


Learner(parser.parse_args()).fit([])
"""
    assert (rows(text, "XLA306") != []) is told
