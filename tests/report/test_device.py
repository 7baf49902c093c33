"""What reports show of the TPU compiler's answers; the answers are invented."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import pytest
from rich.console import Console

from xladoctor.changes import Change
from xladoctor.costs import DeviceOperation, GraphCost, StepCost, TargetCost
from xladoctor.diagnosis import comparison
from xladoctor.findings import Finding, Location, Severity
from xladoctor.report import comparison as comparison_report
from xladoctor.report import device, device_terminal
from xladoctor.results import Report, Summary

LINE = Location("train.py", 12, "train")


def operation(**facts: Any) -> DeviceOperation:
    known = {"location": LINE, "operation": "aten::mm", "kind": "product", "cycles": 1000}
    return DeviceOperation(**{**known, "memory_bytes": 0, "shape": "f32[8]", **facts})


def target(*operations: DeviceOperation, name: str = "v3-8", **step: Any) -> TargetCost:
    """A core of 1 GHz, 1 TFLOP/s and 1 GB/s, with one graph a step."""
    graph = GraphCost(
        "g", LINE, "step", 1.0,
        cycles=sum(one.cycles or 0 for one in operations), operations=operations,
        memory={"arguments": 100, "output": 0, "aliased": 0, "temporary": 900, "code": 0},
        needed=1000, picture=(0, 300, 100),
    )  # fmt: skip
    cost = StepCost(device_seconds=1e-6, memory_limit_bytes=1100, memory_bytes=1000, fits=True)
    return TargetCost(
        name, "v3:2x2x1", "libtpu", 8, 1e9, dataclasses.replace(cost, **step), (graph,),
        peak_flops=1e12, bandwidth=1e9,
    )  # fmt: skip


def shown(*costs: TargetCost, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    for part in device_terminal.parts(costs, width):
        console.print(part)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    ("flops", "moved", "says"),
    [
        (600_000.0, 100, "60% of the matrix units"),
        (100_000.0, 900, "up to 90% of the memory bandwidth"),
        (100_000.0, 100, "10% of the matrix units"),
        (0.0, 100, ""),
    ],
)
def test_a_line_says_which_of_the_two_it_is_near(flops: float, moved: int, says: str) -> None:
    (line,) = device.lines(target(operation(flops=flops, memory_bytes=moved)))
    assert line.bound == says


@pytest.mark.parametrize(
    ("matrix", "memory", "says"),
    [(0.6, 0.2, "the matrix units"), (0.2, 0.6, "the memory"), (0.1, 0.1, "neither")],
)
def test_what_binds_the_device_is_told_also_where_the_host_is_slower(
    matrix: float, memory: float, says: str
) -> None:
    cost = target(matrix_unit_share=matrix, bandwidth_share=memory, host_seconds=1.0)
    facts = dict(device.facts([cost]))
    assert facts["the device is bound by"][0].startswith(says)


def test_tracing_and_waiting_for_input_are_told_apart() -> None:
    host = {"host_seconds": 0.3, "host_seconds_at_most": 2.4}
    cost = target(**host, tracing_seconds=0.1, input_wait_seconds=0.2)
    facts = dict(device.facts([cost]))
    assert facts["Python and tracing"] == ["at least 100 ms"]
    assert facts["waiting for input"] == ["at least 200 ms"]
    assert dict(device.facts([target()]))["waiting for input"] == ["-"]


def test_collectives_are_counted_with_how_many_would_do() -> None:
    talk = {"collectives": 9.0, "collective_bytes": 9 * 2**20}
    several = target(**talk, collectives_needed=1.0)
    assert dict(device.facts([several]))["collectives"] == ["9 a step, 9.0 MiB; 1 would do"]
    needed = target(**talk, collectives_needed=9.0)
    assert dict(device.facts([needed]))["collectives"] == ["9 a step, 9.0 MiB"]
    assert "collectives" not in dict(device.facts([target()]))


@pytest.mark.parametrize("width", [80, 100, 120])
def test_many_targets_stand_in_tables_that_fit(width: int) -> None:
    names = ["v2-8", "v3-2048", "v4-4096", "v5e-256", "v5p-4096", "v6e-8"]
    limit = {"memory_bytes": 15 * 2**30, "memory_limit_bytes": 31 * 2**30}
    text = shown(*(target(operation(), name=name, **limit) for name in names), width=width)
    assert all(name in text for name in names)
    assert text.count("15.0 GiB of 31.0 GiB,") == len(names)
    assert all(len(line) <= width for line in text.splitlines())


def test_memory_that_differs_between_targets_is_explained() -> None:
    costs = [target(operation()), target(operation(), name="v2-8", memory_bytes=900)]
    assert "saves only where it has to" in " ".join(shown(*costs).split())
    assert "saves only" not in shown(costs[0])


def test_memory_is_told_by_what_it_is_for_and_by_how_much_it_is_too_little() -> None:
    text = " ".join(shown(target(operation())).split())
    assert "arguments 100 B, temporary 900 B, results 0 B, program 0 B" in text
    short = target(fits=False, memory_bytes=3 * 2**30, memory_limit_bytes=2**30)
    assert dict(device.facts([short]))["memory of a core"] == [
        "3.0 GiB of 1.0 GiB, 2.0 GiB too much"
    ]


def test_the_picture_says_what_is_assigned_and_holds_nothing() -> None:
    picture = device.picture(target(operation()))
    assert picture is not None
    assert (picture.idle, picture.top) == (600, 1100)
    assert [band.most for band in picture.bands] == [100, 0, 0, 300]


def test_a_run_that_was_not_asked_is_not_called_better_or_worse() -> None:
    def found(code: str, **facts: Any) -> Finding:
        return Finding(code, "name", Severity.ERROR, "message", "suggestion", **facts)

    before = Report(Summary("", "", ""), findings=(found("XLA101"),))
    compiler = (found("XLA730"), found("XLA602", tpu_seconds=0.1))
    after = Report(Summary("", "", ""), findings=(*before.findings, *compiler), tpu=(target(),))
    compared = comparison.compare(before, after)
    assert [item.code for item in compared.codes] == ["XLA101"]
    assert any("of the first" in note or "the first would cost" in note for note in compared.notes)
    asked = comparison.compare(dataclasses.replace(before, tpu=(target(),)), after)
    assert {item.code for item in asked.codes} == {"XLA101", "XLA602", "XLA730"}


@pytest.mark.parametrize(
    ("micro", "says"), [(8.07, "8.07 us"), (184_000.0, "184 ms"), (2_500_000.0, "2.50 s")]
)
def test_device_time_of_a_comparison_has_the_unit_that_fits(micro: float, says: str) -> None:
    change = Change("tpu_step:v3-8", "device time", "us", micro, micro, "same")
    assert change.written(change.after) == comparison_report.value(micro, "us") == says


def test_memory_of_a_comparison_is_written_as_in_the_report() -> None:
    change = Change("tpu_memory:v3-8", "memory", "B", 2.0**30, 2.0**31, "worse", 100.0)
    assert change.written(change.after) == comparison_report.value(2.0**31, "B") == "2.0 GiB"
