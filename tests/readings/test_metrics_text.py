from __future__ import annotations

import html
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.readings.printer import (
    ERAS,
    HEADS,
    Era,
    Printed,
    ambiguous,
    print_bytes,
    print_report,
    print_time,
)
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


def in_json(record: object) -> str:
    return json.dumps(record, ensure_ascii=False)


DRESSES = {
    "bare": lambda line: line,
    "indented": lambda line: " " * 8 + line,
    "indentation lost": lambda line: line.strip(),
    "quoted": lambda line: "> " + line,
    "logged": lambda line: "2021-04-19 13:28:12 10.164.0.25 [0] " + line,
    "escaped": lambda line: html.escape(line) + "<br>",
    "in colour": lambda line: f"\x1b[32m{line}\x1b[0m",
    "windows": lambda line: line + "\r",
    "a record of JSON": lambda line: in_json({"text": line, "stream": "stdout"}),
    "a record with its line end": lambda line: in_json({"data": line + "\n", "time": 1.5}),
    "a row of CSV": lambda line: f'"{line}","stdout",12',
    "a row of a table": lambda line: f"| {line} |",
    "bold": lambda line: f"**{line.strip()}**",
    "bold to the colon": lambda line: "**" + line.strip().replace(": ", ":** ", 1),
    "with blanks of a web page": lambda line: line.replace(" ", "\u00a0"),
    "with blanks of a chat": lambda line: "\u200b" + line,
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


@pytest.mark.parametrize("write", [repr, in_json, ", ".join], ids=["repr", "JSON", "joined"])
@settings(max_examples=25)
@given(report=REPORTS)
def test_a_report_as_a_list_of_its_lines_is_read_back_exactly(write, report: tuple) -> None:
    metrics, counters = report
    check([write(print_report(metrics, counters))], metrics, counters)


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


CLIENT = ("CompileTime", "DeviceLockWait", "ExecuteTime", "LazyTracing", "TransferFromServerTime")
SERVER = ("XrtCompile", "XrtExecute", "XrtExecute.c_tpu_worker.0", "XrtReadLiteral")
COUNTERS = (
    "CachedCompile", "MarkStep", "UncachedCompile", "aten::_local_scalar_dense", "xla::add",
    "aten::norm.ScalarOpt_dim", "torchvision::nms", "xla::_log_softmax", "XrtCompile_Empty",
)  # fmt: skip
SEEDS = st.integers(0, 2**32)


def nanoseconds(rng: random.Random) -> int:
    """Any duration that can be told from its print, of any order of magnitude."""
    while ambiguous(ns := int(10 ** rng.uniform(0, 16))):
        pass
    return ns


def report_of(era: Era, rng: random.Random) -> tuple[list[str], dict[str, tuple], dict[str, int]]:
    """The lines of a random report of an era, and what is in it: metrics and counters."""
    lines: list[str] = []
    metrics: dict[str, tuple] = {}
    counters: dict[str, int] = {}

    def printed(name: str, server: bool) -> Printed:
        samples, total = int(10 ** rng.uniform(0, 9)), nanoseconds(rng)
        heads = {head: nanoseconds(rng) for head in rng.choice([HEADS, ("25", "99"), ("2.5",)])}
        metrics[name] = (samples, total / 1e9, {h: ns / 1e9 for h, ns in heads.items()})
        return Printed(
            name, samples, print_time(total, padded=era.padded),
            {head: print_time(ns, padded=era.padded) for head, ns in heads.items()},
            rates=samples > 1, old=era.old,
            mean=print_time(total // samples + 1, padded=era.padded) if server else None,
        )  # fmt: skip

    names = sorted(rng.sample(CLIENT, rng.randint(era.sections, len(CLIENT))))
    own = rng.sample(COUNTERS, rng.randint(era.sections, len(COUNTERS)))
    for section in range(era.sections):
        some = {name: rng.randrange(2**63) for name in sorted(own[section :: era.sections])}
        counters |= some
        part = names[1:] if era.sections == 2 and section == 0 else names[: 1 if section else None]
        lines += print_report([printed(name, False) for name in part], some)
        if era.twice:
            lines += lines[-2:]
    if era.server:
        some_names = sorted(rng.sample(SERVER, rng.randint(1, len(SERVER))))
        lines += print_report([printed(name, True) for name in some_names], {})
    return lines, metrics, counters


def is_exactly(report, metrics: dict[str, tuple], counters: dict[str, int]) -> None:
    read = {
        name: (metric.total_samples, metric.accumulator, dict(metric.percentiles))
        for name, metric in report.metrics.items()
    }
    assert read == metrics
    assert report.counters == counters


@pytest.mark.parametrize("era", ERAS, ids=lambda era: era.name)
@given(seed=SEEDS)
def test_a_report_of_any_era_is_read_back_to_the_nanosecond(era: Era, seed: int) -> None:
    lines, metrics, counters = report_of(era, random.Random(seed))
    (report,) = parse_reports([line + "\n" for line in lines], "x")
    is_exactly(report, metrics, counters)


@pytest.mark.parametrize("era", ERAS, ids=lambda era: era.name)
@settings(max_examples=30)
@given(seed=SEEDS, width=st.integers(60, 120))
def test_any_era_escaped_indented_wrapped_and_after_a_progress_bar(
    era: Era, seed: int, width: int
) -> None:
    lines, metrics, counters = report_of(era, random.Random(seed))
    dressed = ["  7%|\u2588   | 22/310 [00:12<02:31,  1.90it/s]\n"]
    for line in lines:
        indented = "    " + html.escape(line)
        dressed += [
            indented[at : at + width].rstrip() + "\n" for at in range(0, len(indented), width)
        ]
    (report,) = parse_reports(dressed, "x")
    is_exactly(report, metrics, counters)


@given(seed=SEEDS)
def test_the_mixed_lines_of_torchrun_are_read_apart(seed: int) -> None:
    rng = random.Random(seed)
    reports = [report_of(ERAS[5], rng) for _ in range(3)]
    queues = [list(lines) for lines, _, _ in reports]
    mixed = []
    while any(queues):
        rank = rng.choice([rank for rank, queue in enumerate(queues) if queue])
        mixed.append(f"[rank{rank}]: {queues[rank].pop(0)}\n")
    found = {report.core: report for report in parse_reports(mixed, "x")}
    assert sorted(found) == [0, 1, 2]
    for rank, (_, metrics, counters) in enumerate(reports):
        is_exactly(found[rank], metrics, counters)


@given(seed=SEEDS, count=st.integers(2, 4))
def test_a_series_is_read_back_report_by_report(seed: int, count: int) -> None:
    rng = random.Random(seed)
    reports = [report_of(ERAS[5], rng) for _ in range(count)]
    lines = []
    for step, (own, _, _) in enumerate(reports):
        lines += [f"[MetricsData; step={step}]", *own, ""]
    found = parse_reports(lines, "x")
    assert [report.step for report in found] == list(range(count))
    for report, (_, metrics, counters) in zip(found, reports, strict=True):
        is_exactly(report, metrics, counters)


def test_the_lines_of_two_processes_without_names_are_not_put_together() -> None:
    """Whose total belongs to whose number of samples is not known, so neither is shown."""
    text = (
        "Metric: CompileTime\nMetric: CompileTime\n  TotalSamples: 5\n  TotalSamples: 6\n"
        "  Accumulator: 002.000us\n  Accumulator: 003.000us\nCounter: MarkStep\n  Value: 7\n"
    )
    (report,) = read(text)
    assert report.metrics == {}
    assert report.counters == {"MarkStep": 7}


@pytest.mark.parametrize(
    "text",
    [
        "Counter: A\n  Value: 99999999999999999999\n",
        "Counter: A\n  Value: -5\n",
        "Counter: A\n  Value: 1e999\n",
        "Metric: A\n  TotalSamples: 123456789012345678901234567890\n",
        "Metric: A\n  Accumulator: 99999999999999d00h00m00s000ms000.000us\n",
        "Metric: A\n  Accumulator: nan\n  Percentiles: 50%=inf\n",
    ],
)
def test_numbers_out_of_range_are_no_values(text: str) -> None:
    assert read(text) == []


def test_a_progress_bar_that_shares_a_line_with_a_value() -> None:
    (report,) = read(
        "Metric: A\n  TotalSamples: 2  7%|# | 22/310\n  Accumulator: 02s000ms000.000us  7%|# |\n"
        "  Percentiles: 50%=01s000ms000.000us; 99%=01s000ms000.000us  7%|#   | 22/310 [00:12]\n"
    )
    metric = report.metrics["A"]
    assert (metric.total_samples, metric.accumulator) == (2, 2.0)
    assert metric.percentiles == {"50": 1.0, "99": 1.0}


def test_a_report_whose_line_ends_are_lost() -> None:
    (report,) = read(
        "Metric: CompileTime   TotalSamples: 4   Accumulator: 002.000us   ValueRate: 001.000us / "
        "second   Percentiles: 1%=001.000us; 99%=001.000us Counter: MarkStep   Value: 7 done"
    )
    metric = report.metrics["CompileTime"]
    assert (metric.total_samples, metric.accumulator, metric.value_rate) == (4, 2e-6, 1e-6)
    assert metric.percentiles == {"1": 1e-6, "99": 1e-6}
    assert report.counters == {"MarkStep": 7}


def test_a_rate_that_is_no_number_is_left_out() -> None:
    (report,) = read("Metric: A\n  TotalSamples: 2\n  Rate: 1e999 / second\n")
    assert report.metrics["A"].rate is None


@settings(max_examples=100)
@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=400))
def test_any_text_at_all_is_read_without_a_crash(text: str) -> None:
    for dressed in (
        text,
        f"Metric: {text}",
        f"Counter: A\n  Value: {text}",
        f"  Percentiles: {text}",
    ):
        parse_reports(dressed.splitlines(keepends=True), "x")


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


@pytest.mark.parametrize("number", ["1,024", "1.5", "12345678901234567890", "7x"])
def test_what_is_only_the_beginning_of_a_number_is_no_count(number: str) -> None:
    text = f"Counter: MarkStep\n  Value: {number}\nCounter: xla::add\n  Value: 3\n"
    (report,) = parse_reports(text.splitlines(), "x")
    assert report.counters == {"xla::add": 3}


@pytest.mark.parametrize("dots", ["...", ".....", "[...]", "[more to follow]"])
def test_what_people_write_for_what_they_leave_out_is_no_part_of_a_value(dots: str) -> None:
    metric = Printed("CompileTime", 2, "44s280ms699.409us", {"99": "18s450ms018.269us"})
    lines = [line for _ in range(2) for line in (*print_report([metric], {}), dots)]
    first, second = parse_reports(lines, "x")
    assert first.metrics == second.metrics
    assert first.metrics["CompileTime"].percentiles["99"] == 18.450018269


@pytest.mark.parametrize(
    ("prefix", "cores", "sources"),
    [
        ("[1,{}]<stdout>:", [0, 1, 2], ["x", "x", "x"]),
        ("(Trainer pid=1{}, ip=10.0.0.2) ", [None] * 3, ["x (Trainer pid=1{}, ip=10.0.0.2)"] * 3),
        ("\x1b[36m(train pid=1{})\x1b[0m ", [None] * 3, ["x (train pid=1{})"] * 3),
        ("\x1b[33mtrainer-{}  |\x1b[0m ", [None] * 3, ["x (trainer-{})"] * 3),
    ],
    ids=["mpirun", "Ray", "Ray in colour", "docker compose"],
)
def test_the_mixed_lines_of_launchers_are_read_apart(
    prefix: str, cores: list[int | None], sources: list[str]
) -> None:
    counters = [{"MarkStep": 7 + core, "xla::add": 12} for core in range(3)]
    rows = zip(*(print_report([], each) for each in counters), strict=True)
    lines = [prefix.format(core) + line for row in rows for core, line in enumerate(row)]
    reports = parse_reports(lines, "x")
    assert [report.counters for report in reports] == counters
    assert [report.core for report in reports] == cores
    assert [report.source for report in reports] == [s.format(i) for i, s in enumerate(sources)]


@pytest.mark.parametrize("prefix", ["epoch1 | ", "INFO | ", "12: ", "[train.py:33] ", "10.5 | "])
def test_what_stands_before_the_first_line_only_is_no_process(prefix: str) -> None:
    metric = Printed("CompileTime", 2, "000.000us", {"99": "000.000us"})
    text = prefix + "\n".join(print_report([metric], {"MarkStep": 3}))
    (report,) = parse_reports(text.splitlines(), "x")
    assert report.metrics["CompileTime"].total_samples == 2
    assert report.counters == {"MarkStep": 3}
