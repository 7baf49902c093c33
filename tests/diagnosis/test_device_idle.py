"""An idle device and parameters held twice, by metrics. These reports are invented; the real ones
are in ``test_real_metrics``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.diagnosis.test_diagnose_text import codes
from tests.invented import InventedRun
from tests.readings.printer import print_time
from xladoctor.diagnosis import diagnose
from xladoctor.findings import Severity
from xladoctor.readings import load

if TYPE_CHECKING:
    from pathlib import Path

    from xladoctor.results import Report

SECOND = 1_000_000_000


def timed(name: str, samples: int, seconds: float, wall: float) -> str:
    """A time metric as torch_xla prints it: the rates are of the last 1,024 samples."""
    kept = min(samples, 1024)
    share = seconds * kept / samples / wall
    return (
        f"Metric: {name}\n  TotalSamples: {samples}\n"
        f"  Accumulator: {print_time(int(seconds * SECOND))}\n"
        f"  ValueRate: {print_time(int(share * SECOND))} / second\n"
        f"  Rate: {kept / wall:g} / second\n"
        f"  Percentiles: 50%={print_time(int(seconds / samples * SECOND))}\n"
    )


def counted(**counters: int) -> str:
    return "".join(f"Counter: {name}\n  Value: {value}\n" for name, value in counters.items())


def text(
    executions: int, executed: float, wall: float, lock: float, extra: str = "", **counters: int
) -> str:
    """A report of a program with one graph per step; ``wall`` is that of the kept executions."""
    known = {"CachedCompile": executions - 3, "MarkStep": executions, "UncachedCompile": 3}
    return (
        timed("CompileTime", 3, 9.0, wall)
        + timed("DeviceLockWait", executions, lock, wall)
        + timed("ExecuteTime", executions, executed, wall)
        + extra
        + counted(**(known | counters))
    )


def told(report: str) -> Report:
    return diagnose(load(["-"], report))


def test_a_device_that_has_nothing_to_do() -> None:
    report = told(text(2048, 40.0, 200.0, 0.01))
    (found,) = report.findings
    assert (found.code, found.severity) == ("XLA601", Severity.WARNING)
    assert found.seconds == pytest.approx(200 - 20 - 9, rel=0.01)  # half of the executions are kept
    assert "the last 1,024 executions" in found.message
    assert report.summary.verdict == "The device waits for its input."


def test_replicated_executions_count_as_executions() -> None:
    report = text(2048, 40.0, 200.0, 0.01).replace("ExecuteTime", "ExecuteReplicatedTime")
    assert codes(told(report)) == ["XLA601"]


def test_uploads_of_megabytes_are_named_with_it() -> None:
    sent = (
        "Metric: OutboundData\n  TotalSamples: 4096\n  Accumulator: 80.00GB\n"
        "  Percentiles: 50%=20.00MB; 95%=38.50MB\n"
    )
    (found,) = told(text(2048, 40.0, 200.0, 0.01, sent)).findings
    assert "uploads reach 38.5 MiB" in found.message
    assert "uint8" in found.suggestion


def test_what_came_before_the_first_step_is_no_wait_for_input() -> None:
    """The same shares in a single short report may be set-up; between two reports they are not."""
    set_up = text(100, 2.0, 300.0, 0.01)
    assert told(set_up).findings == ()
    steady = "[MetricsData; step=100]\n" + set_up + "[MetricsData; step=400]\n"
    assert told(steady + text(400, 8.0, 310.0, 0.01)).findings == ()
    assert codes(told(steady + text(400, 8.0, 600.0, 0.01))) == ["XLA601"]


READS = (
    "Metric: InboundData\n  TotalSamples: 2048\n  Accumulator: 8.00KB\n"
    "  Percentiles: 50%=4.00B; 90%=4.00B\n"
)


@pytest.mark.parametrize(
    "report",
    [
        text(2048, 40.0, 200.0, 30.0),  # the host waits for the device
        text(2048, 300.0, 200.0, 0.01),  # the device is busy
        text(2048, 4.0, 12.0, 0.01),  # too little time to matter
        text(2048, 4.0, 1e300, 0.01).replace("Rate: 1.024e-297", "Rate: 5e-324"),  # out of range
        text(2048, 40.0, 200.0, 0.01, timed("ExecuteReplicatedTime", 2048, 300.0, 200.0)),
        text(2048, 40.0, 200.0, 0.01, MarkStep=0),  # cut: reads may be missing too
        text(2048, 40.0, 200.0, 0.01, timed("LazyTracing", 90_000, 200.0, 200.0)),
        text(2048, 40.0, 200.0, 0.01, READS),
        text(2048, 40.0, 200.0, 0.01, **{"aten::_local_scalar_dense": 2048}),
        text(2048, 40.0, 200.0, 0.01, **{"aten::grid_sampler_2d": 2048}),
    ],
)
def test_an_idle_device_with_another_cause_is_not_put_down_to_input(report: str) -> None:
    assert "XLA601" not in codes(told(report))


def test_a_device_that_is_always_busy_is_as_it_should_be() -> None:
    report = told(text(900, 180.0, 200.0, 151.0))
    assert report.findings == ()
    assert report.summary.verdict == "The XLA side is sound."
    assert "waited 2 min 31 s for the device, as it should" in report.summary.why
    assert "The device is the bottleneck" in report.summary.next
    idle_lock = told(text(900, 180.0, 200.0, 1.0))
    assert "as it should" not in idle_lock.summary.why


def donation(samples: int, total: float, largest: float | None, **counters: int) -> Report:
    top = "" if largest is None else f"  Percentiles: 50%=1.00; 99%={largest:.2f}\n"
    alias = (
        f"Metric: InputOutputAliasCount\n  TotalSamples: {samples}\n"
        f"  Accumulator: {total:.2f}\n{top}"
    )
    known = {"CreateDataHandles": 200 * 650, "xla::addcdiv": 200 * 200}
    return told(text(200, 100.0, 110.0, 1.0, alias, **(known | counters)))


def test_parameters_that_no_graph_gives_back() -> None:
    report = donation(3, 9.0, 8.0)
    (found,) = report.findings
    assert (found.code, found.severity) == ("XLA711", Severity.INFO)
    assert "about 200 parameters" in found.message
    assert "more than 8 inputs" in found.message
    assert report.summary.verdict == "The XLA side is sound."


@pytest.mark.parametrize(
    "report",
    [
        donation(3, 601.0, 600.0),  # given back
        donation(300, 900.0, 3.0),  # of 300 graphs the 99 % is not the largest
        donation(3, 9.0, 8.0, **{"xla::addcdiv": 200 * 20}),  # a small model
        donation(3, 9.0, 8.0, CreateDataHandles=200 * 20),  # several steps in one graph
        donation(3, 9.0, 8.0, MarkStep=0),
    ],
)
def test_without_proof_donation_is_not_judged(report: Report) -> None:
    assert "XLA711" not in codes(report)


@pytest.mark.parametrize(("simulated", "expected"), [(None, ["XLA711"]), (1, [])])
def test_the_simulation_itself_turns_donation_off(
    tmp_path: Path, simulated: int | None, expected: list[str]
) -> None:
    run = InventedRun(cores=1, simulated_cores=simulated)
    run.steps(60)
    run.end()
    counters = {"CreateDataHandles": 200 * 650, "xla::addcdiv": 200 * 200}
    alias = "Metric: InputOutputAliasCount\n  TotalSamples: 2\n  Accumulator: 0.00\n"
    run.metrics = text(200, 100.0, 110.0, 1.0, alias, **counters)
    assert codes(diagnose(load([run.write(tmp_path / "run")]))) == expected
