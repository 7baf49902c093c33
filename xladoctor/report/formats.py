"""The formats by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.errors import UsageError
from xladoctor.report import concise, github, html, json, junit, markdown, sarif, terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from xladoctor.results import Report

_TEXTS: dict[str, Callable[[Report], str]] = {
    "concise": concise.render,
    "json": json.render,
    "markdown": markdown.render,
    "html": html.render,
    "sarif": sarif.render,
    "github": github.render,
    "junit": junit.render,
}

#: Names of ``--output-format``, in the order of the help.
FORMATS = ("full", *_TEXTS)


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
    if output_format == "full":
        return terminal.render(report, width=width, color=color)
    if output_format not in _TEXTS:
        raise UsageError(f"there is no format {output_format!r}: choose from {', '.join(FORMATS)}")
    return _TEXTS[output_format](report)
