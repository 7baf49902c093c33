"""Starts the user's command with the agent in its environment and waits for it.

The command runs as it would without xladoctor: its own stdin, stdout and stderr, its exit code,
its signals. Away from a terminal it gets a process group of its own, so that what it leaves
behind can be ended; at a terminal it stays in ours, so that Ctrl-C, Ctrl-Z and reading from the
keyboard work as ever.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from xladoctor.capture import dryrun, simulate
from xladoctor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

    from xladoctor.capture.unreached import Watch

BOOTSTRAP = Path(__file__).resolve().parent / "agent" / "bootstrap"

#: Forwarded to the command alone, as if it had been sent to the command itself.
_TO_COMMAND = ("SIGTERM", "SIGUSR1", "SIGUSR2")
#: Forwarded to the command's whole group, as a terminal does.
_TO_GROUP = ("SIGINT", "SIGQUIT", "SIGHUP")

#: How long (seconds) what the command leaves behind may take to end by itself.
GRACE = 3.0

#: How often (seconds) it is looked for processes without the agent; importing torch_xla takes more.
WATCH_EVERY = 1.0


class CommandError(UsageError):
    """The command cannot be started."""


def environment(
    base: Mapping[str, str],
    run_dir: Path,
    *,
    cores: int | None = None,
    hang_timeout: float | None = None,
    detail: str = "normal",
    scratch: Path | None = None,
    dry_run: bool = False,
    check: bool = False,
) -> dict[str, str]:
    """The environment in which the command runs.

    Args:
        base: The user's environment; kept, with our folder put before ``PYTHONPATH``.
        run_dir: Absolute path of the run directory.
        cores: Number of simulated cores; None to use the devices that are there.
        hang_timeout: Seconds without progress after which the simulation calls it a hang.
        detail: How much is measured: "low", "normal" or "high".
        scratch: Folder in which XLA may leave the graphs it compiles; None to keep none.
        dry_run: Only trace the steps, as for ``cores`` cores (1 if None), and execute nothing.
        check: Also make the checks for silent wrong results that cost more.
    """
    result = dict(base)
    if cores is not None and not dry_run:
        result = simulate.hosts.handed_down(base, cores)
    result["PYTHONPATH"] = os.pathsep.join(
        [str(BOOTSTRAP), *filter(None, [base.get("PYTHONPATH", "")])]
    )
    result["XLADOCTOR_RUN_DIR"] = str(run_dir)
    result.pop("XLADOCTOR_SIMULATE_CORES", None)
    result.pop(dryrun.DRY_RUN, None)
    if dry_run:
        cores = cores or 1
        result.update(dryrun.environment(cores))
    elif cores is not None:
        result.update(simulate.environment(cores, several=simulate.hosts.HOSTS in result))
    if cores is not None:
        result["XLADOCTOR_SIMULATE_CORES"] = str(cores)
    if hang_timeout is not None:
        result["XLADOCTOR_HANG_TIMEOUT"] = f"{hang_timeout:g}"
    result["XLADOCTOR_DETAIL"] = detail
    result.pop("XLADOCTOR_CHECK", None)
    if check:
        result["XLADOCTOR_CHECK"] = "1"
    result.pop("XLADOCTOR_SCRATCH", None)
    if scratch is not None:
        result["XLADOCTOR_SCRATCH"] = str(scratch)
    return result


@contextlib.contextmanager
def scratch_folder(memory: str = "/dev/shm") -> Iterator[Path | None]:  # noqa: S108
    """A folder that is gone afterwards, in memory where there is room; None if none can be made.

    What a launcher left there that was killed is removed: nobody holds its lock any more.

    Args:
        memory: The system's folder in memory, which programs use too: it is not to be filled.
    """
    _sweep(memory)
    for place in (memory if _has_room(memory) else None, None):
        with contextlib.suppress(OSError):
            folder = tempfile.mkdtemp(prefix=_SCRATCH, dir=place)
            break
    else:
        yield None
        return
    lock = _locked(folder)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


#: How names of scratch folders begin.
_SCRATCH = "xladoctor-scratch-"
#: Bytes that must be free in memory; graphs of a large model take some tens of megabytes.
_ROOM = 512 * 2**20


def _has_room(memory: str) -> bool:
    try:
        return shutil.disk_usage(memory).free >= _ROOM
    except OSError:
        return False


def _sweep(memory: str) -> None:
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(memory)):
            if not entry.name.startswith(_SCRATCH) or entry.is_symlink():
                continue
            if entry.stat().st_uid != os.getuid():
                continue
            lock = _locked(entry.path)
            if lock is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(lock)


def _locked(folder: str) -> int | None:
    """A descriptor that holds the folder's lock; None if somebody else does, or nobody can."""
    try:
        import fcntl

        descriptor = os.open(f"{folder}/.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def find(command: str, environ: Mapping[str, str]) -> str:
    """The file that a command's first word names.

    Raises:
        CommandError: There is none, or it cannot be executed.
    """
    found = shutil.which(command, path=environ.get("PATH"))
    if found is not None:
        return found
    path = Path(command)
    if path.is_file():
        hint = f"; did you mean 'python {command}'?" if path.suffix == ".py" else ""
        raise CommandError(f"cannot run {command}: it is not executable{hint}")
    if path.is_dir():
        raise CommandError(f"cannot run {command}: it is a folder")
    raise CommandError(f"cannot run {command}: no such command; check the spelling and PATH")


def run(
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    while_running: Callable[[], None] | None = None,
    every: float = 0.25,
    output: IO[bytes] | None = None,
    watch: Watch | None = None,
    time_limit: float | None = None,
    at_end: Callable[[], None] | None = None,
) -> int:
    """Run the command to its end.

    Args:
        command: Words of the command; the first is looked up in ``PATH``.
        environ: Its whole environment.
        while_running: Called now and then while it runs (for a progress line).
        every: Seconds between two calls.
        output: A file that takes what it prints (stdout and stderr); None to let it pass through.
        watch: Looks for processes into which the agent does not get, about once a second.
        time_limit: Seconds after which it is ended: by SIGTERM, and if that does not help within
            :data:`GRACE` seconds by SIGKILL; None for no limit.
        at_end: Called when the command has ended, before what it left behind is ended.

    Returns:
        Its exit code; minus the signal's number if a signal ended it (as ``subprocess`` says it).

    Raises:
        CommandError: It cannot be started.
    """
    find(command[0], environ)
    own_group = not _at_terminal()
    with _forwarding(own_group) as started:
        try:
            process = subprocess.Popen(
                list(command),
                env=dict(environ),
                stdout=output,
                stderr=output,
                **_group(own_group),
            )
        except OSError as error:
            raise CommandError(f"cannot run {command[0]}: {error.strerror}") from error
        started(process)
        if watch is not None:
            watch.started(process.pid, own_group=own_group)
        code = _wait(process, while_running, every, watch, time_limit)
    if at_end is not None:
        at_end()
    if own_group:
        _end_group(process.pid)
    return code


def _group(own: bool) -> dict[str, Any]:
    """How to ask for a process group of its own."""
    if not own:
        return {}
    if sys.version_info >= (3, 11):
        return {"process_group": 0}
    return {"preexec_fn": os.setpgrp}


def shell_code(code: int) -> int:
    """An exit code as a shell tells it: 128 plus the number of the signal."""
    return 128 - code if code < 0 else code


def signal_name(code: int) -> str | None:
    """The name of the signal that ended the command; None if none did."""
    if code >= 0:
        return None
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _wait(
    process: subprocess.Popen[bytes],
    while_running: Callable[[], None] | None,
    every: float,
    watch: Watch | None,
    time_limit: float | None,
) -> int:
    # Never one endless wait: a signal that comes just before it begins would be handled only when
    # the command has ended.
    began = next_look = time.monotonic()
    asked = False
    while process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(every)
        over = 0.0 if time_limit is None else time.monotonic() - began - time_limit
        if over > GRACE:
            process.kill()
        elif over > 0 and not asked:
            process.terminate()
            asked = True
        if while_running is not None:
            while_running()
        if watch is not None and time.monotonic() >= next_look:
            with contextlib.suppress(Exception):  # what we look for must not end what the user runs
                watch.look()
            next_look = time.monotonic() + WATCH_EVERY
    return process.returncode


def _at_terminal() -> bool:
    """Whether we are the foreground of a terminal from which the command may read."""
    try:
        return os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


@contextlib.contextmanager
def _forwarding(own_group: bool) -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Pass on the signals that we get; those that come before the start are kept for it."""
    processes: list[subprocess.Popen[bytes]] = []
    early: list[int] = []
    asked: list[int] = []

    def send(number: int) -> None:
        process = processes[0]
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if signal.Signals(number).name in _TO_COMMAND:
                _to_command(process, number, asked)
            elif own_group:
                os.killpg(process.pid, number)
            # In one group the terminal has sent it to the command already.

    def handle(number: int, _frame: FrameType | None) -> None:
        if processes:
            send(number)
        else:
            early.append(number)

    def started(process: subprocess.Popen[bytes]) -> None:
        processes.append(process)
        for number in early:
            send(number)

    before = {}
    for name in (*_TO_COMMAND, *_TO_GROUP):
        number = getattr(signal, name, None)
        # Whoever started us with a signal ignored (nohup) wants the command to ignore it too.
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, handle)
    try:
        yield started
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _to_command(process: subprocess.Popen[bytes], number: int, before: list[int]) -> None:
    """Pass a signal on to the command; who asks a second time that it end does not ask."""
    if number == signal.SIGTERM and number in before:
        sys.stderr.write("xladoctor: a second SIGTERM; ending the command by SIGKILL\n")
        number = signal.SIGKILL
    before.append(number)
    process.send_signal(number)


def _end_group(group: int) -> None:
    """End what the command has left behind in its group: politely, then not."""
    deadline = time.monotonic() + GRACE
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.02)
        os.killpg(group, signal.SIGKILL)
