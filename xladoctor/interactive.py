"""xladoctor inside a program or a notebook: ``with xladoctor.profile()`` and ``%%xladoctor``.

This is an outer door like ``cli/``: it prints, asks the clock, and may import every room.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xladoctor import __version__, diagnosis, readings
from xladoctor.capture import inside, rundir
from xladoctor.errors import UsageError, XladoctorError
from xladoctor.report import render

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, TracebackType

    from xladoctor.results import Report

_OUTSIDE = (
    "xladoctor: the whole process is recorded already by 'xladoctor profile', which reports when "
    "it ends"
)


class Run:
    """A recorded stretch of this process.

    Attributes:
        directory: Its run directory; None if 'xladoctor profile' records this process already.
        error: What has ended it, if it did not end well.
    """

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self.error: BaseException | None = None

    def result(self) -> Report:
        """What was found, as an object.

        Raises:
            XladoctorError: There is no record of its own.
        """
        if self.directory is None:
            raise UsageError(_OUTSIDE.removeprefix("xladoctor: "))
        return diagnosis.diagnose(readings.load([self.directory]))

    def report(self) -> None:
        """Show what was found: the page in a notebook, else as text on stdout."""
        if self.directory is None:
            sys.stdout.write(_OUTSIDE + "\n")
        elif _in_notebook():
            _show_page(self)
        else:
            sys.stdout.write(render(self.result(), color=sys.stdout.isatty()))


#: Height of the page in a notebook, in CSS pixels; it scrolls inside.
_PAGE_HEIGHT = 640


def _show_page(run: Run) -> None:
    """The page below the cell, in a frame of its own; as text where only text is shown."""
    from IPython import display as notebook

    from xladoctor.page import with_page

    show: Any = notebook.display

    assert run.directory is not None
    read = readings.load([run.directory])
    report = diagnosis.diagnose(read)
    page = html.escape(render(with_page(report, read), "html"))
    frame = (
        f'<iframe srcdoc="{page}" sandbox="allow-scripts allow-popups" '
        f'style="width: 100%; height: {_PAGE_HEIGHT}px; border: 0" title="xladoctor"></iframe>'
    )
    show({"text/html": frame, "text/plain": render(report)}, raw=True)


@contextlib.contextmanager
def profile(output: str | Path | None = None, *, force: bool = False) -> Iterator[Run]:
    """Record what this process does on XLA devices inside the ``with`` statement.

    Why a graph is new is told as the agent sees it. XLA would keep the graphs themselves only if
    it had been told so when the process started, and then for the whole of it.

    Args:
        output: Run directory; by default a new one under ``.xladoctor/runs/``.
        force: Overwrite the run that ``output`` holds.

    Yields:
        The run, whose ``report()`` shows what was found.

    Raises:
        UsageError: torch_xla is missing, output cannot be written, or another block is recording.
    """
    agent = inside.agent()
    if agent.recording():
        if _sessions:
            raise UsageError("xladoctor.profile() is recording already: end that block first")
        yield Run(None)
        return
    now = time.time()
    words = list(sys.orig_argv)
    wanted = Path(output) if output is not None else rundir.default_directory(words, now)
    directory = rundir.create(wanted, force=force)
    manifest = rundir.Manifest(
        xladoctor=__version__, command=words, cwd=str(Path.cwd()), started=now
    )
    rundir.write_manifest(directory, manifest)
    run = Run(directory)
    try:
        recorder = agent.begin(str(directory))
    except Exception as error:
        raise UsageError(f"nothing can be recorded with this torch_xla ({error!r})") from error
    _sessions.append(directory)
    try:
        yield run
    except BaseException as error:
        run.error = error
        raise
    finally:
        agent.end(recorder, run.error)
        _sessions.remove(directory)
        manifest.ended = time.time()
        manifest.exit_code = 0 if run.error is None else 1
        manifest.complete = run.error is None
        with contextlib.suppress(XladoctorError):
            rundir.write_manifest(directory, manifest)
        rundir.release(directory)


_sessions: list[Path] = []

#: Stands where the cell has the line of the magic, so that rows are those of the cell; an empty
#: line would be taken away.
_FIRST_LINE = "# xladoctor\n"


def load_magic(ipython: Any) -> None:
    """Give a notebook ``%%xladoctor`` (``%load_ext xladoctor`` calls this)."""

    def xladoctor(line: str, cell: str) -> None:
        """Run the cell, record what it does on XLA devices, and show the report below it.

        A cell that fails fails as without the magic: its error is shown below the report, once,
        and what stands after it in the notebook is not run.
        """
        __tracebackhide__ = True  # IPython leaves this frame out of what it shows
        options = _magic_options(line)
        if options is None:
            return
        text = _FIRST_LINE + cell if cell[:2] != "%%" else cell
        try:
            with profile(options.output, force=options.force) as run:
                with _as_the_same_cell(ipython), _errors_unshown(ipython):
                    done = ipython.run_cell(text)
                run.error = done.error_before_exec or done.error_in_exec
        except XladoctorError as error:
            sys.stderr.write(f"xladoctor: {error}\n")
            return
        try:
            if not options.quiet:
                run.report()
        finally:
            if run.error is not None:
                raise run.error.with_traceback(_from_the_cell_on(ipython, run.error))

    ipython.register_magic_function(xladoctor, "cell")


@contextlib.contextmanager
def _as_the_same_cell(ipython: Any) -> Iterator[None]:
    """Have what runs inside a cell carry the number of that cell."""
    counted = ipython.execution_count
    cells = getattr(ipython.compile, "_filename_map", {})
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None and frame.f_code.co_filename not in cells:
        frame = frame.f_back
    if frame is not None:
        ipython.execution_count = cells[frame.f_code.co_filename]
    try:
        yield
    finally:
        ipython.execution_count = counted


@contextlib.contextmanager
def _errors_unshown(ipython: Any) -> Iterator[None]:
    """Have IPython keep the error of what runs inside to itself: the outer cell will show it."""
    names = ("showtraceback", "showsyntaxerror", "showindentationerror")
    own = vars(ipython)
    before = {name: own[name] for name in names if name in own}
    for name in names:
        setattr(ipython, name, lambda *_args, **_options: None)
    try:
        yield
    finally:
        for name in names:
            delattr(ipython, name)
            if name in before:
                setattr(ipython, name, before[name])


def _from_the_cell_on(ipython: Any, error: BaseException) -> TracebackType | None:
    """The traceback of an error without IPython's own frames around the cell."""
    cells = getattr(ipython.compile, "_filename_map", {})
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename not in cells:
        trace = trace.tb_next
    return trace


def _magic_options(line: str) -> argparse.Namespace | None:
    parser = argparse.ArgumentParser("%%xladoctor", exit_on_error=False, add_help=False)
    parser.add_argument("-o", "--output")
    parser.add_argument("--force", action="store_true")
    parser.add_argument("-q", "--quiet", action="store_true")
    try:
        options, rest = parser.parse_known_args(line.split())
    except (argparse.ArgumentError, SystemExit) as error:
        options, rest = None, [str(error)]
    if rest:
        sys.stderr.write(
            f"xladoctor: {' '.join(rest)}: write %%xladoctor [-o DIR] [--force] [-q]\n"
        )
        return None
    return options


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"
