"""The rows of code that the linter shows: whole in a file, what is marked in a narrow terminal."""

from __future__ import annotations

import io

from rich.console import Console

from xladoctor.findings import Finding, Location, Severity
from xladoctor.report import lint_text

SHORT = "device = xm.xla_device()"
LONG = f"sampler = DistributedSampler({'the_data, ' * 12}rank=xm.get_ordinal())"
BEGIN = LONG.index("xm.get")


def shown(*, terminal: bool, columns: int = 60) -> list[str]:
    end = BEGIN + 1 + len("xm.get_ordinal")
    place = Location("train.py", 2, column=BEGIN + 1, end_row=2, end_column=end)
    finding = Finding("XLA801", "removed-api", Severity.ERROR, "gone", locations=(place,))
    out = io.StringIO()
    console = Console(file=out, width=columns, force_terminal=terminal, color_system=None)
    lint_text.full([finding], lambda name, cell: [SHORT, LONG], console)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_file_gets_whole_rows():
    _, _, first, row, marks, *_ = shown(terminal=False)
    assert first == f" 1 | {SHORT}"
    assert row == f" 2 | {LONG}"
    assert marks == f"   | {' ' * BEGIN}{'^' * len('xm.get_ordinal')}"


def test_a_narrow_terminal_shows_what_is_marked():
    lines = shown(terminal=True)
    _, _, first, row, marks, *_ = lines
    assert max(map(len, lines)) <= 60
    assert first == " 1 | …"
    begin = marks.index("^")
    assert row[begin:].startswith("xm.get_ordinal")
    assert marks[begin:] == "^" * len("xm.get_ordinal")
    assert row.startswith(" 2 | …")


def test_a_wide_terminal_leaves_nothing_out():
    lines = shown(terminal=True, columns=300)
    assert not any("…" in line for line in lines)
