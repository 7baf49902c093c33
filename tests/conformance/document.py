"""The table of upstream's tests for people: ``docs/conformance.md``."""

from __future__ import annotations

import collections
import fnmatch
from typing import TYPE_CHECKING

from tests.conformance.table import OWNERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.conformance.execution import Outcome
    from tests.conformance.table import Table

#: Why a test is not the simulation's that fails on torch_xla's own CPU device too.
SAME_WITHOUT = "fails without xladoctor too, on torch_xla's own CPU device"
#: What is printed, and counted, of a failure that nobody has explained yet.
NOT_EXPLAINED = "not explained"

_FAILED = ("failed", "died", "late")

_TOP = """# Upstream's own multi-core tests on simulated cores

pytorch/xla {version} tests its multi-core code on TPUs. `make conformance PTXLA=folder` runs those tests, unchanged, on {cores} simulated cores: each file in a process of its own, each test with a time limit.
What a test file asks about its device is answered for a TPU v4 of one host, so that "not a TPU" is no reason to skip; torch_xla and the simulation see what there is.
`test/spmd` drives all devices from one process, without cores that meet: the simulation has little to do there, and the tests show that it is not in the way.

This page is written by `tests/conformance/run.py --write`, from `tests/conformance/measured.json` (what was run) and `tests/conformance/upstream.toml` (why something does not pass).
"""

_WORDS = """
*Failed* counts what did not pass, whoever is to blame; the next table says who. *Skipped* are tests that skip themselves: they need another number of devices, or a package.
"""


def fails_without(outcome: Outcome) -> bool:
    """Whether a failed test fails without xladoctor too."""
    return outcome.outcome in _FAILED and outcome.plain in _FAILED


def owner(known: Table, outcome: Outcome) -> tuple[str, str]:
    """Whose fault it is that a test did not pass, and why."""
    reason = known.reason(outcome)
    if reason is not None:
        return reason.whose, reason.why
    if fails_without(outcome):
        return "torch_xla", SAME_WITHOUT
    if outcome.outcome == "skipped":
        return "test", "skips itself: " + " ".join(outcome.text.split())
    return NOT_EXPLAINED, ""


def summary(known: Table, outcomes: Sequence[Outcome]) -> str:
    """One line for each number of cores."""
    lines = []
    for cores, of_cores in _by_cores(outcomes):
        counts = collections.Counter(_kind(one) for one in of_cores)
        owners = collections.Counter(
            owner(known, one)[0] for one in of_cores if one.outcome in _FAILED
        )
        words = ", ".join(f"{count} {name}" for name, count in owners.most_common())
        lines.append(
            f"{cores} cores: {counts['passed']} passed, {counts['failed']} failed"
            f"{f' ({words})' if words else ''}, {counts['skipped']} skipped"
        )
    return "\n".join(lines)


def page(known: Table, outcomes: Sequence[Outcome]) -> str:
    """The whole page."""
    every = [cores for cores, _ in _by_cores(outcomes)]
    parts = [
        _TOP.format(version=known.version, cores=_and([str(one) for one in every])),
        _of_files(outcomes, every),
        _WORDS,
        _of_failures(known, outcomes),
    ]
    return "\n".join(parts + _of_skips(known, outcomes) + _not_run(known, outcomes))


def _not_run(known: Table, outcomes: Sequence[Outcome]) -> list[str]:
    """The rows of the table of which no test has been run, and what nobody runs."""
    ran = {one.test.partition("::")[0] for one in outcomes}
    missing = [one for one in known.patterns if not any(fnmatch.fnmatch(path, one) for path in ran)]
    lines = []
    if missing:
        names = ", ".join(f"`{one}`" for one in missing)
        lines.append(f"* {names}: `make conformance` runs them too.")
    lines += [f"* `{path}`: left out, {why}." for path, why in known.left_out]
    return ["\n".join(["## What has not been run", "", *lines, ""])] if lines else []


def _of_files(outcomes: Sequence[Outcome], every: Sequence[int]) -> str:
    files: dict[str, dict[int, collections.Counter[str]]] = {}
    for one in outcomes:
        row = files.setdefault(one.test.partition("::")[0], {})
        row.setdefault(one.cores, collections.Counter())[_kind(one)] += 1
    head = "".join(f" {cores} cores |" for cores in every)
    lines = [f"| file |{head}", "|---|" + "---|" * len(every)]
    totals = {cores: collections.Counter[str]() for cores in every}
    for path in sorted(files):
        cells = []
        for cores in every:
            counts = files[path].get(cores)
            cells.append(_cell(counts) if counts else "not run")
            totals[cores].update(counts or {})
        lines.append(f"| `{path}` | " + " | ".join(cells) + " |")
    lines.append("| **all** | " + " | ".join(f"**{_cell(totals[one])}**" for one in every) + " |")
    return "\n".join(lines)


def _cell(counts: collections.Counter[str]) -> str:
    words = [f"{counts['passed']} passed"] if counts["passed"] else []
    words += [f"{counts[kind]} {kind}" for kind in ("failed", "skipped") if counts[kind]]
    return ", ".join(words)


def _of_failures(known: Table, outcomes: Sequence[Outcome]) -> str:
    """Who is to blame for what, and why."""
    rows: dict[tuple[str, str], dict[str, set[int]]] = {}
    for one in outcomes:
        if one.outcome in _FAILED:
            rows.setdefault(owner(known, one), {}).setdefault(one.test, set()).add(one.cores)
    if not rows:
        return "## What does not pass\n\nEverything passes.\n"
    names = list(OWNERS)
    lines = [
        "## What does not pass, and whose fault it is",
        "",
        "| whose | why | tests (on cores) |",
    ]
    lines.append("|---|---|---|")
    for whose, why in sorted(rows, key=lambda row: (_place(row[0], names), row[1])):
        tests = rows[whose, why]
        lines.append(f"| {OWNERS.get(whose, whose)} | {why} | {_tests(tests)} |")
    return "\n".join(lines) + "\n"


def _place(name: str, names: Sequence[str]) -> int:
    return names.index(name) if name in names else -1


def _tests(tests: dict[str, set[int]]) -> str:
    files: dict[str, list[tuple[str, set[int]]]] = {}
    for test in sorted(tests):
        path, _, name = test.partition("::")
        files.setdefault(path.removeprefix("test/"), []).append((name, tests[test]))
    words = []
    for path, found in files.items():
        on = _and([str(cores) for cores in sorted(set().union(*(cores for _, cores in found)))])
        count = f": {len(found)} tests" if found[0][0] and len(found) > 1 else ""
        if len(found) == 1 and found[0][0]:
            count = f": `{found[0][0].rpartition('.')[2].partition(' ')[0]}`"
        words.append(f"`{path}`{count} ({on})")
    return ", ".join(words)


def _of_skips(known: Table, outcomes: Sequence[Outcome]) -> list[str]:
    reasons = collections.Counter(
        owner(known, one)[1] for one in outcomes if one.outcome == "skipped"
    )
    if not reasons:
        return []
    lines = ["## What skips itself", "", "| tests, all numbers of cores | why |", "|---|---|"]
    lines += [f"| {count} | {why} |" for why, count in sorted(reasons.items(), key=_most)]
    return ["\n".join(lines) + "\n"]


def _most(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _kind(outcome: Outcome) -> str:
    return "failed" if outcome.outcome in _FAILED else outcome.outcome


def _by_cores(outcomes: Iterable[Outcome]) -> list[tuple[int, list[Outcome]]]:
    groups: dict[int, list[Outcome]] = {}
    for one in outcomes:
        groups.setdefault(one.cores, []).append(one)
    return sorted(groups.items())


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
