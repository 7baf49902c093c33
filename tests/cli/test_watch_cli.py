"""``xladoctor watch``: invented runs that go on while they are watched."""

from __future__ import annotations

import http.server
import json
import threading

import pytest

from tests.store.pods import host_run, write_host
from xladoctor.cli.app import main
from xladoctor.errors import StorageError
from xladoctor.store import parts

WATCH = ["watch", "--every", "1"]


@pytest.fixture
def place(tmp_path):
    return tmp_path / "shared"


@pytest.fixture
def clock(monkeypatch):
    """Time that passes when somebody sleeps; what is planned happens meanwhile."""
    now = [1000.0]
    plans = []

    def sleep(seconds):
        now[0] += seconds
        assert now[0] < 5000, "nobody stopped watching"
        for plan in plans:
            plan(now[0])

    monkeypatch.setattr("xladoctor.cli.watch.time.sleep", sleep)
    monkeypatch.setattr("xladoctor.cli.watch.time.monotonic", lambda: now[0])
    return plans


def going(place, folder, steps=12, host=0, cores=2, **facts):
    run = host_run(cores, steps, ended=None, complete=False)
    run.rows = [row for row in run.rows if row["e"] not in ("core-end", "end")]
    write_host(place, folder, run, host, ended=False, **facts)
    return run


def test_a_run_that_ended_well(place, tmp_path, capsys):
    write_host(place, tmp_path / "a", host_run(), 0, hosts=1)
    assert main([*WATCH, str(place)]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "12 steps" in err
    assert "0 still running" in err


def test_a_host_that_writes_nothing_any_more(place, tmp_path, clock, capsys):
    going(place, tmp_path / "a")
    assert main([*WATCH, str(place), "--stopped-after", "60"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("stopped: host 0 has written nothing for ")
    assert out.count("\n") == 1


def test_a_core_that_stopped_while_its_host_goes_on(place, tmp_path, clock, capsys):
    run = going(place, tmp_path / "a")
    part = next((place / "hosts/0").iterdir())
    events = next(part.glob("p*/events.00000.jsonl"))

    def plan(now):
        step = 12 + int(now - 1000)
        run.step(0, step)
        text = "".join(json.dumps(row) + "\n" for row in run.rows)
        events.write_text(text)
        facts = json.loads((part / "part.json").read_text())
        (part / "part.json").write_text(json.dumps(facts | {"flushed": facts["flushed"] + 1}))

    clock.append(plan)
    assert main([*WATCH, str(place), "--stopped-after", "10"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("stopped: core 1: no step for ")


def test_graphs_after_warm_up_and_a_webhook(place, tmp_path, capsys):
    posted = []

    class Listens(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Listens)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    run = host_run()
    run.compilation(1, 9, line=52, executions=8)
    write_host(place, tmp_path / "a", run, 0, hosts=1)
    hook = f"http://127.0.0.1:{server.server_port}/secret-token"
    assert main([*WATCH, str(place), "--webhook", hook]) == 1
    server.shutdown()
    server.server_close()
    out, err = capsys.readouterr()
    assert out == "recompilation: 1 graph compiled after warm-up, the last at train.py:52\n"
    assert posted[0]["kind"] == "recompilation"
    assert posted[0]["cores"] == [1]
    assert "secret-token" not in out + err


def test_an_alert_that_nobody_asked_for(place, tmp_path):
    run = host_run()
    run.compilation(1, 9, line=52, executions=8)
    write_host(place, tmp_path / "a", run, 0, hosts=1)
    assert main([*WATCH, str(place), "--alert", "stopped"]) == 0


def test_a_webhook_that_does_not_listen_is_one_line(place, tmp_path, capsys):
    run = host_run()
    run.compilation(1, 9, line=52, executions=8)
    write_host(place, tmp_path / "a", run, 0, hosts=1)
    assert main([*WATCH, str(place), "--webhook", "http://127.0.0.1:9/secret-token"]) == 1
    err = capsys.readouterr().err
    assert "the webhook did not take the alert" in err
    assert "secret-token" not in err


def test_a_core_that_lags(place, tmp_path, capsys):
    """Host 1's core works longer, and all others wait as long."""
    from tests.invented import InventedRun

    for host in range(4):
        run = InventedRun(1)
        for step in range(1, 31):
            late = 0.3 if host == 1 else 0.0
            run.step(0, step, execute=0.5 - late, trace=0.1 + late)
        run.end()
        write_host(place, tmp_path / f"of-{host}", run, host, hosts=4)
    assert main([*WATCH, str(place)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("lag: core 1 works 300 ms longer in each step")
    assert "(host 1)" in out


def test_a_storage_that_fails_now_and_then(place, tmp_path, clock, capsys, monkeypatch):
    write_host(place, tmp_path / "a", host_run(), 0, hosts=1, ended=False)
    looks = []
    find = parts.find

    def fails(location):
        looks.append(1)
        if len(looks) in (2, 3):
            raise StorageError("s3://bucket/run: this cannot be read: it did not answer in time",
                               passing=len(looks) == 2)  # fmt: skip
        return find(location)

    monkeypatch.setattr("xladoctor.cli.watch.parts.find", fails)
    assert main([*WATCH, str(place), "--stopped-after", "30"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("stopped: host 0")
    assert err.count("it did not answer in time; trying again") == 1


def test_a_storage_that_refuses_from_the_first(place, tmp_path, capsys, monkeypatch):
    def refuses(_):
        raise StorageError("s3://bucket/run: this cannot be read: access is refused")

    write_host(place, tmp_path / "a", host_run(), 0, hosts=1)
    monkeypatch.setattr("xladoctor.cli.watch.parts.find", refuses)
    assert main([*WATCH, str(place)]) == 2
    assert "access is refused" in capsys.readouterr().err


def test_bad_input(place, tmp_path, capsys):
    assert main(["watch", str(tmp_path)]) == 2
    assert "no run of several hosts" in capsys.readouterr().err
    assert main(["watch", "file:///tmp/x", "--webhook", "ftp://x"]) == 2
    assert "https://" in capsys.readouterr().err
