"""``xladoctor treat``: profile, fix, profile again, keep what helps."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from xladoctor import catalogue, diagnosis, readings
from xladoctor.capture import launch, rundir
from xladoctor.capture.simulate import MAX_CORES
from xladoctor.cli.cores import Cores
from xladoctor.cli.profile import check, record
from xladoctor.diagnosis import gain
from xladoctor.errors import UsageError
from xladoctor.lint import engine, fixes, sources
from xladoctor.report import treatment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.findings import Finding

#: Fixes without which the program may not run at all: made and measured together, before others.
_TO_RUN = ("XLA404", "XLA417", "XLA7", "XLA8", "XLA9")
#: Fixes that are meant to change what is trained on or how: other losses are what they are for.
_CHANGES_NUMBERS = ("XLA2", "XLA3", "XLA402", "XLA403", "XLA405", "XLA701")

#: Columns of the table where there is no terminal to tell.
_WIDTH = 120


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog="Exit code: 0 it runs with the fixes that were kept (also with none), 1 it still fails, "
    "2 xladoctor failed. Runs the program once, and once more for each kind of fix.",
)
@click.option(
    "--simulate-cores",
    type=Cores(),
    metavar="N",
    help=f"Run on N (1 to {MAX_CORES}) simulated XLA cores on this machine's CPU.",
)
@click.option("--unsafe-fixes", is_flag=True, help="Try fixes that may change the meaning too.")
@click.option("--write", is_flag=True, help="Write the fixes that were kept into SCRIPT.")
@click.option(
    "--hang-timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
    help="How long no core may make progress before it is called a hang.",
)  # fmt: skip
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def treat(
    script: Path,
    args: tuple[str, ...],
    simulate_cores: int | None,
    unsafe_fixes: bool,
    write: bool,
    hang_timeout: float | None,
) -> int:
    """Find out what the fixes of 'xladoctor lint' gain SCRIPT by running it without and with them.

    SCRIPT is a Python file, run with ARGS in a copy beside it; what it prints is not shown. Shows
    per kind of fix what it gained, leaves out what makes the program worse, and prints the
    difference.
    """
    console = Console(stderr=True, highlight=False)
    runs = _Runs(script, args, simulate_cores, hang_timeout, console)
    before = _read(script)
    check(runs.words(script), simulate_cores)
    first = runs.run(before, "as it is")
    data, last, rows = _try_all(before, first, runs, unsafe=unsafe_fixes)
    shown = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    treatment.show(rows, shown)
    _show_difference(script, before, data, shown)
    if not last.ran:
        click.echo(f"xladoctor: {script} still fails: {last.failed}", err=True)
    if write and data != before:
        _write(script, before, data)
        click.echo(f"xladoctor: {script} is written", err=True)
    elif data != before:
        click.echo("xladoctor: nothing is written; --write writes it", err=True)
    return 0 if last.ran else 1


@dataclasses.dataclass
class _Runs:
    """How a version of the script is run and measured."""

    script: Path
    args: Sequence[str]
    cores: int | None
    hang_timeout: float | None
    console: Console

    def words(self, script: Path) -> list[str]:
        """The command that runs a file in the script's place."""
        return [sys.executable, str(script), *self.args]

    def run(self, data: bytes, what: str) -> gain.Measured:
        """Run one version of the script to its end and measure it.

        Raises:
            KeyboardInterrupt: The user stopped the program.
        """
        self.console.print(f"xladoctor: running {self.script} {what}", soft_wrap=True)
        with _copy(self.script, data) as path, tempfile.TemporaryFile() as printed:
            output = rundir.default_directory(self.words(self.script), time.time())
            run_dir, code = record(
                self.words(path), self.cores, output, False, self.hang_timeout,
                "normal", self.console, printed,
            )  # fmt: skip
            if code == -signal.SIGINT:
                raise KeyboardInterrupt
            printed.seek(0)
            text = printed.read().decode("utf-8", "replace")
        ran = launch.shell_code(code) == 0
        if not rundir.processes(run_dir):
            return gain.Measured(ran, failed="" if ran else _last_line(text))
        report = diagnosis.diagnose(readings.load([run_dir]))
        result = gain.measured(report, ran=ran, output=text)
        if ran or not (last := _last_line(text)):
            return result
        return dataclasses.replace(result, failed=last)


def _try_all(
    before: bytes, first: gain.Measured, runs: _Runs, *, unsafe: bool
) -> tuple[bytes, gain.Measured, list[treatment.Row]]:
    """Apply one kind of fix after the other and keep those that do not make it worse."""
    data, last = before, first
    rows = [_row("as it is", first, "runs" if first.ran else f"fails: {first.failed}", None)]
    tried: set[str] = set()
    name = str(runs.script)
    while True:
        codes = _next_codes(data, name, tried, unsafe=unsafe)
        if not codes:
            return data, last, rows
        tried |= codes
        wanted = functools.partial(_has_code, codes=codes)
        fixed = fixes.fix(data, name, engine.lint, unsafe=unsafe, fixable=wanted)
        if fixed.data == data:
            continue
        what = _describe(fixed.made)
        now = runs.run(fixed.data, f"with {what}")
        keeps = not any(code.startswith(_CHANGES_NUMBERS) for code in codes)
        problem = gain.worse(last, now, keeps_numbers=keeps)
        rows.append(_row(what, now, "kept" if problem is None else f"left out: {problem}", last))
        if problem is None:
            data, last = fixed.data, now


def _next_codes(data: bytes, name: str, tried: set[str], *, unsafe: bool) -> set[str]:
    """The codes whose fixes are to be tried next, together; empty when all have been."""
    found = engine.lint(sources.from_bytes(data, name)).findings
    open_codes = {
        item.code for item in found if fixes.is_applicable(item, unsafe=unsafe)
    } - tried  # fmt: skip
    first = {code for code in open_codes if code.startswith(_TO_RUN)}
    return first or set(sorted(open_codes)[:1])


def _has_code(finding: Finding, codes: set[str]) -> bool:
    return finding.code in codes


def _describe(made: Sequence[Finding]) -> str:
    counts = Counter(item.code for item in made)
    if len(counts) == 1:
        return "".join(f"{n} x {code} {catalogue.page(code).name}" for code, n in counts.items())
    return " + ".join(f"{number} x {code}" for code, number in sorted(counts.items()))


def _row(
    what: str, run: gain.Measured, verdict: str, before: gain.Measured | None
) -> treatment.Row:
    return treatment.Row(
        what,
        verdict,
        run.compilations,
        run.after_warmup,
        run.syncs,
        run.fallbacks,
        run.step_seconds,
        gain.agreement(before, run) if before is not None else None,
    )


def _read(script: Path) -> bytes:
    if script.suffix != ".py":
        raise UsageError(f"{script}: treat runs Python files; a notebook has to be exported first")
    try:
        data = script.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {script}: {error.strerror}") from error
    source = sources.from_bytes(data, str(script))
    problems = [*source.unreadable, sources.syntax_error(source.text)]
    if problems[0] is not None:
        raise UsageError(f"{script}, line {problems[0].row}: {problems[0].message}")
    return data


@contextmanager
def _copy(script: Path, data: bytes) -> Iterator[Path]:
    """A version of the script beside it, so that its imports and its own folder are the same.

    Raises:
        UsageError: The folder cannot be written.
    """
    path = script.with_name(f"{script.stem}_treated_{os.getpid()}.py")
    try:
        with path.open("xb") as stream:
            stream.write(data)
    except OSError as error:
        path_text = script.parent
        raise UsageError(
            f"treat runs a copy beside {script}, but {path_text} cannot be written: "
            f"{error.strerror}; copy the program to a folder of your own"
        ) from error
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _write(script: Path, before: bytes, data: bytes) -> None:
    try:
        if script.read_bytes() != before:
            raise UsageError(
                f"{script} changed while it was treated, so it was left alone: run treat again"
            )
        fixes.write(script, data)
    except OSError as error:
        raise UsageError(f"cannot write {script}: {error.strerror or error}") from error


def _show_difference(script: Path, before: bytes, after: bytes, console: Console) -> None:
    old, new = (sources.from_bytes(data, str(script)).text.splitlines() for data in (before, after))
    console.print()
    for line in difflib.unified_diff(old, new, str(script), str(script), lineterm=""):
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        console.print(Text(line.rstrip(), style), soft_wrap=True)


def _last_line(text: str) -> str:
    """The last line that a failed program printed: what Python says of its exception."""
    rows = [row.strip() for row in text.splitlines() if row.strip()]
    errors = [row for row in rows if row.partition(":")[0].endswith(("Error", "Exception"))]
    return (errors or rows or [""])[-1][:200]
