"""Runs of several hosts at a shared folder and at a storage that speaks S3."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.store.pods import START, host_run, write_host
from xladoctor import diagnosis
from xladoctor.cli.app import main
from xladoctor.errors import MissingExtra, SourceError, StorageError, UsageError
from xladoctor.store import runs
from xladoctor.store.launchers import Identity
from xladoctor.store.locations import located
from xladoctor.store.upload import Uploader


@pytest.fixture(params=["folder", "s3", "gs"])
def place(request, tmp_path):
    """An address of each kind."""
    if request.param == "folder":
        return str(tmp_path / "shared" / "run")
    bucket = "bucket" if request.param == "s3" else "gs_bucket"
    return f"{request.getfixturevalue(bucket)}/team/run"


def write(place, tmp_path, hosts=4, **facts):
    for host in range(hosts):
        write_host(place, tmp_path / f"host-{host}", host_run(), host, hosts=hosts, **facts)


def report(place):
    return diagnosis.diagnose(runs.load([place]))


def test_hosts_are_the_cores_of_one_run(place, tmp_path):
    write(place, tmp_path)
    found = report(place)
    assert found.summary.cores == 8
    assert found.summary.steps == 12
    assert [one.core for one in found.cores] == list(range(8))
    assert found.compilations[0].cores == tuple(range(8))
    assert "4 hosts" in found.about["Run"]
    assert not any("left nothing" in note for note in found.notes)


def test_many_hosts_are_read_as_digests_and_say_the_same(place, tmp_path):
    write(place, tmp_path, hosts=runs.WHOLE_HOSTS + 1)
    found = report(place)
    assert found.summary.cores == 2 * (runs.WHOLE_HOSTS + 1)
    assert found.summary.steps == 12
    assert found.summary.seconds.total == pytest.approx(12 * 0.6)
    assert [one.core for one in found.cores] == list(range(18))


def test_a_host_that_is_missing(place, tmp_path):
    for host in (0, 2, 3):
        write_host(place, tmp_path / f"host-{host}", host_run(), host, hosts=6)
    found = report(place)
    assert "hosts 1 and 4-5 of 6 left nothing here: what follows is of the other 3" in found.notes
    assert found.summary.cores == 6


def test_a_host_that_is_there_twice(place, tmp_path):
    write(place, tmp_path, hosts=2)
    write_host(place, tmp_path / "again", host_run(), 1, hosts=2, hostname="other", pid=9)
    found = report(place)
    told = [note for note in found.notes if "twice" in note]
    assert len(told) == 1
    assert "(node-1, other)" in told[0]
    assert found.summary.cores == 6


def test_a_restarted_host_is_the_same_host_and_its_steps_are_counted_on(place, tmp_path):
    cut = host_run(steps=5, ended=None, complete=False)
    cut.rows = [row for row in cut.rows if row["e"] not in ("core-end", "end")]
    write_host(place, tmp_path / "first", cut, 0, hosts=1, ended=False)
    write_host(
        place, tmp_path / "second", host_run(steps=7), 0, started=START + 300, pid=8, hosts=1
    )
    found = report(place)
    assert found.summary.cores == 2
    assert found.summary.steps == 12
    assert any("started 2 times" in note for note in found.notes)


def test_a_part_that_is_cut(place, tmp_path):
    write(place, tmp_path, hosts=2)
    cut = host_run(ended=None, complete=False)
    cut.rows = cut.rows[:20]
    write_host(place, tmp_path / "cut", cut, 2, hosts=3, ended=False)
    found = report(place)
    assert found.summary.cores == 6
    assert any(note.startswith("host 2: the run was cut short") for note in found.notes)


def test_a_manifest_that_is_cut_costs_nothing_else(tmp_path):
    write(tmp_path / "run", tmp_path, hosts=2)
    manifest = next((tmp_path / "run").glob("hosts/1/*/manifest.json"))
    manifest.write_text(manifest.read_text()[:40])
    found = report(str(tmp_path / "run"))
    assert found.summary.cores == 4
    assert any(note.startswith("host 1: manifest.json cannot be read") for note in found.notes)


def test_two_runs_in_one_folder(place, tmp_path):
    write(place, tmp_path)
    write_host(place, tmp_path / "new", host_run(3), 0, name="job-42", started=START + 9000)
    found = report(place)
    assert found.summary.cores == 3
    told = [note for note in found.notes if "2 runs are in one folder" in note]
    assert len(told) == 1
    assert "job-42" in told[0]
    address = place if "://" in place else f"file://{place}"
    assert f"{address}#job-41" in told[0]
    assert report(f"{address}#job-41").summary.cores == 8


def test_two_runs_without_a_name(place, tmp_path):
    write(place, tmp_path, hosts=2, name=None)
    for host in range(2):
        write_host(
            place, tmp_path / f"again-{host}", host_run(steps=3), host, name=None, hosts=2,
            started=START + 9000, pid=77,
        )  # fmt: skip
    found = report(place)
    assert found.summary.steps == 3
    assert any("an earlier run in the same folder" in note for note in found.notes)


def test_mixed_versions_are_one_line(place, tmp_path):
    write(place, tmp_path, hosts=3)
    old = host_run()
    old.rows[0]["torch_xla"] = "2.8.0"
    write_host(place, tmp_path / "old", old, 3)
    notes = [note for note in report(place).notes if "versions" in note]
    assert notes == ["versions of torch_xla are mixed: host 3 has 2.8.0, the others 2.9.0"]


def test_clocks_that_are_hours_apart_are_one_line_and_steps_still_meet(place, tmp_path):
    write(place, tmp_path, hosts=3)
    write_host(place, tmp_path / "late", host_run(), 3, started=START + 7200)
    found = report(place)
    notes = [note for note in found.notes if "clocks" in note]
    assert len(notes) == 1
    assert "that of host 3 by 2.0 h ahead" in notes[0]
    ends = {
        round(one.start + one.seconds, 3)
        for one in found.timeline.stretches
        if one.first == one.last == 5
    }
    assert len(ends) == 1


def test_a_part_of_another_form_is_left_out(tmp_path):
    write(tmp_path / "run", tmp_path, hosts=2)
    facts = next((tmp_path / "run").glob("hosts/1/*/part.json"))
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"schema_version": 9}))
    found = report(str(tmp_path / "run"))
    assert found.summary.cores == 2
    assert any(note.startswith("host 1 was left out: it was written in form 9") for note in
               found.notes)  # fmt: skip


def test_what_is_appended_goes_out_in_segments(place, tmp_path, monkeypatch):
    monkeypatch.setattr("xladoctor.store.upload.SEGMENT", 4096)
    write(place, tmp_path, hosts=1)
    names = [name for name in located(place).sizes("hosts") if name.endswith(".jsonl")]
    assert len(names) > 2
    sent = b"".join(located(place).read(name) for name in sorted(names))
    assert sent == next((tmp_path / "host-0").glob("p*/events.jsonl")).read_bytes()
    assert report(place).summary.steps == 12


def test_hosts_write_at_the_same_time(place, tmp_path):
    program = (
        "import sys, pathlib\n"
        "from tests.store.pods import host_run, write_host\n"
        "host = int(sys.argv[1])\n"
        "write_host(sys.argv[2], pathlib.Path(sys.argv[3]), host_run(), host, hosts=4)\n"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(host), place, str(tmp_path / f"of-{host}")],
            env=os.environ | {"PYTHONPATH": str(Path.cwd())},
        )
        for host in range(4)
    ]
    assert [process.wait(120) for process in started] == [0] * 4
    assert report(place).summary.cores == 8


def test_nothing_there(place):
    with pytest.raises(SourceError, match="no host has left anything here"):
        runs.load([place if "://" in place else f"file://{place}"])


# -- storages that refuse --------------------------------------------------------------------------
def test_a_bucket_that_is_not_there(bucket, capsys):
    assert main(["report", "s3://no-such-bucket-of-ours/run"]) == 2
    err = capsys.readouterr().err
    assert "no host has left anything here" in err or "no such bucket" in err
    assert "Traceback" not in err


def test_a_storage_that_cannot_be_reached(bucket, monkeypatch, capsys):
    import fsspec

    monkeypatch.setattr("xladoctor.store.locations._WAITS", ())
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    fsspec.filesystem("s3").clear_instance_cache()
    assert main(["report", f"{bucket}/run"]) == 2
    err = capsys.readouterr().err
    assert "cannot be reached" in err
    assert "the-key-of-the-test" not in err
    assert "the-secret-of-the-test" not in err


class _Refusing:
    """A storage of which one part cannot be read, and what is written is refused."""

    def __init__(self, error):
        self.error = error

    def invalidate_cache(self):
        pass

    def _strip_protocol(self, url):
        return url.partition("://")[2]

    def find(self, *_, **__):
        raise self.error

    def pipe_file(self, *_):
        raise self.error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError("Access Denied for key AKIAABCDEFGHIJKLMNOP"), "access is refused"),
        (TimeoutError("after 60 s"), "did not answer in time"),
        (type("SlowDown", (Exception,), {})("please"), "asks for fewer requests"),
        (type("NoCredentialsError", (Exception,), {})("x"), "no credentials were found"),
        (RuntimeError("secret=abc"), r"\(RuntimeError\)"),
    ],
)
def test_why_a_storage_refuses_is_one_line_without_what_it_said(monkeypatch, error, said):
    pytest.importorskip("fsspec")
    monkeypatch.setattr("xladoctor.store.locations._filesystem", lambda _: _Refusing(error))
    monkeypatch.setattr("xladoctor.store.locations._WAITS", ())
    with pytest.raises(StorageError, match=said) as raised:
        located("s3://bucket/run").sizes()
    assert "AKIA" not in str(raised.value)
    assert "secret" not in str(raised.value)
    assert raised.value.__cause__ is None
    with pytest.raises(StorageError, match="cannot be written"):
        located("s3://bucket/run").write("a", b"")


def test_what_passes_is_tried_again(monkeypatch):
    pytest.importorskip("fsspec")
    tries = []

    class Busy(_Refusing):
        def find(self, *_, **__):
            tries.append(1)
            if len(tries) < 3:
                raise TimeoutError
            return {"bucket/run/a": {"size": 3}}

    monkeypatch.setattr("xladoctor.store.locations._filesystem", lambda _: Busy(None))
    monkeypatch.setattr("xladoctor.store.locations._WAITS", (0.0, 0.0))
    assert located("s3://bucket/run").sizes() == {"a": 3}


@pytest.mark.parametrize("hosts", [3, runs.WHOLE_HOSTS + 1])
@pytest.mark.parametrize("what", ["part.json", ".jsonl", ".zip"])
def test_hosts_that_are_refused_cost_no_other(monkeypatch, tmp_path, hosts, what):
    memory = pytest.importorskip("fsspec.implementations.memory")
    place = f"memory://refused/{hosts}{what}"
    write(place, tmp_path, hosts=hosts)
    if what == ".zip":
        assert main(["compact", place, "--jobs", "1"]) == 0
    for name in ("cat_file", "get_file"):
        read = getattr(memory.MemoryFileSystem, name)

        def refusing(self, path, *rest, read=read, **more):
            refused = [f"hosts/{host}/" for host in (1, 2)] + [
                f"digests/{host}@" for host in (1, 2)
            ]
            if path.endswith(what) and any(one in path for one in refused):
                raise PermissionError("Access Denied for key AKIAABCDEFGHIJKLMNOP")
            return read(self, path, *rest, **more)

        monkeypatch.setattr(memory.MemoryFileSystem, name, refusing)
    found = report(place)
    needed = what != ".zip" or hosts > runs.WHOLE_HOSTS
    assert found.summary.cores == 2 * (hosts - 2 * needed)
    said = [note for note in found.notes if "left out" in note]
    assert len(said) == needed
    assert all(note.startswith("hosts 1-2 were left out: ") for note in said)
    assert not any("AKIA" in note for note in found.notes)


def test_addresses():
    with pytest.raises(UsageError, match="credentials do not belong"):
        located("s3://key:secret@bucket/run")
    with pytest.raises(UsageError, match="xladoctor knows file://"):
        located("ftp://host/run")
    with pytest.raises(UsageError, match="name a folder in it"):
        located("s3://")
    with pytest.raises(UsageError, match="file:///shared/run"):
        located("file://shared/run")
    assert located("file:///shared/run").url == "/shared/run"


def test_without_fsspec_it_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtra, match=r'pip install "xladoctor\[s3\]"'):
        located("s3://bucket/run")


def test_no_secret_is_in_what_was_written(bucket, tmp_path):
    write(f"{bucket}/run", tmp_path, hosts=1)
    place = located(f"{bucket}/run")
    for name in place.sizes():
        data = place.read(name)
        assert b"the-key-of-the-test" not in data
        assert b"the-secret-of-the-test" not in data


def test_recording_does_not_wait_for_a_storage_that_does_not_answer(monkeypatch, tmp_path):
    pytest.importorskip("fsspec")
    written = []

    class Comes(_Refusing):
        def pipe_file(self, path, data):
            if self.error is not None:
                raise self.error
            written.append(path)

    storage = Comes(TimeoutError())
    monkeypatch.setattr("xladoctor.store.locations._filesystem", lambda _: storage)
    monkeypatch.setattr("xladoctor.store.locations._WAITS", ())
    uploader = Uploader(
        host_run().write(tmp_path / "run"), located("s3://bucket/run"),
        Identity("job", "0", 1, None, None, None, "node"), started=START, pid=1, version="0",
        every=60.0, clock=lambda: START,
    )  # fmt: skip
    uploader.start()
    assert "did not answer in time" in uploader.problem
    storage.error = None
    assert uploader.finish() is None
    assert any(path.endswith("events.00000.jsonl") for path in written)
    storage.error = PermissionError()
    refused = Uploader(
        tmp_path / "run", located("s3://bucket/run"),
        Identity("job", "0", 1, None, None, None, "node"),
        started=START, pid=2, version="0", every=60.0, clock=lambda: START,
    )  # fmt: skip
    with pytest.raises(StorageError, match="access is refused"):
        refused.start()


def test_a_command_does_not_wait_for_a_storage_that_is_silent(monkeypatch, tmp_path):
    pytest.importorskip("fsspec")
    answers = threading.Event()

    class Silent(_Refusing):
        def pipe_file(self, *_):
            answers.wait(60)

    monkeypatch.setattr("xladoctor.store.locations._filesystem", lambda _: Silent(None))
    monkeypatch.setattr("xladoctor.store.upload.FIRST", 0.05)
    uploader = Uploader(
        host_run().write(tmp_path / "run"), located("s3://bucket/run"),
        Identity("job", "0", 1, None, None, None, "node"), started=START, pid=1, version="0",
        every=60.0, clock=lambda: START,
    )  # fmt: skip
    uploader.start()
    assert not answers.is_set()
    assert uploader.problem == "s3://bucket/run: this has not answered in 0 s"
    answers.set()
    assert uploader.finish() is None
