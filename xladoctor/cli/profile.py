"""``xladoctor profile``: run a command unchanged, watch it from inside, say what was seen."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from xladoctor.capture import command as commands
from xladoctor.capture import launch, rundir
from xladoctor.capture.simulate import MAX_CORES
from xladoctor.cli import boundary, pod
from xladoctor.cli import gates as gating
from xladoctor.cli.cores import Cores
from xladoctor.cli.pod import Output
from xladoctor.cli.recording import check, command_words, record
from xladoctor.cli.report import html_option, terminal_options, trace_option, write, write_trace
from xladoctor.cli.run_findings import lint_of
from xladoctor.cli.sizes import Size
from xladoctor.cli.tpu import Tpu, ask, chosen, tpu_options
from xladoctor.errors import UsageError, XladoctorError
from xladoctor.page import with_page
from xladoctor.report import FORMATS, render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.results import Report

_EPILOG = """\b
Examples:
  xladoctor profile --simulate-cores 8 -- python train.py --epochs 1
  xladoctor profile -- torchrun --nproc-per-node=4 train.py     (on real devices)
  xladoctor profile --simulate-cores 8 -- torchrun --nproc-per-node=8 train.py
  xladoctor profile --max-compilations-after-step 3 0 -- python -m my.train

'profile train.py' and 'profile -m my.train' use this Python.
"""


@click.command(
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    epilog=_EPILOG,
)
@click.option(
    "--simulate-cores",
    type=Cores(),
    metavar="N",
    help=f"Run on N (1 to {MAX_CORES}) simulated XLA cores on this machine's CPU.",
)
@click.option(
    "-o",
    "--output",
    type=Output(),
    metavar="DIR|URL",
    help="Run directory, or where the hosts of a pod write their parts (s3://bucket/run, gs://, "
    "file://; {run} stands for the launcher's name of the run).  "
    "[default: a new one under .xladoctor/runs/]",
)
@click.option(
    "--upload-every", type=click.FloatRange(min=1), metavar="SECONDS", default=30.0,
    show_default=True, help="With an address as --output: how often what is new is written there.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite the run that --output holds.")
@click.option(
    "--output-format", type=click.Choice(FORMATS), default="full", show_default=True,
    help="Form of the report that is printed when the command ends.",
)  # fmt: skip
@click.option(
    "--output-file", type=click.Path(path_type=Path), metavar="FILE",
    help="Write the report there instead of printing it.",
)  # fmt: skip
@html_option
@trace_option
@click.option(
    "--budget", type=click.Path(path_type=Path), metavar="FILE",
    help="TOML file with limits, named like the options below.",
)  # fmt: skip
@click.option(
    "--max-compilations", type=click.IntRange(0), metavar="N",
    help="Fail if one core compiles more graphs.",
)  # fmt: skip
@click.option(
    "--max-compilations-after-step", type=(click.IntRange(0), click.IntRange(0)), metavar="STEP N",
    default=None, help="Fail if one core compiles more than N graphs after STEP.",
)  # fmt: skip
@click.option("--forbid-fallbacks", is_flag=True, help="Fail if an operation runs on the CPU.")
@click.option(
    "--max-syncs-per-step", type=click.FloatRange(0), metavar="X",
    help="Fail if a core waits for the device more often.",
)  # fmt: skip
@tpu_options
@click.option(
    "--max-tpu-step-ms", type=click.FloatRange(0), metavar="MS",
    help="Fail if the typical step takes longer on a target of --tpu.",
)  # fmt: skip
@click.option(
    "--max-hbm", type=Size(), metavar="BYTES",
    help="Fail if a step needs more device memory on a target of --tpu (14.5GiB, 16000MiB).",
)  # fmt: skip
@click.option(
    "--hang-timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
    help="How long no core may make progress before it is called a hang.",
)  # fmt: skip
@click.option(
    "--detail", type=click.Choice(("low", "normal", "high")), default="normal", show_default=True,
    help="How much to measure: low leaves out why graphs are new, high notes all lines always.",
)  # fmt: skip
@click.option(
    "--check", "every_check", is_flag=True,
    help="Also look for silent wrong results where it costs more: norms of clips, all indices.",
)  # fmt: skip
@click.option(
    "--max-size", type=Size(), metavar="BYTES",
    help="Keep the run directory below this size (500MiB, 2GB): rows of earlier steps are added "
    "up. For runs of days that start many processes or compile without end.",
)  # fmt: skip
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def profile(ctx: click.Context, /, **options: Any) -> None:
    """Run COMMAND unchanged and find out what slows it down on XLA devices.

    Its stdout, stderr and signals pass through. The exit code is its own if it is not 0, else 1
    if a limit was broken, 2 if xladoctor failed.
    """
    ctx.exit(_profile(**options))


def _profile(
    *,
    command: Sequence[str],
    simulate_cores: int | None,
    output: Path | str | None,
    upload_every: float,
    force: bool,
    output_format: str,
    output_file: Path | None,
    html: Path | None,
    trace: Path | None,
    budget: Path | None,
    max_compilations: int | None,
    max_compilations_after_step: tuple[int, int] | None,
    forbid_fallbacks: bool,
    max_syncs_per_step: float | None,
    tpu: str | None,
    tpu_time_limit: float,
    tpu_graphs: int,
    tpu_engine: str | None,
    jobs: int,
    max_tpu_step_ms: float | None,
    max_hbm: int | None,
    hang_timeout: float | None,
    detail: str,
    every_check: bool,
    max_size: int | None,
) -> int:
    limits = gating.read_budget(budget) if budget is not None else gating.Gates()
    limits = limits.override(
        gating.Gates(
            max_compilations,
            max_compilations_after_step,
            forbid_fallbacks,
            max_syncs_per_step,
            max_tpu_step_ms,
            max_hbm,
        )
    )
    wanted = chosen(tpu, tpu_time_limit, tpu_graphs, tpu_engine, jobs)
    if (limits.max_tpu_step_ms is not None or limits.max_hbm is not None) and not wanted.targets:
        raise UsageError("--max-tpu-step-ms and --max-hbm need --tpu: name the TPU, as v3-8")
    words = command_words(command)
    check(words, simulate_cores, processes=True)
    _check_writable(html, trace, output_file)
    console = Console(stderr=True, highlight=False)
    if every_check and simulate_cores is None:
        raise UsageError("--check looks at simulated cores: give --simulate-cores N too")
    shared = None
    if isinstance(output, str):
        shared = pod.Shared(output, upload_every, time.time(), words, console)
        output = shared.local
    run_dir, code = record(
        words, simulate_cores, output, force, hang_timeout, detail, console,
        begun=shared.begin if shared is not None else None, max_size=max_size, check=every_check,
    )  # fmt: skip
    refused = rundir.refused(run_dir)
    if refused is not None:
        raise UsageError(refused)
    own = launch.shell_code(code)
    linted = False
    if shared is not None:
        with contextlib.suppress(OSError, XladoctorError):
            rundir.write_lint(run_dir, lint_of(run_dir, words, console))
            linted = True
        shared.end()
    if own:
        ended = launch.signal_name(code)
        how = f"was ended by {ended}" if ended else f"ended with exit code {own}"
        console.print(f"xladoctor: the command {how}", soft_wrap=True)
    try:
        verdict = _show(
            run_dir, words, own, limits, wanted, output_format, output_file, html, trace, console,
            quiet=shared is not None and not shared.first, linted=linted,
        )  # fmt: skip
    except Exception as error:  # noqa: BLE001  (whatever it is, the command has ended)
        # How the command ended is what its caller has to know first.
        failed = boundary.told(error)
        return own or failed
    return own or verdict


def _check_writable(*files: Path | None) -> None:
    """A long run must not end in a report that has no place to go."""
    for file in files:
        if file is None:
            continue
        if file.is_dir():
            raise UsageError(f"cannot write {file}: it is a folder")
        if not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
            raise UsageError(f"cannot write {file}: no such folder, or no right to write there")


def _show(
    run_dir: Path,
    words: Sequence[str],
    code: int,
    limits: gating.Gates,
    tpu: Tpu,
    output_format: str,
    output_file: Path | None,
    html: Path | None,
    trace: Path | None,
    console: Console,
    *,
    quiet: bool = False,
    linted: bool = False,
) -> int:
    """Report on the run; returns 1 if a limit was broken, else 0.

    ``code`` is the command's own exit code. ``quiet``: nothing is printed that was not asked for.
    ``linted``: what the linter says is kept with the run already.

    Raises:
        XladoctorError: Nothing was recorded, or the report cannot be written.
    """
    # Not at the top: the command would wait for what is only needed after it.
    from xladoctor import diagnosis, readings

    if not rundir.processes(run_dir):
        # A command that uses no device is no failure, unless a limit was to be judged.
        missed = rundir.not_started(run_dir) or rundir.not_reached(run_dir)
        if limits or missed or not rundir.attached(run_dir):
            raise XladoctorError(_why_nothing(run_dir, words))
        why = _why_nothing(run_dir, words)
        if code:  # what the linter sees may well be why
            why = "nothing was recorded: the command failed before it used an XLA device"
        console.print(f"xladoctor: {why}", soft_wrap=True)
    if not linted:  # kept with the run, so that every later report of it has the same findings
        rundir.write_lint(run_dir, lint_of(run_dir, words, console))
    read = readings.load([run_dir])
    costs, notes = ask(tpu, read, console)
    report = diagnosis.diagnose(read, tpu=costs, notes=notes)
    if html is not None or output_format == "html":
        report = with_page(report, read)
    width, color = terminal_options(output_file)
    if output_file is not None or not quiet:
        write(render(report, output_format, width=width, color=color), output_file)
    if output_file is not None:
        console.print(f"xladoctor: the report is in {output_file}", soft_wrap=True)
    if html is not None:
        write(render(report, "html"), html)
        console.print(f"xladoctor: the page is {html}", soft_wrap=True)
    if trace is not None:
        write_trace(report, trace)
        where = "open it in ui.perfetto.dev"
        console.print(f"xladoctor: the trace is {trace}: {where}", soft_wrap=True)
    if not quiet:
        _say_next(run_dir, html, console)
    return _judge(limits, report)


def _say_next(run_dir: Path, html: Path | None, console: Console) -> None:
    """The report itself says what to do about the program; this says what to do with the run."""
    if html is None:
        console.print(
            f"xladoctor: see it as a page: xladoctor report {_shown(run_dir)} --html report.html",
            soft_wrap=True,
        )


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _judge(limits: gating.Gates, report: Report) -> int:
    if not limits:
        return 0
    verdict = gating.judge(limits, report)
    return gating.tell(verdict, broken="limit broken", unknown="limit not judged")


def _why_nothing(run_dir: Path, words: Sequence[str]) -> str:
    """Why there is nothing to report, as one sentence."""
    reasons = rundir.not_started(run_dir)
    if reasons:
        return f"nothing was recorded, the agent could not start in the program ({reasons[0]})"
    other = rundir.for_torch_tpu(run_dir)
    if other is not None:
        return f"nothing was recorded: {other}"
    missed = rundir.not_reached(run_dir)
    if missed:
        return f"nothing was recorded: {missed[0]}"
    blind = commands.why_blind(words)
    if blind is not None:
        return f"nothing was recorded: {blind}; run the command without it"
    return (
        "nothing was recorded: no process of the command used torch_xla (or TorchTPU) on a device, "
        "or the ones that did were started with an environment of their own (without PYTHONPATH)"
    )
