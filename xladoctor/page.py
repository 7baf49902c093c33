"""What the HTML page shows besides the report: source text, and what differs between graphs.

An outer door, as it looks into the current folder.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from xladoctor import files
from xladoctor.errors import XladoctorError
from xladoctor.results import SourceText

if TYPE_CHECKING:
    from xladoctor.readings import Readings
    from xladoctor.results import Report

#: Graphs that are compared with those before them.
_DIFFS = 24
#: Bytes of a source file that is shown.
_LARGEST = 2 * 2**20
#: Columns of a row that is shown.
_WIDEST = 400


def with_page(report: Report, readings: Readings) -> Report:
    """A report with what only the page shows."""
    from xladoctor.diagnosis.graph_view import Graphs

    started = next((run.manifest.started for run in readings.runs), None)
    try:
        diffs = Graphs(readings).diffs_to_earlier(_DIFFS)
    except XladoctorError:  # text, or several runs: there are no graphs to compare
        diffs = ()
    return dataclasses.replace(report, sources=_sources(report, started), diffs=diffs)


def _sources(report: Report, started: float | None) -> dict[str, SourceText]:
    """The user's files that the report names, as they are now.

    Only Python files below the current folder: a run that somebody else has made must not bring
    other files of this machine into a page that is passed on.
    """
    names = {finding.locations[0].filename for finding in report.findings if finding.locations}
    if report.timeline is not None:
        names |= {
            event.location.filename
            for stretch in report.timeline.stretches
            for event in stretch.events
            if event.location is not None
        }
    here = Path.cwd().resolve()
    found = {}
    for name in sorted(names):
        path = (here / name).resolve()
        if path.suffix != ".py" or not path.is_relative_to(here) or not path.is_file():
            continue
        try:
            if path.stat().st_size > _LARGEST:
                continue
            text = files.read_text(path)
            changed = started is not None and path.stat().st_mtime > started
        except (OSError, ValueError):
            continue
        rows = (row[:_WIDEST].expandtabs(4) for row in text.splitlines())
        found[name] = SourceText(tuple(rows), changed)
    return found
