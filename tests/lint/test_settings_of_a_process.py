"""What variables and private names do to a program, by what it starts.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, told

from xladoctor.lint import engine
from xladoctor.lint.sources import Source

XM = """\
import os

import torch
import torch.distributed as dist
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
"""

PROGRAMS = {
    "XLA429: SPMD where each core is a process": f"""\
{XM}
def run(index):
    print(index, torch_xla.device())


if __name__ == "__main__":
    os.environ["XLA_USE_SPMD"] = "1"  # !XLA429
    xmp.spawn(run)
""",
    "XLA429: SPMD and the group of such processes": f"""\
{XM}
os.environ.setdefault("XLA_USE_SPMD", "1")  # !XLA429
dist.init_process_group("xla", init_method="xla://")
""",
    "XLA801: private names that are not there": f"""\
{XM}
def save(model, path):
    weights = xm._fetch_to_host(model.state_dict())  # !XLA801
    torch.save(weights, path)
    torch.save(xm._fetch_to_host(model.state_dict()), path)  # !XLA801
    print(xm._ORDINAL, torch_xla.__version__)  # !XLA801
""",
    "XLA801: private names that are": f"""\
{XM}
def save(model, path):
    torch.save(xm._maybe_convert_to_cpu(model.state_dict()), path)
    print(torch_xla._XLAC._xla_get_devices(), xm._DEVICE_CONTEXTS)
""",
    "XLA804: private names that are there": f"""\
{XM}
def save(model, path):
    torch.save(xm._fetch_to_host(model.state_dict()), path)
    torch.save(xm._maybe_convert_to_cpu(model.state_dict()), path)  # !XLA804
""",
    "XLA701: what asserts XRT's setting": f"""\
{XM}
assert os.environ["XRT_TPU_CONFIG"], "no TPU"  # !XLA701
print(torch_xla.device())
""",
    "XLA701: what sets it itself": f"""\
{XM}
os.environ["XRT_TPU_CONFIG"] = "tpu_worker;0;10.0.0.2:8470"  # !XLA701
print(os.environ["XRT_TPU_CONFIG"], torch_xla.device())
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told_stands_at_its_lines(name):
    assert told(name, PROGRAMS[name]) == marks(PROGRAMS[name])


ONE = f"{XM}\nos.environ['XLA_USE_SPMD'] = '1'\nprint(torch_xla.device())\n"
BOTH = f"""\
{XM}
def run(index):
    print(index, torch_xla.device())


if "--spmd" in os.sys.argv:
    os.environ["XLA_USE_SPMD"] = "1"
    run(0)
else:
    xmp.spawn(run)
"""
EACH = PROGRAMS["XLA429: SPMD where each core is a process"]


@pytest.mark.parametrize(("program", "each"), [(ONE, False), (BOTH, False), (EACH, True)])
def test_what_the_variable_does_depends_on_what_the_program_starts(program, each):
    result = engine.lint(Source("train.py", program), engine.LintOptions())
    (finding,) = [one for one in result.findings if one.code == "XLA429"]
    assert ("a process for each core" in finding.message) is each
    assert (finding.fix is None) is each  # ``xr.use_spmd()`` would be as wrong there
