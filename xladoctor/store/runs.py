"""Runs of many hosts as readings: each host as one run directory, the hosts as its cores."""

from __future__ import annotations

import atexit
import collections
import contextlib
import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from xladoctor import readings
from xladoctor.errors import SourceError, StorageError
from xladoctor.readings import tables
from xladoctor.readings.run import read_run
from xladoctor.store import compact, graph_files, parts
from xladoctor.store.differing import clocks, versions, wall
from xladoctor.store.locations import emptied, is_address, located

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from xladoctor.store.locations import Location

#: Hosts up to which every recorded row is read; of more, digests.
WHOLE_HOSTS = 8

#: Sentences that say why nothing of a run can be read.
_REASONS = 4


def is_shared(name: str | Path) -> bool:
    """Whether a source is a run of several hosts: an address, or a folder with their parts."""
    return is_address(str(name)) or (
        Path(name, "hosts").is_dir() and not Path(name, "manifest.json").exists()
    )


def load(
    sources: Sequence[str | Path],
    stdin: str | TextIO | None = None,
    *,
    told: Callable[[str], None] | None = None,
    jobs: int = 1,
) -> tables.Readings:
    """Read what ``readings.load`` reads, and runs of several hosts wherever they live.

    Args:
        sources: Paths, addresses, or ``-`` for ``stdin``. Several are the cores of one run.
        stdin: Standard input or its text, for ``-``.
        told: Is told what takes long.
        jobs: Processes that make digests where there are none (see ``compact.compact``).

    Raises:
        SourceError: A source cannot be read or holds nothing that xladoctor knows.
        UsageError: No source at all, or an address that is none.
        MissingExtra: What an address needs is not installed.
    """
    plain = [source for source in sources if not is_shared(source)]
    shared = [source for source in sources if is_shared(source)]
    if not shared:
        return readings.load(sources, stdin)
    read = readings.load(plain, stdin) if plain else tables.Readings()
    for source in shared:
        found = read_shared(located(source), told=told, jobs=jobs)
        read = dataclasses.replace(
            read,
            runs=(*read.runs, *found.runs),
            notes=(*read.notes, *found.notes),
            sources=(*read.sources, *found.sources),
            shown=(*read.shown, *found.shown),
        )
    alone = [run.manifest.path for run in read.runs if not run.manifest.host]
    return dataclasses.replace(read, shown=(*alone, *read.shown))


def read_shared(
    location: Location,
    *,
    told: Callable[[str], None] | None = None,
    jobs: int = 1,
    folder: Path | None = None,
) -> tables.Readings:
    """Read a run of several hosts, each as one run.

    Args:
        location: Where it lives.
        told: Is told what takes long.
        jobs: Processes that make digests where there are none.
        folder: Takes copies of what is not on this machine; None for one that goes with us.

    Raises:
        SourceError: Nothing in it can be read.
        StorageError: The location cannot be read.
    """
    found = parts.find(location)
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="xladoctor-run-"))
        atexit.register(emptied, folder)  # graphs are read from there as long as we live
    notes = list(found.notes)
    every = [part for line in found.hosts.values() for part in line]
    if len(found.hosts) > WHOLE_HOSTS:
        places = _digests(location, every, folder, notes, told, jobs)
    else:
        places = _whole(location, every, folder, notes)
    runs, said = [], []
    for label, line in found.hosts.items():
        read = list(_read(label, line, places, notes))
        if read:
            run = _one_host(label, read)
            said += [(label, note) for note in run.notes]
            runs.append(dataclasses.replace(run, notes=()))
    if len(found.hosts) > WHOLE_HOSTS:
        graph_files.bring(location, every, runs, folder)
    if not runs:
        why = "; ".join(parts.gathered(notes)[:_REASONS])
        raise SourceError(f"{location.url}: none of its parts can be read: {why}")
    notes += parts.by_hosts(said, len(runs))
    notes += [*versions(runs), *clocks(runs)]
    # What the linter said is the same on all hosts, and each has kept it.
    linted = next((run.linted for run in runs if run.linted is not None), None)
    runs = [dataclasses.replace(run, linted=linted if at == 0 else None)
            for at, run in enumerate(runs)]  # fmt: skip
    return tables.Readings(
        runs=tuple(runs),
        notes=tuple(parts.gathered(notes)),
        sources=(location.url,),
        shown=(f"{location.url} ({len(runs)} host{'s' * (len(runs) > 1)})",),
    )


def _read(
    label: str, line: Sequence[parts.Part], places: dict[str, Path], notes: list[str]
) -> Iterator[tuple[str, tables.Run]]:
    for part in line:
        place = places.get(part.name)
        if place is None:
            continue
        try:
            yield part.name.removeprefix("hosts/"), read_run(place)
        except (SourceError, OSError) as error:
            said = str(error).replace(f"{place}/", "")
            notes.append(f"host {label} was left out: {said}")


def _whole(
    location: Location, every: Sequence[parts.Part], folder: Path, notes: list[str]
) -> dict[str, Path]:
    """All files of all parts; of a part that cannot be read, why not."""
    places = {}
    for part in every:
        try:
            top = location.local([f"{part.name}/{name}" for name in part.files], folder)
            places[part.name] = top / part.name
        except StorageError as error:  # noqa: PERF203  (one part that fails is not all of them)
            notes.append(f"host {part.label} was left out: {str(error).partition(': ')[2]}")
    return places


def _digests(
    location: Location,
    every: Sequence[parts.Part],
    folder: Path,
    notes: list[str],
    told: Callable[[str], None] | None,
    jobs: int,
) -> dict[str, Path]:
    """The digests of all parts; those that the run does not hold yet are made here."""
    there = location.sizes("digests")
    due = [part for part in every if compact.digest_name(part) not in there]
    made = folder / "made"
    if due:
        if told is not None:
            told(
                f"{len(due)} of {len(every)} parts are not compacted yet, which takes a moment: "
                f"'xladoctor compact {location.url}' does it once for all reports"
            )
        _, said = compact.compact(_Here(location, made), due, jobs=jobs, columns=False, there={})
        notes += [note.replace("was not compacted", "was left out") for note in said]
    names = [compact.digest_name(part) for part in every]
    top = _copied(location, [name for name in names if name in there], folder)
    places = {}
    for part, name in zip(every, names, strict=True):
        file = (top if name in there else made) / name
        target = folder / part.name
        if not file.is_file():
            if name in there:  # else it is said already why it could not be made
                notes.append(f"host {part.label} was left out: its digest cannot be read")
            continue
        try:
            compact.unpack(file, target)
        except SourceError as error:
            notes.append(f"host {part.label} was left out: {error}")
            continue
        places[part.name] = target
    return places


def _copied(location: Location, names: Sequence[str], folder: Path) -> Path:
    """Files on this machine; if some are refused, the others."""
    try:
        return location.local(names, folder)
    except StorageError as error:
        if error.passing:
            raise
    for name in names:
        with contextlib.suppress(StorageError):
            location.local([name], folder)
    return folder


class _Here:
    """A location whose new files stay on this machine."""

    def __init__(self, location: Location, folder: Path) -> None:
        self._location = location
        self._folder = folder
        self.url = location.url
        self.wanted = location.wanted

    def sizes(self, below: str = "") -> dict[str, int]:
        return self._location.sizes(below)

    def read(self, name: str) -> bytes:
        return self._location.read(name)

    def read_many(self, names: Sequence[str]) -> dict[str, bytes | StorageError]:
        return self._location.read_many(names)

    def write(self, name: str, data: bytes) -> None:
        file = self._folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def local(self, names: Sequence[str], folder: Path) -> Path:
        return self._location.local(names, folder)


# -- one host --------------------------------------------------------------------------------------
#: Fields of rows that are moments of the machine's clock.
_MOMENTS = ("t0", "t1", "at", "started", "ended", "since", "until", "t")
_TABLES = (
    "processes", "cores", "steps", "compilations", "syncs", "fallbacks", "launches", "errors",
    "hangs", "divergences", "weight_divergences", "silent", "shardings", "spmd_calls",
    "meshes_refused", "device_caches", "deaths",
)  # fmt: skip


def _one_host(label: str, line: Sequence[tuple[str, tables.Run]]) -> tables.Run:
    """The incarnations of a host as one run: each goes on where the one before it had ended.

    A machine that was started anew has another clock, so the rows of an incarnation are moved
    along the time by what the walls' clocks say, and at least behind the one before it.
    """
    first = line[0][1]
    found: dict[str, list[Any]] = collections.defaultdict(list)
    again = f"it was started {len(line)} times: its steps are counted on"
    notes: list[str] = [again] if len(line) > 1 else []
    zero, until = wall(first), None
    for name, run in line:
        by = (wall(run) or 0.0) - (zero or 0.0) if zero is not None else 0.0
        begun = min((row.t0 for row in run.steps), default=None)
        if until is not None and begun is not None and begun + by < until:
            by = until - begun
        for table in _TABLES:
            found[table] += [_moved(row, name, by) for row in getattr(run, table)]
        found["metrics"] += [
            dataclasses.replace(one, source=f"{name}/{one.source}") for one in run.metrics
        ]
        until = max((row.t1 for row in found["steps"]), default=until)
        notes += run.notes
    last = line[-1][1].manifest
    if len(line) > 1:
        _close(found, until)
    # As many folders up as the processes' names have been given: hosts that were started by one
    # image have the same numbers of processes, so only the whole path makes them distinct.
    top = Path(first.manifest.path).parents[1]
    return tables.Run(
        manifest=dataclasses.replace(
            last, path=str(top), started=first.manifest.started, host=label
        ),
        **{name: tuple(rows) for name, rows in found.items()},
        linted=next((run.linted for _, run in reversed(line) if run.linted is not None), None),
        notes=tuple(dict.fromkeys(notes)),
    )


def _moved(row: Any, incarnation: str, by: float) -> Any:
    changes: dict[str, Any] = {"process": f"{incarnation}/{row.process}"}
    for name in _MOMENTS:
        value = getattr(row, name, None)
        if value is not None:
            changes[name] = value + by
    return dataclasses.replace(row, **changes)


def _close(found: dict[str, list[Any]], until: float | None) -> None:
    """Say when cores that were cut ended, and after how many steps: by the last of their rows."""
    ends: dict[tuple[str, int], float] = {}
    steps: dict[tuple[str, int], int] = {}
    for row in found["steps"]:
        key = (row.process, row.core)
        ends[key] = max(ends.get(key, row.t1), row.t1)
        steps[key] = max(steps.get(key, 0), row.last or 0)
    lives: dict[str, float] = {}
    for (process, _), end in ends.items():
        lives[process] = max(lives.get(process, end), end)
    found["cores"] = [
        dataclasses.replace(
            row,
            ended=ends.get((row.process, row.core), until),
            steps=row.steps or steps.get((row.process, row.core)),
        )
        if row.ended is None
        else row
        for row in found["cores"]
    ]
    found["processes"] = [
        dataclasses.replace(row, until=lives.get(row.process, row.until))
        for row in found["processes"]
    ]
