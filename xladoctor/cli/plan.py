"""``xladoctor plan``: what a program's step would cost on TPUs, traced and never executed."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xladoctor.capture import launch
from xladoctor.capture.masking import masked
from xladoctor.capture.simulate import MAX_CORES
from xladoctor.cli.cores import Cores
from xladoctor.cli.recording import check, command_words
from xladoctor.cli.report import output_options, terminal_options, write
from xladoctor.cli.tpu import CACHE, engine_option
from xladoctor.errors import SourceError
from xladoctor.planning import choices
from xladoctor.planning.advice import shown
from xladoctor.planning.rows import row_of
from xladoctor.planning.traced import Traced, read
from xladoctor.report.plan import FORMATS, render
from xladoctor.tpu import compiler, engines, modules, targets
from xladoctor.tpu.cache import Cache
from xladoctor.tpu.installed import why_not

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.planning.row import Row
    from xladoctor.tpu.compiled import Compiled

_EPILOG = """\b
Examples:
  xladoctor plan --tpu v5e-8 -- python train.py --batch-size '{32,64,128,256}'
  xladoctor plan --simulate-cores 8 --tpu v3-8,v5e-8 -- train.py --lr 0.1

Quote the braces, or the shell takes them. Several braces make all combinations.
"""


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog=_EPILOG,
    short_help="See what a step would cost on TPUs, without one.",
)
@click.option(
    "--tpu", metavar="TARGETS", default="v3-8,v5e-8", show_default=True,
    help="The slices to compile for, as Google Cloud names them.",
)  # fmt: skip
@click.option(
    "--simulate-cores", type=Cores(), metavar="N",
    help=f"Let the program see N cores (1 to {MAX_CORES}).  [default: 1]",
)  # fmt: skip
@click.option(
    "--time-limit", type=click.FloatRange(min=0, min_open=True), default=600.0, show_default=True,
    metavar="SECONDS", help="How long one command may take until its step is traced.",
)  # fmt: skip
@click.option(
    "--tpu-time-limit", type=click.FloatRange(min=0, min_open=True), default=compiler.TIME_LIMIT,
    show_default=True, metavar="SECONDS", help="How long one compilation may take.",
)  # fmt: skip
@click.option(
    "--jobs", type=click.IntRange(1), default=1, show_default=True,
    help="How many compilations run at once.",
)  # fmt: skip
@engine_option
@output_options(FORMATS)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def plan(ctx: click.Context, /, **options: Any) -> None:
    """Trace the steps of COMMAND at real size and compile them for TPUs; execute nothing.

    {a,b,c} in an argument makes one row for each value: memory, device time of a step, samples per
    second. Core 0 stands for all cores. A value that would have to be computed (the loss that is
    printed) is stood in for. Exit code 0, or 2 if not one row could be made.
    """
    ctx.exit(_plan(**options))


def _plan(
    *,
    tpu: str,
    simulate_cores: int | None,
    time_limit: float,
    tpu_time_limit: float,
    tpu_engine: str | None,
    jobs: int,
    output_format: str,
    output_file: Path | None,
    command: Sequence[str],
) -> int:
    wanted = targets.find(tpu)
    chosen = [
        choices.Choice(tuple(command_words(one.command, "plan --tpu v5e-8")), one.values)
        for one in choices.expand(command)
    ]
    check(chosen[0].command, simulate_cores or 1, "plan")
    problem = why_not() if tpu_engine in (None, "local") else None
    if problem is not None:
        raise problem
    engine = engines.find(tpu_engine, jobs)
    with tempfile.TemporaryDirectory(prefix="xladoctor-plan-") as folder:
        traced = [
            _trace(
                one, f"{at} of {len(chosen)}", Path(folder) / str(at), simulate_cores, time_limit
            )
            for at, one in enumerate(chosen, 1)
        ]
        called = [shown(one.values) for one in chosen]
        made = _compile(traced, called, wanted, simulate_cores or 1, engine, tpu_time_limit)
    rows = [
        row_of(one, step, target, made[at, target.name])
        for at, (one, step) in enumerate(zip(chosen, traced, strict=True))
        for target in wanted
    ]
    rows = [dataclasses.replace(row, command=tuple(masked(row.command))) for row in rows]
    width, color = terminal_options(output_file)
    write(render(rows, output_format, width=width, color=color), output_file)
    return _exit_code(rows)


def _exit_code(rows: Sequence[Row]) -> int:
    errors = list(dict.fromkeys(row.error for row in rows if row.error is not None))
    if len(errors) and all(row.error is not None for row in rows):
        click.echo(f"xladoctor: nothing could be planned: {errors[0]}", err=True)
        return 2
    return 0


def _trace(
    choice: choices.Choice, which: str, run_dir: Path, cores: int | None, time_limit: float
) -> Traced:
    """Run one command dry."""
    values = f": {shown(choice.values)}" if choice.values else ""
    click.echo(f"xladoctor: tracing {which}{values}", err=True)
    run_dir.mkdir()
    printed = run_dir / "output.txt"
    environ = launch.environment(os.environ, run_dir, cores=cores, dry_run=True)
    began = time.monotonic()
    with printed.open("wb") as output:
        code = launch.run(choice.command, environ, output=output, time_limit=time_limit)
    late = time_limit if code and time.monotonic() - began >= time_limit else None
    text = printed.read_text(encoding="utf-8", errors="replace")
    return read(run_dir, launch.shell_code(code), text, late=late)


def _compile(
    traced: Sequence[Traced],
    called: Sequence[str],
    wanted: Sequence[targets.Target],
    cores: int,
    engine: engines.Engine,
    time_limit: float,
) -> dict[tuple[int, str], list[Compiled] | str]:
    """The compiler's answers, by the number of the command and the target.

    Args:
        traced: The steps of the commands.
        called: What was chosen for each, in words.
        wanted: The slices.
        cores: That the program saw.
        engine: Where graphs are compiled.
        time_limit: Seconds for one graph.
    """
    version = engine.compiler()
    requests: dict[tuple[Path, str], compiler.Request] = {}
    names: dict[compiler.Request, str] = {}
    failed: dict[Path, str] = {}
    first: dict[Path, str] = {}
    for step, name in zip(traced, called, strict=True):
        for number, path in enumerate(dict.fromkeys(step.graphs), 1):
            part = f", graph {number}" if len(set(step.graphs)) > 1 else ""
            first.setdefault(path, f"{name}{part}")
    for path, name in first.items():
        try:
            graph = modules.read(path)
        except SourceError as error:
            failed[path] = str(error)
            continue
        for target in wanted:
            request = compiler.Request(graph, target, cores, version)
            requests[path, target.name] = request
            names[request] = name
    started = 0

    def asking(request: compiler.Request) -> None:
        nonlocal started
        started += 1
        which = f"{started} of at most {len(requests)}"
        what = f"{names[request]} for {request.target.name}"
        click.echo(f"xladoctor: compiling {what} ({which})", err=True)

    cache = Cache(CACHE.absolute())
    answers = {
        (request.graph.digest, request.target.name): answer
        for request, answer in compiler.compile_all(
            list(requests.values()),
            cache=cache,
            engine=engine,
            time_limit=time_limit,
            asking=asking,
        )
    }
    if cache.problem is not None:
        click.echo(f"xladoctor: {cache.problem}", err=True)
    made: dict[tuple[int, str], list[Compiled] | str] = {}
    for at, step in enumerate(traced):
        bad = next((failed[path] for path in step.graphs if path in failed), None)
        for target in wanted:
            made[at, target.name] = bad or [
                answers[requests[path, target.name].graph.digest, target.name]
                for path in step.graphs
            ]
    return made
