from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from xladoctor.readings import load
from xladoctor.readings.metric_json import parse_json

if TYPE_CHECKING:
    from pathlib import Path

#: The form that metric_data() of torch_xla 2.9 returns, with invented values.
DATA = {
    "CompileTime": [3, 6_000_000_001.0, [[10.0, 1e9], [11.0, 2e9], [14.0, 3_000_000_001.0]]],
    "InboundData": [1, 4.0, [[10.5, 4.0]]],
    "TensorsGraphSize": [1, 5.0, [[10.5, 5.0]]],
}


def check(report) -> None:
    compile_time = report.metrics["CompileTime"]
    assert (compile_time.total_samples, compile_time.unit) == (3, "s")
    assert compile_time.accumulator == 6.000000001
    assert compile_time.percentiles["1"] == 1.0
    assert compile_time.percentiles["50"] == 2.0
    assert compile_time.percentiles["99"] == 3.000000001
    assert compile_time.rate == 0.75
    assert (report.metrics["InboundData"].unit, report.metrics["InboundData"].rate) == ("B", None)
    assert report.metrics["TensorsGraphSize"].unit == ""


def test_metrics_by_name() -> None:
    (report,) = parse_json(json.dumps({**DATA, "MarkStep": 7, "xla::add": 3}), "x")
    check(report)
    assert report.counters == {"MarkStep": 7, "xla::add": 3}


def test_metrics_and_counters_apart_and_one_object_a_line() -> None:
    data = {"step": 3, "metrics": DATA, "counters": {"MarkStep": 7}}
    first, second = parse_json(json.dumps(data) + "\n" + json.dumps({**data, "step": 4}), "x")
    check(first)
    assert (first.step, second.step) == (3, 4)
    assert second.counters == {"MarkStep": 7}


def test_a_json_file_is_a_source(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(json.dumps(DATA))
    check(load([tmp_path / "m.json"]).reports[0])
    check(load(["-"], "\n" + json.dumps(DATA, indent=1)).reports[0])


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "[1, 2]", '{"a": 1}', '{"a": [1, 2]}', '{"A": [1, "x", []]}', "[" * 100_000,
     '{"A": [true, 1, []]}', '{"A": [-1, 1, []]}', '{"A": [1, NaN, []]}', '{"A": [1, 1e999, []]}'],
)  # fmt: skip
def test_other_json_holds_no_report(text: str) -> None:
    assert parse_json(text, "x") == []


@pytest.mark.xla
@pytest.mark.filterwarnings("ignore")
def test_the_real_thing_reads_as_its_printed_report_does(tmp_path: Path) -> None:
    """A real program's metrics, dumped and printed at once, are the same to the nanosecond."""
    import os
    import subprocess
    import sys

    program = (
        "import json, sys, torch, torch_xla, torch_xla.debug.metrics as met\n"
        "x = torch.ones(3, device=torch_xla.device())\n"
        "for i in range(4):\n    print((x * i).sum().item()); torch_xla.sync()\n"
        "text = met.metrics_report()\n"
        "data = {n: met.metric_data(n) for n in met.metric_names()}\n"
        "data |= {n: met.counter_value(n) for n in met.counter_names()}\n"
        "json.dump(data, open(sys.argv[1] + '/m.json', 'w'))\n"
        "open(sys.argv[1] + '/m.txt', 'w').write(text)\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        check=True, capture_output=True, env={**os.environ, "PJRT_DEVICE": "CPU"},
    )  # fmt: skip
    (dumped,) = load([tmp_path / "m.json"]).reports
    (printed,) = load([tmp_path / "m.txt"]).reports
    assert dumped.counters == printed.counters
    assert set(dumped.metrics) == set(printed.metrics)
    assert "CompileTime" in printed.metrics
    for name, metric in printed.metrics.items():
        other = dumped.metrics[name]
        assert (metric.total_samples, metric.unit) == (other.total_samples, other.unit), name
        assert metric.accumulator == other.accumulator, name
        assert metric.percentiles == other.percentiles, name
