"""What the linter is asked, and what it answers: words that need neither LibCST nor a model.

LibCST and the rules take longer to load than a run in which nothing has changed, so ``run`` and
``cache`` know these alone, and load ``engine`` when there is something to be found anew.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from xladoctor import catalogue
from xladoctor.lint import looked
from xladoctor.lint.started import NOT_SAID, Started

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xladoctor.findings import Finding
    from xladoctor.lint.pins import Pin
    from xladoctor.lint.sources import Source

#: The newest torch_xla whose names and behaviour the rules know.
NEWEST_TORCH_XLA = (2, 9)
#: A file, or a part of it, that cannot be read.
UNPARSABLE = "XLA001"
#: A comment that silences nothing.
UNUSED = "XLA002"
#: Objects that come into being until Python looks for circles. A syntax tree is made of hundreds of
#: thousands that stay: looking through them every 700, as Python does, takes a fifth of the time.
OBJECTS = 200_000


@dataclasses.dataclass(frozen=True, slots=True)
class LintOptions:
    """What the rules are asked.

    Attributes:
        codes: Codes of the rules to run; None for all that are on by default.
        target: torch_xla version to lint for.
        library: What names of the project's own libraries do, as TOML (see ``lint/library``).
        device: The member of the family of devices that files are for (``lint/family``); "" to
            tell by their imports and devices.
        pins: What the project's requirements allow of frameworks (see ``lint/pins``).
        started: What the project's settings start its programs on (see ``lint/launches``).
    """

    codes: frozenset[str] | None = None
    target: tuple[int, ...] = NEWEST_TORCH_XLA
    library: str = ""
    device: str = ""
    pins: tuple[Pin, ...] = ()
    started: Started = NOT_SAID

    def asks(self, code: str) -> bool:
        """Whether a rule is to be run."""
        if self.codes is not None:
            return code in self.codes
        page = catalogue.pages().get(code)
        return page is None or page.usual(self.device)


#: Characters of what an exception says that are shown: a node of LibCST writes itself out whole.
_SHOWN = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """A rule (or the model) that broke on a file: our fault, never the user's."""

    filename: str
    rule: str
    error: str

    @classmethod
    def of(cls, filename: str, rule: str, error: Exception) -> Failure:
        """What an exception tells, on one line."""
        return cls(filename, rule, in_short(error))

    def __str__(self) -> str:
        return (
            f"{self.filename}: internal error in {self.rule}: {self.error}; "
            "please report it with the file, the other results are complete"
        )


def in_short(error: Exception) -> str:
    """An exception on one line, cut where it is long; some cannot even be written down."""
    try:
        text = " ".join(f"{type(error).__name__}: {error}".split())
    except Exception:  # noqa: BLE001  (a KeyError writes its key: a node that holds not all parts)
        text = f"{type(error).__name__} of {', '.join(type(one).__name__ for one in error.args)}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """What linting one source gave; findings in source order."""

    findings: tuple[Finding, ...] = ()
    failures: tuple[Failure, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class FileResult:
    """What one file gave.

    Attributes:
        filename: Its name.
        result: What was found.
        read: What it held; None if it did not have to be read.
        fixed: Its new content if fixes changed it.
        made: The fixes.
        stable: Whether there was nothing left to fix.
    """

    filename: str
    result: Result
    read: bytes | None = b""
    fixed: bytes | None = None
    made: tuple[Finding, ...] = ()
    stable: bool = True

    @property
    def before(self) -> bytes:
        """What the file held before it was fixed."""
        if self.read is not None:
            return self.read
        try:
            return looked.load(self.filename)
        except OSError:
            return b""

    @property
    def applied(self) -> int:
        """How many fixes were made."""
        return len(self.made)

    @property
    def is_lint_alone(self) -> bool:
        """Whether the result is that of the file as it is, and complete."""
        return self.fixed is None and not self.result.failures


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """A source that is linted together with others.

    Attributes:
        source: What to lint.
        options: Which rules, for which torch_xla.
        imports: Modules as its imports spell them to the file names of the other members.
        wanted: Whether it is asked what is found in it, or only known for the others' sake.
    """

    source: Source
    options: LintOptions
    imports: Mapping[str, str] = dataclasses.field(default_factory=dict)
    wanted: bool = True
