"""Weights that are read in bfloat16 and trained at a small rate."""

from __future__ import annotations

import pytest
from rule_helpers import marks, rows

from xladoctor.lint.rules._training_arguments import DEFAULTS as DEFAULTS_OF_THE_TRAINER

PROGRAM = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from transformers import AutoModelForCausalLM

RATE = 1e-5


def train(batches, teacher):
    model = AutoModelForCausalLM.from_pretrained(
        "some/model",
        torch_dtype=torch.bfloat16,  # !XLA732
    )
    judge = AutoModelForCausalLM.from_pretrained(teacher, torch_dtype=torch.bfloat16)
    model.to(torch_xla.device())
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for batch in batches:
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
        torch_xla.sync()
"""


@pytest.mark.parametrize("name", ["torch_dtype", "dtype"])
def test_a_model_that_is_read_in_bfloat16_is_told_at_its_type(name):
    text = PROGRAM.replace("torch_dtype", name)
    assert [(row, "XLA732") for row in rows(text, "XLA732")] == sorted(marks(text))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch_dtype=torch.bfloat16,  #", "torch_dtype=torch.float32,  #"),
        ("RATE = 1e-5", "RATE = 1e-2"),
        ("torch.optim.AdamW(", "torch.optim.SGD("),
        ("model.parameters(), lr", "get_peft_model(model).parameters(), lr"),
        (
            "import torch_xla.core",
            "import torch_xla.core.functions\nimport peft\nimport torch_xla.core",
        ),
    ],
)
def test_other_types_rates_and_adapters_are_left_alone(old, new):
    assert rows(PROGRAM.replace(old, new), "XLA732") == []


@pytest.mark.parametrize(
    ("behind", "told"),
    [
        ('.to("xla")', True),
        (".to(torch_xla.device()).train()", True),
        (".to(torch.float32)", False),
        (".float()", False),
        (".get_decoder()", False),
    ],
)
def test_what_is_done_at_once_with_a_model_that_is_read_in_bfloat16(behind, told):
    text = PROGRAM.replace("    )\n    judge", f"    ){behind}\n    judge")
    assert (rows(text, "XLA732") != []) is told


def test_a_model_that_is_only_asked_is_left_alone():
    text = PROGRAM.replace("model.parameters()", "head.parameters()")
    assert rows(text, "XLA732") == []


DEFAULTS = """
import argparse
import os
import torch
import torch_xla
from dataclasses import dataclass, field
from transformers import HfArgumentParser, TrainingArguments

RATE = float(os.environ.get("RATE", "2e-5"))
TYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass
class Options:
    path: str = field(metadata={"help": "where the texts are"})
    dtype: str = field(default="bfloat16", metadata={"help": "the type of the weights"})
    short: str = "bf16"
    kind: torch.dtype = torch.bfloat16


@dataclass
class Training(TrainingArguments):
    cores: int = 8


def number(name, default):
    return float(os.getenv(name, default))


def main(net, batches, rates=(1e-5,)):
    options, training = HfArgumentParser((Options, {settings})).parse_args_into_dataclasses()
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=2e-5)
    parser.add_argument("--half", default=True)
    args = parser.parse_args()
    model = torch.nn.Sequential(net, torch.nn.Linear(8, 2))
    model = model.to(torch_xla.device(), {dtype})  # !XLA732
    optimizer = torch.optim.AdamW({given})
    for batch in batches:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        torch_xla.sync()
"""
WHOLE = "model.parameters(), lr="
BF16 = "torch.bfloat16"


def told_by_defaults(dtype, given, settings="TrainingArguments"):
    text = DEFAULTS.replace("{dtype}", dtype).replace("{given}", given)
    text = text.replace("{settings}", settings)
    return rows(text, "XLA732") == [row for row, _ in marks(text)]


@pytest.mark.parametrize(
    "dtype",
    [
        "getattr(torch, options.dtype)",
        "TYPES[options.short]",
        "options.kind",
        "dtype=getattr(torch, 'bfloat16')",
        "torch.bfloat16 if args.half else torch.float32",
    ],
)
def test_a_type_that_the_settings_have_by_default(dtype):
    assert told_by_defaults(dtype, f"{WHOLE}1e-5")


@pytest.mark.parametrize(
    "dtype",
    [
        "getattr(torch, options.path)",
        "getattr(torch, 'float32')",
        "TYPES[options.path]",
        "TYPES['fp32']",
        "torch.float32 if args.half else torch.bfloat16",
    ],
)
def test_a_type_that_is_another_one_or_not_known(dtype):
    assert not told_by_defaults(dtype, f"{WHOLE}1e-5")


@pytest.mark.parametrize("settings", ["TrainingArguments", "Training"])
@pytest.mark.parametrize(
    "given",
    [
        f"{WHOLE}args.lr",
        f"{WHOLE}RATE",
        f"{WHOLE}number('RATE', 3e-5)",
        f"{WHOLE}training.learning_rate",
        "[{'params': model[0].parameters(), 'lr': RATE}, {'params': model[1].parameters()}], 1e-5",
        "[p for p in model.parameters() if p.requires_grad], lr=args.lr",
    ],
)
def test_a_rate_that_the_settings_have_by_default(given, settings):
    assert told_by_defaults(BF16, given, settings)


@pytest.mark.parametrize(
    "given",
    [
        "model.parameters()",
        f"{WHOLE}number('RATE', 3e-3)",
        f"{WHOLE}rates[0]",
        "[{'params': model[0].parameters(), 'lr': RATE}, {'params': model[1].parameters()}]",
        "[{'params': model.parameters(), 'lr': RATE}, {'params': net.parameters(), 'lr': 0.1}]",
    ],
)
def test_a_rate_that_is_larger_or_not_known(given):
    assert not told_by_defaults(BF16, given)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("TrainingArguments('out')", True),
        ("TrainingArguments('out', learning_rate=2e-5)", True),
        ("TrainingArguments('out', learning_rate=1e-2)", False),
        ("TrainingArguments(**given)", False),
    ],
)
def test_arguments_of_the_trainer_that_the_program_makes(made, told):
    text = DEFAULTS.replace("{dtype}", BF16).replace("{given}", f"{WHOLE}made.learning_rate")
    text = text.replace("{settings}", "TrainingArguments").replace("rates=(1e-5,)", "given=None")
    text = text.replace("    args = parser", f"    made = {made}\n    args = parser")
    assert (rows(text, "XLA732") != []) is told


def test_an_own_default_of_the_arguments_holds():
    own = "cores: int = 8\n    learning_rate: float = "
    for rate, told in (("1e-2", False), ("1e-5", True)):
        text = DEFAULTS.replace("cores: int = 8", own + rate).replace("{settings}", "Training")
        text = text.replace("{dtype}", BF16).replace("{given}", f"{WHOLE}training.learning_rate")
        assert (rows(text, "XLA732") != []) is told


def test_a_model_that_two_optimizers_train_is_told_once():
    again = "lr=RATE)\n    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE"
    assert told_by_defaults(BF16, f"model.parameters(), {again}")


SETTINGS = """
import json
import torch
import torch_xla
import torch_xla.distributed.xla_multiprocessing as xmp
from own.nets import Net


def work(index, flags, file, batches):
    settings = json.load(open(file))
    model = Net().to(torch.bfloat16).to(torch_xla.device())
    optimizer = torch.optim.AdamW(model.parameters(), lr={rate})
    for batch in batches:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
        torch_xla.sync()


if __name__ == "__main__":
    FLAGS = {{"rate": 2e-5, "large": 1e-2, "optim": {{"rate": 3e-5}}, "set": 1e-5}}
    FLAGS["set"] = read("rate")
    if FLAGS["rate"]:
        work(0, FLAGS, "a.json", None)
    else:
        xmp.spawn(work, args=(FLAGS, "a.json", None))
"""


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        ("flags['rate']", True),
        ("float(flags['rate'])", True),
        ("flags['optim']['rate']", True),
        ("flags.get('rate', 0.1)", True),
        ("settings.get('rate', 5e-5)", True),
        ("float(settings.get('rate', 5e-5))", True),
        ("flags['large']", False),
        ("flags['set']", False),
        ("flags['rates']", False),
        ("flags.get('large', 5e-5)", False),
        ("settings['rate']", False),
        ("settings.get('rate')", False),
        ("settings.get('rate', 5e-3)", False),
        ("settings.get('rate', index)", False),
    ],
)
def test_a_rate_that_a_dictionary_has(rate, told):
    assert (rows(SETTINGS.format(rate=rate), "XLA732") != []) is told


@pytest.mark.filterwarnings("ignore")
def test_the_default_rate_is_that_of_transformers():
    transformers = pytest.importorskip("transformers")
    fields = transformers.TrainingArguments.__dataclass_fields__
    assert {
        name: fields[name].default for name in DEFAULTS_OF_THE_TRAINER
    } == DEFAULTS_OF_THE_TRAINER
