"""``xladoctor treat``: profile, fix, profile again, keep what helps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from xladoctor.capture.simulate import MAX_CORES
from xladoctor.cli import lint_plans
from xladoctor.cli.cores import Cores
from xladoctor.cli.recording import check
from xladoctor.cli.report import output_options, terminal_options
from xladoctor.cli.report import write as put_out
from xladoctor.cli.rules import allow_plugins as allow_plugins_option
from xladoctor.cli.tpu import chosen, tpu_options
from xladoctor.cli.treatment_plan import TreatmentPlan
from xladoctor.cli.trials import Runner, write
from xladoctor.errors import UsageError
from xladoctor.lint import fix_session, fixes, looked, sources
from xladoctor.report import treatment

if TYPE_CHECKING:
    from xladoctor.changes import Treatment
    from xladoctor.lint.run import Plan


@click.command(
    short_help="Measure what the fixes gain a script, and write those that help.",
    epilog="Exit code: 0 it runs with the fixes that were kept (also with none), 1 it still fails, "
    "2 xladoctor failed, 130 after Ctrl-C. Runs the program twice, and once more for each kind of "
    "fix; a kind that makes it worse is run again, and then in parts.",
)
@click.option(
    "--simulate-cores", type=Cores(), metavar="N",
    help=f"Run on N (1 to {MAX_CORES}) simulated XLA cores on this machine's CPU.",
)  # fmt: skip
@click.option("--unsafe-fixes", is_flag=True, help="Try fixes that may change the meaning too.")
@click.option(
    "--write", "writes", is_flag=True,
    help="Write the fixes that were kept, if the program runs with them.",
)  # fmt: skip
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
@tpu_options
@click.option("--show-output", is_flag=True, help="Pass what the program prints on to stderr.")
@allow_plugins_option
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
    tpu: str | None,
    tpu_time_limit: float,
    tpu_graphs: int,
    tpu_engine: str | None,
    jobs: int,
    show_output: bool,
    allow_plugins: bool,
    output_format: str,
    output_file: Path | None,
) -> int:
    """Find out what the fixes of 'xladoctor lint' gain SCRIPT by running it without and with them.

    SCRIPT is a Python file, run with ARGS in a copy beside it; files of its folder that it imports
    are treated with it. Of a notebook the code cells are run as a script, without magics and shell
    lines. What it prints is kept in the run directories. Shows per kind of fix what it gained,
    leaves out what makes the program worse (place by place where the whole kind does), and prints
    the difference.
    """
    console = Console(stderr=True, highlight=False)
    _check(script)
    wanted = chosen(tpu, tpu_time_limit, tpu_graphs, tpu_engine, jobs)
    program = fix_session.program_of(script, _plan(script, allow_plugins=allow_plugins))
    before = program.read()
    runs = Runner(
        program, before, args, simulate_cores, hang_timeout, time_limit, show_output, console,
        wanted if wanted.targets else None,
    )  # fmt: skip
    check(runs.words(script), simulate_cores)
    plan = TreatmentPlan(runs, before, unsafe=unsafe_fixes, repeat=repeat)
    plan.run()
    written: list[str] = []
    if writes and plan.interrupted is None and plan.last.ran and plan.version != before:
        written = write(program, before, plan.version, fixes.write)
    result = plan.result(script, args, simulate_cores, tuple(written))
    width, color = terminal_options(output_file)
    put_out(treatment.render(result, output_format, width=width, color=color), output_file)
    return _conclude(result, plan.interrupted, console)


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
    if result.diff and not result.final.ran:
        say(
            "nothing is written: what the fixes gain cannot be measured while it fails ('xladoctor "
            f"lint --fix {' '.join(result.files)}' makes those that keep the meaning)"
        )
    elif result.diff and not result.written:
        say("nothing is written; --write writes it")
    return 0 if result.final.ran else 1


def _plan(script: str, *, allow_plugins: bool) -> Plan:
    """Which rules the settings closest to the script ask."""
    request = lint_plans.Request((script,), flags={"allow_plugins": allow_plugins})
    settings = lint_plans.settings_of(request)
    lint_plans.load_plugins(request, settings)
    return lint_plans.plan_beside(request, settings, Path(script))


def _check(script: str) -> None:
    path = Path(script)
    if path.is_dir():
        raise UsageError(f"{script} is a folder: name the file in it that is run")
    if path.suffix not in (".py", ".ipynb"):
        raise UsageError(
            f"{script} is no Python file (.py) or notebook (.ipynb): treat runs nothing else"
        )
    try:
        data = looked.load(path)
    except OSError as error:
        raise UsageError(f"cannot read {script}: {error.strerror}") from error
    source = sources.from_bytes(data, script)
    for problem in (*source.unreadable, sources.syntax_error(source.text)):
        if problem is not None:
            raise UsageError(f"{script}, line {problem.row}: this file {problem.message}")
