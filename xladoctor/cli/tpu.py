"""``--tpu``: the options of the commands that ask the TPU compiler, and the asking."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from xladoctor.errors import UsageError, XladoctorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from xladoctor.costs import TargetCost
    from xladoctor.findings import Location
    from xladoctor.readings import Readings
    from xladoctor.tpu.engines import Engine
    from xladoctor.tpu.targets import Target

_Command = TypeVar("_Command", bound="Callable[..., Any]")

#: Where the compiler's answers are kept.
CACHE = Path(".xladoctor") / "cache" / "tpu"

#: As ``tpu.compiler.TIME_LIMIT`` and ``tpu.study.MOST_GRAPHS``, which are not imported for --help.
_TIME_LIMIT, _GRAPHS = 600.0, 24


@dataclasses.dataclass(frozen=True, slots=True)
class Tpu:
    """What the options say.

    Attributes:
        targets: The slices; none without ``--tpu``.
        time_limit: Seconds for one graph.
        graphs: How many graphs are compiled for each target.
        engine: Where they are compiled.
    """

    targets: tuple[Target, ...]
    time_limit: float
    graphs: int
    engine: Engine | None = None


#: Shared with ``xladoctor plan``.
engine_option = click.option(
    "--tpu-engine", metavar="ENGINE",
    help="Compile on other machines: dask://HOST:PORT, ray://HOST:PORT or a backend of joblib.  "
    "[default: processes on this machine]",
)  # fmt: skip


def tpu_options(command: _Command) -> _Command:
    """The options: ``tpu``, ``tpu_time_limit``, ``tpu_graphs``, ``tpu_engine`` and ``jobs``."""
    for option in reversed(
        (
            click.option(
                "--tpu", metavar="TARGETS",
                help="Ask the TPU compiler what the graphs cost there: v3-8, v5e-8, ... (several "
                "with commas; extra [tpu]).",
            ),
            click.option(
                "--tpu-time-limit", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
                default=_TIME_LIMIT, show_default=True, help="How long one graph may compile.",
            ),
            click.option(
                "--tpu-graphs", type=click.IntRange(min=1), metavar="N",
                default=_GRAPHS, show_default=True,
                help="Graphs to compile for each target, those of the typical step first.",
            ),
            engine_option,
            click.option(
                "--jobs", type=click.IntRange(min=1), metavar="N", default=1, show_default=True,
                help="How many graphs the TPU compiler compiles at once.",
            ),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def chosen(tpu: str | None, time_limit: float, graphs: int, engine: str | None, jobs: int) -> Tpu:
    """The options as one; what does not exist is refused before anything is done.

    Raises:
        UsageError: There is no such target or engine.
        XladoctorError: The engine does not answer.
    """
    if tpu is None:
        if engine is not None:
            raise UsageError("--tpu-engine needs --tpu: name the TPU, as v3-8")
        return Tpu((), time_limit, graphs)
    from xladoctor.tpu import engines, targets

    return Tpu(targets.find(tpu), time_limit, graphs, engines.find(engine, jobs))


def ask(
    tpu: Tpu, readings: Readings, console: Console
) -> tuple[tuple[TargetCost, ...] | None, tuple[str, ...]]:
    """What the compiler says of a run, or why it says nothing: that costs only this part.

    Returns:
        Costs by target, None if there are none; sentences for the report's notes.
    """
    if not tpu.targets:
        return None, ()
    from xladoctor.tpu.cache import Cache
    from xladoctor.tpu.study import Settings, study

    if not readings.runs:
        return None, ("--tpu needs a run directory: pasted text holds no graphs.",)
    notes = []
    if len(readings.runs) > 1:
        notes.append(f"--tpu: of several runs only the first ({readings.runs[0].manifest.path}).")
    doing = _Doing(console)
    try:
        costs = study(
            readings.runs[0],
            tpu.targets,
            Settings(Cache(CACHE), tpu.engine, tpu.time_limit, tpu.graphs, doing.compiling),
        )
    except XladoctorError as error:
        doing.stop()
        console.print(f"xladoctor: {error}", soft_wrap=True, markup=False)
        return None, (*notes, f"Not asked what the run costs on a TPU: {error}.")
    finally:
        doing.stop()
    return costs, tuple(notes)


class _Doing:
    """What is being compiled, on a terminal; elsewhere one line that it began."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("") if console.is_terminal else None
        self._count = 0

    def compiling(self, target: str, place: Location | None, most: int) -> None:
        """A compilation begins."""
        self._count += 1
        where = f"the graph that ends at {place.filename}:{place.row}" if place else "a graph"
        if self._status is not None:
            which = f"{self._count} of at most {most}"
            self._status.update(f"xladoctor: {target}: compiling {where} ({which})")
            if self._count == 1:
                self._status.start()
        elif self._count == 1:
            self._console.print(
                f"xladoctor: asking the TPU compiler for at most {most} compilations, first for "
                f"{target}: {where}",
                soft_wrap=True,
            )

    def stop(self) -> None:
        """Nothing more is compiled."""
        if self._status is not None and self._count:
            self._status.stop()
