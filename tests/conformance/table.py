"""What is run of upstream, and whose fault it is if a test does not pass (``upstream.toml``)."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from pathlib import Path
from typing import Any

try:
    import tomllib
except ImportError:
    import tomli as tomllib  # type: ignore[no-redef]

from tests.conformance.execution import File, Outcome

TABLE = Path(__file__).with_name("upstream.toml")
#: The owners of a failure, with what they are called in the document.
OWNERS = {
    "cpu": "XLA's CPU compiler or runtime",
    "torch_xla": "torch_xla",
    "tpu": "needs a TPU",
    "test": "the test's own conditions",
    "simulation": "the simulation",
}


@dataclasses.dataclass(frozen=True)
class Reason:
    """Why a test does not pass.

    Attributes:
        test: Pattern (``*``) of its name.
        whose: One of :data:`OWNERS`.
        why: A sentence.
        says: Regular expression that is found in what it said.
        cores: The numbers of cores that this is about; all if empty.
    """

    test: str
    whose: str
    why: str
    says: str = ""
    cores: tuple[int, ...] = ()

    def fits(self, outcome: Outcome) -> bool:
        """Whether the reason is one for this outcome."""
        return self.fits_test(outcome) and re.search(self.says, outcome.text, re.DOTALL) is not None

    def fits_test(self, outcome: Outcome) -> bool:
        """The same, whatever it said."""
        return fnmatch.fnmatchcase(outcome.test, self.test) and (
            not self.cores or outcome.cores in self.cores
        )


@dataclasses.dataclass(frozen=True)
class Table:
    """The whole table.

    Attributes:
        version: Of torch_xla.
        reasons: Why tests do not pass.
        told: The same for findings that a passing test is told.
        racy: Patterns of the files in which cores are most likely to race, the likeliest first.
    """

    version: str
    reasons: tuple[Reason, ...]
    told: tuple[Reason, ...]
    racy: tuple[str, ...]
    _files: tuple[dict[str, Any], ...]
    _left_out: tuple[dict[str, Any], ...]

    @property
    def patterns(self) -> list[str]:
        """Where the tests are, inside a checkout."""
        return list(dict.fromkeys(path for row in self._files for path in row["paths"]))

    @property
    def left_out(self) -> list[tuple[str, str]]:
        """What is not run at all, and why."""
        return [(path, row["why"]) for row in self._left_out for path in row["paths"]]

    def files(self, checkout: Path) -> list[File]:
        """The files of tests of a checkout, in the order of the table."""
        found: dict[str, File] = {}
        out = {
            path for row in self._left_out for one in row["paths"] for path in _at(checkout, one)
        }
        for row in self._files:
            for pattern in row["paths"]:
                for path in _at(checkout, pattern):
                    if path not in out:
                        found[path] = File(
                            path,
                            tuple(row.get("args", ())),
                            row.get("environ", {}),
                            row.get("one_process", False),
                            row.get("widen", True),
                            row.get("torchrun", False),
                        )
        return list(found.values())

    def place(self, path: str) -> int:
        """Where a file comes if those are first that are most likely to race."""
        fits = (at for at, one in enumerate(self.racy) if fnmatch.fnmatchcase(path, one))
        return next(fits, len(self.racy))

    def reason(self, outcome: Outcome) -> Reason | None:
        """Why a test did not pass; None if nobody has said so."""
        return next((one for one in self.reasons if one.fits(outcome)), None)

    def unexplained(self, outcome: Outcome) -> list[str]:
        """The codes that a run was told and should not have been.

        That a core failed (XLA411) is for the test to judge.
        """
        return [
            code
            for code in outcome.told
            if code != "XLA411"
            and not any(one.says == code and one.fits_test(outcome) for one in self.told)
        ]


def read(path: Path = TABLE) -> Table:
    """Read the table."""
    table = tomllib.loads(path.read_text())
    return Table(
        table["version"],
        tuple(_reason(row) for row in table.get("reasons", ())),
        tuple(_reason(row) for row in table.get("told", ())),
        tuple(table.get("racy", ())),
        tuple(table["files"]),
        tuple(table.get("left_out", ())),
    )


def _reason(row: dict[str, Any]) -> Reason:
    if row["whose"] not in OWNERS:
        raise ValueError(f"{TABLE.name}: whose = {row['whose']!r} is none of {', '.join(OWNERS)}")
    return Reason(**{**row, "cores": tuple(row.get("cores", ()))})


def _at(checkout: Path, pattern: str) -> list[str]:
    return sorted(one.relative_to(checkout).as_posix() for one in checkout.glob(pattern))
