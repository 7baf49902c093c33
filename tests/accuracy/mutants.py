"""Plant the linter's faults in healthy programs, spell them in many ways, and count what is found.

    python -m tests.accuracy.mutants [--count 2000] [--minutes N] [--seed 1] [--write] [--verbose]
    python -m tests.accuracy.mutants --into FILE [--part 1/4] ...  # in pieces

A mutant is a healthy program (``healthy/``, the treated samples, the ``good`` examples of the rule
pages) with one fault (``mutation/faults.py``) at one place, in one spelling
(``mutation/spellings.py``). It is found if a code of the fault is told in it. A mutant that does
not parse is none. Then changes without a meaning are made to healthy programs and to mutants: every
code that comes is an alarm, every one that goes a loss.

The choice is made by the seed: the same seed, the same mutants. ``--write`` puts the table into
``docs/accuracy.md``.
"""

from __future__ import annotations

import argparse
import ast
import collections
import dataclasses
import json
import random
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.accuracy import tables
from tests.accuracy.mutation.faults import FAULTS, NOT_PLANTED
from tests.accuracy.mutation.planting import Program
from tests.accuracy.mutation.spellings import CHANGES, MAIN, SPELLINGS
from xladoctor.lint import engine
from xladoctor.lint.asked import LintOptions, Member
from xladoctor.lint.sources import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tests.accuracy.mutation.faults import Fault
    from tests.accuracy.mutation.planting import Mutation
    from tests.accuracy.mutation.spellings import Files, Spelling

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "accuracy.md"
#: What a `good` example must hold to be a program: it starts cores, or shares one view of them.
_STARTS = ("launch(", "xmp.spawn(", "use_spmd()")
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A program with a fault, in a spelling."""

    program: str
    fault: Fault
    place: int
    spelling: str
    files: Files

    def __str__(self) -> str:
        return f"{self.fault.name}, place {self.place} of {self.program}, {self.spelling}"


def programs() -> dict[str, str]:
    """Healthy programs by name: those that nothing is found in."""
    texts = {path.name: path.read_text(encoding="utf-8")
             for path in sorted((ROOT / "tests/accuracy/healthy").glob("*.py"))}  # fmt: skip
    for path in sorted((ROOT / "sample_runs").glob("*/treated.py")):
        texts[f"{path.parent.name}/treated.py"] = path.read_text(encoding="utf-8")
    for page in sorted((ROOT / "rules").glob("XLA*.md")):
        blocks = re.findall(r"^```py good\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        for number, text in enumerate(blocks):
            if ".backward()" in text and any(word in text for word in _STARTS):
                texts[f"{page.name.partition('-')[0]} good {number}"] = text
    return {name: text for name, text in texts.items() if not found({MAIN: text})}


def found(files: Mapping[str, str]) -> collections.Counter[str]:
    """How often each code is told in the files of a program."""
    imports = {name.removesuffix(".py"): name for name in files if name != MAIN}
    members = [Member(Source(name, text), LintOptions(), imports) for name, text in files.items()]
    results = engine.lint_together(members)
    return collections.Counter(item.code for result in results for item in result.findings)


def planted(texts: Mapping[str, str], only: str = "") -> Iterator[tuple[str, Fault, int, Mutation]]:
    """What can be planted where: program, fault, place, and what makes it."""
    for name, text in texts.items():
        program = Program(text)
        for fault in FAULTS:
            if only in fault.name:
                for place, mutation in enumerate(fault.mutations(program)):
                    yield name, fault, place, mutation


def chosen(texts: Mapping[str, str], count: int, seed: int, only: str = "") -> Iterator[Mutant]:
    """Mutants picked by the seed, as many of each fault and spelling as there are."""
    rng = random.Random(seed)
    groups = collections.defaultdict(list)
    fits = {
        (name, spelling)
        for name, text in texts.items()
        for spelling, make in SPELLINGS.items()
        if spelled(text, make, random.Random(seed)) is not None
    }
    for item in planted(texts, only):
        for spelling in SPELLINGS:
            if (item[0], spelling) in fits:
                groups[item[1].name, spelling].append(item)
    for group in groups.values():
        rng.shuffle(group)
    left = count
    order = list(groups)
    rng.shuffle(order)
    while left and groups:
        for key in [key for key in order if key in groups]:
            if not left:
                return
            made = _next(groups[key], key[1], seed)
            if not groups[key]:
                del groups[key]
            if made is not None:
                left -= 1
                yield made


def _next(group: list[tuple[str, Fault, int, Mutation]], spelling: str, seed: int) -> Mutant | None:
    """The next mutant of a group that there is in the spelling."""
    while group:
        program, fault, place, mutation = group.pop()
        rng = random.Random(f"{seed} {program} {fault.name} {place}")
        files = spelled(mutation().code, SPELLINGS[spelling], rng)
        if files is not None:
            return Mutant(program, fault, place, spelling, files)
    return None


def spelled(text: str, spelling: Spelling, rng: random.Random) -> Files | None:
    """A program in a spelling; None if that does not apply, or does not parse."""
    try:
        files = spelling(text, rng)
        for part in (files or {}).values():
            ast.parse(part)
    except SyntaxError:
        return None
    return files


def is_found(mutant: Mutant) -> bool:
    return any(found(mutant.files)[code] for code in mutant.fault.codes)


def unchanged(text: str, seed: int) -> Iterator[tuple[str, collections.Counter[str], Files]]:
    """What comes (positive) or goes (negative) with each change that has no meaning."""
    before = found({MAIN: text})
    for name, change in CHANGES.items():
        files = spelled(text, change, random.Random(seed))
        if files is not None:
            difference = found(files)
            difference.subtract(before)
            yield name, difference, files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=2000, help="how many mutants; 0: all")
    parser.add_argument("--changes", type=int, default=300, help="mutants that are changed, too")
    parser.add_argument(
        "--minutes", type=float, default=1e9, help="stop with what there is by then"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="only faults whose names hold this")
    parser.add_argument("--into", type=Path, help="results: what this file has is not run again")
    parser.add_argument("--part", default="1/1", help="K/N: every Nth mutant, from the Kth")
    parser.add_argument("--verbose", action="store_true", help="show every miss and alarm")
    parser.add_argument("--write", action="store_true", help="put the table into docs/accuracy.md")
    options = parser.parse_args()
    texts = programs()
    results = Results(options.into)
    if not run(texts, results, options):
        print(f"{len(results.rows)} results; again with the same --into for the rest")
        return 0
    lines = [*table(results), "", *said(results, texts, options)]
    print("\n".join(lines))
    if options.write:
        tables.put(TABLE, BEGIN, END, lines)
    return 0


class Results:
    """What was found, row by row, also in a file: a run that is cut off goes on from there.

    Args:
        path: The file; None keeps the rows in memory alone.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            self.rows = {row["name"]: row for row in rows}

    def add(self, name: str, **values: object) -> None:
        row = {"name": name, **values}
        self.rows[name] = row
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in self.rows.values() if row["kind"] == kind]


def run(texts: Mapping[str, str], results: Results, options: argparse.Namespace) -> bool:
    """Lint what there is no result of; whether that was all of this part."""
    until = time.monotonic() + 60 * options.minutes
    first, of = map(int, options.part.split("/"))
    sample = []
    mutants = chosen(texts, options.count or sys.maxsize, options.seed, options.only)
    for number, mutant in enumerate(mutants):
        if mutant.spelling == "as written":
            sample.append(mutant)
        if number % of != first - 1 or str(mutant) in results.rows:
            continue
        if time.monotonic() > until:
            return False
        codes = found(mutant.files)
        hit = any(codes[code] for code in mutant.fault.codes)
        fault, spelling = mutant.fault.name, mutant.spelling
        results.add(str(mutant), kind="mutant", fault=fault, spelling=spelling, found=hit)
        if options.verbose and not hit:
            print(f"missed: {mutant} ({' '.join(sorted(codes)) or 'nothing'})", flush=True)
    random.Random(options.seed).shuffle(sample)
    changed = {("healthy", name): text for name, text in texts.items()}
    changed |= {("changed", str(m)): m.files[MAIN] for m in sample[: options.changes]}
    for number, ((kind, name), text) in enumerate(changed.items()):
        if number % of != first - 1 or f"{kind}: {name}" in results.rows:
            continue
        if time.monotonic() > until:
            return False
        rows = {
            change: {code: count for code, count in difference.items() if count}
            for change, difference, _ in unchanged(text, options.seed)
        }
        results.add(f"{kind}: {name}", kind=kind, changes=rows)
        for change, codes in rows.items():
            if codes and options.verbose:
                print(f"changed by {change}: {codes} in {name}", flush=True)
    return True


def said(results: Results, texts: Mapping[str, str], options: argparse.Namespace) -> list[str]:
    """The sentences below the table."""
    counts = []
    for kind in ("healthy", "changed"):
        differences = [codes for row in results.of(kind) for codes in row["changes"].values()]
        counts += [sum(map(bool, differences)), len(differences)]
    alarms, made, moved, moved_of = counts
    planted_for = {code for fault in FAULTS for code in fault.codes}
    whys = sorted(set(NOT_PLANTED.values()))
    rest = [f"{', '.join(c for c, w in NOT_PLANTED.items() if w == why)} ({why})" for why in whys]
    first = (
        f"Seed {options.seed}, {len(texts)} healthy programs, {len(FAULTS)} kinds of faults for "
        f"{len(planted_for)} codes. Changes without a meaning: {alarms} of {made} changed healthy "
        f"programs have a finding; {moved} of {moved_of} changed mutants have other findings than "
        "before."
    )
    return [first, "", f"Not planted: {'; '.join(rest)}."]


def table(results: Results) -> list[str]:
    """Found of planted, by fault and spelling."""
    cells = collections.Counter(
        (row["fault"], row["spelling"], row["found"]) for row in results.of("mutant")
    )
    rows = [fault.name for fault in FAULTS]
    columns = list(SPELLINGS)
    lines = [f"| fault | codes | {' | '.join(columns)} | all |", "|---" * (len(columns) + 3) + "|"]
    codes = {fault.name: " ".join(fault.codes) for fault in FAULTS}
    for row in (*rows, "all"):
        names = rows if row == "all" else [row]
        parts = [_of(cells, names, [column]) for column in columns]
        whole = _of(cells, names, columns)
        if whole[1]:
            written = " | ".join(f"{part}/{of}" if of else "" for part, of in parts)
            share = f"{whole[0]}/{whole[1]}" + (
                f" ({whole[0] / whole[1]:.3f})" if row == "all" else ""
            )
            lines.append(f"| {row} | {codes.get(row, '')} | {written} | {share} |")
    return lines


def _of(
    cells: collections.Counter[tuple[str, str, bool]], rows: Iterable[str], columns: Iterable[str]
) -> tuple[int, int]:
    pairs = [(row, column) for row in rows for column in columns]
    hits = sum(cells[(*pair, True)] for pair in pairs)
    return hits, hits + sum(cells[(*pair, False)] for pair in pairs)


if __name__ == "__main__":
    sys.exit(main())
