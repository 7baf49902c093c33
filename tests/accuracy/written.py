"""What the linter finds in programs that were written to hold known faults.

    python -m tests.accuracy.written [SET ...] [--verbose] [--write]

``written_programs`` holds programs of three authors, ten of each, in fifteen styles: who wrote them
drew a style, four habits of structure and seven faults of the catalogue for each, knew what the
rules are about, and had not read how the linter finds anything. The labels (``labels.jsonl``) were
written before anything was linted: line, code and weight of each fault, and lines that look like a
fault and are none.

A problem is found if a finding with its code stands at its line (or at one of ``alt_lines``); a
trap is taken if any finding does, and no problem is there. ``first.json`` has the first counts and
the commit that they are of. ``--verbose`` names what is missed and taken, ``--write`` puts the
table into ``docs/accuracy.md``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.accuracy import lint, tables
from tests.accuracy.unseen import TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = Path(__file__).with_name("written_programs")
BEGIN, END = "<!-- written: begin -->", "<!-- written: end -->"
WEIGHTS = ("high", "medium", "low")


@dataclass(frozen=True)
class Label:
    """A fault of a program, or a line that only looks like one.

    Attributes:
        path: The file, below the folder of its set.
        lines: Where a finding may stand, its own line first.
        code: The rule; of a trap the one that somebody would think of.
        weight: ``high``, ``medium`` or ``low``; None of a trap.
        note: Why, in a few words.
    """

    path: str
    lines: tuple[int, ...]
    code: str
    weight: str | None
    note: str


def labels(folder: Path) -> Iterator[Label]:
    """The labels of a set."""
    for line in (folder / "labels.jsonl").read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        lines = (one["line"], *one.get("alt_lines", ()))
        yield Label(one["path"], lines, one["code"], one.get("sev"), one["note"])


def findings(folder: Path) -> set[tuple[str, int, str]]:
    """(file, line, code) of what the linter finds; each program is linted by itself.

    In a copy elsewhere: what stands in a folder of tests is taken for a test.
    """
    found = set()
    programs = [one for one in sorted(folder.iterdir()) if one.is_dir() or one.suffix == ".py"]
    for program in programs:
        with tempfile.TemporaryDirectory() as temporary:
            home = Path(temporary).resolve()
            copy = shutil.copytree if program.is_dir() else shutil.copy
            copy(program, home / program.name)
            for file, told in lint.linted(home).items():
                name = file.relative_to(home).as_posix()
                found |= {(name, one.locations[0].row, one.code) for one in told}
    return found


def count(folder: Path, *, verbose: bool = False) -> dict[str, list[int]]:
    """Found and all problems by weight, and taken and all traps."""
    found, every = findings(folder), [*labels(folder)]
    problems = {(one.path, line) for one in every if one.weight for line in one.lines}
    there, all_of = Counter[str](), Counter[str]()
    for one in every:
        key = one.weight or "traps"
        all_of[key] += 1
        if one.weight:
            told = any((one.path, line, one.code) in found for line in one.lines)
        else:
            rows = {(one.path, line) for line in one.lines} - problems
            told = any(tuple(finding[:2]) in rows for finding in found)
        there[key] += told
        if verbose and told is (one.weight is None):
            what = "missed" if one.weight else "taken"
            print(f"{what}: {folder.name}/{one.path}:{one.lines[0]} {one.code} {one.note}")
    return {key: [there[key], all_of[key]] for key in (*WEIGHTS, "traps")}


def rows(counts: dict[str, dict[str, list[int]]]) -> list[str]:
    """The table: first and now, a row for each set."""
    first = json.loads((PROGRAMS / "first.json").read_text(encoding="utf-8"))
    made = ["| programs of | high and medium | now | traps taken | now |", "|---|---|---|---|---|"]
    for name, now in counts.items():
        before = first[name]
        cells = [name, _of(before), _of(now)]
        cells += [f"{one['traps'][0]} of {one['traps'][1]}" for one in (before, now)]
        made.append(f"| {' | '.join(cells)} |")
    return made


def _of(counts: dict[str, list[int]]) -> str:
    found = sum(counts[weight][0] for weight in ("high", "medium"))
    every = sum(counts[weight][1] for weight in ("high", "medium"))
    return f"{found} of {every} ({found / every:.2f})"


def main(argv: list[str]) -> int:
    """Count the sets; 2 if one is not there."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sets", nargs="*", metavar="SET", help="all by default")
    parser.add_argument("--verbose", action="store_true", help="name what is missed and taken")
    parser.add_argument("--write", action="store_true", help="write the table of docs/accuracy.md")
    options = parser.parse_args(argv)
    every = sorted(one.name for one in PROGRAMS.iterdir() if one.is_dir())
    unknown = sorted({*options.sets} - {*every})
    if unknown:
        print(f"{unknown[0]} is no set: there are {', '.join(every)}", file=sys.stderr)
        return 2
    wanted = options.sets or every
    table = rows({name: count(PROGRAMS / name, verbose=options.verbose) for name in wanted})
    print("\n".join(table))
    if options.write:
        tables.put(TABLE, BEGIN, END, table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
