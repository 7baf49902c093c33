"""What is asked of an object of a library's class, and the class has not (XLA801)."""

from __future__ import annotations

import inspect
import re

import pytest

from tests.lint.rule_helpers import rows, told_in_files
from xladoctor import catalogue

_HEAD = """\
import torch
import torch_xla.core.xla_model as xm
from accelerate import Accelerator

"""


def test_what_an_accelerator_never_had():
    program = (
        _HEAD
        + """
class Runner:
    def __init__(self, net):
        self.helper = Accelerator(mixed_precision="bf16")
        self.net = self.helper.prepare(net)

    def save(self, path):
        self.helper.wait_for_every_one()
        if self.helper.is_main_proces:
            torch.save(self.helper.unwrap_model(self.net).state_dict(), path)
        self.helper.print("done", self.helper.state, self.helper._models)


def run(helper: Accelerator):
    helper.waitForEveryone()
    helper.backward(torch.zeros(1))
"""
    )
    assert rows(program, "XLA801") == [12, 13, 19]


@pytest.mark.parametrize(
    "body",
    [
        "accelerator.samples = 0\nprint(accelerator.samples)",
        "setattr(accelerator, name(), 3)\nprint(accelerator.samples)",
        "if hasattr(accelerator, 'samples'):\n    print(accelerator.samples)",
        "try:\n    accelerator.samples()\nexcept AttributeError:\n    pass",
        "accelerator.use_fp16",
    ],
    ids=["set", "setattr", "asked", "caught", "told by another rule"],
)
def test_what_may_be_there(body):
    assert rows(f"{_HEAD}accelerator = Accelerator()\n{body}\n", "XLA801") == []


def test_an_object_that_may_be_of_another_class():
    program = (
        _HEAD
        + """
def run(accelerator, wide):
    accelerator.sum_up()
    mine = Accelerator() if wide else Plain()
    mine.sum_up()
"""
    )
    assert rows(program, "XLA801") == []


def test_classes_of_the_program_have_more(tmp_path):
    files = {
        "own.py": """\
from accelerate import Accelerator


class Mine(Accelerator):
    def sum_up(self):
        return 0
""",
        "train.py": _HEAD
        + """from own import Mine


def run(accelerator: Accelerator):
    accelerator.sum_up()


run(Mine())
""",
    }
    assert told_in_files(tmp_path, files, {"XLA801"}) == set()


@pytest.mark.filterwarnings("ignore")
def test_the_table_has_all_that_the_installed_one_has():
    accelerate = pytest.importorskip("accelerate")
    made = accelerate.Accelerator
    kept = re.findall(r"self\.(\w+)\s*(?::[^=\n]+)?=[^=]", inspect.getsource(made))
    names = {name for name in {*dir(made), *kept} if not name.startswith("_")}
    (row,) = (
        row
        for row in catalogue.table("frameworks")["members"]
        if row["of"] == "accelerate.Accelerator"
    )
    assert names - {*row["names"]} == set()
