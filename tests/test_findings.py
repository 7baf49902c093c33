"""Findings: joining what was read with what was measured, and their order."""

import dataclasses

from xladoctor import catalogue
from xladoctor.diagnosis.ranking import ranked
from xladoctor.findings import Finding, Location, Severity, in_source_order
from xladoctor.findings import merge as joined_by


def at(row: int, column: int | None = None, **more: object) -> tuple[Location, ...]:
    return (Location("train.py", row, column, **more),)  # type: ignore[arg-type]


def merge(static, measured):
    return joined_by(static, measured, catalogue.same_problems())


def static(code: str, row: int, **more: object) -> Finding:
    return Finding(
        code,
        "n",
        Severity.WARNING,
        "static",
        "write this",
        at(row, 5, **more),
        confirmed_by=("lint",),
    )


def measured(code: str, row: int) -> Finding:
    return Finding(
        code,
        "n",
        Severity.WARNING,
        "960 reads",
        locations=(Location("train.py", row, function="train"),),
        count=960,
        seconds=3.1,
        cores=(0, 1),
        confirmed_by=("runtime",),
    )


def test_same_code_and_line_become_one() -> None:
    (joined,) = merge([static("XLA101", 7)], [measured("XLA101", 7)])
    assert joined.confirmed_by == ("runtime", "lint")
    assert (joined.message, joined.suggestion) == ("960 reads", "write this")
    assert (joined.count, joined.seconds, joined.cores) == (960, 3.1, (0, 1))
    assert (joined.locations[0].column, joined.locations[0].function) == (5, "train")


def test_what_the_linter_says_twice_of_a_line_is_told_once_when_the_run_confirms_it() -> None:
    assert len(merge([static("XLA434", 7), static("XLA434", 7)], [measured("XLA434", 7)])) == 1
    assert len(merge([static("XLA434", 7), static("XLA434", 7)], [measured("XLA434", 8)])) == 3
    assert len(merge([static("XLA434", 7), static("XLA101", 7)], [measured("XLA434", 7)])) == 2


def test_the_run_says_how_grave_a_problem_was() -> None:
    """An evaluation that every core makes as a whole, where the linter fears for the training."""
    feared = dataclasses.replace(static("XLA402", 7), severity=Severity.ERROR)
    seen = dataclasses.replace(measured("XLA402", 7), severity=Severity.INFO)
    assert merge([feared], [seen])[0].severity is Severity.INFO
    kin = dataclasses.replace(measured("XLA101", 7), severity=Severity.INFO)
    assert merge([static("XLA102", 7)], [kin])[0].severity is Severity.WARNING


def test_host_syncs_join_under_the_linters_more_precise_code() -> None:
    (joined,) = merge([static("XLA102", 7)], [measured("XLA101", 7)])
    assert joined.code == "XLA102"


def test_sizes_that_depend_on_the_data_join_under_the_linters_idiom() -> None:
    (joined,) = merge([static("XLA202", 7)], [measured("XLA201", 7)])
    assert (joined.code, joined.count) == ("XLA202", 960)


def test_a_statement_over_several_lines_holds_the_measured_line() -> None:
    (joined,) = merge([static("XLA101", 5, end_row=8)], [measured("XLA101", 7)])
    assert joined.count == 960


def test_a_loop_without_step_end_is_one_problem_with_the_line_in_it_that_ended_a_graph() -> None:
    loop = dataclasses.replace(static("XLA301", 5), related=at(9))
    (joined,) = merge([loop], [measured("XLA301", 8)])
    assert [place.row for place in joined.locations] == [5]
    assert [place.row for place in joined.related] == [8, 9]
    assert len(merge([loop], [measured("XLA301", 12)])) == 2
    step = dataclasses.replace(static("XLA301", 9), related=at(5))
    (joined,) = merge([step], [measured("XLA301", 8)])
    assert [place.row for place in joined.locations] == [9]
    assert len(merge([step], [measured("XLA301", 12)])) == 2


def test_other_line_or_other_family_stays_apart() -> None:
    assert len(merge([static("XLA101", 7)], [measured("XLA101", 8)])) == 2
    assert len(merge([static("XLA601", 7)], [measured("XLA210", 7)])) == 2


def test_orders() -> None:
    cheap = measured("XLA101", 3)
    dear = Finding("XLA501", "n", Severity.WARNING, "m", locations=at(9), seconds=9.0)
    wrong = Finding("XLA303", "n", Severity.ERROR, "m", locations=at(20))
    nowhere = Finding("XLA601", "n", Severity.INFO, "m")
    assert ranked([nowhere, cheap, dear, wrong]) == [wrong, dear, cheap, nowhere]
    assert in_source_order([nowhere, wrong, dear, cheap]) == [cheap, dear, wrong, nowhere]
