"""Many cores: who lags, who does what the others do not, which hosts they are on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.merge_hosts import linked
from tests.invented import InventedRun
from tests.store.generate import Large, write
from tests.store.pods import host_run, write_host
from xladoctor import diagnosis, readings
from xladoctor.diagnosis.joined import _next_free
from xladoctor.report import render
from xladoctor.store import runs
from xladoctor.store.compact import compact
from xladoctor.store.locations import located
from xladoctor.store.parts import find

RECORDED = sorted(Path("sample_runs").glob("*/recorded/*"))


def invented(tmp_path, own, waits, steps=20):
    """A run whose cores spend so much of each step in Python, and so much waiting."""
    run = InventedRun(len(own))
    for core, (mine, wait) in enumerate(zip(own, waits, strict=True)):
        for step in range(1, steps + 1):
            run.step(core, step, trace=mine, execute=wait)
    run.end()
    return diagnosis.diagnose(readings.load([run.write(tmp_path / "run")]))


def lagging(report):
    return [one for one in report.findings if one.code == "XLA414"]


def test_a_core_that_works_longer_while_the_others_wait(tmp_path):
    found = invented(tmp_path, [0.1, 0.1, 0.3, 0.1], [0.4, 0.4, 0.2, 0.4])
    (one,) = lagging(found)
    assert one.cores == (2,)
    assert one.seconds == pytest.approx(0.2 * 20)
    assert "in Python" in one.message
    assert [group.cores for group in found.alike] == [(0, 1, 3), (2,)]
    assert "works 200 ms longer" in found.alike[1].differs


def test_nobody_waits_so_nobody_lags(tmp_path):
    assert not lagging(invented(tmp_path, [0.1, 0.1, 0.3, 0.1], [0.4] * 4))


def test_cores_that_are_all_a_little_different(tmp_path):
    own = [0.1, 0.13, 0.16, 0.12, 0.15, 0.17]
    assert not lagging(invented(tmp_path, own, [0.5 - one for one in own]))


def test_two_kinds_of_cores_are_no_stragglers(tmp_path):
    assert not lagging(invented(tmp_path, [0.1, 0.1, 0.3, 0.3], [0.4, 0.4, 0.2, 0.2]))


def test_too_few_steps_or_cores_say_nothing(tmp_path):
    few = invented(tmp_path / "few", [0.1, 0.1, 0.3, 0.1], [0.4, 0.4, 0.2, 0.4], steps=6)
    assert not lagging(few)
    assert not lagging(invented(tmp_path / "two", [0.1, 0.3], [0.4, 0.2]))


@pytest.mark.parametrize("run", RECORDED, ids=lambda path: path.parts[-3])
def test_recorded_runs_have_no_stragglers(run):
    assert not lagging(diagnosis.diagnose(readings.load([run])))


def test_the_host_that_cores_share_is_named(tmp_path):
    for host in range(4):
        run = host_run(2, 30, late=0.3 if host == 3 else 0.0)
        write_host(tmp_path / "run", tmp_path / f"of-{host}", run, host, hosts=4)
    found = diagnosis.diagnose(runs.load([tmp_path / "run"]))
    (one,) = lagging(found)
    assert one.cores == (6, 7)
    assert one.message.endswith("(host 3)")
    assert found.alike[1].hosts == ("3",)
    assert found.cores[6].host == "3"


def test_a_core_with_graphs_of_its_own(tmp_path):
    for host in range(3):
        run = host_run()
        for row in run.rows:
            if row["e"] == "compilation":
                row["graph"] = "odd" if (host, row["core"]) == (1, 1) else "same"
        write_host(tmp_path / "run", tmp_path / f"of-{host}", run, host, hosts=3)
    found = diagnosis.diagnose(runs.load([tmp_path / "run"]))
    assert [group.cores for group in found.alike] == [(0, 1, 2, 4, 5), (3,)]
    assert "1 graph that most cores do not build" in found.alike[1].differs


def test_of_many_cores_those_that_differ_are_shown(tmp_path):
    for host in range(30):
        run = host_run(2, 30, late=0.3 if host == 7 else 0.0)
        write_host(tmp_path / "run", tmp_path / f"of-{host}", run, host, hosts=30)
    found = diagnosis.diagnose(runs.load([tmp_path / "run"]))
    assert found.drawn == (0, 14, 15)
    text = render(found, "full", width=100, color=False)
    table = text[text.index("\nCores\n") : text.index("\nCompilations")]
    assert len(table.splitlines()) <= 7
    assert "these agree" in table
    assert len(text.splitlines()) <= 42  # one screen
    page = render(found, "html")
    assert "core 14" in page
    assert "core 16" not in page


def test_numbers_of_cores_that_are_free():
    free: dict[int, int] = {}
    assert [_next_free(free, number) for number in (0, 1, 0, 1, 5, 0, 4)] == [0, 1, 2, 3, 5, 4, 6]
    assert [_next_free(free, 0) for _ in range(3)] == [7, 8, 9]


def test_what_every_host_has_written_down_is_one_finding(tmp_path):
    for host in range(2):
        run = host_run()
        run.rows.append(
            {"e": "divergence", "kind": "graphs", "t": 5.0, "message": "core 1 has another graph",
             "what": "operations", "stopped": True, "groups": [[0], [1]], "cores": [1], "step": 9,
             "site": run.site(40)}
        )  # fmt: skip
        for row in run.rows:
            if row["e"] == "step" and host:
                row["core"] += 2  # as the cores of one run are numbered
        write_host(tmp_path / "run", tmp_path / f"of-{host}", run, host, hosts=2)
    found = diagnosis.diagnose(runs.load([tmp_path / "run"]))
    assert [one.code for one in found.findings].count("XLA410") == 1


def test_many_that_differ_in_many_ways_are_about_one_screen(tmp_path):
    """The worst that a screen has to hold: many findings, groups of cores and notes."""
    for host in range(40):
        run = host_run(2, 30, late=0.3 if host == 7 else 0.0)
        for core in range(host % 12):  # lines of their own, in graphs that nobody else builds
            run.compilation(0, 12, graph=f"own-{host}-{core}", line=60 + core)
        if host % 2:
            run.rows[0]["torch_xla"] = f"2.{host}"
        write_host(tmp_path / "run", tmp_path / f"of-{host}", run, host, hosts=50)
    found = diagnosis.diagnose(runs.load([tmp_path / "run"]))
    text = render(found, "full", width=100, color=False)
    lines = text.splitlines()
    assert len(lines) <= 58  # some are its long address
    assert "hosts 40-49 of 50 left nothing here" in text
    assert "XLA414 core-lags-behind" in text
    assert "and 10 more XLA210: 32 cores at train.py:61; 28 cores at train.py:62" in text
    cores = text[text.index("\nCores\n") : text.index("\nCompilations")].splitlines()
    assert {"14", "15"} <= {line.split()[0] for line in cores[4:]}  # those that lag have rows
    assert max(map(len, lines)) <= 100
    narrow = render(found, "full", width=80, color=False).splitlines()
    assert max(map(len, narrow)) <= 80


@pytest.mark.slow
def test_a_page_and_a_screen_of_2048_cores(tmp_path):
    """256 hosts, of which four are written: the others are links to them."""
    run = write(Large(4, 20, {1: 0.2}, (2,)), tmp_path / "run")
    compact(located(run), [part for line in find(located(run)).hosts.values() for part in line],
            columns=False)  # fmt: skip
    linked(run, 4, 256)
    found = diagnosis.diagnose(runs.load([run]))
    assert found.summary.cores == 2048
    assert [group.cores for group in found.alike[1:]] == [(8,), (17,)]
    assert len(render(found, "html").encode()) < 5_000_000
    assert len(render(found, "full", width=100).splitlines()) < 50
