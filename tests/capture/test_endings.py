"""Each wait at the end of a run has a limit and a sentence."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from rich.console import Console

from xladoctor.capture import endings, launch, rundir
from xladoctor.capture.simulate import launchers
from xladoctor.capture.simulate.cores import CoreGroup
from xladoctor.cli import recording

#: Invented: what a process leaves that has run its exit handlers, and then does not end.
_STAYS = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1], f"ending-{os.getpid()}.txt").touch()
time.sleep(600)
"""


def test_a_process_that_has_run_its_last_line_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(endings, "PATIENCE", 0.0)
    monkeypatch.setattr(endings, "_EVERY", 0.0)
    told = []
    look = endings.Endings(tmp_path, told.append).look
    (tmp_path / "ending-notanumber.txt").touch()
    command = [sys.executable, "-c", _STAYS, str(tmp_path)]
    assert launch.run(command, os.environ, while_running=look) == -signal.SIGKILL
    [sentence] = told
    assert sentence.startswith("xladoctor: process ")
    assert "has run its last line and did not end within" in sentence


def test_one_that_still_has_time_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(endings, "_EVERY", 0.0)
    told = []
    look = endings.Endings(tmp_path, told.append).look
    command = [sys.executable, "-c", _STAYS, str(tmp_path)]
    code = launch.run(command, os.environ, while_running=look, time_limit=2)
    assert code == -signal.SIGTERM
    assert (told, len(list(tmp_path.iterdir()))) == ([], 1)


def test_a_second_sigterm_ends_a_command_that_ignores_the_first(tmp_path):
    ignores = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print(1, flush=True); time.sleep(600)"
    )
    program = textwrap.dedent(
        """
        import os, sys
        from xladoctor.capture import launch
        print(launch.run([sys.executable, "-c", sys.argv[1]], os.environ))
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, ignores],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"  # it ignores the signal from here on
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)  # two at once would be one
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert out == f"{-signal.SIGKILL}\n"
    assert err == "xladoctor: a second SIGTERM; ending the command by SIGKILL\n"


def test_a_launch_that_uses_no_cpu_is_no_compilation(monkeypatch):
    clock = {"used": 0.0, "now": 0.0}
    monkeypatch.setattr(time, "process_time", lambda: clock["used"])
    monkeypatch.setattr(time, "monotonic", lambda: clock["now"])
    idle = launchers._Idle()
    for _ in range(400):  # it compiles, with a tenth of a CPU
        clock["now"] += 1
        clock["used"] += 0.1
        assert not idle.since(300)
    stuck = []
    for _ in range(400):
        clock["now"] += 1
        clock["used"] += 0.001  # the watch itself
        stuck.append(idle.since(300))
    assert stuck.index(True) in range(299, 320)
    clock["used"] += 60
    assert not idle.since(300)


_NEVER_ENDS = """
import atexit, time
if __name__ == "__mp_main__":  # before torch_xla, so it runs after the agent's own handler
    atexit.register(time.sleep, 600)
import torch, torch_xla


def main(index):
    torch.ones(1).to(torch_xla.device()).sum().item()
    print("done", index, flush=True)


if __name__ == "__main__":
    torch_xla.launch(main)
"""


@pytest.mark.slow
@pytest.mark.xla
def test_a_process_of_cores_that_does_not_end_is_ended_and_its_run_is_whole(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(_NEVER_ENDS)
    monkeypatch.setattr(endings, "PATIENCE", 1.0)
    monkeypatch.chdir(tmp_path)
    said = io.StringIO()
    console = Console(file=said, width=200)
    words = [sys.executable, "train.py"]
    with (tmp_path / "out.txt").open("wb") as out:
        run_dir, code = recording.record(
            words, 2, Path("run"), False, None, "normal", console, printed=out
        )
    assert (code, (tmp_path / "out.txt").read_text().count("done")) == (0, 2)
    assert "has run its last line and did not end within 1 s" in said.getvalue()
    [process] = rundir.processes(run_dir)
    assert [row["e"] for row in rundir.rows(process)][-1] == "end"


class _Gate:
    """Invented: a scheduler that nobody can be asked for."""

    @property
    def launching(self):
        raise KeyError("what has no name")


def test_a_watch_that_fails_ends_the_run(monkeypatch):
    told = []
    launcher = launchers.Launcher(None, _Gate(), 2, 300, lambda kind, facts: None)
    group = CoreGroup(2, lambda kind, facts: told.append(kind))
    group.grace = 0.0

    class Ended(BaseException):
        pass

    def leave(code):
        raise Ended

    monkeypatch.setattr(os, "_exit", leave)
    with pytest.raises(Ended):
        launcher._watch(group)
    assert "the watch over the cores failed: KeyError('what has no name')" in str(group.failure[1])
    assert told == ["process-ended"]
