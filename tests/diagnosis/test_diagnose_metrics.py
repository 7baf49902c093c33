"""Diagnoses that only metrics allow, and series and cores of them. The reports are invented."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from tests.diagnosis.test_diagnose_text import EXECUTED, codes, diagnosed, settled, time
from tests.invented import InventedRun
from tests.readings.printer import Printed, print_report
from xladoctor.diagnosis import diagnose
from xladoctor.findings import Severity
from xladoctor.readings import load

if TYPE_CHECKING:
    from pathlib import Path

    from xladoctor.results import Report


def series(*reports: tuple[int, list[Printed], dict[str, int]]) -> Report:
    """Reports of one program at several steps."""
    lines = []
    for step, metrics, counters in reports:
        lines += [f"[MetricsData; step={step}]", *print_report(metrics, counters)]
    return diagnose(load(["-"], "\n".join(lines)))


def steps(count: int, **counters: int) -> tuple[int, list[Printed], dict[str, int]]:
    return (
        count,
        [],
        {"CachedCompile": count - 5, "MarkStep": count, "UncachedCompile": 5} | counters,
    )


def test_a_step_in_several_graphs_is_information() -> None:
    executed = [time("CompileTime", 5, 30.0, 20.0), time("ExecuteTime", 1800, 200.0)]
    report = diagnosed(executed, settled(CachedCompile=1795))
    assert codes(report) == ["XLA213"]
    assert "3.6 times per step" in report.findings[0].message
    assert report.findings[0].severity is Severity.INFO
    assert report.summary.verdict == "The XLA side is sound."


def test_many_tiny_compilations_and_a_few_large_ones() -> None:
    tiny = time("CompileTime", 40, 720.0, 365.0)
    tiny = dataclasses.replace(tiny, percentiles={**tiny.percentiles, "50": "002ms000.000us"})
    found = {f.code for f in diagnosed([tiny, EXECUTED[1]], {}).findings}
    assert "XLA213" in found
    even = time("CompileTime", 40, 720.0, 20.0)
    assert "XLA213" not in {f.code for f in diagnosed([even, EXECUTED[1]], {}).findings}


@pytest.mark.parametrize(("pending", "expected"), [(90, ["XLA213"]), (3, [])])
def test_inputs_that_are_pending_when_a_compiled_function_is_called(
    pending: int, expected: list[str]
) -> None:
    calls = time("RunCachedGraphOutputData", 100, 0.1)
    assert codes(diagnosed([calls], {"DynamoSyncInputExecuteTime": pending})) == expected


def test_step_ends_that_find_nothing_to_run() -> None:
    executed = [time("ExecuteTime", 100, 50.0)]
    few = {"CachedCompile": 95, "MarkStep": 300, "UncachedCompile": 5}
    assert codes(diagnosed(executed, few)) == ["XLA310"]
    assert codes(diagnosed(executed, {**few, "MarkStep": 101})) == []


@pytest.mark.parametrize(
    ("counters", "expected"),
    [
        ({"PersistentCacheMiss": 40}, []),  # a first run can only miss
        ({"PersistentCacheMiss": 4, "PersistentCacheHit": 40}, []),
        ({"PersistentCacheMiss": 40, "PersistentCacheHit": 4}, ["XLA214"]),
        ({"PersistentCacheDeserializeFailure": 1}, ["XLA214"]),
    ],
)
def test_the_compilation_cache_on_disk(counters: dict[str, int], expected: list[str]) -> None:
    assert codes(diagnosed(EXECUTED, settled(**counters))) == expected


def test_graphs_that_dynamo_captures_again_and_again() -> None:
    few, many = (
        time("DynamoExtractCompiledGraph", 4, 1.0),
        time("DynamoExtractCompiledGraph", 30, 9),
    )
    assert codes(diagnosed([*EXECUTED, few], settled())) == []
    assert codes(diagnosed([*EXECUTED, many], settled())) == ["XLA215"]
    still = series((100, [few], steps(100)[2]), (200, [few], steps(200)[2]))
    assert codes(still) == []
    growing = series(
        (100, [few], steps(100)[2]),
        (200, [time("DynamoExtractCompiledGraph", 7, 2.0)], steps(200)[2]),
    )
    assert codes(growing) == ["XLA215"]
    assert "3 graphs captured in the last 100 steps" in growing.findings[0].message


def test_constants_sent_in_each_step_but_not_those_of_set_up() -> None:
    weights = time("IrValueTensorToXlaData", 900, 3.0)
    assert "XLA610" not in codes(diagnosed([*EXECUTED, weights], settled(MarkStep=25)))
    many = time("IrValueTensorToXlaData", 31_000, 3.0)
    (found,) = diagnosed([*EXECUTED, many], settled(MarkStep=1000)).findings
    assert found.code == "XLA610"
    assert "30 times per step" in found.message
    fallbacks = settled(**{"MarkStep": 1000, "aten::silu": 30_000})
    assert "XLA610" not in codes(diagnosed([*EXECUTED, many], fallbacks))


def test_tensors_that_stay_alive_need_a_series() -> None:
    early = steps(100, CreateDataHandles=5_000, DestroyDataHandles=4_000)
    stable = steps(300, CreateDataHandles=15_000, DestroyDataHandles=14_000)
    growing = steps(300, CreateDataHandles=15_000, DestroyDataHandles=13_600)
    assert codes(series(stable)) == []
    assert codes(series(early, stable)) == []
    report = series(early, growing)
    assert codes(report) == ["XLA710"]
    assert report.findings[0].count == 400
    assert report.summary.verdict == "Device memory grows from step to step."


def test_a_long_compilation_long_after_warm_up() -> None:
    early = (100, [time("CompileTime", 5, 600.0, 300.0), time("ExecuteTime", 105, 9_000)],
             steps(100)[2])  # fmt: skip
    late = (900, [time("CompileTime", 6, 960.0, 360.0), time("ExecuteTime", 906, 90_000)],
            steps(900, UncachedCompile=6)[2])  # fmt: skip
    report = series(early, late)
    assert codes(report) == ["XLA211"]
    assert "1 compilation of 6 min 0 s in the last 800 steps" in report.findings[0].message


def test_a_series_that_begins_with_the_program_is_no_measure_of_its_warm_up() -> None:
    start = (0, [], {"MarkStep": 1, "UncachedCompile": 2})
    warm = (20, [], {"CachedCompile": 12, "MarkStep": 21, "UncachedCompile": 10})
    assert codes(series(start, warm)) == []
    later = (40, [], {"CachedCompile": 32, "MarkStep": 41, "UncachedCompile": 10})
    assert codes(series(start, warm, later)) == []
    growing = (40, [], {"CachedCompile": 22, "MarkStep": 41, "UncachedCompile": 20})
    assert codes(series(start, warm, growing)) == ["XLA210"]


def test_a_file_to_which_two_programs_appended_is_the_second_of_them() -> None:
    first = (0, [], {"MarkStep": 500, "UncachedCompile": 400, "aten::silu": 500})
    second = (1, [], {"CachedCompile": 90, "MarkStep": 95, "UncachedCompile": 5})
    report = series(first, second)
    assert codes(report) == []
    assert report.summary.steps == 95


POST = """Post Compilation Analysis: {bar}
Post Compilation Analysis: Graph input size: {0} GB
Post Compilation Analysis: Graph output size: {1} GB
Post Compilation Analysis: Aliased Input size: {2} GB
Post Compilation Analysis: Intermediate tensor size: {3} GB
Post Compilation Analysis: Compiled program size: 0.020000 GB
Post Compilation Analysis: {bar}
"""


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (
            ("1.500000", "7.900000", "1.500000", "12.000000"),
            "more than a core of TPU v2, v3 or v5e",
        ),
        (("3.000000", "3.000000", "0.000000", "1.000000"), "its state is held twice"),
        (("1.500000", "1.500000", "1.500000", "1.000000"), None),
        (("1.500000", "Unknown ", "1.500000", "120.000000"), None),
    ],
)
def test_the_memory_of_a_graph(sizes: tuple[str, ...], words: str | None) -> None:
    report = diagnose(load(["-"], POST.format(*sizes, bar="=" * 80)))
    assert codes(report) == (["XLA711"] if words else [])
    if words:
        assert words in report.findings[0].message


def cores(folder: Path, seconds: list[float], new: int = 5) -> Report:
    for core, executed in enumerate(seconds):
        text = print_report([time("ExecuteTime", 505, executed)], settled(UncachedCompile=new))
        (folder / f"m.{core}").write_text("\n".join(text))
    return diagnose(load(sorted(folder.iterdir())))


def test_the_core_that_comes_late_is_the_one_that_executes_shortly(tmp_path: Path) -> None:
    report = cores(tmp_path, [300.0, 300.0, 120.0, 310.0])
    assert codes(report) == ["XLA414"]
    assert report.findings[0].cores == (2,)


def test_cores_that_are_much_alike_are_not_compared(tmp_path: Path) -> None:
    assert codes(cores(tmp_path, [300.0, 290.0, 310.0, 280.0])) == []


def test_workers_of_a_pod_are_told_apart_by_name() -> None:
    lines = [
        f"2021-04-19 13:28:12 10.0.0.{worker} [{worker}] {line}"
        for worker, new in enumerate([5, 5, 6])
        for line in print_report([], settled(UncachedCompile=new))
    ]
    report = diagnose(load(["-"], "\n".join(lines)))
    assert codes(report) == ["XLA410"]
    assert "10.0.0.2 [2]" in report.findings[0].message


def block(kind: str, graph: str, row: int, cause: str = "user torch_xla.sync") -> str:
    bar = "=" * 80
    return "".join(
        f"{kind} Analysis: {text}\n"
        for text in (
            bar, f"{kind.rpartition(' ')[2]} Cause", f"  {cause}", "Graph Info:",
            f"  Graph Hash: {graph}", "Python Frame Triggered Execution:",
            f"  train (/home/user/train.py:{row})", bar,
        )
    )  # fmt: skip


def test_a_line_whose_graph_is_another_one_after_warm_up() -> None:
    warm = block("Compilation", "a", 40) + block("Execution", "a", 40) * 3
    late = block("Compilation", "b", 40) + block("Execution", "b", 40)
    assert codes(diagnose(load(["-"], warm + late))) == []
    late += block("Compilation", "c", 40)
    (found,) = diagnose(load(["-"], warm + late)).findings
    assert (found.code, found.count, found.locations[0].row) == ("XLA210", 2, 40)


def test_compilations_without_executions_between_are_warm_up_until_they_are_many() -> None:
    def text(count: int) -> str:
        return "".join(block("Compilation", f"{n:x}", 40) for n in range(count))

    assert codes(diagnose(load(["-"], text(5)))) == []
    assert codes(diagnose(load(["-"], text(12)))) == ["XLA210"]


def test_a_read_for_which_a_graph_was_compiled() -> None:
    cause = "most likely user code trying to access tensor value before torch_xla.sync"
    often = "".join(block("Compilation", graph, 52, cause) for graph in "abc")
    report = diagnose(load(["-"], often))
    assert [(f.code, f.severity, f.count) for f in report.findings] == [
        ("XLA101", Severity.WARNING, 3)
    ]
    assert report.summary.verdict == "The host reads device values before the step's end."


def test_a_single_read_in_debug_output_may_be_that_of_set_up_or_of_the_end() -> None:
    cause = "most likely user code trying to access tensor value before torch_xla.sync"
    report = diagnose(load(["-"], block("Compilation", "a", 52, cause)))
    assert [(f.code, f.severity) for f in report.findings] == [("XLA101", Severity.INFO)]
    assert report.summary.verdict == "This debug output shows too little to tell."
    assert "but not whether each step has it" in report.summary.why


def test_a_read_inside_a_function_that_is_to_be_one_graph() -> None:
    (found,) = diagnose(load(["-"], block("Unexpected Execution", "a", 52))).findings
    assert (found.code, found.locations[0].row) == ("XLA101", 52)


def test_memory_that_the_analyzer_complains_of() -> None:
    line = (
        "pt-xla-profiler: Following metrics too frequent: XrtTryFreeMemory (40 counts), "
        "during 100 steps. Note: XRT metrics follow the lifecycle of the TPU"
    )
    assert codes(diagnose(load(["-"], line))) == ["XLA702"]


def test_lines_of_the_frame_summary() -> None:
    text = (
        'FRAME (count=12):\nUnlowered Op: "_ctc_loss"\nPython Frames:\n'
        "  train (/home/user/train.py:73)\n\n"
    )
    (found,) = diagnose(load(["-"], text)).findings
    assert (found.code, found.count, found.locations[0].row) == ("XLA501", 12, 73)


def test_a_read_that_waits_for_the_graph_says_so() -> None:
    inbound = Printed("InboundData", 505, "1.97KB", {"50": "4.00B", "90": "4.00B"})
    metrics = [*EXECUTED, inbound, time("TransferFromDeviceTime", 505, 101.0)]
    (found,) = diagnosed(metrics, settled()).findings
    assert "which is the wait for the graph" in found.message


def test_sizes_of_reads_whose_percentiles_were_cut_are_not_made_up() -> None:
    cut = Printed("InboundData", 505, "1.97KB", {})
    (found,) = diagnosed([*EXECUTED, cut], settled()).findings
    assert "single values" in found.message


def test_recorded_metrics_are_judged_by_the_same_modules(tmp_path: Path) -> None:
    run = InventedRun(cores=1)
    run.steps(60)
    run.end()
    run.metrics = "\n".join(
        print_report(EXECUTED, settled(PersistentCacheMiss=40, PersistentCacheHit=4))
    )
    report = diagnose(load([run.write(tmp_path / "run")]))
    (found,) = report.findings
    assert (found.code, found.confirmed_by) == ("XLA214", ("runtime",))


def test_every_core_of_a_process_has_a_set_up_of_its_own(tmp_path: Path) -> None:
    """The figures are those of an FSDP program on four simulated cores, 16 steps each."""
    sent = time("IrValueTensorToXlaData", 1_920, 3.0)
    told = {}
    for cores, steps_of_each in ((4, 16), (1, 64)):
        run = InventedRun(cores=cores)
        run.steps(steps_of_each)
        run.end()
        run.metrics = "\n".join(print_report([*EXECUTED, sent], settled(MarkStep=84)))
        report = diagnose(load([run.write(tmp_path / str(cores))]))
        told[cores] = {found.code: found.message for found in report.findings}
    assert "XLA610" not in told[4]
    assert "in 64 steps" in told[1]["XLA610"]  # of the run, not the marks of all that marks
