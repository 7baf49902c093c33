"""``xladoctor compare`` as a page: what got better and worse, in one file without scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor import __version__
from xladoctor.report import comparison as words_of
from xladoctor.report import words
from xladoctor.report.html import environment, style

if TYPE_CHECKING:
    from xladoctor.changes import Comparison

#: Verdict to the colour of its words.
_TONES = {"better": "good", "gone": "good", "worse": "error", "new": "error"}


def render(comparison: Comparison, names: tuple[str, str]) -> str:
    """The page.

    Args:
        comparison: What to show; its texts are harmless already.
        names: The sources as the user gave them.
    """
    worse = comparison.titles("worse") or [c.code for c in comparison.codes if c.verdict == "new"]
    better = comparison.titles("better") or [
        c.code for c in comparison.codes if c.verdict == "gone"
    ]
    parts = words_of.times(comparison)
    return (
        environment()
        .get_template("compare.html.jinja")
        .render(
            headline=words_of.headline(comparison),
            tone="error" if worse else "good" if better else "info",
            sides=[
                (label, name, words_of.about(report), report.summary.verdict)
                for label, name, report in zip(
                    ("before", "after"),
                    names,
                    (comparison.before, comparison.after),
                    strict=True,
                )
            ],
            figures=[
                (
                    change.title,
                    words_of.value(change.before, change.unit),
                    words_of.value(change.after, change.unit),
                    words_of.verdict(change),
                    _TONES.get(change.verdict, ""),
                )
                for change in comparison.changes
            ],
            parts=[(words.PARTS[part], part, *pair) for part, pair in parts.items()],
            longest=max((value for pair in parts.values() for value in pair), default=0.0),
            codes=[
                (item, words_of.occurrences(item), _TONES.get(item.verdict, ""))
                for item in comparison.codes
            ],
            notes=comparison.notes,
            style=style(),
            version=__version__,
        )
    )
