"""Running the user's command with the agent in it: checked before, looked at while it runs."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from xladoctor import __version__
from xladoctor.capture import command as commands
from xladoctor.capture import launch, masking, rundir
from xladoctor.capture.endings import Endings
from xladoctor.capture.unreached import Watch
from xladoctor.cli import boundary
from xladoctor.cli.progress import Progress
from xladoctor.errors import UsageError, XladoctorError
from xladoctor.store.bound import Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console


def command_words(words: Sequence[str], example: str = "profile --simulate-cores 8") -> list[str]:
    """The command to run.

    Raises:
        UsageError: There is none; the sentence shows ``example``.
    """
    if not words:
        raise UsageError(
            "no command given: put it after '--', for example "
            f"'xladoctor {example} -- python train.py'"
        )
    return commands.expand(words)


def check(
    words: Sequence[str],
    cores: int | None,
    what: str = "--simulate-cores",
    *,
    processes: bool = False,
) -> None:
    """Refuse what cannot work before anything is started or written.

    Args:
        words: The command.
        cores: How many are simulated; None for real devices.
        what: Asks for cores.
        processes: Whether each core may be a process of its own.

    Raises:
        UsageError: It cannot work.
    """
    launcher = commands.starts_processes(words)
    if cores is not None and launcher is not None and not processes:
        raise UsageError(
            f"{what} does not run under {launcher}, which starts a process for each core: start "
            "the program with python, and the cores in it with torch_xla.launch(fn), which works "
            "under torchrun too"
        )
    launch.find(words[0], os.environ)
    commands.missing_script(words)
    if cores is None:
        return
    device = os.environ.get("PJRT_DEVICE", "")
    if device.upper() not in ("", "CPU"):
        raise UsageError(
            f"{what} runs on the CPU, but PJRT_DEVICE={device} is set: "
            f"leave out {what}, or unset PJRT_DEVICE"
        )
    python = commands.interpreter(words, os.environ)
    found = commands.versions(python, os.environ) if python is not None else None
    problem = found.problem() if found is not None else None
    if problem is not None:
        raise UsageError(f"{what} needs torch and torch_xla in {python}; {problem}")


def record(
    words: list[str],
    cores: int | None,
    output: Path | None,
    force: bool,
    hang_timeout: float | None,
    detail: str,
    console: Console,
    printed: IO[bytes] | None = None,
    time_limit: float | None = None,
    while_running: Callable[[], None] | None = None,
    begun: Callable[[Path], None] | None = None,
    max_size: int | None = None,
    *,
    check: bool = False,
) -> tuple[Path, int]:
    """Run the command with the agent; returns the run directory and how the command ended.

    What the program prints passes through, or goes to the file ``printed``; then nothing is said of
    the run, and ``while_running`` is called now and then. ``begun`` is called with the run
    directory before the command starts. ``max_size``: bytes of the run directory. ``time_limit``:
    see :func:`launch.run`; ``check``: see :func:`launch.environment`.
    """
    now = time.time()
    shown = output if output is not None else rundir.default_directory(words, now)
    run_dir = rundir.create(shown, force=force)
    manifest = rundir.Manifest(
        xladoctor=__version__,
        command=words,
        cwd=str(Path.cwd()),
        started=now,
        simulated_cores=cores,
    )
    rundir.write_manifest(run_dir, manifest)
    if begun is not None:
        begun(run_dir)
    if printed is None:
        _announce(console, cores, shown, masking.names(words))
    shared = while_running is not None if printed is not None else sys.stdout.isatty()
    bound = Bound(run_dir, max_size) if max_size is not None else None
    looks = _Looks(console, run_dir, cores is not None, bound, while_running, shared=shared)

    def at_end() -> None:
        with contextlib.suppress(OSError):
            manifest.left_behind = rundir.running(run_dir)

    with launch.scratch_folder() as scratch:
        environ = launch.environment(
            os.environ,
            run_dir,
            cores=cores,
            hang_timeout=hang_timeout,
            detail=detail,
            scratch=scratch,
            check=check,
        )
        if bound is not None:
            environ |= bound.environment
        try:
            code = launch.run(
                words,
                environ,
                while_running=looks,
                output=printed,
                watch=Watch(run_dir, launch.BOOTSTRAP),
                time_limit=time_limit,
                at_end=at_end,
            )
        finally:
            looks.stop()
    try:
        _close(run_dir, manifest, code)
    except XladoctorError as error:  # the disk is full, or the folder is gone; the command has run
        boundary.told(error)
    finally:
        rundir.release(run_dir)
    return run_dir, code


class _Looks:
    """What is looked at now and then while the command runs.

    Args:
        console: For progress, and for how processes of cores have ended.
        run_dir: Of the run.
        simulated: Whether cores are simulated.
        bound: Keeps the run directory small; None if it may grow.
        other: Is called too.
        shared: Whether the program prints to the same terminal.
    """

    def __init__(
        self,
        console: Console,
        run_dir: Path,
        simulated: bool,
        bound: Bound | None,
        other: Callable[[], None] | None,
        *,
        shared: bool,
    ) -> None:
        self._progress = Progress(console, run_dir, shared=shared)
        self._endings = Endings(
            run_dir, lambda words: console.print(words, soft_wrap=True, markup=False)
        )
        self._simulated = simulated
        self._bound = bound
        self._other = other

    def __call__(self) -> None:
        with contextlib.suppress(Exception):  # what we show must not end what the user runs
            self._progress()
        if self._simulated:
            with contextlib.suppress(OSError):
                self._endings.look()
        if self._other is not None:
            self._other()
        if self._bound is not None:
            with contextlib.suppress(OSError):
                self._bound.look(time.monotonic())

    def stop(self) -> None:
        """The command has ended."""
        self._progress.stop()


def _announce(console: Console, cores: int | None, shown: Path, hidden: Sequence[str]) -> None:
    """Say what begins, where it is kept, and what of the command is not."""
    on = f" on {cores} simulated core{'s' if cores > 1 else ''}" if cores is not None else ""
    console.print(f"xladoctor: profiling{on}; the run is kept in {shown}", soft_wrap=True)
    if hidden:
        what = ", ".join(hidden)
        console.print(
            f"xladoctor: the command holds what looks like a secret ({what}); it is not kept",
            soft_wrap=True,
            markup=False,
        )


def _close(run_dir: Path, manifest: rundir.Manifest, code: int) -> None:
    """Say in the manifest how the command ended."""
    manifest.ended = time.time()
    manifest.exit_code = launch.shell_code(code)
    manifest.signal = launch.signal_name(code)
    manifest.complete = code == 0
    rundir.write_manifest(run_dir, manifest)
