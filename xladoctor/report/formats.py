"""The formats by name; a module is imported only when its format is asked for."""

from __future__ import annotations

import dataclasses
import importlib
from typing import TYPE_CHECKING

from xladoctor import visible
from xladoctor.errors import UsageError

if TYPE_CHECKING:
    from xladoctor.results import Report

#: Names of ``--output-format``, in the order of the help; each but the first is a module of ours.
FORMATS = ("full", "concise", "json", "markdown", "html", "sarif", "github", "junit")


def render(
    report: Report, output_format: str = "full", *, width: int = 100, color: bool = False
) -> str:
    """A report as text in one of the formats, ending with a newline.

    Args:
        report: What to show.
        output_format: One of :data:`FORMATS`.
        width: Columns of the terminal; only for ``full``.
        color: Whether to use terminal colours; only for ``full``.

    Raises:
        UsageError: No such format.
    """
    if output_format not in FORMATS:
        raise UsageError(f"there is no format {output_format!r}: choose from {', '.join(FORMATS)}")
    if output_format in ("json", "sarif"):
        module = importlib.import_module(f"xladoctor.report.{output_format}")
        return visible.in_json(module.render(report))
    if output_format != "html":  # nothing else shows it, and a long run has thousands of stretches
        report = dataclasses.replace(report, timeline=None)
    report = visible.of(report)
    if output_format == "full":
        from xladoctor.report import terminal

        return visible.guarded(terminal.render(report, width=width, color=color))
    module = importlib.import_module(f"xladoctor.report.{output_format}")
    text: str = module.render(report)
    return visible.guarded(text) if output_format in ("concise", "markdown") else text
