"""Processes that keep the agent out are found from outside, by what the system knows of them.

The processes are real. Instead of torch_xla they map a file with the name of its extension.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xladoctor.capture import launch, rundir
from xladoctor.capture.unreached import Watch, why_unreached
from xladoctor.readings.unwatched import unwatched

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's /proc")

#: Maps the file, and waits until it is found or told to end.
LOADED = """\
import mmap, pathlib, sys, time
file = open(sys.argv[1], "rb")
kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
run = pathlib.Path(sys.argv[2])
for _ in range(3600):
    if list(run.glob("not-reached-*")) or (run / "go").exists():
        break
    time.sleep(0.05)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "_XLAC.so").write_bytes(b"x" * 4096)
    (tmp_path / "loaded.py").write_text(LOADED)
    (tmp_path / "run").mkdir()
    return tmp_path


def found(folder: Path, *words: str) -> list[str]:
    program = [str(folder / "loaded.py"), str(folder / "_XLAC.so"), str(folder / "run")]
    environ = launch.environment(os.environ, folder / "run")
    watch = Watch(folder / "run", launch.BOOTSTRAP)
    # As in a shell script: what is looked for is no child of ours.
    command = ["sh", "-c", '"$@"; true', "sh", *words, *program]
    assert launch.run(command, environ, watch=watch) == 0
    return list(unwatched(folder / "run"))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([sys.executable, "-I"], "python -I ignores PYTHONPATH"),
        ([sys.executable, "-uS"], "python -S does not run sitecustomize"),
        (["env", "-i", sys.executable], "an environment of its own"),
        (["env", "PYTHONPATH=/elsewhere", sys.executable], "its PYTHONPATH was replaced"),
    ],
)
def test_processes_that_keep_the_agent_out(folder: Path, words: list[str], why: str) -> None:
    (sentence,) = found(folder, *words)
    assert why in sentence
    assert "used torch_xla and could not be watched" in sentence
    assert sys.executable in sentence
    assert rundir.not_reached(folder / "run") == [sentence]


def test_a_process_that_is_watched_or_has_nothing_to_do_with_torch_xla_is_not_named(
    folder: Path,
) -> None:
    (folder / "run" / "go").touch()
    assert found(folder, sys.executable) == []
    assert found(folder, "env", "-i", "sleep", "0.5", "#") == []


def test_what_is_looked_at_is_the_environment_a_process_was_started_with() -> None:
    inside = {"XLADOCTOR_RUN_DIR": "/run", "PYTHONPATH": "/boot:/mine"}
    assert why_unreached(["python", "x.py"], inside, "/boot") is None
    assert why_unreached(["sh", "-c", "python -I x.py"], inside, "/boot") is None
    assert "PYTHONPATH" in (why_unreached(["python", "x.py"], inside, "/other") or "")


def test_a_table_of_processes_that_cannot_be_read_finds_nothing(tmp_path: Path) -> None:
    watch = Watch(tmp_path, launch.BOOTSTRAP, proc=tmp_path / "no-proc")
    watch.started(os.getpid(), own_group=False)
    watch.look()
    assert list(tmp_path.iterdir()) == []


def test_a_look_costs_no_process(folder: Path) -> None:
    """Only what the command has started is looked into, not every process of the machine."""
    watch = Watch(folder / "run", launch.BOOTSTRAP)
    with subprocess.Popen(["sleep", "60"]) as other:
        watch.started(os.getpid() + 10_000_000, own_group=False)
        watch.look()
        assert watch._family.keys() == {os.getpid() + 10_000_000}
        other.kill()
