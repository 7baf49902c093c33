"""What the linter is asked, and what it answers: words that need neither LibCST nor a model.

LibCST and the rules take longer to load than a run in which nothing has changed, so ``run`` and
``cache`` know these alone, and load ``engine`` when there is something to be found anew.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from xladoctor import catalogue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xladoctor.findings import Finding
    from xladoctor.lint.sources import Source

#: The newest torch_xla whose names and behaviour the rules know.
NEWEST_TORCH_XLA = (2, 9)
#: A file, or a part of it, that cannot be read.
UNPARSABLE = "XLA001"
#: A comment that silences nothing.
UNUSED = "XLA002"


@dataclasses.dataclass(frozen=True, slots=True)
class LintOptions:
    """What the rules are asked.

    Attributes:
        codes: Codes of the rules to run; None for all that are on by default.
        target: torch_xla version to lint for.
        library: What names of the project's own libraries do, as TOML (see ``lint/library``).
        device: The member of the family of devices that files are for (``lint/family``); "" to
            tell by their imports and devices.
    """

    codes: frozenset[str] | None = None
    target: tuple[int, ...] = NEWEST_TORCH_XLA
    library: str = ""
    device: str = ""

    def asks(self, code: str) -> bool:
        """Whether a rule is to be run."""
        if self.codes is not None:
            return code in self.codes
        page = catalogue.pages().get(code)
        return page is None or page.default or self.device in page.default_for


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """A rule (or the model) that broke on a file: our fault, never the user's."""

    filename: str
    rule: str
    error: str

    def __str__(self) -> str:
        return (
            f"{self.filename}: internal error in {self.rule}: {self.error}; "
            "please report it with the file, the other results are complete"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """What linting one source gave; findings in source order."""

    findings: tuple[Finding, ...] = ()
    failures: tuple[Failure, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """A source that is linted together with others.

    Attributes:
        source: What to lint.
        options: Which rules, for which torch_xla.
        imports: Modules as its imports spell them to the file names of the other members.
        wanted: Whether it is asked what is found in it, or only known for the others' sake.
        sound: It is known already that it can be parsed.
    """

    source: Source
    options: LintOptions
    imports: Mapping[str, str] = dataclasses.field(default_factory=dict)
    wanted: bool = True
    sound: bool = False
