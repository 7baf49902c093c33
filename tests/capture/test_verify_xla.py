"""``xladoctor verify`` on real runs: equal programs are equal, faulty ones part where they are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("verify_program.py")
LINES = {
    line.rpartition("# line ")[2]: number
    for number, line in enumerate(PROGRAM.read_text().splitlines(), 1)
    if "# line " in line
}


HEALTHY = Path(__file__).resolve().parents[1] / "accuracy" / "silent" / "programs"

#: A Lightning module whose loss is a sum over each core's share.
SUMMED = """
from healthy_lightning import *


class Summed(Model):
    def training_step(self, batch, index):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y, reduction="sum")  # line summed
        return loss


lightning.seed_everything(0)
trainer = lightning.Trainer(
    accelerator="tpu", devices="auto", max_epochs=1, enable_progress_bar=False, logger=False,
    enable_checkpointing=False,
)
trainer.fit(Summed(), DataLoader(points(), batch_size=8, drop_last=True))
"""


def verify(folder, case, *options, ways="cpu,xla,cores", steps=3, program=PROGRAM):
    """The exit code, the answer (None if there is none) and what is said on stderr."""
    answer = folder / "answer.json"
    words = ["--simulate-cores", "2", "--steps", str(steps), "--ways", ways, *options]
    words += ["--output-format", "json", "-o", str(answer), "--", "python", str(program)]
    words += [case] if case else []
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        [sys.executable, "-m", "xladoctor", "verify", *words],
        cwd=folder,
        env={"PATH": path, "HOME": str(folder), "PYTHONPATH": str(HEALTHY)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    found = json.loads(answer.read_text()) if answer.exists() else None
    return done.returncode, found, done.stderr


@pytest.mark.slow
@pytest.mark.xla
def test_a_healthy_program_is_equal_in_all_ways(tmp_path):
    """Checkpoints, dropout, noise, accumulation, batch normalization, an average of weights."""
    code, found, said = verify(tmp_path, "healthy")
    assert code == 0, (found, said)
    assert found["equal"]
    assert found["parts_at"] is None
    assert found["ways"] == ["cpu", "xla", "xla-2"]
    assert found["steps"] == 3
    assert 0 < found["largest_difference"] < 1e-3
    assert any("lr of the optimizer" in note for note in found["notes"])


@pytest.mark.xla
@pytest.mark.parametrize(
    ("case", "what", "line", "because"),
    [
        pytest.param(*("cut", "gradient", "cut", "XLA433"), marks=pytest.mark.slow),
        pytest.param(
            *("clipped", "gradient", "clip", ("XLA303", "XLA412")), marks=pytest.mark.slow
        ),
        pytest.param(
            *("unreduced", "gradient", "step", ("XLA302", "XLA412")), marks=pytest.mark.slow
        ),
        # torch_xla 2.9.0: after two backward passes the reduction is lost in this order too.
        pytest.param(*("reduced-late", "gradient", "late", "XLA412"), marks=pytest.mark.slow),
        pytest.param(*("summed", "loss", "backward", ""), marks=pytest.mark.slow),
    ],
)
def test_a_fault_parts_the_ways_at_its_line(tmp_path, case, what, line, because):
    code, found, said = verify(tmp_path, case, ways="xla,cores")
    assert code == 1, (found, said)
    parts = found["parts_at"]
    assert (parts["step"], parts["way"], parts["what"]) == (1, "xla-2", what)
    assert parts["location"]["row"] == LINES[line]
    assert parts["difference"] > parts["tolerance"]
    assert (parts["because"] or "").startswith(because)


@pytest.mark.slow
@pytest.mark.xla
@pytest.mark.parametrize(
    ("name", "note"),
    [
        # Its optimizers get closures, its loaders are made anew on several cores.
        ("healthy_lightning", "batches are those"),
        ("healthy_spmd", "2 XLA cores are so many devices to it"),
        # On one core and in plain PyTorch it asks tensors for shardings that they do not have.
        ("healthy_fsdpv2", "2 XLA cores are so many devices to it"),
    ],
)
def test_healthy_programs_of_frameworks_are_equal_in_all_ways(tmp_path, name, note):
    if "lightning" in name:
        pytest.importorskip("lightning")
    code, found, said = verify(tmp_path, "", program=HEALTHY / f"{name}.py")
    assert code == 0, (found, said)
    assert found["ways"] == ["cpu", "xla", "xla-2"]
    assert found["steps"] == 3
    assert 0 < found["largest_difference"] < 1e-4
    assert any(note in one for one in found["notes"])


@pytest.mark.slow
@pytest.mark.xla
def test_a_fault_under_lightning_is_told_at_the_users_line(tmp_path):
    pytest.importorskip("lightning")
    program = tmp_path / "summed.py"
    program.write_text(SUMMED)
    code, found, said = verify(tmp_path, "", program=program, ways="xla,cores")
    assert code == 1, (found, said)
    parts = found["parts_at"]
    assert (parts["step"], parts["way"], parts["what"]) == (1, "xla-2", "loss")
    lines = SUMMED.splitlines()
    assert lines[parts["location"]["row"] - 1].endswith("# line summed")


@pytest.mark.slow
@pytest.mark.xla
def test_what_differs_on_purpose_is_left_out(tmp_path):
    """A head of each core's own, and the loss and the body that do not depend on it."""
    code, found, said = verify(tmp_path, "own-heads", ways="xla,cores")
    assert code == 0, (found, said)
    assert any("on purpose" in note for note in found["notes"])


@pytest.mark.slow
@pytest.mark.xla
def test_batches_that_are_drawn_in_the_loop_are_shared_out(tmp_path):
    code, found, said = verify(tmp_path, "loose")
    assert code == 0, (found, said)
    assert found["ways"] == ["cpu", "xla", "xla-2"]


@pytest.mark.xla
@pytest.mark.parametrize(
    ("case", "words"),
    [
        pytest.param("random", "not deterministic by itself", marks=pytest.mark.slow),
        ("fails", "ValueError: on purpose"),
        ("idle", "made no optimizer step"),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_sentence(tmp_path, case, words):
    code, found, said = verify(tmp_path, case, ways="xla,cores")
    assert code == 2, (found, said)
    assert found is None
    assert words in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ways", "cpu"], "--ways needs two of"),
        (["--ways", "cpu,tpu"], "--ways does not know 'tpu'"),
        (["--simulate-cores", "1"], "--simulate-cores must be 2 or more"),
    ],
)
def test_bad_options_are_refused(options, words):
    done = subprocess.run(
        [sys.executable, "-m", "xladoctor", "verify", *options, "--", "python", str(PROGRAM)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert words in done.stderr
