from __future__ import annotations

import html

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.readings.printer import HEADS, Printed, ambiguous, print_bytes, print_report, print_time
from xladoctor.readings.metrics_text import parse_reports
from xladoctor.readings.values import parse_value

TIMES = st.integers(0, 10**15).filter(lambda ns: not ambiguous(ns)).map(print_time)
SIZES = st.integers(0, 2**50).map(print_bytes)
NUMBERS = st.integers(0, 10**9).map(lambda n: f"{n}.00")
NAMES = st.from_regex(
    r"(aten|xla)::_?[a-z][a-z0-9_]{1,20}(\.[A-Z]\w{1,5})?|[A-Z]\w{3,20}", fullmatch=True
)


@st.composite
def printed(draw: st.DrawFn) -> Printed:
    values = draw(st.sampled_from([TIMES, SIZES, NUMBERS]))
    heads = draw(st.lists(st.sampled_from([*HEADS, "2.5"]), unique=True, min_size=1))
    return Printed(
        draw(NAMES), draw(st.integers(0, 10**7)), draw(values),
        {head: draw(values) for head in heads}, draw(st.booleans()), draw(st.booleans()),
    )  # fmt: skip


REPORTS = st.tuples(
    st.lists(printed(), min_size=1, max_size=6, unique_by=lambda m: m.name),
    st.dictionaries(NAMES, st.integers(0, 10**12), max_size=8),
)


def check(lines: list[str], metrics: list[Printed], counters: dict[str, int]) -> None:
    (report,) = parse_reports(lines, "x")
    assert report.counters == counters
    assert set(report.metrics) == {metric.name for metric in metrics}
    for metric in metrics:
        read = report.metrics[metric.name]
        value = parse_value(metric.accumulator)
        assert value is not None
        assert (read.total_samples, read.accumulator, read.unit) == (metric.samples, *value)
        heads = {h: (parse_value(text) or ())[0] for h, text in metric.percentiles.items()}
        assert read.percentiles == heads
        assert (read.value_rate, read.rate) == (
            (value[0], 1.5e-05) if metric.rates else (None, None)
        )


DRESSES = {
    "bare": lambda line: line,
    "indented": lambda line: " " * 8 + line,
    "indentation lost": lambda line: line.strip(),
    "quoted": lambda line: "> " + line,
    "logged": lambda line: "2021-04-19 13:28:12 10.164.0.25 [0] " + line,
    "escaped": lambda line: html.escape(line) + "<br>",
    "in colour": lambda line: f"\x1b[32m{line}\x1b[0m",
    "windows": lambda line: line + "\r",
}


@pytest.mark.parametrize("dress", DRESSES)
@settings(max_examples=25)
@given(report=REPORTS)
def test_any_report_is_read_back_exactly_in_any_dress(dress: str, report: tuple) -> None:
    metrics, counters = report
    check(
        [DRESSES[dress](line) + "\n" for line in print_report(metrics, counters)], metrics, counters
    )


@settings(max_examples=40)
@given(report=REPORTS, width=st.integers(60, 120))
def test_a_report_that_a_terminal_wrapped_is_read_back_exactly(report: tuple, width: int) -> None:
    metrics, counters = report
    wrapped = [
        line[at : at + width] + "\n"
        for line in print_report(metrics, counters)
        for at in range(0, len(line), width)
    ]
    check(wrapped, metrics, counters)


@settings(max_examples=40)
@given(report=REPORTS, cut=st.integers(1, 400))
def test_a_cut_report_gives_no_value_that_was_not_printed(report: tuple, cut: int) -> None:
    metrics, counters = report
    text = "\n".join(print_report(metrics, counters))[:-cut]
    printed_values = {m.name: parse_value(m.accumulator) for m in metrics}
    for read in parse_reports(text.splitlines(), "x"):
        for name, metric in read.metrics.items():
            if name in printed_values and metric.accumulator is not None and metric.unit == "s":
                assert metric.accumulator == (printed_values[name] or ())[0]


def read(text: str) -> list:
    return parse_reports(text.splitlines(keepends=True), "x")


def test_a_report_since_2_0_has_two_sections_and_is_one_report() -> None:
    text = """
Metric: DeviceLockWait
  TotalSamples: 3
  Accumulator: 002.000us
Counter: UncachedCompile
  Value: 2
Metric: CompileTime
  TotalSamples: 2
  Accumulator: 01s000ms000.000us
Counter: MarkStep
  Value: 3
"""
    (report,) = read(text)
    assert list(report.metrics) == ["DeviceLockWait", "CompileTime"]
    assert report.counters == {"UncachedCompile": 2, "MarkStep": 3}


def test_server_metrics_come_after_the_counters() -> None:
    text = """Counter: MarkStep
  Value: 61
Metric: XrtExecutorEvict
  TotalSamples: 0
  Accumulator: nanB
  Mean: nanB
  StdDev: nanB
  Percentiles:
Metric: XrtExecute
  TotalSamples: 9
  Accumulator: 09s000ms000.000us
  Mean: 01s000ms000.000us
"""
    (report,) = read(text)
    assert report.metrics["XrtExecute"].mean == 1.0
    assert report.metrics["XrtExecutorEvict"].accumulator is None


def test_a_series_is_split_at_its_headers() -> None:
    reports = read(
        "[MetricsData; step=10]\nCounter: MarkStep\n  Value: 10\n"
        "[MetricsData; step=20]\nCounter: MarkStep\n  Value: 20\n"
    )
    assert [(r.step, r.counters["MarkStep"]) for r in reports] == [(10, 10), (20, 20)]


def test_reports_without_headers_are_split_where_a_name_comes_again() -> None:
    one = "Counter: CachedCompile\n  Value: 4\nCounter: MarkStep\n  Value: {}\n"
    reports = read(one.format(10) + "text between\n" + one.format(20))
    assert [dict(r.counters) for r in reports] == [
        {"CachedCompile": 4, "MarkStep": 10},
        {"CachedCompile": 4, "MarkStep": 20},
    ]


def test_a_counter_that_a_short_report_prints_twice_is_one() -> None:
    (report,) = read("Counter: aten::nonzero\n  Value: 4\n" * 2 + "Counter: MarkStep\n  Value: 1\n")
    assert report.counters == {"aten::nonzero": 4, "MarkStep": 1}


def test_a_header_may_be_glued_to_other_text() -> None:
    (report,) = read("Prediction: *****Metric: CompileTime\n  TotalSamples: 7\n")
    assert report.metrics["CompileTime"].total_samples == 7


def test_a_report_in_one_string_with_escaped_line_ends() -> None:
    (report,) = read(r'{"log": "Counter: MarkStep\n  Value: 61\nCounter: xla::add\n  Value: 5\n"}')
    assert report.counters == {"MarkStep": 61, "xla::add": 5}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Metric: CompileTime",
        "Counter: aten::nonzero",
        "  TotalSamples: 5\n  Accumulator: 1.00",
        "Accuracy: 5\nLoss: 3",
        "the counter: MarkStep is what you want",
        "Counter: MarkStep\n  Value: 12.5",
    ],
)
def test_text_without_a_whole_value_holds_no_report(text: str) -> None:
    assert read(text) == []


def test_a_size_that_lost_its_unit_is_not_read() -> None:
    (report,) = read("Metric: InboundData\n  TotalSamples: 264\n  Accumulator: 1.03")
    assert report.metrics["InboundData"].accumulator is None
    assert report.metrics["InboundData"].total_samples == 264


def test_the_mixed_lines_of_several_workers_are_read_apart() -> None:
    lines = ["Metric: CompileTime", "  TotalSamples: {}", "Counter: MarkStep", "  Value: {}"]
    text = "".join(
        f"2021-04-19 13:28:12 10.0.0.{worker} [{worker}] {line.format(10 + worker)}\n"
        for line in lines
        for worker in (0, 1)
    )
    first, second = read(text)
    assert (first.source, first.metrics["CompileTime"].total_samples) == ("x (10.0.0.0 [0])", 10)
    assert (second.source, second.counters) == ("x (10.0.0.1 [1])", {"MarkStep": 11})
