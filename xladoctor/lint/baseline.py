"""A baseline: the findings a project already has, so that only new ones are shown.

An entry is a file, a code and the finding's source line without its white space (as a hash), with
a count: lines may move, and the same line may occur twice.
"""

from __future__ import annotations

import collections
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from xladoctor.errors import SourceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from xladoctor.findings import Finding

VERSION = 1


class Baseline:
    """Known findings with how often each may occur.

    Args:
        path: Where the baseline is kept; the names in it are relative to its folder.
    """

    def __init__(self, path: Path, counts: dict[tuple[str, str, str], int] | None = None) -> None:
        self.path = path
        self.counts = collections.Counter(counts or {})

    @classmethod
    def read(cls, path: Path) -> Baseline:
        """Read a baseline file.

        Raises:
            UsageError: The file does not exist.
            SourceError: It is no baseline.
        """
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["version"] != VERSION:
                raise SourceError(
                    f"{path}: this baseline has version {document['version']}, not {VERSION}: "
                    "write it again with --write-baseline"
                )
            entries = document["findings"]
            return cls(
                path, {(e["filename"], e["code"], e["line"]): int(e["count"]) for e in entries}
            )
        except FileNotFoundError as error:
            raise UsageError(
                f"{path}: no such baseline; write one with --write-baseline {path}"
            ) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SourceError(
                f"{path}: not a baseline of xladoctor: write it again with --write-baseline"
            ) from error

    def write(self) -> None:
        """Write the baseline, sorted, so that it can be kept under version control."""
        entries = [
            {"filename": name, "code": code, "line": line, "count": count}
            for (name, code, line), count in sorted(self.counts.items())
        ]
        text = json.dumps({"version": VERSION, "findings": entries}, indent=1) + "\n"
        self.path.write_text(text, encoding="utf-8")

    def add(self, finding: Finding, line: str) -> None:
        """Take a finding into the baseline; ``line`` is its source line."""
        self.counts[self._key(finding, line)] += 1

    def new(self, findings: Iterable[tuple[Finding, str]]) -> tuple[list[Finding], int]:
        """The findings that the baseline does not know, and how many of its entries are gone."""
        left = collections.Counter(self.counts)
        fresh: list[Finding] = []
        for finding, line in findings:
            key = self._key(finding, line)
            if left[key] > 0:
                left[key] -= 1
            else:
                fresh.append(finding)
        return fresh, sum(count for count in left.values() if count > 0)

    def _key(self, finding: Finding, line: str) -> tuple[str, str, str]:
        name = finding.locations[0].filename if finding.locations else ""
        relative = Path(os.path.relpath(name, self.path.parent))
        digest = hashlib.sha256("".join(line.split()).encode()).hexdigest()[:16]
        return (relative.as_posix(), finding.code, digest)


def line_of(finding: Finding, lines: Sequence[str]) -> str:
    """The source line of a finding, "" if it has none."""
    row = finding.locations[0].row if finding.locations else 0
    return lines[row - 1] if 0 < row <= len(lines) else ""
