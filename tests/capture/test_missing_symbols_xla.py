"""Another torch_xla may lack any internal that the agent uses: the run goes on all the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_adapter import bindings_asked_for

from xladoctor.capture import rundir
from xladoctor.capture.agent import tensors, wrapping

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla

SCRIPT = Path(__file__).with_name("missing_symbols.py")


def _said(folder: Path) -> list[str]:
    rows = [row for one in rundir.processes(folder) for row in rundir.rows(one)]
    return [row["hook"] for row in rows if row["e"] == "hook-off"]


@pytest.mark.slow
def test_the_run_goes_on_without_any_of_them_and_says_so(tmp_path):
    done = subprocess.run(
        [sys.executable, SCRIPT, str(tmp_path)],
        env={**os.environ, "PJRT_DEVICE": "CPU"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    whole, *others = [json.loads(line) for line in done.stdout.splitlines()]
    assert whole["loss"] is not None
    assert not _said(tmp_path / "all")
    hidden = {one["hidden"] for one in others}
    # Bindings, functions of torch_xla, methods of torch, and what the agent registers itself with.
    assert hidden >= {
        "_xla_step_marker", "_xla_counter_value", "_get_use_eager_mode", "next_item", "all_reduce",
        "_run_thread_per_device", "item", "to", "copy_", "_xla_tensors_from_aten",
        "register_optimizer_step_post_hook", "aten::_to_cpu",
    }  # fmt: skip
    # All that the agent calls, and the methods and collectives that it wraps.
    assert hidden >= {*bindings_asked_for(), *tensors.READS, *wrapping.COLLECTIVES}
    assert len(hidden) == len(others) > 35
    for one in others:
        name = one["hidden"]
        assert one["loss"] == whole["loss"], (name, done.stderr[-2000:])
        said = _said(tmp_path / name.replace("::", "-"))
        assert any(name in hook for hook in said), (name, said)
