"""Arguments of transformers that a parser makes of a dictionary, and those that are declared.

All programs are invented. ``# !XLA905`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, told

HEAD = """\
from dataclasses import dataclass

import torch_xla
from transformers import HfArgumentParser, Trainer, TrainingArguments


@dataclass
class Texts:
    path: str = "texts"


"""

PROGRAMS = {
    "XLA905: keys of a dictionary": """\
def settings(given):
    return HfArgumentParser((Texts, TrainingArguments)).parse_dict(given)


def main(net):
    given = dict(
        path="more",
        per_device_train_batch_size=16,  # !XLA905
        dataloader_drop_last=True,
        overwrite_output_dir=True,  # !XLA905
    )
    texts, args = settings(given)
    net.to(torch_xla.device())
    Trainer(net, args).train()
""",
    "XLA905: an optimizer is named, and more keys are allowed": """\
def main(net, more):
    parser = HfArgumentParser((Texts, TrainingArguments))
    given = {"per_device_train_batch_size": 16, "optim": "adafactor", "output_dir": "out"}
    texts, args = parser.parse_dict(given)
    old = {"overwrite_output_dir": True, **more}
    texts, args = parser.parse_dict(old, allow_extra_keys=True)
    net.to(torch_xla.device())
    Trainer(net, args).train()
""",
    "XLA905: fields of the program's own": """\
@dataclass
class Run(TrainingArguments):
    overwrite_output_dir: bool = False


@dataclass
class Folder:
    overwrite_output_dir: bool = False


def main(net):
    texts, args = HfArgumentParser((Texts, Run)).parse_dict({"overwrite_output_dir": True})
    both = HfArgumentParser((Folder, TrainingArguments)).parse_dict({"overwrite_output_dir": True})
    net.to(torch_xla.device())
    Trainer(net, args).train()
    return both
""",
    "XLA905: what is declared to be them": """\
def last(args: TrainingArguments):
    if not args.overwrite_output_dir:  # !XLA905
        return args.output_dir


def ours(args: Texts):
    return args.overwrite_output_dir


def anew(args: TrainingArguments):
    args = Texts()
    return args.overwrite_output_dir


def main(net):
    texts, args = HfArgumentParser((Texts, TrainingArguments)).parse_args_into_dataclasses()
    net.to(torch_xla.device())
    Trainer(net, args).train(last(args))


def again():
    args = make()
    return last(args)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told(name):
    assert told(name, HEAD + PROGRAMS[name]) == marks(HEAD + PROGRAMS[name])


CLASS = """\
from dataclasses import dataclass, field
from transformers import HfArgumentParser, Trainer, TrainingArguments
@dataclass
class RunSettings(TrainingArguments):{mark}
    output_dir: str = "run"
    per_device_train_batch_size: int = field(default=16)
    {more}
def main(net):
    settings = HfArgumentParser({parsed}).parse_args_into_dataclasses()[0]
    Trainer(net, settings{given}).train()
def _mp_fn(index):
    main(None)
"""


@pytest.mark.parametrize(
    ("more", "parsed", "given", "fused"),
    [
        ("seed: int = 3", "(RunSettings,)", "", True),
        ("seed: int = 3", "RunSettings", "", True),
        ('optim: str = "adamw_torch"', "(RunSettings,)", "", False),
        ("seed: int = 3", "(RunSettings,)", ", optimizers=(None, None)", False),
        ("seed: int = 3", "TrainingArguments", "", False),
    ],
)
def test_the_optimizer_of_a_class_of_settings(more, parsed, given, fused):
    mark = "  # !XLA905" if fused else ""
    program = CLASS.format(more=more, parsed=parsed, given=given, mark=mark)
    assert told("XLA905", program) == marks(program)
