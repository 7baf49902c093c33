"""``xladoctor treat``: profile, fix, profile again, keep what helps."""

from __future__ import annotations

import dataclasses
import difflib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from xladoctor import catalogue
from xladoctor.capture.simulate import MAX_CORES
from xladoctor.changes import Noise, Step, Treatment, Trial
from xladoctor.cli import lint_plans
from xladoctor.cli.cores import Cores
from xladoctor.cli.profile import check
from xladoctor.cli.report import output_options, terminal_options
from xladoctor.cli.report import write as put_out
from xladoctor.cli.trials import OUTPUT, Interrupted, Runner, asks_for_arguments, write
from xladoctor.diagnosis import trial
from xladoctor.errors import UsageError
from xladoctor.lint import fixes, sources, together
from xladoctor.report import treatment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.findings import Finding
    from xladoctor.lint.run import Plan
    from xladoctor.lint.together import Program, Version

#: Fixes without which the program may not run at all: made and measured together, before others.
_TO_RUN = ("XLA404", "XLA417", "XLA7", "XLA8", "XLA9")
#: Fixes that are meant to change what is trained on or how: other losses are what they are for.
_CHANGES_NUMBERS = ("XLA2", "XLA3", "XLA402", "XLA403", "XLA405", "XLA701")


@click.command(
    short_help="Measure what the fixes gain a script, and write those that help.",
    epilog="Exit code: 0 it runs with the fixes that were kept (also with none), 1 it still fails, "
    "2 xladoctor failed, 130 after Ctrl-C. Runs the program twice, and once more for each kind of "
    "fix.",
)
@click.option(
    "--simulate-cores", type=Cores(), metavar="N",
    help=f"Run on N (1 to {MAX_CORES}) simulated XLA cores on this machine's CPU.",
)  # fmt: skip
@click.option("--unsafe-fixes", is_flag=True, help="Try fixes that may change the meaning too.")
@click.option("--write", "writes", is_flag=True, help="Write the fixes that were kept.")
@click.option(
    "--repeat/--no-repeat", default=True, show_default=True,
    help="Run the program once more without a fix, to know what differs by itself.",
)  # fmt: skip
@click.option(
    "--time-limit", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
    help="End each run after so long and compare what it did until then, per step.",
)  # fmt: skip
@click.option(
    "--hang-timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
    help="How long no core may make progress before it is called a hang.",
)  # fmt: skip
@click.option("--show-output", is_flag=True, help="Pass what the program prints on to stderr.")
@output_options(treatment.FORMATS)
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]...")
def treat(
    script: str,
    args: tuple[str, ...],
    simulate_cores: int | None,
    unsafe_fixes: bool,
    writes: bool,
    repeat: bool,
    time_limit: float | None,
    hang_timeout: float | None,
    show_output: bool,
    output_format: str,
    output_file: Path | None,
) -> int:
    """Find out what the fixes of 'xladoctor lint' gain SCRIPT by running it without and with them.

    SCRIPT is a Python file, run with ARGS in a copy beside it; files of its folder that it imports
    are treated with it. What it prints is kept in the run directories. Shows per kind of fix what
    it gained, leaves out what makes the program worse, and prints the difference.
    """
    console = Console(stderr=True, highlight=False)
    _check(script)
    program = together.program_of(script, _plan(script))
    before = _read(program)
    runs = Runner(
        program, before, args, simulate_cores, hang_timeout, time_limit, show_output, console
    )
    check(runs.words(script), simulate_cores)
    course = _Course(runs, before, unsafe=unsafe_fixes, repeat=repeat)
    course.run()
    written: list[str] = []
    if writes and course.interrupted is None and course.version != before:
        written = write(program, before, course.version, fixes.write)
    result = course.result(script, args, simulate_cores, tuple(written))
    width, color = terminal_options(output_file)
    put_out(treatment.render(result, output_format, width=width, color=color), output_file)
    return _conclude(result, course.interrupted, console)


def _conclude(result: Treatment, interrupted: int | None, console: Console) -> int:
    def say(text: str) -> None:
        console.print(f"xladoctor: {text}", soft_wrap=True)

    if interrupted is not None:
        say("interrupted: this is what was known until then, nothing is written")
        return interrupted
    if not result.final.ran:
        say(f"{result.script} still fails: {result.final.failed}")
    for name in result.written:
        say(f"{name} is written")
    if result.diff and not result.written:
        say("nothing is written; --write writes it")
    return 0 if result.final.ran else 1


@dataclasses.dataclass(slots=True)
class _Course:
    """One treatment from the first run to the last; what is known at any time can be shown."""

    runs: Runner
    before: Version
    unsafe: bool
    repeat: bool
    version: Version = dataclasses.field(default_factory=dict)
    first: Trial = dataclasses.field(default_factory=lambda: Trial(ran=False))
    last: Trial = dataclasses.field(default_factory=lambda: Trial(ran=False))
    apart: Noise = dataclasses.field(default_factory=Noise)
    steps: list[Step] = dataclasses.field(default_factory=list)
    interrupted: int | None = None

    def run(self) -> None:
        """Run the program, then every kind of fix; ends early if the user interrupts a run.

        Raises:
            UsageError: The program cannot run without arguments, or the time limit is too short.
        """
        self.version = self.before
        try:
            self.first = self.last = self.runs.run(
                self.before, f"{self.runs.program.script} as it is"
            )
            self._check_arguments()
            if self.first.stopped and not self.first.ran:
                raise UsageError(
                    f"{self.runs.program.script}: {self.first.failed}: "
                    "give it a longer --time-limit"
                )
            self._repeat()
            self._try_all()
        except Interrupted as stop:
            self.interrupted = stop.exit_code
            if self.runs.runs == 1:
                self.first = self.last = stop.trial

    def result(
        self, script: str, args: Sequence[str], cores: int | None, written: tuple[str, ...]
    ) -> Treatment:
        """What came of it."""
        return Treatment(
            script=script,
            args=tuple(args),
            cores=cores,
            files=self.runs.program.names,
            original=self.first,
            final=self.last,
            noise=self.apart,
            steps=tuple(self.steps),
            diff=_difference(self.runs.program, self.before, self.version),
            written=written,
            interrupted=self.interrupted is not None,
        )

    def _check_arguments(self) -> None:
        asked = asks_for_arguments(self.first, Path(self.first.run) / OUTPUT)
        if asked is not None and not self.runs.args:
            script = self.runs.program.script
            raise UsageError(
                f"{script} asks for arguments ({asked}): give them behind '--', for example "
                f"'xladoctor treat {script} -- --epochs 1'"
            )

    def _repeat(self) -> None:
        """Run once more what runs, to know how far two runs of one program lie apart."""
        if self.repeat and self.last.ran and not self.apart.measured:
            again = self.runs.run(self.version, "the same again, to see what differs by itself")
            if again.ran:
                self.apart = trial.noise(self.last, again)

    def _try_all(self) -> None:
        """Apply one kind of fix after the other and keep those that do not make it worse."""
        tried: set[str] = set()
        while True:
            codes = self._next_codes(tried)
            if not codes:
                return
            kept = self._try(codes)
            # What is good alone must not be lost with what is bad.
            if kept is False and len(codes) > 1:
                for code in sorted(codes):
                    self._try(frozenset({code}))
            tried |= codes
            self._repeat()

    def _try(self, codes: frozenset[str]) -> bool | None:
        """Whether fixes were kept; None if there were none to make."""
        fixed, made = self.runs.program.fixed(self.version, codes, unsafe=self.unsafe)
        if fixed == self.version:
            return None
        now = self.runs.run(fixed, f"with {_describe(made)}")
        keeps = not any(code.startswith(_CHANGES_NUMBERS) for code in codes)
        judged = trial.judge(self.last, now, self.apart, keeps_numbers=keeps)
        counts = Counter(item.code for item in made)
        self.steps.append(Step(_describe(made), dict(sorted(counts.items())), now, judged))
        if judged.problem is None:
            self.version, self.last = fixed, now
        return judged.problem is None

    def _next_codes(self, tried: set[str]) -> frozenset[str]:
        """The codes whose fixes are to be tried next, together; empty when all have been."""
        found = self.runs.program.findings(self.version)
        open_codes = {
            item.code for item in found if fixes.is_applicable(item, unsafe=self.unsafe)
        } - tried  # fmt: skip
        first = {code for code in open_codes if code.startswith(_TO_RUN)}
        return frozenset(first or sorted(open_codes)[:1])


def _describe(made: Sequence[Finding]) -> str:
    counts = Counter(item.code for item in made)
    if len(counts) == 1:
        return "".join(f"{n} x {code} {catalogue.page(code).name}" for code, n in counts.items())
    return " + ".join(f"{number} x {code}" for code, number in sorted(counts.items()))


def _plan(script: str) -> Plan:
    """Which rules the settings closest to the script ask."""
    request = lint_plans.Request((script,))
    settings = lint_plans.settings_of(request)
    lint_plans.load_plugins(settings)
    return lint_plans.plan_of(request, settings)


def _check(script: str) -> None:
    path = Path(script)
    if path.is_dir():
        raise UsageError(f"{script} is a folder: name the file in it that is run")
    if path.suffix == ".ipynb":
        raise UsageError(
            f"{script}: treat runs Python files; export the notebook first "
            f"('jupyter nbconvert --to script {script}')"
        )
    if path.suffix != ".py":
        raise UsageError(f"{script} is no Python file (.py): treat runs nothing else")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {script}: {error.strerror}") from error
    source = sources.from_bytes(data, script)
    for problem in (*source.unreadable, sources.syntax_error(source.text)):
        if problem is not None:
            raise UsageError(f"{script}, line {problem.row}: this file {problem.message}")


def _read(program: Program) -> Version:
    return program.read()


def _difference(program: Program, before: Version, after: Version) -> str:
    """What the kept fixes change, as a unified diff; "" if nothing."""
    lines: list[str] = []
    for name in program.names:
        if after and after[name] != before[name]:
            old, new = (
                sources.from_bytes(version[name], name).text.splitlines()
                for version in (before, after)
            )
            lines += difflib.unified_diff(old, new, name, name, lineterm="")
    return "".join(f"{line}\n" for line in lines)
