"""One answer to "does this run on XLA devices?", for every rule that asks."""

from __future__ import annotations

import pytest
from model_helpers import marked, model_of
from rule_helpers import codes

from xladoctor.lint.model import OnXla

HEAD = """
import os, sys
import torch
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from transformers import is_torch_xla_available
device = xm.xla_device()
"""


def answer(body, head=HEAD):
    model = model_of(head + body)
    return model.on_xla(marked(model, "here"))


@pytest.mark.parametrize(
    ("condition", "when_true", "when_false"),
    [
        ("args.use_tpu", OnXla.YES, OnXla.NO),
        ('CFG["is_xla"]', OnXla.YES, OnXla.NO),
        ('not CFG["is_xla"]', OnXla.NO, OnXla.YES),
        ('cfg.get("use_xla", False)', OnXla.YES, OnXla.NO),
        ('getattr(args, "use_tpu", False)', OnXla.YES, OnXla.NO),
        ("is_torch_xla_available()", OnXla.YES, OnXla.NO),
        ("isTPU", OnXla.YES, OnXla.NO),
        ("args.no_tpu", OnXla.NO, OnXla.YES),
        ("torch.cuda.is_available()", OnXla.NO, OnXla.YES),
        ("torch.cuda.device_count() > 1", OnXla.NO, OnXla.YES),
        ("torch.backends.mps.is_available()", OnXla.NO, OnXla.YES),
        ('device.type == "xla"', OnXla.YES, OnXla.NO),
        ('device.type != "cuda"', OnXla.YES, OnXla.NO),
        ('args.device in ("cuda", "cpu")', OnXla.NO, OnXla.YES),
        ('args.device == "cpu"', OnXla.NO, OnXla.YES),
        ('"xla" in str(device)', OnXla.YES, OnXla.NO),
        ('str(device).startswith("cuda")', OnXla.NO, OnXla.YES),
        ("xm is not None", OnXla.YES, OnXla.NO),
        ("args.use_tpu and epoch > 0", OnXla.YES, OnXla.MAYBE),
        ("args.use_cuda and epoch > 0", OnXla.NO, OnXla.YES),
        ("args.use_cuda or args.force", OnXla.MAYBE, OnXla.MAYBE),
        ("args.n_gpu > 1", OnXla.MAYBE, OnXla.MAYBE),
        ('args.backend == "nccl"', OnXla.NO, OnXla.YES),
        ('hasattr(weight, "ds_id")', OnXla.NO, OnXla.YES),
        ('not hasattr(weight, "ds_status")', OnXla.YES, OnXla.NO),
        # Words within words, and other questions.
        ('hasattr(weight, "grad")', OnXla.YES, OnXla.YES),
        ("timestamps", OnXla.YES, OnXla.YES),
        ("args.dumps", OnXla.YES, OnXla.YES),
        ("jumps > 3", OnXla.YES, OnXla.YES),
        ('sys.platform == "win32"', OnXla.YES, OnXla.YES),
        ('os.environ["CPU_COUNT"]', OnXla.YES, OnXla.YES),
        ("epoch > 0", OnXla.YES, OnXla.YES),
    ],
)
def test_a_condition_says_where_its_branches_run(condition, when_true, when_false):
    body = "if {}:\n    first(){}\nelse:\n    second(){}\n"
    assert answer(body.format(condition, "  # <- here", "")) is when_true
    assert answer(body.format(condition, "", "  # <- here")) is when_false


def test_a_name_is_followed_to_what_it_is_bound_to():
    body = "fast = torch.cuda.is_available()\nif fast:\n    first()  # <- here\n"
    assert answer(body) is OnXla.NO
    body = 'mine = device.type == "xla"\nif not mine:\n    first()  # <- here\n'
    assert answer(body) is OnXla.NO


def test_callers_say_it_too():
    body = """
def log(x):
    show(x)  # <- here

def train(args, x):
    if not args.use_tpu:
        log(x)
    if args.use_cuda:
        log(x)
"""
    assert answer(body) is OnXla.NO
    assert answer(body + "    log(x)\n") is OnXla.YES


def test_an_early_return_is_a_condition():
    body = "def f(args):\n    if args.use_tpu:\n        return\n    first()  # <- here\n"
    assert answer(body) is OnXla.NO


OPTIONAL = """
try:
    import torch_xla.core.xla_model as xm
except ImportError:
    xm = None
import torch
"""


def test_a_file_that_takes_torch_xla_where_it_is_there_serves_others_too():
    assert answer("first()  # <- here\n", OPTIONAL) is OnXla.MAYBE
    body = "def f(args):\n    if args.use_tpu:\n        first()  # <- here\n"
    assert answer(body, OPTIONAL) is OnXla.YES
    assert answer("if xm is None:\n    first()  # <- here\n", OPTIONAL) is OnXla.NO


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        ("except KeyboardInterrupt", OnXla.YES),
        ("except RuntimeError", OnXla.MAYBE),
        ("except (ValueError, AssertionError)", OnXla.MAYBE),
        ("except", OnXla.MAYBE),
    ],
)
def test_a_failure_that_is_caught_may_be_meant_for_other_devices(handler, expected):
    assert answer(f"try:\n    first()  # <- here\n{handler}:\n    pass\n") is expected


def test_a_function_by_its_name():
    for name, expected in (("train_gpu", OnXla.MAYBE), ("dumps", OnXla.YES)):
        assert answer(f"def {name}():\n    first()  # <- here\n") is expected


PROGRAM = """
import torch
import torch_xla.core.xla_model as xm

def {name}(args, loader, model, optimizer):
    device = xm.xla_device()
    for x in loader:
        loss = model(x.to(device)).sum()
        loss.backward()
        if {condition}:
            y = x.cuda()
            print(loss.item())
        xm.optimizer_step(optimizer, barrier=True)
"""


@pytest.mark.parametrize(
    ("name", "condition", "expected"),
    [
        ("train", "args.use_tpu", {"XLA101", "XLA706"}),
        ("train", 'not CFG["is_xla"]', set()),
        ("train", "args.use_cuda", set()),
        ("timestamps", "args.timestamps", {"XLA101", "XLA706"}),
        ("dumps", "args.dumps", {"XLA101", "XLA706"}),
        ("train", "args.n_gpu > 1", {"XLA101"}),
    ],
)
def test_rules_agree_on_where_a_line_runs(name, condition, expected):
    found = codes(PROGRAM.format(name=name, condition=condition))
    assert set(found) & {"XLA101", "XLA706"} == expected


@pytest.mark.parametrize(
    ("condition", "silent"),
    [
        ("args.debug", True),
        ("not args.debug", False),
        ("args.debug and step > 3", True),
        ("args.debug or step > 3", False),
        ("args.debugger", False),
    ],
)
def test_reads_of_those_who_look_for_faults_are_left_alone(condition, silent):
    found = codes(PROGRAM.format(name="train", condition=condition))
    assert ("XLA101" not in found) is silent
