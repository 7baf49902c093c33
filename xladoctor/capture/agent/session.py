"""The agent for a stretch of a process that xladoctor has not started: ``xladoctor.profile()``.

The points are installed once and stay; between two sessions nothing is around them.
"""

from __future__ import annotations

import contextlib
import os

from . import boot, measure, wrapping, xla
from .points import Points
from .recorder import Recorder
from .writer import Writer

#: The points of this process, once they are installed, with their meter and what is missing.
_installed: list[tuple[Points, measure.Meter, list[str]]] = []


def recording() -> bool:
    """Whether this process is being recorded already."""
    return os.getpid() in boot.started


def begin(run_dir: str) -> Recorder:
    """Record what this process does from now on.

    Args:
        run_dir: The run directory, absolute.
    """
    recorder = Recorder(Writer(run_dir), simulated_cores=None)
    if not _installed:
        points = Points(on_failure=_hook_off)
        missing = wrapping.install(points)
        _installed.append((points, measure.Meter(simulated=False, note=_note), missing))
    points, meter, missing = _installed[0]
    for name in missing:
        recorder.process.hook_off(name, None)
    # What the process has done before is no part of the record.
    recorder.leave_out(xla.fallbacks())
    meter.catch_up()
    recorder.install(points)
    meter.install(points)
    boot.started[os.getpid()] = recorder
    return recorder


def end(recorder: Recorder, error: BaseException | None) -> None:
    """End the recording; ``error`` is what has ended the program's work, if anything has."""
    with contextlib.suppress(Exception):
        if error is not None and isinstance(error, Exception):
            recorder.ended_by(error)
            recorder.failed(error)
        recorder.close()
    for points, _, _ in _installed:
        points.clear()
    boot.started.pop(os.getpid(), None)


def _hook_off(hook: str, error: BaseException) -> None:
    recorder = boot.started.get(os.getpid())
    if recorder is not None:
        recorder.process.hook_off(hook, error)


def _note(text: str) -> None:
    recorder = boot.started.get(os.getpid())
    if recorder is not None:
        recorder.process.note(text)
