"""``xladoctor verify``: one program in plain PyTorch, on one XLA core and on several, compared."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from xladoctor.capture.simulate import MAX_CORES
from xladoctor.cli.cores import Cores
from xladoctor.cli.recording import check, command_words
from xladoctor.cli.report import output_options, terminal_options, write
from xladoctor.cli.ways import Runs, compared
from xladoctor.errors import UsageError
from xladoctor.report.verify import FORMATS, render

if TYPE_CHECKING:
    from collections.abc import Sequence


_EPILOG = """\b
Examples:
  xladoctor verify -- python train.py --epochs 1
  xladoctor verify --simulate-cores 2 --steps 5 -- train.py
  xladoctor verify --ways xla,cores -- python -m my.train

Exit code 0 if the ways are equal, 1 if they part, 2 if they could not be compared.
"""

#: The three ways, as ``--ways`` names them; "cores" is "xla-8" on eight.
_WAYS = ("cpu", "xla", "cores")


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog=_EPILOG,
    short_help="Compare training steps on XLA cores with plain PyTorch.",
)
@click.option(
    "--simulate-cores", type=Cores(), metavar="N", default=8, show_default=True,
    help=f"How many cores the way on several cores has (2 to {MAX_CORES}).",
)  # fmt: skip
@click.option(
    "--steps", type=click.IntRange(1, 1000), default=20, show_default=True,
    help="Optimizer steps to compare; each run ends after them.",
)  # fmt: skip
@click.option(
    "--ways", metavar="LIST", default="cpu,xla,cores", show_default=True,
    help="Which to compare: plain PyTorch, one XLA core, several.",
)  # fmt: skip
@click.option(
    "--time-limit", type=click.FloatRange(min=0, min_open=True), default=1800.0, show_default=True,
    metavar="SECONDS", help="How long one run may take.",
)  # fmt: skip
@output_options(FORMATS)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def verify(ctx: click.Context, /, **options: Any) -> None:
    """Run COMMAND in plain PyTorch, on one XLA core and on N, and compare every training step.

    The runs have the same weights, batches and random numbers. Losses, gradients, parameters,
    buffers and optimizer state are compared after each optimizer step, and what differs by more
    than rounding is reported: at which step, in which tensor, at which line, and why.
    """
    ctx.exit(_verify(**options))


def _verify(
    *,
    simulate_cores: int,
    steps: int,
    ways: str,
    time_limit: float,
    output_format: str,
    output_file: Path | None,
    command: Sequence[str],
) -> int:
    wanted = _wanted(ways, simulate_cores)
    words = command_words(command, "verify")
    check(words, simulate_cores, "verify")
    console = Console(stderr=True, highlight=False)
    with tempfile.TemporaryDirectory(prefix="xladoctor-verify-") as folder:
        runs = Runs(words, Path(folder), steps, time_limit, console)
        verdict = compared(runs, wanted, asked=ways != "cpu,xla,cores")
    width, color = terminal_options(output_file)
    write(render(verdict, output_format, width=width, color=color), output_file)
    return 0 if verdict.divergence is None else 1


def _wanted(ways: str, cores: int) -> list[str]:
    """The names of the ways, in the order in which they are compared."""
    given = [one.strip() for one in ways.split(",")]
    unknown = [one for one in given if one not in _WAYS]
    if unknown:
        raise UsageError(f"--ways does not know {unknown[0]!r}: it takes {', '.join(_WAYS)}")
    if len(set(given)) < 2:
        raise UsageError("--ways needs two of " + ", ".join(_WAYS) + " to compare")
    if "cores" in given and cores < 2:
        raise UsageError("--simulate-cores must be 2 or more, or leave cores out of --ways")
    return [f"xla-{cores}" if way == "cores" else way for way in _WAYS if way in given]
