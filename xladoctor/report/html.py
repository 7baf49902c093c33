"""The page: one self-contained file without scripts, external fonts or network."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from xladoctor import __version__, catalogue
from xladoctor.errors import XladoctorError
from xladoctor.findings import capital
from xladoctor.report import charts, device, pages, words

if TYPE_CHECKING:
    from xladoctor.results import Report

#: Rows of the compilation table of the page.
_COMPILATIONS = 200
#: Metrics reports of the page: of a long series the last ones.
_METRICS = 8


def render(report: Report) -> str:
    """The report as an HTML page."""
    codes = sorted({finding.code for finding in report.findings})
    return (
        _environment()
        .get_template("report.html.jinja")
        .render(
            report=report,
            summary=report.summary,
            tone=_tone(report),
            counts=words.counts(report),
            shares=words.shares(report.summary),
            chart=charts.step_chart(report),
            compilations=report.compilations[:_COMPILATIONS],
            hidden_compilations=max(0, len(report.compilations) - _COMPILATIONS),
            metrics=report.metrics[-_METRICS:],
            hidden_metrics=max(0, len(report.metrics) - _METRICS),
            cores_differ=words.cores_differ(report),
            pages={code: page for code in codes if (page := _page(code)) is not None},
            version=__version__,
            tpu=report.tpu or (),
        )
    )


def _tone(report: Report) -> str:
    """Which colour the verdict has: of the worst finding, "good", or "info" if nobody can tell."""
    worst = min((f.severity for f in report.findings), key=lambda s: s.rank, default=None)
    if worst:
        return worst.value
    return "good" if report.summary.conclusive else "info"


def _page(code: str) -> pages.PageText | None:
    try:
        return pages.page_text(catalogue.page(code))
    except XladoctorError:
        return None


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("xladoctor.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        seconds=words.seconds, number=words.number, place=words.place, cause=words.cause,
        amount=words.amount, ended_by=words.ended_by,
        capital=capital, dash=words.dash, related=words.related,
        witnesses=words.witnesses,
    )  # fmt: skip
    environment.globals["cores_text"] = words.cores
    environment.globals["device"] = device
    return environment
