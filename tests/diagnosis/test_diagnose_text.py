"""Diagnoses of pasted text. The reports are invented; accuracy on real ones is measured apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.readings.printer import Printed, print_report, print_time
from xladoctor.diagnosis import diagnose
from xladoctor.findings import Severity
from xladoctor.readings import load

if TYPE_CHECKING:
    from xladoctor.results import Report

SECOND = 1_000_000_000


def time(name: str, samples: int, seconds: float, longest: float | None = None) -> Printed:
    typical = print_time(int(seconds / max(samples, 1) * SECOND))
    top = typical if longest is None else print_time(int(longest * SECOND))
    return Printed(name, samples, print_time(int(seconds * SECOND)), {"50": typical, "99": top})


def diagnosed(metrics: list[Printed], counters: dict[str, int]) -> Report:
    return diagnose(load(["-"], "\n".join(print_report(metrics, counters))))


def codes(report: Report) -> list[str]:
    return [finding.code for finding in report.findings]


def settled(**counters: int) -> dict[str, int]:
    return {"CachedCompile": 500, "MarkStep": 505, "UncachedCompile": 5, **counters}


EXECUTED = [time("CompileTime", 5, 30.0, 20.0), time("ExecuteTime", 505, 200.0)]


def test_a_settled_program_is_called_sound_whatever_its_totals() -> None:
    report = diagnosed(EXECUTED, settled(**{"aten::_local_scalar_dense": 20, "xla::add": 9}))
    assert report.findings == ()
    assert report.summary.verdict == "The XLA side is sound."
    assert report.summary.fallbacks == {}


def test_the_start_of_a_program_is_too_early_to_tell() -> None:
    report = diagnosed([time("CompileTime", 21, 0.6), time("ExecuteTime", 21, 0.2)], {})
    assert report.findings == ()
    assert report.summary.verdict == "It is too early to tell."


def test_nearly_every_graph_new() -> None:
    assert codes(diagnosed([], {"CachedCompile": 2, "MarkStep": 29, "UncachedCompile": 27})) == [
        "XLA210"
    ]
    assert codes(diagnosed([], {"MarkStep": 7, "UncachedCompile": 5})) == ["XLA210"]
    assert codes(diagnosed([time("CompileTime", 26, 50.0), time("ExecuteTime", 26, 90.0)], {})) == [
        "XLA210"
    ]


def test_a_series_counts_what_came_between_and_not_warm_up() -> None:
    """33 compilations in warm-up still trouble torch_xla's own analyzer at step 40."""
    lines = (
        "[MetricsData; step={0}]\n"
        "Counter: MarkStep\n  Value: {0}\nCounter: UncachedCompile\n  Value: {1}\n"
    )
    still = diagnose(load(["-"], lines.format(20, 33) + lines.format(40, 33)))
    assert "XLA210" not in codes(still)
    growing = diagnose(load(["-"], lines.format(20, 33) + lines.format(40, 49)))
    assert codes(growing) == ["XLA210"]
    assert "16 new graphs in the last 20 steps" in growing.findings[0].message


def test_scalar_reads_by_their_counter() -> None:
    report = diagnosed([], {"MarkStep": 232, "aten::_local_scalar_dense": 23562})
    (found,) = report.findings
    assert (found.code, found.count) == ("XLA101", 23562)
    assert "102 times per step" in found.message


def test_reads_without_a_number_of_steps_are_information() -> None:
    report = diagnosed([], {"aten::_local_scalar_dense": 12})
    (found,) = report.findings
    assert (found.code, found.severity, found.count) == ("XLA101", Severity.INFO, 12)
    assert "how often per step is not in this text" in found.message
    assert report.summary.verdict == "This report shows too little to tell."
    assert diagnosed([], {"aten::_local_scalar_dense": 9}).findings == ()
    assert diagnosed(EXECUTED, {"aten::_local_scalar_dense": 12}).findings == ()
    fallback = diagnosed([], {"aten::_local_scalar_dense": 12, "aten::grid_sampler_2d": 90})
    assert set(codes(fallback)) == {"XLA101", "XLA501"}
    assert fallback.summary.why.startswith("aten::grid_sampler_2d")


def test_the_read_counter_is_never_called_a_fallback() -> None:
    report = diagnosed([], settled(**{"aten::_local_scalar_dense": 505}))
    assert codes(report) == ["XLA101"]
    assert (
        report.summary.fallbacks is None
        or "aten::_local_scalar_dense" not in report.summary.fallbacks
    )


def test_large_reads_are_whole_tensors() -> None:
    inbound = Printed("InboundData", 505, "4.66GB", {"50": "9.44MB", "90": "9.44MB"})
    (found,) = diagnosed([*EXECUTED, inbound], settled()).findings
    assert found.code == "XLA101"
    assert "4.7 GiB in all" in found.message
    assert ".cpu()" in found.suggestion


def test_fallbacks_in_any_namespace() -> None:
    report = diagnosed(EXECUTED, settled(**{"aten::silu": 600, "torchvision::nms": 505}))
    assert codes(report) == ["XLA501", "XLA501"]
    assert "upgrade" in report.findings[0].suggestion
    assert report.summary.fallbacks == {"aten::silu": 600, "torchvision::nms": 505}


def test_reads_that_fallbacks_cause_are_put_down_to_them() -> None:
    inbound = Printed("InboundData", 30, "5.72GB", {"50": "4.00B", "90": "585.94MB"})
    metrics = [time("ExecuteTime", 30, 0.1), inbound, time("TransferFromServerTime", 30, 23.0)]
    report = diagnosed(metrics, {"aten::affine_grid_generator": 10, "aten::grid_sampler_2d": 10})
    assert codes(report) == ["XLA101", "XLA501", "XLA501"]
    assert report.summary.verdict.startswith("Operations run on the CPU")
    assert report.summary.why.startswith("aten::")


def test_uploads_that_fallbacks_cause_are_not_called_a_slow_input() -> None:
    uploads = time("TransferToServerTime", 12, 27.0)
    metrics = [time("CompileTime", 3, 0.1), time("ExecuteTime", 30, 0.1), uploads]
    assert "XLA601" in codes(diagnosed(metrics, {}))
    assert "XLA601" not in codes(diagnosed(metrics, {"aten::grid_sampler_2d": 10}))


def test_server_values_are_never_set_against_this_process() -> None:
    server = Printed(
        "XrtCompile", 172, print_time(54 * 60 * SECOND), {"50": print_time(19 * SECOND)}
    )
    execute = Printed("XrtExecute", 172, print_time(33 * SECOND), {"50": print_time(SECOND)})
    report = diagnosed([server, execute], {"xla::add": 12})
    assert report.findings == ()
    assert report.summary.compilations is None
    assert report.summary.verdict == "This report shows too little to tell."


def test_long_compilations_unless_executions_outweigh_them() -> None:
    long = time("CompileTime", 3, 120.0, 63.0)
    assert codes(diagnosed([long], {})) == ["XLA211"]
    assert codes(diagnosed([long, time("ExecuteTime", 505, 600.0)], settled())) == []


def test_no_step_boundary() -> None:
    report = diagnosed([], {"CreateXlaTensor": 40000, "DestroyXlaTensor": 4000})
    assert codes(report) == ["XLA301"]


def test_a_huge_graph() -> None:
    graph = Printed("TensorsGraphSize", 40, "5440000.00", {"50": "136000.00"})
    assert codes(diagnosed([*EXECUTED, graph], settled())) == ["XLA212"]


def test_tracing_that_the_device_waits_for() -> None:
    tracing = time("LazyTracing", 3_000_000, 46.0)
    idle, busy = time("DeviceLockWait", 500, 0.1), time("DeviceLockWait", 500, 80.0)
    assert codes(diagnosed([idle, tracing], {})) == ["XLA602"]
    assert codes(diagnosed([busy, tracing], {})) == []


def test_short_memory_is_set_against_the_workers_own_executions() -> None:
    execute = time("XrtExecute", 100, 50.0)
    assert codes(diagnosed([execute, time("XrtTryFreeMemory", 40, 9.0)], {})) == ["XLA702"]
    assert codes(diagnosed([execute, time("XrtTryFreeMemory", 4, 0.9)], {})) == []


def test_cores_whose_numbers_of_graphs_differ(tmp_path) -> None:
    for core, new in enumerate([5, 5, 6]):
        (tmp_path / f"m.{core}").write_text(
            f"Counter: MarkStep\n  Value: 90\nCounter: UncachedCompile\n  Value: {new}\n"
        )
    report = diagnose(load(sorted(tmp_path.iterdir())))
    assert codes(report) == ["XLA410"]
    assert report.findings[0].cores == (2,)


def test_the_analyzers_own_lines_grow_or_do_not() -> None:
    line = "pt-xla-profiler: {} too frequent: {} counts during {} steps\n"
    setup = line.format("TransferFromDeviceTime", 634, 10) + line.format(
        "TransferFromDeviceTime", 634, 40
    )
    assert codes(diagnose(load(["-"], setup))) == []
    growing = line.format("CompileTime", 21, 11) + line.format("CompileTime", 23, 12)
    assert codes(diagnose(load(["-"], growing))) == ["XLA210"]


def test_reads_that_debug_blocks_name_have_their_line() -> None:
    block = (
        "Execution Analysis: {bar}\nExecution Analysis: Execution Cause\n"
        "Execution Analysis:   most likely user code trying to access tensor value before {end}\n"
        "Execution Analysis: Python Frame Triggered Execution:\n"
        "Execution Analysis:   train (/home/user/train.py:73)\nExecution Analysis: {bar}\n"
    ).format(bar="=" * 80, end="torch_xla.sync")
    (found,) = diagnose(load(["-"], block * 3)).findings
    assert (found.code, found.count, found.locations[0].row) == ("XLA101", 3, 73)
    once = diagnose(load(["-"], block))
    assert [finding.severity for finding in once.findings] == [Severity.INFO]
    assert once.summary.verdict == "This debug output shows too little to tell."
    other = block.replace("most likely user code trying to access tensor value before ", "user ")
    assert diagnose(load(["-"], other * 20 + block)).findings == ()  # one read of a long run


def series(*reports: str) -> Report:
    return diagnose(load(["-"], "\n".join(reports)))


def at_step(step: int, *metrics: Printed, **counters: int) -> str:
    """A report of XLA_METRICS_FILE, without MarkStep as where a paste is cut."""
    return "\n".join([f"[MetricsData; step={step}]", *print_report(list(metrics), counters)])


def test_the_header_of_a_series_counts_steps_where_the_counter_is_cut() -> None:
    report = series(at_step(39, time("CompileTime", 60, 90.0)))
    assert codes(report) == ["XLA210"]
    assert report.summary.steps == 40  # torch_xla counts them from 0
    assert "60 new graphs in 40 steps" in report.summary.why
    assert "none was reused" not in report.summary.why  # that counter is cut, perhaps
    late = series(*(at_step(step, time("CompileTime", step, 3.0)) for step in (9, 19, 29, 39)))
    assert "20 new graphs in the last 20 steps" in late.summary.why


def test_few_of_what_is_needed_is_too_little_to_tell() -> None:
    for metric, words in {
        "CompileTime": "15 compilations, but not for how many steps",
        "ExecuteTime": "15 executions, but not of how many graphs",
        "TensorsGraphSize": "15 graphs, but not how many of them were compiled",
        "XrtCompile": "only what the TPU worker counts (XrtCompile 15)",
        "XrtReadLiteral": "only what the TPU worker counts (XrtReadLiteral)",
    }.items():
        report = diagnosed([Printed(metric, 15, "1.00", {"50": "1.00"})], {})
        assert report.summary.verdict == "This report shows too little to tell.", metric
        assert words in report.summary.why


def test_so_many_graphs_are_too_many_however_often_they_are_used() -> None:
    assert codes(diagnosed([time("CompileTime", 99, 30.0)], {})) == []
    assert codes(diagnosed([time("CompileTime", 100, 30.0)], {})) == ["XLA210"]


def test_set_up_has_small_graphs_and_perhaps_one_that_is_not() -> None:
    metrics = [
        Printed("CompileTime", 15, print_time(18 * SECOND), {"50": print_time(SECOND // 50)}),
        time("ExecuteTime", 15, 0.2),
    ]
    assert diagnosed(metrics, {}).summary.verdict == "It is too early to tell."
    many = [time("CompileTime", 60, 1.2), time("ExecuteTime", 60, 0.2)]
    assert codes(diagnosed(many, {})) == ["XLA210"]


def test_two_steps_are_too_few_also_with_a_graph_that_was_used_again() -> None:
    counters = {"CachedCompile": 3, "MarkStep": 2, "UncachedCompile": 1}
    report = diagnosed([time("ExecuteTime", 4, 0.1)], counters)
    assert report.summary.verdict == "It is too early to tell."
    assert "4 graphs ran in 2 steps" in report.summary.why


def test_a_minute_for_the_first_graph_is_information_and_five_are_not() -> None:
    first = series(at_step(1, time("CompileTime", 2, 125.0, 62.0)))
    assert [(f.code, f.severity) for f in first.findings] == [("XLA211", Severity.INFO)]
    assert first.summary.verdict == "It is too early to tell."
    longer = series(at_step(1, time("CompileTime", 2, 625.0, 312.0)))
    assert [(f.code, f.severity) for f in longer.findings] == [("XLA211", Severity.WARNING)]


def test_reads_of_which_the_last_are_single_values_are_not_called_single_values() -> None:
    inbound = Printed("InboundData", 1600, "385.66MB", {"50": "4.00B", "90": "4.00B"})
    (found,) = diagnosed([inbound, time("ExecuteTime", 2400, 46.0)], {}).findings
    assert "385.7 MiB in all, the last 1,024 single values" in found.message


def test_passes_of_one_operation_are_one_finding() -> None:
    counters = {
        "aten::_ctc_loss": 40,
        "aten::_ctc_loss_backward": 40,
        "aten::upsample_bilinear2d": 9,
    }
    found = diagnosed(EXECUTED, settled(**counters)).findings
    assert [finding.count for finding in found] == [80, 9]
    assert (
        "aten::_ctc_loss and aten::_ctc_loss_backward ran on the CPU 80 times" in found[0].message
    )
    both = settled(**{"aten::upsample_bilinear2d": 9, "aten::upsample_bilinear2d_backward": 9})
    assert (
        len(diagnosed(EXECUTED, both).findings) == 2
    )  # what helps the one does not help the other


def test_reads_that_the_analyzer_counts_are_put_down_to_its_operations() -> None:
    text = (
        "pt-xla-profiler: TransferFromServerTime too frequent: 449 counts during 6 steps\n"
        "pt-xla-profiler: Op(s) not lowered: aten::im2col, aten::im2col_backward,  Please open\n"
    )
    report = diagnose(load(["-"], text))
    assert codes(report) == ["XLA101", "XLA501"]
    assert report.summary.why.startswith("aten::im2col and aten::im2col_backward have run")
    assert report.findings[0].suggestion.startswith("fix the operations that run on the CPU first")


def test_one_line_of_the_analyzer_on_compilations() -> None:
    line = "pt-xla-profiler: CompileTime too frequent: {} counts during {} steps"
    few = diagnose(load(["-"], line.format(9, 11)))
    assert [(f.code, f.severity) for f in few.findings] == [("XLA210", Severity.INFO)]
    assert few.summary.verdict == "This debug output shows too little to tell."
    many = diagnose(load(["-"], line.format(40, 11)))
    assert [(f.code, f.severity) for f in many.findings] == [("XLA210", Severity.WARNING)]


def between(new: int, ran: int | None, old: int = 12) -> Report:
    """A report with 12 compilations and 40 executions, and one after it."""
    reports = [(old, None if ran is None else 40), (new, ran)]
    lines = [
        "\n".join(
            print_report([time(n, c, 9.0) for n, c in zip(NAMES, counts, strict=True) if c], {})
        )
        for counts in reports
    ]
    return series(*lines)


NAMES = ("CompileTime", "ExecuteTime")


def test_two_reports_without_steps_tell_by_what_came_between() -> None:
    assert codes(between(16, 46)) == ["XLA210"]
    assert "4 new graphs between two of these reports (6 executions)" in between(16, 46).summary.why
    assert codes(between(13, 42)) == []  # one graph may be that of the evaluation
    assert codes(between(16, 110)) == []
    assert codes(between(14, None)) == ["XLA210"]  # after 12, warm-up is over
    unknown = between(7, None, old=4)
    assert [(f.code, f.severity) for f in unknown.findings] == [("XLA210", Severity.INFO)]
    assert unknown.summary.verdict == "This report shows too little to tell."


def test_debug_output_that_is_cut_before_its_cause_says_too_little() -> None:
    for cause in ("Compil", "most likely user c", ""):
        text = f"Compilation Analysis: Compilation Cause\nCompilation Analysis:   {cause}"
        report = diagnose(load(["-"], text))
        assert report.summary.verdict == "This debug output shows too little to tell.", cause
    whole = text.replace("   ", "   user torch_xla.sync") + f"\nCompilation Analysis: {'=' * 80}\n"
    report = diagnose(load(["-"], whole * 20 + text))  # the end of a long log is cut
    assert report.summary.verdict == "Nothing wrong is visible in this debug output."


def test_the_answer_does_not_say_a_thing_twice_nor_call_sound_what_it_cannot_judge() -> None:
    wrong = diagnosed([], {"CachedCompile": 2, "MarkStep": 29, "UncachedCompile": 27}).summary
    assert wrong.verdict == "The program keeps recompiling."
    assert wrong.why == "27 new graphs against 2 that were reused."
    assert wrong.conclusive
    assert diagnosed(EXECUTED, settled()).summary.conclusive
    for metrics, counters in (([time("CompileTime", 15, 0.6)], {}), ([], {"MarkStep": 2})):
        assert not diagnosed(metrics, counters).summary.conclusive


def test_the_line_that_debug_output_names_is_that_of_the_reads_in_the_report() -> None:
    site = "pt-xla-profiler: FRAME (count={}):\npt-xla-profiler:   train (/home/user/train.py:{})\n"
    metrics = "\n".join(print_report(EXECUTED, settled(**{"aten::_local_scalar_dense": 500})))
    (found,) = series(site.format(480, 73), metrics).findings
    assert (found.code, found.count, found.locations[0].row) == ("XLA101", 500, 73)
    assert "per step" in found.message
    for other in (site.format(20, 73), site.format(300, 73) + site.format(200, 80)):
        findings = series(other, metrics).findings  # the lines are told by themselves
        assert findings[0].locations == ()
        assert {row.locations[0].row for row in findings[1:]} <= {73, 80}


def test_long_compilations_of_unknown_use_are_told_and_nothing_is_concluded() -> None:
    report = diagnosed([time("CompileTime", 4, 148.0, 37.0)], {})
    (found,) = report.findings
    assert (found.code, found.severity, found.count) == ("XLA211", Severity.INFO, 4)
    assert "4 compilations took 2 min 28 s, 37.0 s each on average" in found.message
    assert report.summary.verdict.startswith("Compilation takes long")
    assert not report.summary.conclusive
    assert codes(diagnosed([time("CompileTime", 4, 20.0, 5.0)], {})) == []


def test_results_whose_size_depends_on_data_are_named_from_counters_alone() -> None:
    for name in ("aten::unique_dim", "aten::unique_consecutive", "aten::argwhere", "aten::_unique"):
        assert "XLA201" in codes(diagnosed([], settled(**{name: 300})))
