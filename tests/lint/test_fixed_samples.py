"""The sample programs as found, fixed: what the fixes make of them runs on torch_xla 2.9."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from xladoctor.lint import engine, fixes

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_runs"

#: Sizes for a CPU: what stands in the sample, what to write; the code between them stays.
SMALL = {
    "kfold_images": [
        ("epochs = 8", "epochs = 2"),
        ("batch_size = 16", "batch_size = 4"),
        ("img_size = 224", "img_size = 16"),
        ("n_images = 20000", "n_images = 128"),
        ("(16, 1, 1), (24, 2, 2), (40, 2, 2), (80, 3, 2), (112, 3, 1)", "(8, 1, 2), (16, 1, 2)"),
        ("num_workers=4", "num_workers=0"),
        ("for fold in range(Config.n_fold)", "for fold in range(1)"),
    ],
}  # fmt: skip


def fixed(name, *, unsafe=True):
    data = (SAMPLES / name / "as_found.py").read_bytes()
    return fixes.fix(data, f"{name}.py", engine.lint, unsafe=unsafe)


@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize("name", ["kfold_images", "unet_mask_depth", "ct_slices", "lightning_tpu"])
def test_nothing_fixable_is_left(name, unsafe):
    done = fixed(name, unsafe=unsafe)
    assert done.stable
    assert done.made
    assert not [x for x in done.result.findings if fixes.is_applicable(x, unsafe=unsafe)]


@pytest.mark.parametrize("name", ["kfold_images", "unet_mask_depth", "ct_slices"])
def test_safe_fixes_leave_no_removed_name(name):
    left = {item.code for item in fixed(name, unsafe=False).result.findings}
    assert not left & {"XLA404", "XLA801", "XLA802"}


def test_collectives_are_reached_by_all_cores():
    for name in ("kfold_images", "ct_slices"):
        left = {item.code for item in fixed(name).result.findings}
        assert not left & {"XLA303", "XLA405", "XLA406", "XLA417"}


@pytest.mark.xla
def test_the_fixed_sample_trains_on_eight_cores(tmp_path):
    text = fixed("kfold_images").data.decode()
    for old, new in SMALL["kfold_images"]:
        assert text.count(old) >= 1, old
        text = text.replace(old, new)
    (tmp_path / "leaf.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "xladoctor", "profile", "--simulate-cores", "8",
         "--output-format", "json", "--output-file", "report.json", "--",
         sys.executable, "leaf.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    losses = [float(x) for x in re.findall(r"loss ([\d.]+) acc", done.stdout)]
    # One core prints, two epochs of three steps; it learns.
    assert len(losses) == 6
    assert losses[-1] < losses[0]
    assert done.stdout.count("valid acc") == 2
    assert (tmp_path / "leaf_fold0.pth").is_file()
