"""What starts the runtime before a function that starts the cores (XLA407)."""

import pytest

from tests.lint.rule_helpers import rows

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
