"""Real programs whose steps are traced and not executed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zlib

import dry_programs
import pytest

from xladoctor.capture import launch, rundir

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla


class Dry:
    """Runs a program dry in a folder of its own and reads what it left."""

    def __init__(self, folder, text, *args, cores=None):
        self.folder = folder
        (folder / "train.py").write_text(text)
        self.run_dir = folder / "run"
        self.run_dir.mkdir()
        environ = launch.environment(os.environ, self.run_dir, cores=cores, dry_run=True)
        self.done = subprocess.run(
            [sys.executable, "train.py", *args],
            env=environ, cwd=folder, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert not list(self.run_dir.glob("not-started*")), rundir.not_started(self.run_dir)
        folders = rundir.processes(self.run_dir)
        self.rows = [row for one in folders for row in rundir.rows(one)]
        self.process = folders[0] if folders else None

    def row(self, kind):
        found = [row for row in self.rows if row["e"] == kind]
        return found[-1] if found else None

    def notes(self):
        return [row["text"] for row in self.rows if row["e"] == "note"]

    def graph(self, number=-1):
        name = self.row("traced-step")["graphs"][number]["hlo"]
        return zlib.decompress((self.process / f"{name}.pb.z").read_bytes())


def test_a_step_of_one_core_is_traced_until_it_settles_and_nothing_is_executed(tmp_path):
    dry = Dry(tmp_path, dry_programs.PLAIN, "64")
    assert dry.done.returncode == 0, dry.done.stderr
    step = dry.row("traced-step")
    # The first step has no momentum yet and reads the loss; the third is as the second.
    assert (step["step"], step["settled"], step["samples"]) == (3, True, 64)
    assert len(step["graphs"]) == 1
    assert "step 0 loss 1.0" in dry.done.stdout
    assert "the end" not in dry.done.stdout
    assert not (tmp_path / "weights.pt").exists()
    assert dry.notes() == ["a read of a value that was never computed got a stand-in (item)"]


def test_the_graph_is_the_one_that_a_real_run_compiles(tmp_path):
    """Inputs, results and donated buffers of the step, against XLA's own record of a real run."""
    xla_client = pytest.importorskip("jax._src.lib").xla_client

    def head(proto):
        size = shift = at = 0
        while True:  # HloProto.hlo_module: a tag, the length, the module
            at += 1
            size |= (proto[at] & 127) << shift
            shift += 7
            if proto[at] < 128:
                break
        module = proto[at + 1 : at + 1 + size]
        text = xla_client._xla.HloModule.from_serialized_hlo_module_proto(module).to_string()
        donated = re.search(r"buffer_donor=({.*?}), entry", text)
        inputs, results = re.search(r"layout={\((.*?)\)->\((.*?)\)}", text).groups()
        # A real compilation asks for results in rows; which results there are is what counts.
        shapes = re.findall(r"\w+\[[\d,]*\]", results)
        return donated and donated[1], inputs, sorted(shapes)

    dry = Dry(tmp_path, dry_programs.PLAIN, "4")
    dump = tmp_path / "dump"
    flags = {"PJRT_DEVICE": "CPU", "XLA_FLAGS": f"--xla_dump_to={dump} --xla_dump_hlo_as_proto"}
    subprocess.run(
        [sys.executable, "train.py", "4"],
        cwd=tmp_path, check=True, capture_output=True, env={**os.environ, **flags},
    )  # fmt: skip
    real = [head(path.read_bytes()) for path in dump.glob("*before_optimizations.hlo.pb")]
    assert len(real) == 2  # the first step, and all that follow
    assert head(dry.graph()) in real


def test_core_0_stands_for_eight(tmp_path):
    dry = Dry(tmp_path, dry_programs.CORES, cores=8)
    step = dry.row("traced-step")
    assert step is not None, dry.done.stderr
    assert (step["settled"], step["samples"]) == (True, 8)
    assert dry.done.stdout.count("cores 8") == 1
    # The step, and the two checks of the loss, each of which is a graph of its own.
    assert len(step["graphs"]) == 3
    assert any(b"all-reduce" in dry.graph(number) for number in range(3))
    assert "not a number" not in dry.done.stderr
    assert "infinite" not in dry.done.stderr
    assert not (tmp_path / "weights.pt").exists()


def test_a_program_whose_step_never_settles_is_ended(tmp_path):
    step = Dry(tmp_path, dry_programs.RESTLESS).row("traced-step")
    assert (step["step"], step["settled"]) == (12, False)


def test_a_program_without_a_step_says_so(tmp_path):
    dry = Dry(tmp_path, dry_programs.STEPLESS)
    assert dry.done.returncode == 0
    assert dry.row("trace-failed")["why"] == "it made no optimizer step"


def test_reads_of_little_data_are_true_and_others_stand_in(tmp_path):
    dry = Dry(tmp_path, dry_programs.READS)
    lines = dry.done.stdout.splitlines()
    assert lines[0] == "true 3 [2, 0, 2, 2]", dry.done.stderr
    # Once the weights are those of a step that was never run, so is everything made from them.
    assert lines[-1] == (
        "never 1.0 1.0 1.00 torch.Size([6, 2]) torch.float32 6 False 12.0 "
        "tensor(never computed, size=(), dtype=torch.float32)"
    )
    assert dry.row("traced-step")["settled"]
    json.dumps(dry.rows)


def test_autocast_is_traced_as_on_a_tpu(tmp_path):
    """On a CPU device torch_xla's autocast does nothing; a TPU host would trace bfloat16."""
    dry = Dry(tmp_path, dry_programs.AUTOCAST)
    assert dry.row("traced-step"), dry.done.stderr
    assert dry.done.stdout.splitlines()[:2] == ["on tpu", "kind torch.bfloat16"]


def test_samples_of_uploads_by_hand_are_one_batch_for_each_backward_pass(tmp_path):
    dry = Dry(tmp_path, dry_programs.ACCUMULATED)
    step = dry.row("traced-step")
    assert (step["settled"], step["samples"]) == (True, 12)
    # Its backward pass scatters.
    (note,) = dry.notes()
    assert note.startswith("a TPU host traces torch.gather, Tensor.scatter_add otherwise")


@pytest.mark.parametrize(
    ("first", "why"),
    [
        ("xr.use_spmd()", "SPMD"),
        ("import torch_xla.experimental as te; te.eager_mode(True)", "eager mode"),
    ],
)
def test_programs_that_cannot_be_traced_say_why(tmp_path, first, why):
    dry = Dry(tmp_path, dry_programs.OTHERWISE.replace("FIRST", first))
    assert why in dry.row("trace-failed")["why"], dry.done.stderr


def test_what_equal_cores_exchange_can_be_read(tmp_path):
    dry = Dry(tmp_path, dry_programs.EXCHANGE, cores=8)
    assert dry.done.stdout.splitlines() == [
        "read [2.0, 3.0] [8.0, 12.0] [2.0, 3.0]",
        f"gathered {[2.0, 3.0] * 8}",
        "met 8",
    ], dry.done.stderr
    # The reduction of gradients that were never computed stays in the step.
    assert dry.row("traced-step")["settled"]
    assert b"all-reduce" in dry.graph()


def test_lightning_on_eight_cores(tmp_path):
    pytest.importorskip("lightning")
    dry = Dry(tmp_path, dry_programs.LIGHTNING, cores=8)
    step = dry.row("traced-step")
    assert step is not None, dry.done.stderr
    assert (step["settled"], step["samples"]) == (True, 16)
