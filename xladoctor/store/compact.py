"""From a host's part to its digest and its columns, so that a report need not read every row."""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xladoctor import files
from xladoctor.errors import SourceError, StorageError
from xladoctor.readings.run import event_files
from xladoctor.store.columns import ColumnWriter
from xladoctor.store.digest import Digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import ProcessPoolExecutor

    from xladoctor.store.locations import Location
    from xladoctor.store.parts import Part

#: Of the digests: those of another form are made anew.
VERSION = 2

#: Files of a part, besides its rows, that a report reads.
_KEPT = ("manifest.json", "lint.json", "part.json")

#: Most bytes that the files of a digest unpack to.
_LARGEST = 512 * 2**20


def digest_name(part: Part) -> str:
    """The name of a part's digest: it says of how many bytes, so an old one is known."""
    size = sum(part.files[name] for name in needed(part) if name != "part.json")
    _, label, incarnation = part.name.split("/")
    return f"digests/{label}@{incarnation}.{size}-{VERSION}.zip"


def column_files(part: Part, tables: Sequence[str]) -> list[str]:
    """Where the columns of a part are, below the run."""
    _, label, incarnation = part.name.split("/")
    return [f"columns/{table}/{label}@{incarnation}.parquet" for table in tables]


def needed(part: Part) -> list[str]:
    """The files of a part that its digest is made of."""
    return [
        name for name in part.files if _is_events(name) or name in _KEPT or name.endswith(".txt")
    ]


def _is_events(name: str) -> bool:
    file = name.rpartition("/")[2]
    return file.startswith("events") and file.endswith(".jsonl")


def make(source: Path, target: Path, columns: ColumnWriter | None = None) -> None:
    """Write the digest of a run directory into another folder.

    Args:
        source: The run directory of one part.
        target: Where the digest goes.
        columns: Takes every row besides.

    Raises:
        OSError: It cannot be read or written.
    """
    target.mkdir(parents=True, exist_ok=True)
    for file in (*(source / name for name in _KEPT), *source.glob("*.txt")):
        if file.is_file():
            shutil.copyfile(file, target / file.name)
    for folder in sorted(source.glob("p*/")):
        inside = target / folder.name
        inside.mkdir(exist_ok=True)
        for name in ("metrics.txt", "stacks.txt"):
            if (folder / name).is_file():
                shutil.copyfile(folder / name, inside / name)
        if columns is not None:
            columns.begin(folder.name)
        with (inside / "events.jsonl").open("w", encoding="utf-8") as out:
            for line in _digested(folder, columns):
                out.write(line)


def _digested(folder: Path, columns: ColumnWriter | None) -> Iterator[str]:
    digest = Digest()
    for file in event_files(folder):
        if not file.is_file():
            continue
        for line in files.lines(file):
            try:
                row = json.loads(line)
                settled = list(digest.feed(row))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                if line.endswith("\n"):  # else it was cut, as the last line of a kill is
                    yield line  # who reads the digest says that it is damaged
                continue
            if columns is not None:
                columns.feed(row)
            for one in settled:
                # What it was is what it is written as: most rows go through unchanged.
                yield line if one is row else _encode(one) + "\n"
    for one in digest.rest():
        yield _encode(one) + "\n"


_encode = json.JSONEncoder(separators=(",", ":")).encode


def pack(folder: Path, file: Path) -> None:
    """Put a digest into one file, so that thousands of hosts are not ten thousands of objects."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for one in sorted(folder.rglob("*")):
            if one.is_file():
                packed.write(one, one.relative_to(folder).as_posix())


def unpack(file: Path, folder: Path) -> None:
    """Unpack a digest.

    Raises:
        SourceError: It is none, is damaged, or is made to fill the disk.
    """
    try:
        with zipfile.ZipFile(file) as packed:
            inside = packed.infolist()
            names = [Path(one.filename) for one in inside]
            outside = any(name.is_absolute() or ".." in name.parts for name in names)
            if outside or sum(one.file_size for one in inside) > _LARGEST:
                raise SourceError(f"{file.name}: this is no digest of a run")
            packed.extractall(folder)
    except (zipfile.BadZipFile, OSError) as error:
        raise SourceError(f"{file.name}: this digest is damaged ({error})") from error


def one_part(
    source: Path, folder: Path, part_name: str, digest: str, *, columns: bool
) -> list[tuple[Path, str]]:
    """Compact one part into files below a folder.

    Args:
        source: The part, as a run directory.
        folder: Where the files go.
        part_name: ``hosts/<host>/<incarnation>``.
        digest: Name of the digest below the run.
        columns: Whether to write columns too.

    Returns:
        The files, and where they belong below the run.
    """
    _, label, incarnation = part_name.split("/")
    writer = ColumnWriter(folder / "columns", label, incarnation, _cwd(source)) if columns else None
    unpacked = folder / "unpacked" / label / incarnation
    make(source, unpacked, writer)
    packed = folder / digest
    packed.parent.mkdir(parents=True, exist_ok=True)
    pack(unpacked, packed)
    shutil.rmtree(unpacked)
    made = [(packed, digest)]
    if writer is not None:
        made += [(file, f"columns/{table}/{file.name}") for table, file in writer.close().items()]
    return made


def _cwd(source: Path) -> str | None:
    try:
        manifest: Any = json.loads(files.read_text(source / "manifest.json"))
    except (OSError, ValueError):
        return None
    cwd = manifest.get("cwd") if isinstance(manifest, dict) else None
    return cwd if isinstance(cwd, str) else None


def compact(
    location: Location,
    parts: Sequence[Part],
    *,
    jobs: int = 1,
    columns: bool = True,
    there: Mapping[str, int] | None = None,
    done: Callable[[Part], None] | None = None,
) -> tuple[int, list[str]]:
    """Write digests and columns of the parts that have none yet, or older ones.

    Args:
        location: The run.
        parts: Its parts.
        jobs: Processes that work at a time. More than one are fresh ones, which import the caller's
            main module: for command lines, not for libraries.
        columns: Whether to write columns too.
        there: Digests that the run has, by name; None to ask.
        done: Called after each part.

    Returns:
        How many were made anew, and sentences on what could not be.

    Raises:
        StorageError: The run cannot be listed or written.
    """
    known = location.sizes("digests") if there is None else there
    due = [part for part in parts if digest_name(part) not in known]
    notes: list[str] = []
    with contextlib.ExitStack() as stack:
        pool = None
        if min(jobs, len(due)) > 1:
            # Late: a report whose digests are there needs neither.
            from concurrent.futures import ProcessPoolExecutor
            from multiprocessing import get_context

            # Not forked: who calls may have threads (those of a storage).
            fresh = get_context("spawn")
            pool = stack.enter_context(ProcessPoolExecutor(jobs, mp_context=fresh))
        for at in range(0, len(due), _AT_A_TIME):
            _some(location, due[at : at + _AT_A_TIME], pool, columns, notes, done)
    return len(due) - len(notes), notes


def _fetched(
    location: Location, parts: Sequence[Part], folder: Path, notes: list[str]
) -> tuple[Path, Sequence[Part]]:
    """The rows of parts on this machine, and which parts these are: not those that are refused."""
    wanted = {part.name: [f"{part.name}/{file}" for file in needed(part)] for part in parts}
    try:
        return location.local([name for names in wanted.values() for name in names], folder), parts
    except StorageError as error:
        if error.passing:
            raise
    there, top = [], folder
    for part in parts:
        try:
            top = location.local(wanted[part.name], folder)
            there.append(part)
        except StorageError as error:  # noqa: PERF203  (one that is refused is not all of them)
            reason = str(error).partition(": ")[2]
            notes.append(f"host {part.label} was not compacted: {reason}")
    return top, there


#: Parts whose rows are on this machine's disk at a time.
_AT_A_TIME = 64


def _some(
    location: Location,
    parts: Sequence[Part],
    pool: ProcessPoolExecutor | None,
    columns: bool,
    notes: list[str],
    done: Callable[[Part], None] | None,
) -> None:
    with tempfile.TemporaryDirectory(prefix="xladoctor-compact-") as name:
        folder = Path(name)
        top, parts = _fetched(location, parts, folder / "raw", notes)

        def made(part: Part) -> Callable[[], list[tuple[Path, str]]]:
            task = functools.partial(
                one_part,
                top / part.name,
                folder / "made",
                part.name,
                digest_name(part),
                columns=columns,
            )
            return task if pool is None else pool.submit(task).result

        for part, result in [(part, made(part)) for part in parts]:
            try:
                for file, place in result():
                    location.write(place, file.read_bytes())
                    file.unlink()
            except OSError as error:
                notes.append(f"host {part.label} was not compacted ({error.strerror})")
            if done is not None:
                done(part)
