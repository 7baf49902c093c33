"""A run directory as tables. The form of the directory is described in ``docs/run-directory.md``.

A run may have been killed at any time: a cut last line, a missing manifest end or process end are
normal and become notes. Rows and keys that are not known are left alone.
"""

from __future__ import annotations

import collections
import json
from typing import TYPE_CHECKING, Any

from xladoctor import files
from xladoctor.errors import SourceError
from xladoctor.readings import linted, tables
from xladoctor.readings.deaths import deaths
from xladoctor.readings.events import VERSION, EventReader
from xladoctor.readings.fields import integer, integers, moment, text
from xladoctor.readings.metrics_text import parse_reports
from xladoctor.readings.unwatched import unwatched

if TYPE_CHECKING:
    from pathlib import Path

#: Rows of one process; the recorder writes some thousands for the longest run.
_MOST_ROWS = 1_000_000


def is_run(path: Path) -> bool:
    """Whether a folder looks like a run directory, complete or cut."""
    return (path / "manifest.json").is_file() or any(path.glob("p*/events*.jsonl"))


def event_files(folder: Path) -> list[Path]:
    """The record of a process: one file, or that and the segments in which it goes on."""
    segments = sorted(folder.glob("events.*[0-9].jsonl"))
    first = folder / "events.jsonl"
    return [first, *segments] if first.is_file() or not segments else segments


def read_run(path: Path) -> tables.Run:
    """Read a run directory.

    Raises:
        SourceError: It is not one, or was written in a form that this version does not know.
    """
    if not is_run(path):
        raise SourceError(
            f"{path}: this folder is not a run directory (it has no manifest.json): "
            "give the folder that 'xladoctor profile' named at its end"
        )
    notes: list[str] = []
    manifest = _manifest(path, notes)
    rows = collections.defaultdict[str, list[Any]](list)
    for folder in sorted(path.glob("p*/"), key=files.by_start):
        _read_process(folder, manifest, rows, notes)
    notes += unwatched(path)
    if not rows["process"]:
        notes.append("no process that could be watched used a device: nothing was recorded")
    static = linted.read(path, notes)
    return tables.Run(
        manifest=manifest,
        processes=tuple(rows["process"]),
        cores=tuple(rows["core"]),
        steps=tuple(rows["step"]),
        compilations=tuple(rows["compilation"]),
        syncs=tuple(rows["sync"]),
        fallbacks=tuple(rows["fallback"]),
        launches=tuple(rows["launch"]),
        errors=tuple(rows["error"]),
        hangs=tuple(rows["hang"]),
        divergences=tuple(rows["divergence"]),
        weight_divergences=tuple(rows["weights-diverge"]),
        silent=tuple(rows["silent"]),
        shardings=tuple(rows["sharding"]),
        spmd_calls=tuple(rows["spmd-call"]),
        meshes_refused=tuple(rows["mesh-refused"]),
        device_caches=tuple(rows["device-cache"]),
        deaths=tuple(deaths(path, manifest, rows)),
        metrics=tuple(rows["metrics"]),
        linted=static,
        notes=tuple(dict.fromkeys(notes)),
    )


def _manifest(path: Path, notes: list[str]) -> tables.Manifest:
    file = path / "manifest.json"
    try:
        data = json.loads(files.read_text(file))
    except FileNotFoundError:
        notes.append("manifest.json is missing: the command and its end are not known")
        return tables.Manifest(str(path))
    except (ValueError, OSError, RecursionError):
        notes.append("manifest.json cannot be read: the command and its end are not known")
        return tables.Manifest(str(path))
    if not isinstance(data, dict):
        raise SourceError(f"{file}: this is not the manifest of a run directory; profile again")
    version = data.get("schema_version")
    if version != VERSION:
        raise SourceError(
            f"{file}: this run was written in form {version!r} and this version of xladoctor reads "
            f"form {VERSION}: read it with the version that wrote it"
        )
    command = data.get("command")
    manifest = tables.Manifest(
        path=str(path),
        command=tuple(str(word) for word in command) if isinstance(command, list) else (),
        cwd=text(data.get("cwd")),
        xladoctor=text(data.get("xladoctor")),
        started=moment(data.get("started")),
        ended=moment(data.get("ended")),
        exit_code=integer(data.get("exit_code")),
        signal=text(data.get("signal")),
        simulated_cores=integer(data.get("simulated_cores")),
        complete=data.get("complete") is True,
        left_behind=integers(left) if isinstance(left := data.get("left_behind"), list) else None,
    )
    hidden = data.get("masked")
    if isinstance(hidden, list) and hidden:
        notes.append(
            f"The command holds what looks like a secret ({', '.join(map(str, hidden))}): it was "
            "not kept, and is shown as ***."
        )
    if manifest.ended is None:
        notes.append("the run was cut short: what is shown is what was recorded until then")
    return manifest


def _read_process(
    folder: Path, manifest: tables.Manifest, rows: dict[str, list[Any]], notes: list[str]
) -> None:
    reader = EventReader(folder.name, manifest.cwd, rows, notes)
    row = 0
    for events in event_files(folder):
        try:
            for at, line in enumerate(files.lines(events), 1):
                row += 1
                if row > _MOST_ROWS:
                    break
                reader.feed(line, f"{events}:{at}")
        except FileNotFoundError:
            pass
        except OSError as error:
            notes.append(f"{events}: this cannot be read: {error.strerror or error}")
    if row > _MOST_ROWS:
        notes.append(f"{folder}: only the first {_MOST_ROWS:,} rows were read")
    reader.finish()
    metrics = folder / "metrics.txt"
    if metrics.is_file():
        cores = reader.core_numbers
        core = next(iter(cores)) if len(cores) == 1 else None
        rows["metrics"] += parse_reports(files.lines(metrics), f"{folder.name}/metrics.txt", core)
