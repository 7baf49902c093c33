"""Processes that ended without their last record: what is left of them says how.

A process ends its record itself, also after an exception. One that did not was killed, crashed, or
left by ``os._exit``; or it goes on under another program (``os.exec...``), or was still there when
the command had ended.
"""

from __future__ import annotations

import re
import signal as signals
from typing import TYPE_CHECKING, Any

from xladoctor import files
from xladoctor.readings import tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

#: What faulthandler calls the signals that it sees (Python's own texts).
_FATAL = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating-point exception": "SIGFPE",
    "Floating point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}
_SIGNALS = ("SIGKILL", *dict.fromkeys(_FATAL.values()))
#: Exit codes by which a shell tells of them.
_BY_CODE = {132: "SIGILL", 134: "SIGABRT", 135: "SIGBUS", 136: "SIGFPE", 137: "SIGKILL",
            139: "SIGSEGV"}  # fmt: skip
#: What a parent raises of a child that died.
BROKEN_POOL = ("BrokenProcessPool", "ProcessExitedException")

_HEAD = re.compile(r"Fatal Python error: (?P<what>[^\n]+)")
_FRAME = re.compile(r'  File "(?P<file>[^"]+)", line (?P<row>\d{1,9}) in (?P<function>.+)')
#: Frames that are nobody's line to change: Python's own, and those of this package.
_NOT_THEIRS = re.compile(r"[/\\](lib[/\\]python3[^/\\]*|xladoctor[/\\]capture)[/\\]")
#: In the stack of a thread that is a simulated core.
_CORE = re.compile(r'simulate[/\\]launchers\.py", line \d+ in _core$')
_MOST_LINES = 5_000


def deaths(
    path: Path, manifest: tables.Manifest, rows: Mapping[str, Sequence[Any]]
) -> Iterator[tables.DeathRow]:
    """The processes of a run that died, as far as there is evidence for it.

    Args:
        path: The run directory.
        manifest: How the command ended.
        rows: All rows of the run, by kind.
    """
    if manifest.ended is None:
        return  # it may be running still
    processes = rows.get("process", ())
    exits = {row.process: row for row in rows.get("exit", ())}
    for process in processes:
        again = any(o.pid == process.pid and o.process > process.process for o in processes)
        if process.ended or again:
            continue
        cores = [row for row in rows.get("core", ()) if row.process == process.process]
        steps = [
            row.last
            for row in rows.get("step", ())
            if row.process == process.process and row.last is not None
        ]
        known = {
            "process": process.process,
            "pid": process.pid,
            "cores": tuple(row.core for row in cores if row.ended is None),
            "step": max(steps, default=None),
        }
        left = exits.get(process.process)
        if left is not None:
            # Leaving with 0 when all is done is what some programs do, on purpose.
            if left.code or len(known["cores"]) > 1:
                yield tables.DeathRow(
                    **known, reason="os._exit", code=left.code, core=left.core, frames=left.frames
                )
            continue
        signal, frames, standing = _fatal(path / process.process / "stacks.txt")
        signal = signal or _seen(path / f"died-{process.pid}.txt") or _told(manifest, rows)
        if signal == "SIGTERM":
            continue  # its parent has ended it
        if signal is not None or _unexplained(process, manifest, rows):
            yield tables.DeathRow(**known, reason=signal, frames=frames, standing=standing)


def _seen(path: Path) -> str | None:
    """The signal that ended a process, as its parent has seen it."""
    try:
        return signals.Signals(int(files.read_bytes(path, 16))).name
    except (OSError, ValueError):
        return None


def _told(manifest: tables.Manifest, rows: Mapping[str, Sequence[Any]]) -> str | None:
    """The signal that ended the command, or that a parent names of its child."""
    said = " ".join(row.message for row in rows.get("error", ()) if row.type in BROKEN_POOL)
    named = next((name for name in _SIGNALS if name in said), None)
    if named is not None:
        return named
    signal = manifest.signal or _BY_CODE.get(manifest.exit_code or 0)
    return signal if signal in _SIGNALS else None


def _unexplained(
    process: tables.ProcessRow, manifest: tables.Manifest, rows: Mapping[str, Sequence[Any]]
) -> bool:
    """Whether a process is gone for a reason that nobody tells."""
    errors = rows.get("error", ())
    if any(row.type not in BROKEN_POOL for row in errors):
        return False  # its parent may have ended it for that
    if any(row.type in BROKEN_POOL for row in errors):
        return True
    if manifest.signal or rows.get("hang") or rows.get("divergence"):
        return False  # somebody has ended the run
    return manifest.left_behind is not None and process.pid not in manifest.left_behind


def _fatal(path: Path) -> tuple[str | None, tuple[tables.Frame, ...], bool]:
    """The signal that faulthandler has seen, and where the program was then.

    XLA aborts from a thread of its own, which has no line of Python: then it is where the first
    simulated core stood that had not ended, and the last value says so.
    """
    signal: str | None = None
    frames: list[tables.Frame] = []
    current = False
    thread: list[tables.Frame] = []  # of the thread that is being read
    standing: list[tables.Frame] = []
    try:
        for number, line in enumerate(files.lines(path)):
            if number > _MOST_LINES:
                break
            head, frame = _HEAD.match(line), _FRAME.match(line)
            if head is not None:
                signal, frames, standing = _FATAL.get(head["what"].strip()), [], []
            elif not line.startswith(" "):
                current, thread = line.startswith("Current thread"), []
            elif signal and _CORE.search(line.rstrip()):
                standing = standing or thread
            elif signal and frame is not None and not _NOT_THEIRS.search(frame["file"]):
                place = (frame["file"], int(frame["row"]), frame["function"].strip())
                thread.append(place)
                if current:
                    frames.append(place)
    except OSError:
        return None, (), False
    if signal == "SIGABRT" and standing and not frames:
        return signal, tuple(standing), True
    return signal, tuple(frames), False
