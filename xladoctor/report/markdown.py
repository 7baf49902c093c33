"""The report for an issue or a pull request: GitHub's Markdown, without HTML."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xladoctor.report import sharding_words, words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xladoctor.findings import Finding
    from xladoctor.results import Report
    from xladoctor.shardings import Sharding

#: Rows of each table of shardings.
_ROWS = 20

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")


def render(report: Report) -> str:
    """Verdict, counts, findings and notes."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterable[str]:
    summary = report.summary
    yield f"## xladoctor: {_plain(summary.verdict)}"
    yield ""
    yield f"**Why:** {_plain(summary.why)}  "
    yield f"**Next:** {_plain(summary.next)}"
    yield ""
    yield "| | |"
    yield "|---|---|"
    for label, text in words.counts(report):
        yield f"| {label} | {_plain(text)} |"
    time = ", ".join(
        f"{name} {words.seconds(value)} ({share:.0%})"
        for _, name, value, share in words.shares(summary)
    )
    if time:
        yield f"| Time per core | {time} |"
    if report.findings:
        yield ""
        yield "### Findings, the most costly first"
        yield ""
        for finding in report.findings:
            yield from _finding(finding)
    if report.sharding is not None:
        yield from _sharding(report.sharding)
    about = [f"{_plain(label)}: {_code(text)}" for label, text in report.about.items()]
    if about or report.notes:
        yield ""
        yield "### About this report"
        yield ""
        for text in about:
            yield f"- {text}"
        for note in report.notes:
            yield f"- {_plain(note)}"


def _sharding(sharding: Sharding) -> Iterable[str]:
    yield from ("", f"### Sharding on {_plain(sharding_words.devices(sharding))}", "")
    yield from ("| | Tensor | Sharded | Each device | Of |", "|---|---|---|---|---|")
    for row in sharding_words.tensors(sharding)[:_ROWS]:
        cells = (row.kind, row.name, row.sharded, row.held, row.total)
        yield f"| {' | '.join(map(_plain, cells))} |"
    if sharding.collectives:
        yield from ("", "| Collective | Count | Bytes | Over | Line | For |")
        yield "|---|---|---|---|---|---|"
        for one in sharding_words.collectives(sharding)[:_ROWS]:
            facts = (one.kind, one.count, one.size, one.over, one.line, one.operation)
            yield f"| {' | '.join(map(_plain, facts))} |"


def _finding(finding: Finding) -> Iterable[str]:
    facts = []
    if finding.count is not None:
        facts.append(f"{finding.count:,} times")
    if finding.seconds is not None:
        facts.append(f"{words.seconds(finding.seconds)} per core")
    if finding.ran is False:
        facts.append(words.witnesses(finding))
    where = f" at {_code(words.place(finding.locations[0]))}" if finding.locations else ""
    cost = f" ({', '.join(facts)})" if facts else ""
    yield f"1. **{finding.code}** {_plain(finding.name)}{where}{cost}  "
    others = words.related(finding)
    yield f"   {_plain(finding.message)}" + ("  " if finding.suggestion or others else "")
    if others:
        yield f"   *See:* {_plain(', '.join(others))}" + ("  " if finding.suggestion else "")
    if finding.suggestion:
        yield f"   *Instead:* {_plain(finding.suggestion)}"


def _plain(text: str) -> str:
    """Text that Markdown must not read as markup."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    text = " ".join(text.split())
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}"
