"""What happens to the run directory never changes how the command ends, nor the run of another."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from xladoctor.capture import launch, rundir
from xladoctor.capture.agent import writer as writing
from xladoctor.cli import profile, recording
from xladoctor.cli.app import main
from xladoctor.errors import UsageError
from xladoctor.readings.unwatched import unwatched

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def profiled(code, *flags):
    return main(["profile", "-o", "run", *flags, "--", sys.executable, "-c", code])


HARM = {
    "removed": "import shutil; shutil.rmtree('run')",
    "a file": "import shutil; shutil.rmtree('run'); open('run', 'w')",
    "read only": "import os; os.chmod('run', 0o555)",
    "nonsense in it": "open('run/manifest.json', 'w').write('[' * 100000)",
    "a folder for the manifest": "import os; os.makedirs('run/manifest.json.new/x')",
    "a bad row": "import os; os.mkdir('run/p1-1'); "
    "open('run/p1-1/events.jsonl', 'w').write('[' * 9**6)",
    "a pipe for rows": "import os; os.mkdir('run/p1-1'); os.mkfifo('run/p1-1/events.jsonl')",
    "a link in a circle": "import os; os.symlink('p1-1', 'run/p1-1')",
}


@pytest.mark.parametrize("code", [0, 7])
@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
def test_the_commands_own_exit_code_survives(capfd, harm, code):
    ended = profiled(f"{harm}\nraise SystemExit({code})")
    assert ended == code if code else ended in (0, 2)
    err = capfd.readouterr().err
    assert "Traceback" not in err


def test_whatever_breaks_after_the_command_has_ended(capfd, monkeypatch):
    monkeypatch.setattr(profile, "_show", lambda *_, **__: 1 / 0)
    assert profiled("raise SystemExit(7)") == 7
    assert "internal error: ZeroDivisionError" in capfd.readouterr().err
    assert profiled("", "--force") == 2


def test_whatever_breaks_while_it_runs(capfd, monkeypatch):
    monkeypatch.setattr(recording.Progress, "__call__", lambda *_: 1 / 0)
    monkeypatch.setattr(recording.Watch, "look", lambda *_: 1 / 0)
    assert profiled("import time; time.sleep(0.6); raise SystemExit(7)") == 7


def test_a_full_disk_at_the_end(capfd, monkeypatch):
    written = rundir.write_manifest

    def full(path, manifest):
        if manifest.ended is not None:
            raise UsageError(f"cannot write to the run directory {path} (No space left on device)")
        written(path, manifest)

    monkeypatch.setattr(rundir, "write_manifest", full)
    assert profiled("raise SystemExit(7)") == 7
    assert "No space left on device" in capfd.readouterr().err


def test_two_runs_into_one_folder(capfd):
    """The second is refused, whatever its flags; the first is whole."""
    code = (
        "import time, pathlib; pathlib.Path('on').touch()\n"
        "while not pathlib.Path('off').exists(): time.sleep(0.01)"
    )
    words = [sys.executable, "-m", "xladoctor", "profile", "-o", "run", "--", sys.executable, "-c"]
    first = subprocess.Popen([*words, code], env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        while not Path("on").exists():
            assert first.poll() is None
        for flags in ((), ("--force",)):
            assert profiled("", *flags) == 2
        assert "another run is being written there" in capfd.readouterr().err
    finally:
        Path("off").touch()
        assert first.wait(60) == 0
    assert rundir.read_manifest(Path("run")).complete
    assert profiled("") == 2  # not empty
    assert profiled("", "--force") == 0  # free again


def test_many_at_once_make_one_run():
    """Each of them sees an empty folder at first."""
    Path("run").mkdir()
    made, refused = [], []
    scheduler = threading.Barrier(8)

    def make():
        scheduler.wait()
        try:
            made.append(rundir.create(Path("run"), force=True))
        except UsageError as error:
            refused.append(error)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), len(refused)) == (1, 7)
    rundir.release(made[0])
    rundir.release(rundir.create(Path("run"), force=False))


def test_only_folders_that_we_made_are_hidden_from_git():
    Path("mine").mkdir()
    rundir.release(rundir.create(Path("mine"), force=False))
    assert not Path("mine/.gitignore").exists()
    rundir.release(rundir.create(Path("new/run"), force=False))
    assert Path("new/run/.gitignore").read_text() == "*\n"
    assert not Path("new/.gitignore").exists()


def test_messages_of_megabytes_are_cut(tmp_path):
    made = writing.Writer(str(tmp_path))
    made.row({"e": "note", "text": "short"})
    made.row({"e": "error", "message": "a" * 5_000_000 + "end", "frames": [["b" * 200_000, 3]]})
    [folder] = tmp_path.glob("p*")
    data = (folder / "events.jsonl").read_bytes()
    assert len(data) < 50_000
    row = json.loads(data.splitlines()[1])
    assert row["message"].startswith("aaa")
    assert row["message"].endswith("aend")
    assert "[... 4992003 characters left out ...]" in row["message"]
    shutil.rmtree(folder)


def test_what_a_killed_launcher_left_in_memory_is_swept(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "_has_room", lambda _: True)
    memory = tmp_path / "memory"
    (memory / "xladoctor-scratch-old").mkdir(parents=True)
    (memory / "xladoctor-scratch-old" / "module_0001.txt").write_text("left")
    (memory / "theirs").mkdir()
    with launch.scratch_folder(str(memory)) as first:
        assert first.parent == memory
        assert {path.name for path in memory.iterdir()} == {"theirs", first.name}
        with launch.scratch_folder(str(memory)) as second:
            assert first.exists()  # in use
            assert second.exists()
    assert [path.name for path in memory.iterdir()] == ["theirs"]


def test_memory_without_room_is_left_to_the_program(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "_has_room", lambda _: False)
    with launch.scratch_folder(str(tmp_path)) as folder:
        assert folder.parent != tmp_path
    assert list(tmp_path.iterdir()) == []


def test_what_unwatched_processes_left_is_read_within_bounds(tmp_path):
    """A run directory may come from anywhere: pipes, gigabytes, a million files."""
    os.mkfifo(tmp_path / "not-started-1.txt")
    with (tmp_path / "not-started-2.txt").open("wb") as file:
        file.truncate(2**40)  # it takes no place on the disk
    (tmp_path / "not-started-3.txt").write_text("Traceback\nValueError: no\n")
    (tmp_path / "not-reached-4.txt").mkdir()
    pipe, large, why = rundir.not_started(tmp_path)
    assert "not-started-1.txt cannot be read: it is a pipe" in pipe
    assert "not-started-2.txt cannot be read: it is larger than" in large
    assert why == "ValueError: no"
    assert rundir.not_reached(tmp_path) == ["not-reached-4.txt cannot be read: it is a folder"]
    told = list(unwatched(tmp_path))
    assert [row.rpartition("did not start: ")[2] for row in told[1:]] == [pipe, large, why]
    for number in range(1000):
        (tmp_path / f"not-reached-{number:04}.txt").write_text("x")
    assert len(rundir.not_reached(tmp_path)) < 200
