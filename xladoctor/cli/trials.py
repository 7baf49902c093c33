"""Running one version of a program after the other, each beside the original."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import sys
import tempfile
import textwrap
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from xladoctor import diagnosis, readings
from xladoctor.capture import launch, rundir
from xladoctor.changes import Trial
from xladoctor.cli.recording import record
from xladoctor.cli.tpu import ask
from xladoctor.diagnosis import trial
from xladoctor.errors import UsageError
from xladoctor.lint import sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    from xladoctor.cli.tpu import Tpu
    from xladoctor.lint.fix_session import Program, Version

#: What the program printed, in its run directory.
OUTPUT = "output.txt"
#: Signals after which a treatment ends: we get them too, or were meant to.
_STOPPED_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
#: Lines of a failed program's output that are shown.
_LAST_LINES = 8


class Interrupted(Exception):  # noqa: N818  (nothing went wrong)
    """A signal ended the program (Ctrl-C, or somebody who wants it gone), so nothing more is run.

    Attributes:
        trial: What it had shown until then.
        exit_code: Ours, as a shell tells a signal.
    """

    def __init__(self, shown: Trial, exit_code: int) -> None:
        super().__init__("interrupted")
        self.trial = shown
        self.exit_code = exit_code


@dataclasses.dataclass(slots=True)
class Runner:
    """How the versions of a program are run and measured.

    Attributes:
        program: Its files.
        original: What is in them.
        args: The program's arguments.
        cores: Number of simulated cores; None to use the devices that are there.
        hang_timeout: Seconds without progress after which the simulation calls it a hang.
        time_limit: Seconds after which a run is ended; None for no limit.
        show_output: Whether the program's output passes on to stderr.
        console: For what we say, on stderr.
        tpu: TPUs that each version's graphs are compiled for, too; None for none.
        runs: How many runs there were.
        ahead: About how many runs there will still be, the next one included.
    """

    program: Program
    original: Version
    args: Sequence[str]
    cores: int | None
    hang_timeout: float | None
    time_limit: float | None
    show_output: bool
    console: Console
    tpu: Tpu | None = None
    runs: int = 0
    ahead: int = 0
    _typical: float | None = None

    def words(self, script: str | Path) -> list[str]:
        """The command that runs a file in the script's place."""
        return [sys.executable, str(script), *self.args]

    def run(self, version: Version, what: str) -> Trial:
        """Run one version to its end and measure it.

        Raises:
            Interrupted: A signal from outside ended the program.
        """
        self.runs += 1
        most = f" of about {self.runs - 1 + self.ahead}" if self.ahead else ""
        self.console.print(f"xladoctor: run {self.runs}{most}: {what}", soft_wrap=True)
        began = time.monotonic()
        with _placed(self.program, self.original, version) as path:
            output = rundir.default_directory(self.words(self.program.script), time.time())
            with tempfile.TemporaryFile() as printed:
                show = _Follow(printed) if self.show_output else None
                run_dir, code = record(
                    self.words(path), self.cores, output, False, self.hang_timeout, "normal",
                    self.console, printed, self.time_limit, show,
                )  # fmt: skip
                if show is not None:
                    show()
                text = _keep(printed, run_dir / OUTPUT)
        late = self.time_limit is not None and time.monotonic() - began >= self.time_limit
        seconds = time.monotonic() - began
        text = _as_named(text, path, self.program.script)
        found = self._measured(run_dir, output, code, text, stopped=late and code != 0)
        found = dataclasses.replace(
            found, failed=_as_named(found.failed, path, self.program.script), seconds=seconds
        )
        if not late and launch.shell_code(code) - 128 in _STOPPED_BY:
            raise Interrupted(found, launch.shell_code(code))
        self._say(found, text)
        return found

    def _measured(
        self, run_dir: Path, shown: Path, code: int, text: str, *, stopped: bool
    ) -> Trial:
        ran = launch.shell_code(code) == 0
        if not rundir.processes(run_dir):
            why = "" if ran else _why(text) or f"it ended with exit code {launch.shell_code(code)}"
            return Trial(ran, failed=why, stopped=stopped, run=str(shown))
        read = readings.load([run_dir])
        costs, notes = ask(self.tpu, read, self.console) if self.tpu else (None, ())
        report = diagnosis.diagnose(read, tpu=costs, notes=notes)
        found = trial.trial(report, ran=ran, output=text, stopped=stopped, run=str(shown))
        if found.ran or not _why(text) or stopped:
            return found
        return dataclasses.replace(found, failed=_why(text))

    def _say(self, found: Trial, text: str) -> None:
        """What came of a run, and the end of what a program printed that failed."""
        steps = found.figures.steps
        counted = "" if steps is None else f" after {steps} step{'' if steps == 1 else 's'}"
        assert found.seconds is not None
        counted += f" in {_span(found.seconds)}"
        if found.ran:
            self._typical = found.seconds
            how = "was stopped by the time limit" if found.stopped else "ended well"
            self.console.print(
                f"xladoctor: it {how}{counted}{self._estimate()}", soft_wrap=True, style="dim"
            )
            return
        self.console.print(
            f"xladoctor: it failed{counted}{self._estimate()}: {found.failed}", soft_wrap=True
        )
        if not self.show_output:
            for line in [row for row in text.splitlines() if row.strip()][-_LAST_LINES:]:
                self.console.print(f"  | {line}", soft_wrap=True, style="dim", markup=False)

    def _estimate(self) -> str:
        """How long the other runs may take, as a version that runs takes; "" if nobody knows."""
        more = self.ahead - 1
        if self._typical is None or more < 1:
            return ""
        runs = "1 run" if more == 1 else f"{more} runs"
        return f"; about {_span(more * self._typical)} more for {runs}"


class _Follow:
    """Passes on to stderr what has been written to a file since the last look."""

    def __init__(self, file: IO[bytes]) -> None:
        self._number = file.fileno()
        self._read = 0

    def __call__(self) -> None:
        while data := os.pread(self._number, 65536, self._read):
            self._read += len(data)
            sys.stderr.write(data.decode("utf-8", "replace"))
        sys.stderr.flush()


def write(program: Program, before: Version, after: Version, put: Callable[..., None]) -> list[str]:
    """Write the files that changed; returns their names.

    Args:
        program: Its files.
        before: What was in them when they were read.
        after: What is to be in them.
        put: Replaces one file in one step.

    Raises:
        UsageError: One of them has changed in the meantime, or cannot be written.
    """
    changed = [name for name in program.names if after[name] != before[name]]
    try:
        for name in changed:
            if Path(name).read_bytes() != before[name]:
                raise UsageError(
                    f"{name} changed while it was treated, so nothing is written: run treat again"
                )
        for name in changed:
            put(Path(name), after[name])
    except OSError as error:
        raise UsageError(
            f"cannot write {error.filename or name}: {error.strerror or error}"
        ) from error
    return changed


def _span(seconds: float) -> str:
    """Seconds for people: "42 s", "12 min", "3.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _as_named(text: str, path: Path, script: str) -> str:
    """What a program says of the copy that was run, said of the script and what lies beside it."""
    for spelled in (path.absolute(), path):
        text = text.replace(str(spelled), script)
        if path.parent.resolve() != Path(script).parent.resolve():
            text = text.replace(f"{spelled.parent}{os.sep}", "")
    return text


@contextmanager
def _placed(program: Program, original: Version, version: Version) -> Iterator[Path]:
    """A version of the program on the disk, and the file of it that is to be run.

    If only the script differs, a copy lies beside it, so that its imports and its own folder are
    the same. If others do, the script's folder is mirrored by links and the changed files lie in
    the mirror.

    Raises:
        UsageError: The folder cannot be written.
    """
    script = Path(program.script)
    others = [name for name in program.names[1:] if version[name] != original[name]]
    try:
        if others:
            root = script.absolute().parent
            # Beside the folder, so that "../data" is still there; or where one may write.
            beside = root.parent if os.access(root.parent, os.W_OK) else None
            place = Path(tempfile.mkdtemp(prefix=f".{script.stem}-treated-", dir=beside))
            files = {Path(name).absolute(): version[name] for name in (program.script, *others)}
            _mirror(root, place, files)
            path = place / script.name
            if script.suffix == ".ipynb":
                path = path.with_name(f"{script.stem}_treated_{os.getpid()}.py")
                path.write_bytes(_as_python(program.script, version[program.script]))
        else:
            place = path = script.with_name(f"{script.stem}_treated_{os.getpid()}.py")
            with path.open("xb") as stream:
                stream.write(_as_python(program.script, version[program.script]))
    except OSError as error:
        raise UsageError(
            f"treat runs a copy beside {script}, but {script.parent} cannot be written: "
            f"{error.strerror}; copy the program to a folder of your own"
        ) from error
    try:
        yield path
    finally:
        if others:
            shutil.rmtree(place, ignore_errors=True)  # links are removed, not what they point to
        else:
            path.unlink(missing_ok=True)


def _as_python(name: str, data: bytes) -> bytes:
    """A file as Python runs it: of a notebook its code cells, one after the other."""
    source = sources.from_bytes(data, name)
    return data if source.cells is None else source.text.encode()


def _mirror(folder: Path, place: Path, files: dict[Path, bytes]) -> None:
    """Fill a folder with links to the entries of another, except for files that are given."""
    for entry in folder.iterdir():
        if entry in files:
            (place / entry.name).write_bytes(files[entry])
        elif any(entry in file.parents for file in files):
            (place / entry.name).mkdir()
            _mirror(entry, place / entry.name, files)
        elif entry.name not in ("__pycache__", place.name):
            (place / entry.name).symlink_to(entry)


def _keep(printed: IO[bytes], path: Path) -> str:
    """What a program printed, also kept in its run directory."""
    printed.seek(0)
    data = printed.read()
    path.write_bytes(data)
    return data.decode("utf-8", "replace")


def _why(text: str) -> str:
    """The last line of a failed program's output that names an exception, else the last line."""
    rows = [row.strip() for row in text.splitlines() if row.strip()]
    errors = [row for row in rows if row.partition(":")[0].endswith(("Error", "Exception"))]
    return textwrap.shorten((errors or rows or [""])[-1], 200, placeholder=" ...")


def asks_for_arguments(found: Trial, text_of: Path) -> str | None:
    """The line in which a program says that it needs arguments, if it failed for lack of them."""
    if found.ran or not text_of.is_file():
        return None
    rows = text_of.read_text(encoding="utf-8", errors="replace").splitlines()
    if not any(row.startswith(("usage:", "Usage:")) for row in rows):
        return None
    return next((row.strip() for row in reversed(rows) if "rror:" in row), None)
