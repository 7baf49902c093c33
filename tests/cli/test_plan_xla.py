"""Real programs, traced and given to the real TPU compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "capture"))
import dry_programs

pytest.importorskip("torch_xla")
pytest.importorskip("libtpu")
pytestmark = pytest.mark.xla


def plan(folder, *words, **environ):
    return subprocess.run(
        [sys.executable, "-m", "xladoctor", "plan", *words],
        cwd=folder, capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, **environ},
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    for name in ("plain", "linear", "cores", "stepless"):
        (tmp_path / f"{name}.py").write_text(getattr(dry_programs, name.upper()))
    return tmp_path


def test_a_row_for_each_value_and_target(folder):
    done = plan(
        folder, "--tpu", "v3-8,v5e-8", "--output-format", "json", "--", "linear.py", "{64,8192}"
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [(row["values"], row["target"]) for row in rows] == [
        ({"argument 1": "64"}, "v3-8"),
        ({"argument 1": "64"}, "v5e-8"),
        ({"argument 1": "8192"}, "v3-8"),
        ({"argument 1": "8192"}, "v5e-8"),
    ]
    assert [row["samples"] for row in rows] == [64, 64, 8192, 8192]
    for row in rows:
        assert row["error"] is None
        assert row["fits"] is True
        assert 0 < row["memory_bytes"] < row["memory_limit_bytes"]
        assert 0 < row["device_seconds"] < 1
        assert row["samples_per_second"] == pytest.approx(row["samples"] / row["device_seconds"])
        assert 0 < row["matrix_unit_share"] < 1
    small, _, large, _ = rows
    assert small["samples_per_second"] < large["samples_per_second"]
    assert small["memory_bytes"] < large["memory_bytes"]
    # The program itself has left nothing behind.
    assert not (folder / "weights.pt").exists()


@pytest.mark.slow
def test_layers_of_a_scan_are_all_counted(folder):
    (folder / "scan.py").write_text(
        "import sys, torch, torch_xla\n"
        "from torch_xla.experimental.scan_layers import scan_layers\n"
        "device = torch_xla.device()\n"
        "layers = [torch.nn.Linear(512, 512) for _ in range(int(sys.argv[1]))]\n"
        "layers = torch.nn.ModuleList(layers).to(device)\n"
        "optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)\n"
        "for _ in range(9):\n"
        "    optimizer.zero_grad()\n"
        "    scan_layers(layers, torch.ones(512, 512).to(device)).sum().backward()\n"
        "    optimizer.step()\n"
        "    torch_xla.sync()\n"
    )
    done = plan(folder, "--tpu", "v3-8", "--output-format", "json", "--", "scan.py", "{2,8}")
    assert done.returncode == 0, done.stderr
    few, many = json.loads(done.stdout)["rows"]
    assert many["device_seconds"] > 2.5 * few["device_seconds"]
    assert (few["samples"], many["samples"]) == (512, 512)


def test_eight_cores_and_the_table(folder):
    done = plan(folder, "--tpu", "v3-8", "--simulate-cores", "8", "--", "cores.py")
    assert done.returncode == 0, done.stderr
    assert "v3-8" in done.stdout
    assert "Nothing was executed" in done.stdout
    assert "got a stand-in" in done.stdout
    assert "BrokenProcessPool" not in done.stdout + done.stderr


def test_rows_that_fail_say_why_and_the_others_stand(folder):
    (folder / "sometimes.py").write_text(
        "import sys\nif sys.argv[1] == '9':\n    raise ValueError('nine is not served')\n"
        + dry_programs.LINEAR
    )
    done = plan(folder, "--tpu", "v3-8", "--", "sometimes.py", "{8,9}")
    assert done.returncode == 0, done.stderr
    assert "the program failed (ValueError: nine is not served)" in " ".join(done.stdout.split())


def test_a_program_that_never_makes_a_step(folder):
    done = plan(folder, "--tpu", "v3-8", "--", "stepless.py")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "xladoctor: nothing could be planned: it made no optimizer step"
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--tpu", "v3-8", "--", "plain.py", "{8,16"), "a brace is not closed"),
        (("--tpu", "v9-8", "--", "plain.py"), "there is no such TPU"),
        (("--tpu", "v3-8", "--", "missing.py"), "there is no such file"),
        (("--tpu", "v3-8"), "no command given"),
    ],
)
def test_bad_input_is_one_sentence(folder, words, says):
    done = plan(folder, *words)
    assert done.returncode == 2
    assert done.stderr.startswith("xladoctor: ")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_donated_buffers_are_not_counted_twice(folder):
    """A step that replaces its weights needs them once: its results lie where they were."""
    (folder / "large.py").write_text(
        "import torch, torch_xla\n"
        "device = torch_xla.device()\n"
        "model = torch.nn.Linear(4096, 4096, bias=False).to(device)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(9):\n"
        "    optimizer.zero_grad(set_to_none=True)\n"
        "    model(torch.ones(8, 4096).to(device)).sum().backward()\n"
        "    optimizer.step()\n"
        "    optimizer.zero_grad(set_to_none=True)\n"
        "    torch_xla.sync()\n"
    )
    done = plan(folder, "--tpu", "v3-8", "--output-format", "json", "--", "large.py")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    weights = 4096 * 4096 * 4
    assert weights < row["memory_bytes"] < 2.5 * weights


def test_what_is_too_large_for_8_gb_and_not_for_16_is_told_so(folder):
    """8.7 GB of input."""
    (folder / "rows.py").write_text(
        "import torch, torch_xla\n"
        "device = torch_xla.device()\n"
        "model = torch.nn.Sequential(\n"
        "    torch.nn.Linear(128, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)\n"
        ").to(device)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(9):\n"
        "    x = torch.empty(17_000_000, 128).to(device)\n"
        "    optimizer.zero_grad()\n"
        "    model(x).sum().backward()\n"
        "    optimizer.step()\n"
        "    torch_xla.sync()\n"
    )
    done = plan(folder, "--tpu", "v2-8,v3-8", "--output-format", "json", "--", "rows.py")
    assert done.returncode == 0, done.stderr
    small, large = json.loads(done.stdout)["rows"]
    assert (small["fits"], large["fits"]) == (False, True)
    assert small["memory_limit_bytes"] < 8.6e9 < small["memory_bytes"]
    assert small["device_seconds"] is None
    assert 8.7e9 < large["memory_bytes"] < large["memory_limit_bytes"] < 17.2e9
    assert large["device_seconds"] > 0
