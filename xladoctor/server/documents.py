"""Linting and fixing what an editor has open, saved or not; knows nothing of the protocol."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import tokenize
from typing import TYPE_CHECKING, Any

from xladoctor.cli import lint_plans
from xladoctor.lint import discovery, suppressions
from xladoctor.lint import run as runner
from xladoctor.lint.sources import Source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from xladoctor.findings import Finding
    from xladoctor.lint.run import Plan

#: What ends a row for the linter, and in the protocol.
ROW_END = re.compile(r"\r\n|\r|\n")


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """What an editor has open: one text, or the cells of a notebook.

    Attributes:
        path: Where it stands, or would.
        texts: One text, or those of all cells in their order.
        code: Whether each is code; None for a plain file.
    """

    path: Path
    texts: tuple[str, ...]
    code: tuple[bool, ...] | None = None

    @property
    def data(self) -> bytes:
        """The file as it would be saved."""
        if self.code is None:
            return _encoded(self.texts[0])
        cells: list[dict[str, Any]] = [
            {"cell_type": "code" if code else "markdown", "metadata": {}, "source": text}
            | ({"outputs": [], "execution_count": None} if code else {})
            for text, code in zip(self.texts, self.code, strict=True)
        ]
        form = {"metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        return json.dumps({"cells": cells, **form}).encode()

    def texts_of(self, data: bytes) -> tuple[str, ...]:
        """The texts of a changed file of this document."""
        if self.code is not None:
            cells = json.loads(data)["cells"]
            return tuple("".join(cell["source"]) for cell in cells)
        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        return (data.decode(encoding),)


def _encoded(text: str) -> bytes:
    """A text in the encoding that its first lines declare."""
    plain = text.encode("utf-8", "surrogatepass")
    try:
        return text.encode(tokenize.detect_encoding(io.BytesIO(plain).readline)[0])
    except (SyntaxError, UnicodeError, LookupError):
        return plain


def lint(document: Document, others: Mapping[str, bytes]) -> tuple[Finding, ...]:
    """What there is to find in a document; nothing in files that the settings leave out.

    Args:
        document: What to lint.
        others: What other open files hold now, by name.

    Raises:
        XladoctorError: The settings closest to the file cannot be used.
    """
    plan = _plan(document)
    if plan is None:
        return ()
    found = runner.lint_text(document.data, str(document.path), plan, others)
    return found.result.findings


def fixed(document: Document, others: Mapping[str, bytes]) -> tuple[str, ...] | None:
    """The document's texts after all safe fixes; None if there is none to make.

    Raises:
        XladoctorError: The settings closest to the file cannot be used.
    """
    plan = _plan(document)
    if plan is None:
        return None
    plan = dataclasses.replace(plan, fix="safe")
    found = runner.lint_text(document.data, str(document.path), plan, others)
    return None if found.fixed is None else document.texts_of(found.fixed)


def _plan(document: Document) -> Plan | None:
    """What the settings closest to the file say; None if they leave it out."""
    request = lint_plans.Request((str(document.path),))
    folder = document.path.parent
    settings = lint_plans.settings_of(request, folder)
    if discovery.is_excluded(document.path, lint_plans.search_of(settings)):
        return None
    lint_plans.load_plugins(request, settings)
    return lint_plans.plan_beside(request, settings, document.path)


def suppressed(document: Document, finding: Finding) -> str | None:
    """The text that the finding stands in, with a comment that silences it.

    None if that text does not tokenize, or the finding is of the file as a whole.
    """
    place = finding.locations[0]
    text = document.texts[place.cell or 0]
    rows = len(ROW_END.split(text))
    if not 0 < place.row <= rows or (place.end_row or 0) > rows:
        return None
    source = Source("cell.py", text)
    alone = dataclasses.replace(finding, locations=(dataclasses.replace(place, cell=None),))
    try:
        changed = suppressions.add_noqa(source, [alone])
    except IndexError:
        return None
    return None if changed == text or suppressions.apply([alone], Source("", changed)) else changed
