"""``with xladoctor.profile()`` and ``%%xladoctor``, in real processes with the real torch_xla."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "tests" / "capture" / "inside.py"

pytest.importorskip("torch_xla")


def run(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": path, "PJRT_DEVICE": "CPU", **environ},
        cwd=folder, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


@pytest.mark.xla
def test_stretches_of_a_process(tmp_path: Path) -> None:
    done = run(tmp_path, str(SCRIPT), "found.json")
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    first, second, third = found["first"], found["second"], found["third"]
    assert (first["steps"], second["steps"], third["steps"]) == (4, 2, 1)
    # The step and the read; the step with more rows; the step of the first stretch again, which
    # was compiled before this one began.
    assert (first["compilations"], second["compilations"], third["compilations"]) == (2, 1, 0)
    assert (first["syncs"], second["syncs"], third["syncs"]) == (1, 0, 0)
    assert (first["complete"], second["complete"], third["complete"]) == (True, True, False)
    assert found["passed"] == "ValueError"
    assert third["codes"][:1] == ["XLA411"]
    assert found["nested"] == "xladoctor.profile() is recording already: end that block first"
    assert "Verdict" in done.stdout
    assert "Steps per core" in done.stdout


#: A cell without its steps' end would be a finding; this one has it.
CELL = """\
%%xladoctor -o run
import torch, torch_xla
w = torch.ones(4, device=torch_xla.device()).requires_grad_()
optimizer = torch.optim.SGD([w], lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    w.sum().backward()
    optimizer.step()
    torch_xla.sync()
"""


@pytest.mark.xla
def test_the_magic_in_a_notebook(tmp_path: Path) -> None:
    """nbclient is no dependency of the tests: run where it is installed."""
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    cells = [nbformat.v4.new_code_cell(text) for text in ("%load_ext xladoctor", CELL)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "n.ipynb")
    execute = (
        "import nbformat, nbclient; n = nbformat.read('n.ipynb', 4); nbclient.execute(n); "
        "nbformat.write(n, 'o.ipynb')"
    )
    done = run(tmp_path, "-c", execute)
    assert done.returncode == 0, done.stderr
    outputs = nbformat.read(tmp_path / "o.ipynb", 4).cells[1].outputs
    (page,) = [one.data["text/html"] for one in outputs if "text/html" in one.get("data", {})]
    (text,) = [one.data["text/plain"] for one in outputs if "text/html" in one.get("data", {})]
    assert "Steps per core" in text
    assert page.startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;')
    assert 'sandbox="allow-scripts allow-popups"' in page
    assert page.count("<") == 2  # the page itself is text of the frame
    assert "Steps per core" in str(outputs)
    # Cell and row as the reader of the notebook counts them, the line of the magic included.
    assert '["In [2]",9,' in next((tmp_path / "run").glob("p*/events.jsonl")).read_text()


#: Cells that fail: in a step, by the user's hand, before any device, and as text.
FAILING = """\
import sys
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
shell.run_cell("%load_ext xladoctor")
step = open(sys.argv[1]).read() + "    assert _ < 3, 'too far'"
other = step.replace("-o run", "-o stopped")
other = other.replace("assert _ < 3, 'too far'", "if _ > 2: raise SystemExit(4)")
early = "%%xladoctor -o early\\nimport torch_xla\\nboom"
cells = [step, other, early, "%%xladoctor -o text\\nboom (", "%%xladoctor -o well\\n1"]
done = [shell.run_cell(cell) for cell in cells]
print("Errors", [type(one.error_in_exec).__name__ for one in done])
"""


@pytest.mark.slow
@pytest.mark.xla
def test_a_failing_cell_shows_what_it_has_recorded(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    (tmp_path / "cell.txt").write_text(CELL)
    done = run(tmp_path, "-c", FAILING, "cell.txt", IPYTHONDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    _, failed, stopped, early, text, well = done.stdout.split("Verdict")
    # The outer cell fails as it would without the magic, and its error is shown once.
    assert "['AssertionError', 'SystemExit', 'NameError', 'SyntaxError', 'NoneType']" in well
    # Below the report, with the cell's line, and without frames of ours.
    below = failed.partition("Read more")[2]
    assert (failed.count("Traceback"), below.count("Traceback")) == (1, 1)
    assert "line 10" in below
    assert "interactive.py" not in below
    assert "core 0 failed in step 5: AssertionError" in failed
    assert "Steps per core            4" in failed
    assert "4 optimizer steps per core had been recorded" in stopped
    assert "The command failed before it used an XLA device." in early
    assert "The command failed before it used an XLA device." in text
    for name in ("run", "stopped", "early", "text"):
        manifest = json.loads((tmp_path / name / "manifest.json").read_text())
        assert (manifest["complete"], manifest["exit_code"]) == (False, 1), name


@pytest.mark.xla
def test_a_notebook_is_watched_from_outside(tmp_path: Path) -> None:
    """The kernel that nbclient starts is a process of the command like any other."""
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    cell = nbformat.v4.new_code_cell(CELL.partition("\n")[2])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "n.ipynb")
    execute = "import nbformat, nbclient; nbclient.execute(nbformat.read('n.ipynb', 4))"
    words = ["-m", "xladoctor", "profile", "-o", "run", "--output-format", "json"]
    done = run(tmp_path, *words, "--output-file", "r.json", "--", sys.executable, "-c", execute)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["summary"]["steps"] == 5
    assert {one["location"]["filename"] for one in report["compilations"]} == {"In [1]"}


#: Cores are started by fork: what a notebook defines cannot be imported by another process.
CELLS = (
    """
import torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp

steps = 3
""",
    """
def main(index):
    w = torch.ones(4, device=torch_xla.device()).requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        w.sum().backward()
        xm.optimizer_step(optimizer, barrier=True)
    print("weight", w[0].item())
""",
    """xmp.spawn(main, start_method="fork")""",
)


@pytest.mark.slow
@pytest.mark.xla
def test_a_notebook_that_papermill_runs_on_simulated_cores(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("papermill")
    pytest.importorskip("ipykernel")
    cells = [nbformat.v4.new_code_cell(text.strip()) for text in CELLS]
    cells[0].metadata["tags"] = ["parameters"]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(notebook, tmp_path / "n.ipynb")
    words = ["-m", "xladoctor", "profile", "--simulate-cores", "2", "--output-format", "json"]
    papermill = [sys.executable, "-m", "papermill", "n.ipynb", "o.ipynb", "-p", "steps", "5"]
    done = run(tmp_path, *words, "-o", "run", "--output-file", "r.json", "--", *papermill)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["summary"]["cores"], report["summary"]["steps"]) == (2, 5)
    places = [(one["location"]["filename"], one["location"]["row"]) for one in report["reads"]]
    # The parameters are a cell of their own, which papermill puts after the first.
    assert places == [("In [3]", 8)] * 2
    assert str(nbformat.read(tmp_path / "o.ipynb", 4).cells[3].outputs).count("weight") == 2


def test_importing_xladoctor_costs_nothing_of_it(tmp_path: Path) -> None:
    done = run(
        tmp_path, "-c", "import xladoctor, sys; print('xladoctor.interactive' in sys.modules)"
    )
    assert done.stdout == "False\n"


def test_a_stretch_of_a_torchtpu_program_is_refused_in_a_sentence(tmp_path: Path) -> None:
    # Invented: an empty module in the place of torch_tpu, which is all that is asked for.
    (tmp_path / "torch_tpu.py").write_text("")
    program = "import torch_tpu, xladoctor\nwith xladoctor.profile('run'):\n    pass\n"
    done = run(tmp_path, "-c", program)
    assert done.returncode == 1
    assert "one for TorchTPU is recorded as a whole: xladoctor profile --" in done.stderr
    assert not (tmp_path / "run").exists()
