"""``xladoctor treat``: an old program runs again, and what its fixes gained is measured."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from xladoctor.changes import Figures, Trial
from xladoctor.cli import treatment_plan as plan_module
from xladoctor.cli import trials
from xladoctor.cli.app import main
from xladoctor.cli.treatment_plan import TreatmentPlan
from xladoctor.diagnosis import printed
from xladoctor.errors import UsageError
from xladoctor.lint import fix_session, fixes, notebooks
from xladoctor.lint.engine import LintOptions
from xladoctor.lint.run import Plan
from xladoctor.report import treatment

ROOT = Path(__file__).resolve().parents[2]

#: Invented: a classifier as it was written in 2020.
OLD = """\
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def train(index):
    torch.manual_seed(0)
    device = xm.xla_device()
    data = TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,)))
    sampler = DistributedSampler(
        data, num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal(), shuffle=False
    )
    loader = DataLoader(data, batch_size=4, sampler=sampler, drop_last=True)
    model = nn.Linear(8, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(2):
        total = 0.0
        for x, y in pl.ParallelLoader(loader, [device]).per_device_loader(device):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            xm.optimizer_step(optimizer)
            total += loss.item()
        xm.master_print("epoch", epoch, "loss", total / len(loader))


if __name__ == "__main__":
    xmp.spawn(train, nprocs=8, start_method="fork")
"""

#: Invented: steps without end, with a read on each; what it needs comes from another file.
ENDLESS = """\
import torch
import torch_xla
from helper import report

layer = torch.nn.Linear(4, 4).to(torch_xla.device())
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
print("ready", flush=True)
while True:
    loss = layer(torch.ones(2, 4).to(torch_xla.device())).square().mean()
    loss.backward()
    optimizer.step()
    torch_xla.sync()
    report(loss)
"""
HELPER = """\
import torch_xla.core.xla_model as xm


def report(loss):
    print("core", xm.get_ordinal(), "of", xm.xrt_world_size(), "loss", loss.item(), flush=True)
"""


def treat(folder: Path, *args: str, **more) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "xladoctor", "treat", *args],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"},
        capture_output=True, text=True, timeout=600, **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("missing.py", None, "cannot read missing.py: No such file or directory"),
        ("n.ipynb", "{}", "n.ipynb, line 1: this file is not a Jupyter notebook"),
        ("b.py", "def f(:\n", "b.py, line 1: this file does not parse"),
        ("train.sh", "ls\n", "train.sh is no Python file (.py)"),
        (".", None, ". is a folder: name the file in it that is run"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, monkeypatch, capsys, name, content, sentence):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / name).write_text(content)
    assert main(["treat", name]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / ".xladoctor").exists()


def test_options_may_stand_behind_the_script_and_a_wrong_one_is_refused(tmp_path, capsys):
    assert main(["treat", "missing.py", "--write", "--", "--epochs", "1"]) == 2
    assert "cannot read missing.py" in capsys.readouterr().err
    assert main(["treat", "missing.py", "--epochs", "1"]) == 2
    assert "No such option '--epochs'" in capsys.readouterr().err


def test_a_script_that_asks_for_arguments(tmp_path):
    (tmp_path / "train.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--data', required=True)\nprint(p.parse_args())\n"
    )
    done = treat(tmp_path, "train.py")
    assert done.returncode == 2
    assert "the following arguments are required: --data" in done.stderr
    assert "xladoctor treat train.py -- --epochs 1" in done.stderr
    assert done.stdout == ""
    # With them, it runs; there is nothing to fix and nothing to measure.
    done = treat(tmp_path, "train.py", "--no-repeat", "--show-output", "--", "--data", "here")
    assert done.returncode == 0, done.stderr
    assert "data='here'" in done.stderr
    assert "No fix was tried" in done.stdout
    assert "no process of the program used torch_xla" in done.stdout.replace("\n", " ")


def test_files_are_written_together_or_not_at_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "helper.py"):
        (tmp_path / name).write_text("import helper, torch_xla\n")
    program = fix_session.program_of("train.py", Plan(LintOptions()))
    before = program.read()
    after = dict.fromkeys(before, b"fixed\n")
    (tmp_path / "helper.py").write_text("# by hand\n")
    with pytest.raises(UsageError, match=r"helper\.py changed while it was treated"):
        trials.write(program, before, after, fixes.write)
    assert (tmp_path / "train.py").read_text() == "import helper, torch_xla\n"
    (tmp_path / "helper.py").write_text("import helper, torch_xla\n")
    assert trials.write(program, before, after, fixes.write) == ["train.py", "helper.py"]
    assert (tmp_path / "helper.py").read_text() == "fixed\n"


def test_a_version_in_several_files_is_a_mirror_of_links(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("work/package", "work/data"):
        (tmp_path / folder).mkdir(parents=True)
    for name, text in (
        ("train.py", "import torch_xla, package.steps\n"),
        ("package/__init__.py", ""),
        ("package/steps.py", "import torch_xla\n"),
        ("data/one.txt", "one"),
    ):
        (tmp_path / "work" / name).write_text(text)
    program = fix_session.program_of("work/train.py", Plan(LintOptions()))
    before = program.read()
    after = before | {"work/package/steps.py": b"fixed\n"}
    with trials._placed(program, before, after) as path:
        assert path.parent.parent == tmp_path
        assert path.read_bytes() == before["work/train.py"]
        # A link would make Python look for its imports where it leads to.
        assert not path.is_symlink()
        assert (path.parent / "package" / "steps.py").read_bytes() == b"fixed\n"
        assert (path.parent / "package" / "__init__.py").is_symlink()
        assert (path.parent / "data" / "one.txt").read_text() == "one"
    assert not path.parent.exists()
    assert (tmp_path / "work" / "data" / "one.txt").read_text() == "one"  # nothing was lost
    with trials._placed(program, before, before | {"work/train.py": b"fixed\n"}) as path:
        assert (path.parent, path.read_bytes()) == (Path("work"), b"fixed\n")
    assert sorted(item.name for item in (tmp_path / "work").iterdir()) == [
        "data", "package", "train.py",
    ]  # fmt: skip


def test_the_program_is_the_script_and_what_it_imports(tmp_path, monkeypatch):
    """Not the other scripts of the folder, though they import the same files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    for name, text in (
        ("train.py", "from package.steps import step\n"),
        ("other.py", "import torch_xla\nfrom package.steps import step\n"),
        ("package/__init__.py", ""),
        ("package/steps.py", "import torch_xla\nfrom package import tools\nstep = tools\n"),
        ("package/tools.py", "import torch_xla\n"),
    ):
        (tmp_path / name).write_text(text)
    names = fix_session.program_of("train.py", Plan(LintOptions())).names
    assert names[0] == "train.py"
    assert {"package/steps.py", "package/tools.py"} <= set(names)
    assert "other.py" not in names


def test_a_copy_is_called_by_the_name_of_the_script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    beside = Path("train_treated_7.py")
    said = f'File "{beside.absolute()}", line 3, in run; {beside}:4; data/train.txt'
    expected = 'File "train.py", line 3, in run; train.py:4; data/train.txt'
    assert trials._as_named(said, beside, "train.py") == expected
    mirror = tmp_path.parent / ".train-treated-x" / "train.py"
    said = f'File "{mirror}", line 3; File "{mirror.parent}/package/steps.py"'
    expected = 'File "train.py", line 3; File "package/steps.py"'
    assert trials._as_named(said, mirror, "train.py") == expected


class FakeRunner:
    """Stands for runs: what the program would show is decided by its text."""

    def __init__(self, program, fails=(), waits=()):
        self.program, self.args, self.runs = program, (), 0
        self.fails, self.waits, self.said = fails, waits, []

    def run(self, version, what):
        self.runs += 1
        self.said.append(what)
        text = version[self.program.script].decode()
        broken = [word for word in self.fails if word in text]
        if broken:
            return Trial(ran=False, failed=f"{broken[0]} fails")
        syncs = float(sum(text.count(word) for word in self.waits))
        return Trial(ran=True, figures=Figures(syncs=syncs, per_step=True, steps=4, cores=1))


def plan(tmp_path, monkeypatch, text, kind=FakeRunner, unsafe=False, **runner):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(text)
    program = fix_session.program_of("train.py", Plan(LintOptions()))
    before = program.read()
    found = TreatmentPlan(
        kind(program, **runner), before, unsafe=unsafe, repeat=True
    )  # fmt: skip
    found.run()
    return found


TWO_FIXES = """\
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

print(xm.xrt_world_size())
xm.mark_step()
"""


def test_what_is_good_alone_is_not_lost_with_what_is_bad(tmp_path, monkeypatch):
    found = plan(tmp_path, monkeypatch, TWO_FIXES, fails=["torch_xla.sync"])
    assert [(sorted(step.counts), step.kept) for step in found.steps] == [
        (["XLA801", "XLA802"], False), (["XLA801"], True), (["XLA802"], False),
    ]  # fmt: skip
    text = found.version["train.py"].decode()
    assert "xr.world_size()" in text
    assert "xm.mark_step()" in text
    assert found.runs.said[1] == "the same again, to see what differs by itself"


def test_a_program_that_fails_is_repeated_once_it_runs(tmp_path, monkeypatch):
    found = plan(tmp_path, monkeypatch, TWO_FIXES, fails=["xrt_world_size"])
    assert [step.kept for step in found.steps] == [True]
    assert found.runs.said == [
        "train.py as it is", "with 1 x XLA801 + 1 x XLA802",
        "the same again, to see what differs by itself",
    ]  # fmt: skip
    assert (found.first.ran, found.last.ran, found.apart.measured) == (False, True, True)


def test_a_time_limit_that_is_too_short_is_said(tmp_path, monkeypatch):
    class Slow(FakeRunner):
        def run(self, version, what):
            return Trial(ran=False, failed="it made 1 step", stopped=True)

    with pytest.raises(UsageError, match=r"it made 1 step: give it a longer --time-limit"):
        plan(tmp_path, monkeypatch, TWO_FIXES, kind=Slow)


def test_a_signal_ends_the_treatment_and_what_was_kept_is_shown(tmp_path, monkeypatch):
    class Stopped(FakeRunner):
        def run(self, version, what):
            if what.startswith("the same again"):
                raise trials.Interrupted(Trial(ran=False), 143)
            return super().run(version, what)

    found = plan(tmp_path, monkeypatch, TWO_FIXES, kind=Stopped, fails=["xrt_world_size"])
    assert found.interrupted == 143
    result = found.result("train.py", (), None, ())
    assert result.interrupted
    assert "+print(xr.world_size())" in result.diff
    assert [step.kept for step in result.steps] == [True]


def test_a_fix_that_waits_more_is_left_out(tmp_path, monkeypatch):
    found = plan(tmp_path, monkeypatch, TWO_FIXES, waits=["torch_xla.sync", "xr.world_size"])
    assert [step.kept for step in found.steps] == [False, False, False]
    assert found.version == found.before
    assert found.steps[0].judgement.problem == "more host syncs per step: 2 instead of 0"


FIVE_PLACES = """\
import torch_xla.core.xla_model as xm

xm.mark_step()
print(1, xm.mark_step())
print(2, xm.mark_step())
print(3, xm.mark_step())
print(4, xm.mark_step())
"""


def test_a_kind_that_fails_as_a_whole_is_tried_place_by_place(tmp_path, monkeypatch):
    found = plan(tmp_path, monkeypatch, FIVE_PLACES, fails=["print(2, torch_xla.sync"])
    tried = [
        (step.kept, [place.partition(":")[2] for place in step.places]) for step in found.steps
    ]
    assert tried == [
        (False, []), (True, ["3", "4"]), (False, ["6", "7", "8"]), (False, ["6"]),
        (True, ["7", "8"]),
    ]  # fmt: skip
    text = found.version["train.py"].decode()
    assert [line for line in text.splitlines() if "xm.mark_step" in line] == [
        "print(2, xm.mark_step())"
    ]
    assert text.count("torch_xla.sync()") == 4
    result = found.result("train.py", (), None, ())
    assert "+ XLA802 at train.py:7, train.py:8" in treatment.render(result, width=120)


def test_places_that_were_not_reached_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(plan_module, "MOST_RUNS_OF_A_KIND", 1)
    found = plan(tmp_path, monkeypatch, FIVE_PLACES, fails=["torch_xla.sync"])
    result = found.result("train.py", (), None, ())
    assert result.untried == {"XLA802": 5}  # two of them again, each alone
    assert "Too many runs to try each place of XLA802" in treatment.render(result, width=120)


def test_what_one_run_alone_held_against_a_fix_is_looked_at_again(tmp_path, monkeypatch):
    class Busy(FakeRunner):
        def run(self, version, what):
            found = super().run(version, what)
            loss = "loss 9.0" if what.startswith("with ") else "loss 1.0"
            return dataclasses.replace(found, losses=printed.losses(loss))

    found = plan(tmp_path, monkeypatch, TWO_FIXES.replace("xm.mark_step()", ""), kind=Busy)
    assert [step.kept for step in found.steps] == [True]
    assert found.runs.said[-1] == "the same again, before it is left out"


ERRORS = """\
import numpy as np
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp


def run(index):
    accuracy = 0.5
    print("begins")
    if xm.is_master_ordinal():
        accuracy = xm.mesh_reduce("accuracy", accuracy, np.mean)
        print(accuracy)


if __name__ == "__main__":
    xmp.spawn(run)
"""


def test_errors_come_first_while_the_program_fails(tmp_path, monkeypatch):
    """A collective that not all cores reach keeps it from running; what is printed does not."""
    found = plan(tmp_path, monkeypatch, ERRORS, unsafe=True, fails=["        accuracy = xm.mesh"])
    kinds = [set(step.counts) for step in found.steps]
    assert kinds[:2] == [{"XLA405"}, {"XLA401"}]
    assert found.last.ran


SUMS = """\
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def train(model, loader, optimizer, criterion):
    device = torch_xla.device()
    model.to(device)
    total = 0.0
    for step, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
        print(f"step {step} mean {total / (step + 1):.4f}")
"""


def test_fixes_that_only_help_together_are_tried_together(tmp_path, monkeypatch):
    """What is no longer read for the sum is read where it is shown, until that waits as well."""
    found = plan(tmp_path, monkeypatch, SUMS, unsafe=True, waits=["{total / (step"])
    [first, *_] = found.steps
    assert first.counts == {"XLA101": 1, "XLA103": 1}
    assert first.kept
    assert "add_step_closure" in found.version["train.py"].decode()


def test_a_program_that_still_fails_is_not_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        "import torch_xla.core.xla_model as xm\nxm.mark_step()\nboom\n"
    )
    monkeypatch.setattr(
        trials.Runner, "run",
        lambda self, version, what: Trial(ran=False, failed="NameError: boom", run="."),
    )  # fmt: skip
    assert main(["treat", "train.py", "--write"]) == 1
    out, err = capsys.readouterr()
    assert "mark_step" in (tmp_path / "train.py").read_text()
    assert "+torch_xla.sync()" in out
    assert "it still fails in the same way" in out
    assert "nothing is written: what the fixes gain cannot be measured while it fails" in err
    assert "xladoctor lint --fix train.py" in err


def test_a_notebook_is_run_as_its_cells_and_edited_as_a_notebook(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cells = [
        {"cell_type": "markdown", "source": ["# xm.mark_step()"], "metadata": {}},
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": 1,
         "source": ["!pip install x\n", "import torch_xla.core.xla_model as xm"]},
        {"cell_type": "code", "source": ["xm.mark_step()\n", "print('done')"], "metadata": {},
         "outputs": [], "execution_count": 2},
    ]  # fmt: skip
    (tmp_path / "n.ipynb").write_text(
        json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    ran = []

    def run(self, version, what):
        with trials._placed(self.program, self.original, version) as path:
            assert path.suffix == ".py"
            ran.append(path.read_text())
        return Trial(ran=True, run=".")

    monkeypatch.setattr(trials.Runner, "run", run)
    assert main(["treat", "n.ipynb", "--no-repeat", "--write"]) == 0
    assert ran[0].splitlines() == [
        "pass", "import torch_xla.core.xla_model as xm", "xm.mark_step()", "print('done')",
    ]  # fmt: skip
    assert "torch_xla.sync()" in ran[1]
    assert "# cell 3\n-xm.mark_step()\n+torch_xla.sync()" in capsys.readouterr().out
    after = json.loads((tmp_path / "n.ipynb").read_text())["cells"]
    assert "".join(after[2]["source"]) == "torch_xla.sync()\nprint('done')"
    assert after[0] == cells[0]
    assert after[1]["source"][0] == "!pip install x\n"
    assert [item.name for item in tmp_path.iterdir()] == ["n.ipynb"]


ONE_SUM = """\
import torch_xla


def train(model, loader, optimizer):
    device = torch_xla.device()
    total = 0.0
    for x in loader:
        loss = model(x.to(device)).sum()
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        total += loss.item()
    return total
"""


def _notebook(source):
    """A notebook of one cell (invented)."""
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "source": source}
    return {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


@pytest.mark.parametrize(
    ("source", "written", "why", "remark", "key"),
    [
        (TWO_FIXES, False, "none of those that 'xladoctor lint' has can be made here",
         "2 fixes were not tried: they cannot be written", "not_tried_impossible"),
        (ONE_SUM, True, "those that 'xladoctor lint' has may change the meaning",
         "which may change the meaning", "not_tried_unsafe"),
        ("import torch_xla\n", True, "'xladoctor lint' has none to try for this program", "", ""),
    ],
    ids=["cannot be written", "unsafe", "none"],
)  # fmt: skip
def test_that_nothing_was_tried_does_not_contradict_what_is_left(
    tmp_path, monkeypatch, capsys, source, written, why, remark, key
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "n.ipynb").write_text(json.dumps(_notebook(source)))
    if not written:
        monkeypatch.setattr(notebooks, "replace_sources", lambda data, changes: None)
    monkeypatch.setattr(trials.Runner, "run", lambda self, version, what: Trial(ran=True, run="."))
    assert main(["treat", "n.ipynb", "--no-repeat"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"No fix was tried: {why}." in out
    assert remark in out
    assert out.count("has none to try") == (not key)
    assert main(["treat", "n.ipynb", "--no-repeat", "--output-format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    names = ("not_tried_unsafe", "not_tried_impossible")
    assert [name for name in names if data[name]] == ([key] if key else [])


def test_progress_says_how_much_is_ahead(tmp_path, monkeypatch, capsys):
    """Of a script that does nothing: removed names, tried together, and the same again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        "import sys\nif len(sys.argv) > 9:\n    import torch_xla.core.xla_model as xm\n"
        "    xm.mark_step()\n"
        "    print(xm.xrt_world_size())\n"
    )
    monkeypatch.setattr(trials, "_span", lambda seconds: "a while")
    assert main(["treat", "train.py"]) == 0
    rows = capsys.readouterr().err.splitlines()
    assert rows[0] == "xladoctor: run 1 of about 3: train.py as it is"
    assert rows[1] == "xladoctor: it ended well in a while; about a while more for 2 runs"
    assert rows[2].startswith("xladoctor: run 2 of about 3: the same again")
    assert rows[4].startswith("xladoctor: run 3 of about 3: with ")


@pytest.mark.xla
def test_an_old_program_runs_again_and_waits_less(tmp_path):
    script = tmp_path / "old.py"
    script.write_text(OLD)
    done = treat(
        tmp_path, "old.py", "--simulate-cores", "2", "--unsafe-fixes", "--write",
        "--output-format", "json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["original"]["failed"].startswith("ValueError: Unsupported nprocs (8)")
    # What makes it run comes first and together, then one kind of fix after the other.
    runs = data["fixes"][0]
    [waits] = [fix for fix in data["fixes"] if "XLA101" in fix["fixes"]]
    assert {"XLA404", "XLA801", "XLA802"} <= set(runs["fixes"])
    assert (set(waits["fixes"]), runs["kept"], waits["kept"]) == ({"XLA101"}, True, True)
    # Before: one wait per step. After: one per epoch of eight steps. The same two losses.
    assert runs["run"]["host_syncs_per_step"] == 1.0
    assert data["final"]["host_syncs_per_step"] == 0.125
    assert (waits["losses"]["compared"], waits["losses"]["agreeing"]) == (2, 2)
    assert [loss["label"] for loss in data["final"]["losses"]] == ["loss (0)", "loss (1)"]
    assert data["noise"]["counts"]["host_syncs"] == 0.0
    assert data["written"] == ["old.py"]
    text = script.read_text()
    assert "+            total += loss.detach()" in data["diff"]
    assert "total += loss.detach()" in text
    assert "nprocs" not in text
    assert sorted(item.name for item in tmp_path.iterdir()) == [".xladoctor", "old.py"]
    assert ": with 1 x XLA101 host-sync-in-step\n" in done.stderr


@pytest.mark.slow
@pytest.mark.xla
def test_a_fault_in_an_imported_file(tmp_path):
    (tmp_path / "train.py").write_text(ENDLESS.replace("while True:", "for step in range(4):"))
    (tmp_path / "helper.py").write_text(HELPER)
    done = treat(tmp_path, "train.py", "--simulate-cores", "1", "--no-repeat", "--write")
    assert done.returncode == 0, done.stderr
    assert "as it is  fails: AttributeError" in done.stdout
    assert "helper.py is written" in done.stderr
    assert "xr.world_size()" in (tmp_path / "helper.py").read_text()
    assert "train.py is written" not in done.stderr
    assert max(len(line) for line in done.stdout.partition("---")[0].splitlines()) <= 80
    left = {item.name for item in tmp_path.iterdir()} - {"__pycache__"}
    assert left == {".xladoctor", "helper.py", "train.py"}
    assert not [item for item in tmp_path.parent.iterdir() if "treated" in item.name]


@pytest.mark.xla
def test_ctrl_c_shows_what_is_known(tmp_path):
    program = ENDLESS.replace("from helper import report", "report = id")
    (tmp_path / "endless.py").write_text(program)
    process = subprocess.Popen(
        [sys.executable, "-m", "xladoctor", "treat", "endless.py", "--simulate-cores", "1",
         "--show-output", "--write"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A shell that runs the tests in the background has them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    for line in process.stderr:
        if line == "ready\n":
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 130, err
    assert "as it is" in out
    assert "interrupted: this is what was known until then, nothing is written" in err
    assert (tmp_path / "endless.py").read_text() == program
    assert {item.name for item in tmp_path.iterdir()} == {".xladoctor", "endless.py"}
