"""What starts the runtime before a function that starts the cores (XLA407)."""

import pytest

from tests.lint.rule_helpers import codes, rows

PROGRAM = """\
import lightning as L
import torch
import torch_xla
import torch_xla.core.xla_model as xm

from module import Net


def check():
    try:
        device = torch_xla.device()
        print(torch.randn(2, 2).to(device).device)
        return True
    except RuntimeError:
        return False


def train(index):
    print(torch_xla.device())


def fit(cores):
    {start}


def main():
    {before}
    if {asked}:
        fit(8)


if __name__ == "__main__":
    main()
"""
FITS = 'L.Trainer(accelerator="tpu", devices=cores).fit(Net())'
SPAWNS = "torch_xla.launch(train)"
ASKS = "device = torch_xla.device()"
CASES = {
    "Lightning's, by a helper": (FITS, "ready = True", "check()", "    if check():"),
    "torch_xla's, by a helper": (SPAWNS, "ready = True", "check()", "    if check():"),
    "torch_xla's, by itself": (SPAWNS, ASKS, "device", f"    {ASKS}"),
    "nothing": (SPAWNS, "ready = True", "ready", None),
    "one core": (FITS.replace("=cores", "=1"), "ready = True", "check()", None),
    "behind": (SPAWNS, "ready = True", "fit(8) or check()", None),
}


@pytest.mark.parametrize("name", CASES)
def test_the_runtime_is_not_started_before_a_function_that_spawns(name):
    start, before, asked, line = CASES[name]
    program = PROGRAM.format(start=start, before=before, asked=asked)
    lines = program.splitlines()
    assert [lines[row - 1] for row in rows(program, "XLA407")] == ([] if line is None else [line])


COUNTED = """\
import os
import torch_xla.runtime as xr
from accelerate import notebook_launcher


def how_many(least=1):
    try:
        return xr.global_device_count()
    except Exception:
        return least


def start(function, cores=None):
    processes = {counted}
    notebook_launcher(function, num_processes=processes)
{called}
"""


@pytest.mark.parametrize(
    ("counted", "called", "told"),
    [
        ("how_many() if cores is None else cores", "", True),
        ("cores if cores is not None else how_many()", "", True),
        ("cores or how_many()", "", True),
        ("xr.world_size() if cores is None else cores", "", True),
        # What the program says itself, or somebody else does.
        ("how_many() if cores is None else cores", "start(print, 4)", False),
        ("how_many() if cores else 1", "", False),
        ("how_many() if os.environ.get('ALL') else 1", "", False),
    ],
)
def test_cores_that_are_counted_unless_their_number_is_given(counted, called, told):
    program = COUNTED.format(counted=counted, called=called)
    assert rows(program, "XLA407") == ([14] if told else [])


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ("print(jax.devices())", True),
        ("try:\n    count = jax.device_count()\nexcept RuntimeError:\n    count = 0", True),
        ("key = jax.random.key(0)", True),
        ("jax.config.update('jax_platforms', 'cpu')\nprint(jax.devices())", False),
        ("def show():\n    print(jax.devices())", False),
        ("rows = jax.tree_util.tree_leaves(None)", False),
    ],
)
def test_jax_holds_the_tpu(before, told):
    program = f"""\
import jax
import torch_xla
import torch_xla.distributed.xla_multiprocessing as xmp

{before}


def train(index):
    return torch_xla.device()


if __name__ == "__main__":
    xmp.spawn(train)
"""
    assert ("XLA407" in codes(program)) is told
