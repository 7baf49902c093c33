"""The page: one self-contained file, read without a network, and with or without JavaScript."""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib import resources
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from xladoctor import __version__, amounts, catalogue
from xladoctor.errors import XladoctorError
from xladoctor.findings import capital
from xladoctor.report import cards, charts, device, sharding_words, tracks, words
from xladoctor.report.pages import page_text as pages_text

if TYPE_CHECKING:
    from xladoctor.results import Report

#: Metrics reports of the page: of a long series the last ones.
_METRICS = 8


def render(report: Report) -> str:
    """The report as an HTML page."""
    codes = sorted({finding.code for finding in report.findings})
    pages = {code: page for code in codes if (page := _page(code)) is not None}
    found = cards.cards(report.findings)
    drawing = tracks.tracks(report)
    script = _text("page.js")
    return (
        environment()
        .get_template("report.html.jinja")
        .render(
            report=report,
            summary=report.summary,
            tone=_tone(report),
            counts=words.counts(report),
            shares=words.shares(report.summary),
            chart=charts.step_chart(report),
            cards=found,
            excerpts=_excerpts(report, found),
            sources=cards.source(report, found),
            groups=cards.graph_groups(report),
            tracks=drawing,
            parts=_parts_of(drawing),
            metrics=report.metrics[-_METRICS:],
            hidden_metrics=max(0, len(report.metrics) - _METRICS),
            pages={code: pages_text(page) for code, page in pages.items()},
            urls={code: page.url for code, page in pages.items()},
            again=_again(report),
            style=style(),
            script=script,
            script_hash=_hash(script),
            version=__version__,
            tpu=report.tpu or (),
            sharding=report.sharding,
        )
    )


def _tone(report: Report) -> str:
    """Which colour the verdict has: of the worst finding, "good", or "info" if nobody can tell."""
    worst = min((f.severity for f in report.findings), key=lambda s: s.rank, default=None)
    if worst:
        return worst.value
    return "good" if report.summary.conclusive else "info"


def _page(code: str) -> catalogue.Page | None:
    try:
        return catalogue.page(code)
    except XladoctorError:
        return None


@functools.cache
def _text(name: str) -> str:
    """A part of the page that is the same for all."""
    return resources.files("xladoctor.report").joinpath(f"templates/{name}").read_text("utf-8")


def style() -> str:
    """The style that all pages share."""
    return _text("page.css")


def _hash(script: str) -> str:
    """What the page's policy names: this script may run, and nothing else."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _parts_of(drawing: tracks.Tracks | None) -> list[tuple[str, str]]:
    """The parts of the time that the timeline shows, with their names."""
    shown = {part for track in drawing.tracks for part in track.paths} if drawing else set()
    return [(part, name) for part, name in words.PARTS.items() if part in shown]


def _excerpts(report: Report, found: list[cards.Card]) -> dict[int, list[cards.Row]]:
    """The rows around the line of each card, where the text is known."""
    out = {}
    for card in found:
        place = card.location
        text = report.sources.get(place.filename) if place is not None else None
        if place is None or text is None or place.cell is not None:
            continue
        near = range(max(1, place.row - 2), min(len(text.lines), place.row + 2) + 1)
        if place.row in near:
            out[card.number] = [
                cards.Row(row, text.lines[row - 1], None, 0.0, None) for row in near
            ]
    return out


def _again(report: Report) -> str:
    """The command that records such a run again."""
    cores = f" --simulate-cores {report.summary.cores}" if report.simulated else ""
    return f"xladoctor profile{cores} -- {report.about.get('Command', '')}"


@functools.cache
def environment() -> Environment:
    """The templates, with the words of the formats for people."""
    made = Environment(
        loader=PackageLoader("xladoctor.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(
        seconds=words.seconds, percent=amounts.percent,
        number=words.number, place=words.place, cause=words.cause,
        amount=words.amount, ended_by=words.ended_by,
        capital=capital, dash=words.dash, related=words.related,
        witnesses=words.witnesses,
    )  # fmt: skip
    made.globals["cores_text"] = words.cores
    made.globals["hosts_text"] = words.hosts
    made.globals["device"] = device
    made.globals["sharding_words"] = sharding_words
    return made
