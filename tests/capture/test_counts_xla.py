"""Counts of a core are those of a process of its own: closed forms, for 1, 2 and 8 cores."""

from __future__ import annotations

import collections
import dataclasses
import json
import sys

import counted
import pytest
from test_profile_xla import Run, profile

from xladoctor.capture import rundir

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla

#: How the program is run: in a process of its own on one device, and on simulated cores.
WAYS = ("process", 1, pytest.param(2, marks=pytest.mark.slow), 8)


@dataclasses.dataclass(frozen=True)
class Counted:
    """A run with its report and what torch_xla itself counted."""

    cores: int
    run: Run
    report: dict
    counters: dict[str, dict[str, int]]
    metrics: str

    def case(self, site: int) -> str:
        return next(f[2] for f in self.run.sites[site] if f[2].startswith("case_"))

    def by_case(self, core: int) -> dict[str, dict[str, int]]:
        """What the run directory says of a core, in the words of ``counted.Counts``."""
        found: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
        for row in self.run.of("compilation"):
            if row["core"] == core:
                found[self.case(row["site"])]["compiled"] += 1
        for row in self.run.of("step"):
            for key, table in (("ran", "launches"), ("reads", "syncs"), ("fallbacks",) * 2):
                if row["core"] == core:
                    for site, _, count, *_ in row[table]:
                        found[self.case(site)][key] += count
        return {name: dict(counts) for name, counts in found.items()}


@pytest.fixture(scope="module", params=WAYS)
def done(request, tmp_path_factory) -> Counted:
    folder = tmp_path_factory.mktemp("counted")
    (folder / "train.py").write_text(counted.PROGRAM)
    cores = 1 if request.param == "process" else request.param
    simulate = () if request.param == "process" else ("--simulate-cores", str(cores))
    ended = profile(
        folder, *simulate, "-o", "run", "--output-format", "json", "--output-file", "report.json",
        "--", sys.executable, "train.py", PJRT_DEVICE="CPU", CPU_NUM_DEVICES="1",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return Counted(
        cores,
        Run(ended, folder / "run"),
        json.loads((folder / "report.json").read_text()),
        json.loads((folder / "counters.json").read_text()),
        (rundir.processes(folder / "run")[0] / "metrics.txt").read_text(),
    )


def test_every_case_has_its_closed_form_on_every_core(done):
    for core in range(done.cores):
        closed = {
            name: {
                key: getattr(counts, key)
                for key in ("compiled", "ran", "reads", "fallbacks")
                if getattr(counts, key)
            }
            for name, counts in counted.expected(done.cores, core).items()
        }
        assert done.by_case(core) == closed


def test_report_says_the_same_for_each_core_and_in_sum(done):
    closed = [list(counted.expected(done.cores, core).values()) for core in range(done.cores)]
    totals = [
        {
            "core": core,
            "host": None,
            "compilations": sum(one.compiled for one in counts),
            "executions": sum(one.ran for one in counts),
            "host_syncs": sum(one.reads for one in counts),
            "fallbacks": sum(one.fallbacks for one in counts),
            "to_device": sum(one.sent for one in counts),
            "from_device": sum(one.fetched for one in counts),
            "steps": sum(one.steps for one in counts),
        }
        for core, counts in enumerate(closed)
    ]
    for row in done.report["cores"]:
        for time in ("median", "min", "max"):
            row.pop(f"step_seconds_{time}")
    assert done.report["cores"] == totals
    summary = done.report["summary"]
    assert summary["compilations"] == totals[0]["compilations"]
    assert summary["host_syncs"] == sum(core["host_syncs"] for core in totals)
    assert summary["fallbacks"] == {"aten::bincount": sum(core["fallbacks"] for core in totals)}


def test_graphs_that_the_simulation_does_without_are_counted_and_marked(done):
    modelled = [item for item in done.report["compilations"] if item["modelled"]]
    closed = counted.expected(done.cores, 0).values()
    assert len(modelled) == (sum(one.exchanged for one in closed) if done.cores > 1 else 0)
    assert all(item["seconds"] is None for item in modelled)
    assert all(item["cores"] == list(range(done.cores)) for item in modelled)
    notes = [note for note in done.report["notes"] if "exchange in memory" in note]
    assert len(notes) == bool(modelled)


def test_torch_xla_itself_has_counted_the_same(done):
    """One core has torch_xla's counters for itself; of several, which share them, the sums."""
    cores = range(done.cores)
    closed = [one for core in cores for one in counted.expected(done.cores, core).values()]
    in_memory = sum(one.exchanges for one in closed) if done.cores > 1 else 0
    # Not ExecuteTime: it grows when an execution ends, which may be after the last report.
    here = [row for row in done.run.of("compilation") if not row["reused"]]
    known = sum(one.ran for one in closed) - in_memory - len(here)
    assert value(done.metrics, "Counter: UncachedCompile") == len(here)
    assert value(done.metrics, "Counter: CachedCompile") == known
    crossings = sum(one.reads + one.fallbacks for one in closed)
    if done.cores > 1:
        assert value(done.metrics, "Metric: TransferFromDeviceTime") == crossings
        return
    for name, counts in counted.expected(1, 0).items():
        own = done.counters[name]
        new, known = own.get("UncachedCompile", 0), own.get("CachedCompile", 0)
        assert (new, new + known) == (counts.compiled, counts.ran), name
        assert own.get("aten::bincount", 0) == counts.fallbacks, name
        if not counts.exchanges:  # what xm.rendezvous reads for itself is not the program's
            assert own["TransferFromDeviceTime"] == counts.reads + counts.fallbacks, name


@pytest.mark.slow
def test_processes_with_a_device_each(tmp_path):
    """As on a host with several devices: every process counts what one with one device does."""
    (tmp_path / "train.py").write_text(counted.PROGRAM)
    words = ("-o", "run", "--output-format", "json", "--output-file", "report.json", "--")
    ended = profile(
        tmp_path, *words, sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
        "train.py", PJRT_DEVICE="CPU", CPU_NUM_DEVICES="1",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    closed = {
        name: {
            key: getattr(counts, key)
            for key in ("compiled", "ran", "reads", "fallbacks")
            if getattr(counts, key)
        }
        for name, counts in counted.expected(1, 0).items()
    }
    run = Run(ended, tmp_path / "run")
    report = json.loads((tmp_path / "report.json").read_text())
    folders = rundir.processes(tmp_path / "run")
    used = [folder for folder in folders if (folder / "metrics.txt").exists()]
    assert len(used) == report["summary"]["cores"] == 2
    for folder in used:
        run.rows = list(rundir.rows(folder))
        run.sites = {row["id"]: row["frames"] for row in run.of("site")}
        assert Counted(1, run, report, {}, "").by_case(0) == closed
    totals = [
        {key: count for key, count in core.items() if key != "core" and "seconds" not in key}
        for core in report["cores"]
    ]
    assert totals[0] == totals[1]
    assert totals[0]["compilations"] == sum(one.get("compiled", 0) for one in closed.values())


def value(report: str, heading: str) -> int:
    """The value of a counter, or the number of samples of a metric, in a metrics report."""
    return int(report.partition(f"{heading}\n")[2].split()[1])
