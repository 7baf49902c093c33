"""Upstream's own multi-core tests on simulated cores.

``python -m tests.conformance.run CHECKOUT [--cores 2,8,4] [--only PATTERN] [--json FILE]
[--write docs/conformance.md] [--times N ...]``: CHECKOUT is one of pytorch/xla at the version that
``upstream.toml`` names; nothing is fetched. Prints each test and what became of it. With ``--json``
what has been run before is not run again (``--again``: it is). Exit code 1 if a test did not pass
and the table does not say why; 2 if there is nothing to run.

With ``--times`` each file is run so often (``tests.determinism.runs``), those first where cores are
most likely to race, and only what differs from run to run is told; exit code 1 if anything does.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conformance import document, table
from tests.conformance.execution import Outcome, run
from tests.determinism import runs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.conformance.execution import File

#: Seconds that one test may take: the machine may be busy.
LIMIT = 300.0
#: The same without xladoctor, where collectives of several CPU devices may wait for ever.
PLAIN_LIMIT = 90.0


def main() -> int:
    """Run, print, write."""
    given = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started ends with it
    known = table.read()
    checkout = Path(given.checkout) if given.checkout else None
    if checkout is None or not (checkout / "test").is_dir():
        where = f"{checkout} holds none" if checkout else "say where it is"
        print(
            f"conformance needs a checkout of pytorch/xla {known.version}, and {where}: "
            "make conformance PTXLA=folder",
            file=sys.stderr,
        )
        return 2
    files = [
        file
        for file in known.files(checkout)
        if not given.only or any(fnmatch.fnmatch(file.path, f"*{one}*") for one in given.only)
    ]
    if not files:
        print(f"no file of tests is named like {', '.join(given.only)}", file=sys.stderr)
        return 2
    if given.times:
        return _many_times(known, checkout, files, given)
    kept = _Kept(given.json)
    wrong = 0
    for cores in given.cores:
        for file in files:
            ran = None if given.again else kept.of(file, cores)
            if ran is None:
                ran = _run(known, checkout, file, cores, given.limit)
                kept.put(file, cores, ran)
            wrong += sum(_tell(known, outcome) for outcome in ran)
    print(document.summary(known, kept.outcomes))
    if given.write:
        given.write.write_text(document.page(known, kept.outcomes))
    return 1 if wrong else 0


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("checkout", nargs="?", help="a checkout of pytorch/xla")
    options.add_argument(
        "--cores", type=lambda text: [int(one) for one in text.split(",")], default=[2, 8, 4]
    )
    options.add_argument("--only", action="append", default=[], metavar="PATTERN")
    options.add_argument("--limit", type=float, default=LIMIT, help="seconds for one test")
    options.add_argument("--json", type=Path, metavar="FILE", help="outcomes, read and written")
    options.add_argument("--again", action="store_true", help="also what has been run before")
    options.add_argument("--write", type=Path, metavar="FILE", help="the table as Markdown")
    runs.options(options)
    return options.parse_args()


def _many_times(
    known: table.Table, checkout: Path, files: list[File], given: argparse.Namespace
) -> int:
    named = {
        f"{cores} {file.path}": (file, cores)
        for file in sorted(files, key=lambda file: known.place(file.path))
        for cores in given.cores
    }

    def once(name: str) -> list[list[str]]:
        file, cores = named[name]
        ran = run(checkout, file, cores, given.limit)
        return sorted(
            [one.test, one.outcome, document.owner(known, one)[1], *one.told] for one in ran
        )

    return runs.many_times(given, list(named), once)


def _run(known: table.Table, checkout: Path, file: File, cores: int, limit: float) -> list[Outcome]:
    """The outcomes of a file; what fails and nobody has explained is tried without xladoctor.

    Only where that tells anything: cores that meet cannot do so there.
    """
    ran = run(checkout, file, cores, limit)
    if not file.one_process or all(
        one.outcome in ("passed", "skipped") or known.reason(one) for one in ran
    ):
        return ran
    plain = {one.test: one for one in run(checkout, file, 0, PLAIN_LIMIT, devices=cores)}
    return [
        dataclasses.replace(one, plain=plain[one.test].outcome)
        if one.outcome not in ("passed", "skipped") and one.test in plain
        else one
        for one in ran
    ]


def _tell(known: table.Table, outcome: Outcome) -> bool:
    """Print one outcome; says whether somebody has to look at it."""
    words, wrong = outcome.outcome, False
    if outcome.outcome != "passed":
        whose, why = document.owner(known, outcome)
        wrong = whose == document.NOT_EXPLAINED
        words += f": {whose}: {_last_line(outcome.text) if wrong else why}"
    for code in known.unexplained(outcome):
        words, wrong = f"{words}; told {code}", True
    print(f"{outcome.cores} cores  {outcome.test}  {words}", flush=True)
    return wrong


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")[:300]


class _Kept:
    """Outcomes in a file, so that a run goes on where it was cut off."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._ran: dict[str, list[Outcome]] = {}
        if path is not None and path.exists():
            for key, rows in json.loads(path.read_text()).items():
                self._ran[key] = [
                    Outcome(**{**row, "told": tuple(row.get("told", ()))}) for row in rows
                ]

    @property
    def outcomes(self) -> list[Outcome]:
        """All of them."""
        return [one for ran in self._ran.values() for one in ran]

    def of(self, file: File, cores: int) -> list[Outcome] | None:
        """What became of a file before; None if it has not been run."""
        return self._ran.get(f"{cores} {file.path}")

    def put(self, file: File, cores: int, outcomes: Iterable[Outcome]) -> None:
        """Keep what became of a file."""
        self._ran[f"{cores} {file.path}"] = list(outcomes)
        if self._path is None:
            return
        rows = {key: [_row(one) for one in self._ran[key]] for key in sorted(self._ran)}
        self._path.write_text(json.dumps(rows, indent=0) + "\n")


def _row(outcome: Outcome) -> dict[str, object]:
    """What differs from the defaults."""
    return {
        field.name: value
        for field in dataclasses.fields(outcome)
        if (value := getattr(outcome, field.name)) != field.default
    }


if __name__ == "__main__":
    sys.exit(main())
