"""Modules of torch_xla that a file uses by their usual names and binds nowhere (XLA801)."""

import pytest
from rule_helpers import marked, rows, told_in_files

COPIED = """
import torch
{imports}
def train(model, loader, optimizer, on_tpu):
    for rows, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(rows), labels)
        loss.backward()
        {step}
"""


@pytest.mark.parametrize(
    ("imports", "step"),
    [
        ("", "xm.optimizer_step(optimizer) if on_tpu else optimizer.step()"),
        ("import torch_xla.core.xla_model as xm", "torch_xla.sync()"),
        ("import torch_xla.runtime", "print(xr.global_ordinal(), loss)"),
        ("import torch_xla", "xs.mark_sharding(loss, mesh, (0,))"),
        ("from torch_xla import runtime as xr", "print(met.metrics_report())"),
        ("class Run:\n    import torch_xla.core.xla_model as xm\n", "xm.mark_step()"),
        ("def start():\n    import torch_xla.core.xla_model as xm\n", "xm.mark_step()"),
    ],
)
def test_a_name_that_nothing_binds_is_told_once(imports, step):
    program = COPIED.format(imports=imports, step=f"{step}  # here\n        {step}")
    assert rows(program, "XLA801") == marked(program)


@pytest.mark.parametrize(
    ("imports", "step"),
    [
        ("from utilities import *", "xm.mark_step()"),
        ("import torch_xla.core.xla_model as xm", "xm.mark_step()"),
        ("if torch.is_tpu:\n    import torch_xla.core.xla_model as xm", "xm.mark_step()"),
        (
            "def start():\n    global xm\n    import torch_xla.core.xla_model as xm",
            "xm.mark_step()",
        ),
        ("globals()['xm'] = load()", "xm.mark_step()"),
        ("exec(open('device.py').read())", "xm.mark_step()"),
        ("import builtins\nbuiltins.xm = load()", "xm.mark_step()"),
        ("# MAGIC %run ./setup", "xm.mark_step()"),
        ("", "if 'xm' in globals(): xm.mark_step()"),
        ("import torch_xla.core.xla_model", "torch_xla.core.xla_model.mark_step()"),
        ("from __future__ import annotations", "at: torch_xla.device = loss.device"),
        ("import torch_xla.core.xla_model as xm", "xs = [loss]; xs.append(loss)"),
        ("import torch_xla", "pl.seed_everything(1)"),
    ],
)
def test_what_something_may_bind_is_not(imports, step):
    program = COPIED.format(imports=imports, step=step)
    assert not rows(program, "XLA801")


def test_a_part_of_a_program_says_nothing_of_its_imports():
    assert not rows(
        "for rows in loader:\n    model(rows).backward()\n    xm.mark_step()\n", "XLA801"
    )
    part = "import time\nloss = torch.nn.functional.mse_loss(a, b)\nxm.mark_step()\n"
    assert not rows(part, "XLA801")


def test_another_file_may_give_a_module_its_name(tmp_path):
    files = {
        "train.py": COPIED.format(imports="", step="xm.mark_step()"),
        "main.py": "import torch_xla.core.xla_model as xm\nimport train\n\ntrain.xm = xm\n",
    }
    assert not told_in_files(tmp_path, files, {"XLA801"})
    (tmp_path / "main.py").unlink()
    assert told_in_files(tmp_path, {"train.py": files["train.py"]}, {"XLA801"})
