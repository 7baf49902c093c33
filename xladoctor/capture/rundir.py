"""The run directory: made before the command starts, read back row by row.

Its form is described in ``docs/run-directory.md``. Reading tolerates what a killed run leaves: a
cut last line, a missing manifest, a process folder without rows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xladoctor import files
from xladoctor.capture import masking
from xladoctor.errors import SourceError, UsageError
from xladoctor.findings import packed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.findings import Finding

SCHEMA_VERSION = 1

#: Where runs go when no directory is named.
RUNS = Path(".xladoctor") / "runs"

#: The file whose lock says that a run is being written.
LOCK = "lock"

_PYTHON = re.compile(r"(python|pypy)[\d.]*$")


@dataclasses.dataclass(slots=True)
class Manifest:
    """What is known about the command itself; see ``docs/run-directory.md``.

    ``left_behind``: processes of the run that were there when the command had ended, by their ids.
    ``command`` is masked when it is written, and ``masked`` says of which options.
    """

    xladoctor: str
    command: list[str]
    cwd: str
    started: float
    simulated_cores: int | None = None
    ended: float | None = None
    exit_code: int | None = None
    signal: str | None = None
    complete: bool = False
    left_behind: list[int] | None = None
    masked: list[str] = dataclasses.field(default_factory=list)
    schema_version: int = SCHEMA_VERSION


def default_directory(command: Sequence[str], now: float, base: Path = RUNS) -> Path:
    """A name for a new run: time (UTC) and script.

    Args:
        command: The command of the run.
        now: Unix seconds.
        base: Folder that holds the runs.
    """
    time = datetime.fromtimestamp(now, tz=timezone.utc).strftime("%Y%m%d-%H%M%S")
    name = f"{time}-{_script_name(command)}"
    path = base / name
    number = 2
    while path.exists():
        path = base / f"{name}-{number}"
        number += 1
    return path


def _script_name(command: Sequence[str]) -> str:
    words = [word for word in command if not word.startswith("-")]
    if words and _PYTHON.match(Path(words[0]).name) and len(words) > 1:
        words = words[1:]
    stem = Path(words[0]).stem if words else "run"
    return re.sub(r"[^A-Za-z0-9_.]+", "-", stem).strip("-.")[:40] or "run"


def create(path: Path, *, force: bool) -> Path:
    """Make a run directory, and keep others from writing to it until :func:`release`.

    Args:
        path: Where; parents are made.
        force: Whether what an earlier run left there may be thrown away.

    Returns:
        Its absolute path.

    Raises:
        UsageError: It exists and is not empty, it is no run directory, somebody else is writing to
            it, or it cannot be written.
    """
    try:
        if path.exists():
            _entries_to_clear(path, force=force)
        files.make_ignored(path)
        found = path.resolve()
        _lock(found, path)
        try:
            _clear(_entries_to_clear(path, force=force))
        except BaseException:
            release(found)
            raise
    except OSError as error:
        raise UsageError(
            f"cannot write the run directory {path} ({error.strerror}): "
            "name another place with --output"
        ) from error
    return found


def release(path: Path) -> None:
    """Nothing more is written to a run directory; the end of our process releases it too."""
    descriptor = _locks.pop(path, None)
    if descriptor is not None:
        os.close(descriptor)


#: Descriptors of the locks that are held, by run directory.
_locks: dict[Path, int] = {}


def _lock(path: Path, shown: Path) -> None:
    """Be the only one who writes to a run directory (a lock of the system, gone with the process).

    Raises:
        UsageError: Somebody else is.
    """
    try:
        import fcntl
    except ImportError:  # pragma: no cover  (Windows, where torch_xla does not run)
        return
    descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise UsageError(
            f"{shown}: another run is being written there: wait for its end, or name another place "
            "with --output"
        ) from error
    except OSError:  # a file system without locks
        os.close(descriptor)
        return
    _locks[path] = descriptor


def _entries_to_clear(path: Path, *, force: bool) -> list[Path]:
    """What must go before a run is written to a folder.

    Raises:
        UsageError: It is no folder, or what is there may not go.
    """
    if not path.is_dir():
        raise UsageError(f"{path} is not a folder: name another place with --output")
    entries = [entry for entry in path.iterdir() if entry.name not in (".gitignore", LOCK)]
    if entries and not force:
        raise UsageError(
            f"{path} is not empty: name another place with --output, or overwrite it with --force"
        )
    if entries and not is_run_directory(path):
        raise UsageError(
            f"{path} is not a run directory, so --force will not empty it: "
            "name another place with --output"
        )
    return entries


def _clear(entries: Sequence[Path]) -> None:
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write ``manifest.json``, so that a reader never sees half of it.

    Raises:
        UsageError: The disk does not take it.
    """
    hidden = masking.names(manifest.command)
    kept = dataclasses.replace(manifest, command=masking.masked(manifest.command), masked=hidden)
    text = json.dumps(dataclasses.asdict(kept), indent=1)
    beside = path / "manifest.json.new"
    try:
        beside.write_text(text + "\n", encoding="utf-8")
        beside.replace(path / "manifest.json")
    except OSError as error:
        raise UsageError(f"cannot write to the run directory {path} ({error.strerror})") from error


def write_lint(path: Path, findings: Sequence[Finding]) -> None:
    """Keep what the linter says of the sources as they ran (``lint.json``), for later reports.

    Raises:
        UsageError: The disk does not take it.
    """
    text = json.dumps([packed(finding) for finding in findings], separators=(",", ":"))
    beside = path / "lint.json.new"
    try:
        beside.write_text(text + "\n", encoding="utf-8")
        beside.replace(path / "lint.json")
    except OSError as error:
        raise UsageError(f"cannot write to the run directory {path} ({error.strerror})") from error


def read_manifest(path: Path) -> Manifest:
    """Read ``manifest.json``; keys it does not know are left out.

    Raises:
        SourceError: It is missing, cut, or of a later form.
    """
    try:
        raw = json.loads(files.read_text(path / "manifest.json"))
    except FileNotFoundError as error:
        raise SourceError(f"{path} is not a run directory: it has no manifest.json") from error
    except (OSError, ValueError, RecursionError) as error:
        raise SourceError(f"the manifest of {path} cannot be read ({error})") from error
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if version != SCHEMA_VERSION:
        raise SourceError(
            f"{path} was written in form {version}, this xladoctor reads form {SCHEMA_VERSION}: "
            "update xladoctor"
        )
    known = {field.name for field in dataclasses.fields(Manifest)}
    try:
        return Manifest(**{key: value for key, value in raw.items() if key in known})
    except TypeError as error:
        raise SourceError(f"the manifest of {path} is incomplete ({error})") from error


def is_run_directory(path: Path) -> bool:
    """Whether a folder looks like a run directory of ours."""
    return (path / "manifest.json").is_file() or any(path.glob("p*/events.jsonl"))


def processes(path: Path) -> list[Path]:
    """The folders of the processes that used a device, in the order in which they started."""
    return sorted(
        (events.parent for events in path.glob("p*/events.jsonl")),
        key=files.by_start,
    )


def running(path: Path) -> list[int]:
    """The ids of the processes of a run that have not ended yet."""
    found = set()
    for folder in processes(path):
        pid = folder.name[1:].partition("-")[0]
        if pid.isdecimal() and is_running(int(pid)):
            found.add(int(pid))
    return sorted(found)


def is_running(pid: int) -> bool:
    """Whether there is a process of that id that has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    with contextlib.suppress(OSError, IndexError):
        # Who has ended and was not asked for its exit code is there in name only.
        stat = files.read_bytes(f"/proc/{pid}/stat", 4096)
        return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    return True


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of one process, in order; what is cut or not an object is left out."""
    for file in (folder / "events.jsonl", *sorted(folder.glob("events.*[0-9].jsonl"))):
        try:
            for line in files.lines(file):
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(row, dict):
                    yield row
        except OSError:
            continue


def not_started(path: Path) -> list[str]:
    """Why the agent could not start in processes that imported torch_xla, one line each."""
    return _last_lines(path, "not-started-*.txt")


def not_reached(path: Path) -> list[str]:
    """Processes that used torch_xla and that the agent could not get into, a sentence each."""
    return _last_lines(path, "not-reached-*.txt")


def for_torch_tpu(path: Path) -> str | None:
    """Why processes of TorchTPU were not recorded on simulated cores; None if there were none."""
    return next(iter(_last_lines(path, "torch-tpu-*.txt")), None)


def refused(path: Path) -> str | None:
    """Why the cores could not be simulated in the processes of the command; None if they could."""
    return next(iter(_last_lines(path, "refused-*.txt")), None)


def _last_lines(path: Path, pattern: str) -> list[str]:
    return [text.rpartition("\n")[2] or file.name for file, text in files.left(path, pattern)]


def attached(path: Path) -> bool:
    """Whether the agent's bootstrap was in any Python process of the command."""
    return (path / "attached").exists()


def latest(base: Path = RUNS) -> Path:
    """The newest run directory.

    Raises:
        SourceError: There is none.
    """
    runs = [entry for entry in base.glob("*") if entry.is_dir() and is_run_directory(entry)]
    if not runs:
        raise SourceError(
            f"{base}: there is no run here yet: record one with "
            "'xladoctor profile --simulate-cores 8 -- python train.py'"
        )
    return max(runs, key=_age)


def _age(run: Path) -> tuple[float, str]:
    """When a run began, to sort by; its name decides between equals."""
    manifest = run / "manifest.json"
    return (manifest if manifest.exists() else run).stat().st_mtime, run.name
