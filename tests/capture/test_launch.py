from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from xladoctor.capture import command, launch, rundir
from xladoctor.errors import SourceError, UsageError

ROOT = Path(__file__).resolve().parents[2]
#: Seconds after which a test that waits gives up; a machine may be busy.
PATIENCE = 180


def test_exit_code_and_signal_of_the_command():
    assert launch.run([sys.executable, "-c", "raise SystemExit(7)"], os.environ) == 7
    code = launch.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], os.environ)
    assert (code, launch.shell_code(code), launch.signal_name(code)) == (-9, 137, "SIGKILL")


def test_environment_keeps_the_users_path(tmp_path):
    environ = launch.environment({"PYTHONPATH": "/mine", "A": "b"}, tmp_path)
    assert environ["PYTHONPATH"].split(os.pathsep) == [str(launch.BOOTSTRAP), "/mine"]
    assert environ["A"] == "b"
    assert "XLADOCTOR_SIMULATE_CORES" not in environ
    simulated = launch.environment({}, tmp_path, cores=8, hang_timeout=12.5)
    assert simulated["XLADOCTOR_SIMULATE_CORES"] == simulated["CPU_NUM_DEVICES"] == "8"
    assert simulated["PJRT_DEVICE"] == "CPU"
    assert simulated["XLADOCTOR_HANG_TIMEOUT"] == "12.5"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["no-such-command-here"], "no such command"),
        (["{tmp}"], "it is a folder"),
        (["{tmp}/x.py"], "did you mean 'python"),
    ],
)
def test_commands_that_cannot_be_started(tmp_path, words, says):
    (tmp_path / "x.py").write_text("")
    with pytest.raises(UsageError, match=says):
        launch.run([word.format(tmp=tmp_path) for word in words], os.environ)


def test_a_time_limit_ends_the_command_politely_and_then_not(monkeypatch):
    assert launch.run(["sleep", "600"], os.environ, time_limit=0.01) == -signal.SIGTERM
    monkeypatch.setattr(launch, "GRACE", 0.1)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # inherited, so it does not help
    try:
        assert launch.run(["sleep", "600"], os.environ, time_limit=0.01) == -signal.SIGKILL
    finally:
        signal.signal(signal.SIGTERM, before)
    assert launch.run(["true"], os.environ, time_limit=600) == 0


def _wait_for(path: Path) -> str:
    for _ in range(PATIENCE * 20):
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.05)
    raise AssertionError(f"{path} was never written")


LAUNCHER = """
import os, sys
sys.path.insert(0, {root!r})
from xladoctor.capture import launch
code = launch.run([sys.executable, {script!r}], os.environ)
sys.exit(launch.shell_code(code))
"""


def _start(tmp_path: Path, script: str) -> subprocess.Popen[bytes]:
    path = tmp_path / "x.py"
    path.write_text(textwrap.dedent(script))
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCHER.format(root=str(ROOT), script=str(path))],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        preexec_fn=_hears_signals,
    )


def _hears_signals() -> None:
    """A shell that runs the tests in the background has them ignore Ctrl-C, `nohup` the hang-up."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_command_and_its_answer_comes_back(tmp_path, number):
    started = _start(
        tmp_path,
        f"""
        import signal, sys, time
        def handle(number, frame):
            sys.exit(40 + number)
        signal.signal({int(number)}, handle)
        open("ready", "w").write("yes")
        time.sleep(2 * 180)
        """,
    )
    _wait_for(tmp_path / "ready")
    started.send_signal(number)
    assert started.wait(PATIENCE) == 40 + number


def test_what_the_command_leaves_behind_is_ended(tmp_path):
    started = _start(
        tmp_path,
        """
        import subprocess, sys
        left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3 * 180)"])
        open("left", "w").write(str(left.pid))
        """,
    )
    assert started.wait(PATIENCE) == 0
    pid = int(_wait_for(tmp_path / "left"))
    for _ in range(PATIENCE * 20):
        if (
            not Path(f"/proc/{pid}").exists()
            or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2]
        ):
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("the child still runs")


# -- the words of a command ----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["python", "-I", "x.py"], "-I"),
        (["python3.11", "-uE", "x.py"], "-E"),
        (["python", "-W", "ignore", "-S", "x.py"], "-S"),
        (["env", "-i", "python", "x.py"], "env -i"),
        (["env", "A=b", "python", "-I", "x.py"], "-I"),
    ],
)
def test_why_the_agent_cannot_get_in(words, flag):
    assert flag in (command.why_blind(words) or "")


@pytest.mark.parametrize(
    "words",
    [
        ["python", "x.py", "-I"],
        ["python", "-m", "pack", "-E"],
        ["python", "-c", "print()", "-S"],
        ["python", "-X", "dev", "x.py"],
        ["python", "-WI", "x.py"],
        ["torchrun", "-S"],
        ["env", "A=b", "python", "x.py"],
    ],
)
def test_flags_of_the_program_are_not_flags_of_python(words):
    assert command.why_blind(words) is None


def test_short_forms_run_our_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    assert command.expand(["train.py", "-x"], "PY") == ["PY", "train.py", "-x"]
    assert command.expand(["-m", "pack", "a"], "PY") == ["PY", "-m", "pack", "a"]
    assert command.expand(["python", "train.py"], "PY") == ["python", "train.py"]
    with pytest.raises(UsageError, match=r"gone\.py: there is no such file"):
        command.missing_script(["python", "-u", "-X", "dev", "gone.py"])
    command.missing_script(["python", "-m", "gone.py"])


@pytest.mark.parametrize(
    ("torch", "xla", "says"),
    [
        (None, None, 'pip install "xladoctor[xla]"'),
        ("2.9.0", None, 'pip install "torch_xla==2.9.*"'),
        (None, "2.9.0", 'pip install "torch==2.9.*"'),
        ("2.8.1+cpu", "2.9.0", 'pip install "torch==2.9.*" "torch_xla==2.9.*"'),
        ("2.9.0+cu128", "2.9.0", None),
    ],
)
def test_versions_that_do_not_belong_together(torch, xla, says):
    problem = command.Versions(torch, xla).problem()
    assert problem is None if says is None else says in (problem or "")


def test_interpreter_of_a_script(tmp_path):
    script = tmp_path / "tool"
    script.write_text(f"#!{sys.executable}\n")
    script.chmod(0o755)
    assert command.interpreter([str(script)], os.environ) == sys.executable
    assert command.interpreter([sys.executable, "x.py"], os.environ) == sys.executable
    assert command.interpreter(["/bin/sh"], os.environ) is None


# -- the run directory ---------------------------------------------------------------------------
def _manifest(**more):
    return rundir.Manifest("0.1.0", ["python", "x.py"], "/here", 1.0, **more)


def test_names_of_runs(tmp_path):
    name = rundir.default_directory(["/usr/bin/python3", "-u", "a/train net.py"], 0.0, tmp_path)
    assert name == tmp_path / "19700101-000000-train-net"
    name.mkdir()
    again = rundir.default_directory(["python", "a/train net.py"], 0.0, tmp_path)
    assert again.name == "19700101-000000-train-net-2"


def test_existing_folders_are_refused_and_forced(tmp_path):
    path = rundir.create(tmp_path / "run", force=False)
    assert (path / ".gitignore").read_text() == "*\n"
    with pytest.raises(UsageError, match="another run is being written"):
        rundir.create(path, force=True)
    rundir.release(path)
    rundir.create(path, force=False)  # still empty
    rundir.write_manifest(path, _manifest())
    rundir.release(path)
    (path / "p1-2").mkdir()
    (path / "p1-2" / "events.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match="--force"):
        rundir.create(path, force=False)
    rundir.create(path, force=True)
    rundir.release(path)
    assert {entry.name for entry in path.iterdir()} <= {".gitignore", "lock"}
    (path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="not a run directory"):
        rundir.create(path, force=True)
    assert (path / "thesis.tex").exists()


def test_a_file_in_the_way_and_a_place_that_takes_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="not a folder"):
        rundir.create(tmp_path / "file", force=True)
    with pytest.raises(UsageError, match="--output"):
        rundir.create(tmp_path / "file" / "below", force=False)


def test_manifest_and_rows_are_read_back(tmp_path):
    rundir.write_manifest(tmp_path, _manifest(exit_code=3, complete=False))
    assert rundir.read_manifest(tmp_path) == _manifest(exit_code=3, complete=False)
    folder = tmp_path / "p12-5"
    folder.mkdir()
    (folder / "events.jsonl").write_text('{"e":"note","text":"a"}\n[1]\n{"e":"step","co')
    assert list(rundir.rows(folder)) == [{"e": "note", "text": "a"}]
    assert rundir.processes(tmp_path) == [folder]


@pytest.mark.parametrize(
    ("text", "says"),
    [(None, "not a run directory"), ("{", "cannot be read"), ('{"schema_version": 9}', "form 9"),
     ('{"schema_version": 1}', "incomplete")],
)  # fmt: skip
def test_manifests_that_cannot_be_read(tmp_path, text, says):
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(SourceError, match=says):
        rundir.read_manifest(tmp_path)


def test_latest(tmp_path):
    with pytest.raises(SourceError, match="no run"):
        rundir.latest(tmp_path)
    for name, when in (("b-old", 100), ("a-new", 200)):
        (tmp_path / name).mkdir()
        rundir.write_manifest(tmp_path / name, _manifest())
        os.utime(tmp_path / name / "manifest.json", (when, when))
    (tmp_path / "no-run").mkdir()
    assert rundir.latest(tmp_path).name == "a-new"
