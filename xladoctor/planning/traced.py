"""What the dry run of one command left in its run directory."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from xladoctor.capture import rundir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Lines of a program's output that may say why it failed.
_LAST = 40


@dataclasses.dataclass(frozen=True, slots=True)
class Traced:
    """The step of a program, traced and not executed.

    Attributes:
        graphs: The files of its graphs, in the order in which they were to be launched; a graph
            that is launched twice in a step is there twice.
        samples: What one step of one core learns from; None if it could not be told.
        steps: How many steps were traced.
        settled: Whether the last two were the same graphs.
        notes: What has to be known of the figures, as sentences.
        error: Why there is no step, as one sentence without a full stop; None if there is one.
    """

    graphs: tuple[Path, ...] = ()
    samples: int | None = None
    steps: int = 0
    settled: bool = False
    notes: tuple[str, ...] = ()
    error: str | None = None


def read(run_dir: Path, exit_code: int, printed: str, *, late: float | None = None) -> Traced:
    """Read a dry run.

    Args:
        run_dir: Its run directory.
        exit_code: How the command ended.
        printed: What it printed.
        late: Seconds after which it was ended, if it was.
    """
    notes: list[str] = []
    step: dict[str, Any] | None = None
    folder: Path | None = None
    failed: str | None = None
    for at, row in _rows(run_dir):
        if row.get("e") == "note":
            notes.append(str(row["text"]))
        elif row.get("e") == "trace-failed":
            failed = str(row["why"])
        elif row.get("e") == "traced-step" and (step is None or row["settled"]):
            step, folder = row, at
    if step is not None and folder is not None and (step["settled"] or exit_code == 0):
        return _step(step, folder, notes)
    return Traced(error=_why(run_dir, exit_code, printed, failed, late), notes=tuple(notes))


def _step(row: dict[str, Any], folder: Path, notes: list[str]) -> Traced:
    names = [graph["hlo"] for graph in row["graphs"]]
    if None in names:
        return Traced(error="a graph could not be kept: is the disk full?")
    if not names:
        return Traced(error="its step launches no graph")
    if not row["settled"]:
        notes.append(
            f"the graphs of its first {row['step']} steps all differ; the last one's are shown"
        )
    return Traced(
        graphs=tuple(folder / f"{name}.pb.z" for name in names),
        samples=row["samples"],
        steps=int(row["step"]),
        settled=bool(row["settled"]),
        notes=tuple(dict.fromkeys(notes)),
    )


def _rows(run_dir: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for folder in rundir.processes(run_dir):
        for row in rundir.rows(folder):
            yield folder, row


def _why(
    run_dir: Path, exit_code: int, printed: str, failed: str | None, late: float | None
) -> str:
    """Why there is no step: the first that is known, the program's own failure before ours."""
    if late is not None:
        return f"no step was traced to its end within {late:g} s: give --time-limit more seconds"
    reasons = rundir.not_started(run_dir)
    if reasons:
        return f"the agent could not start in the program ({reasons[0]})"
    if exit_code:
        return f"the program failed ({last_line(printed) or f'exit code {exit_code}'})"
    if failed is not None:
        return failed
    if not rundir.attached(run_dir):
        return "the command starts no Python into which the agent can get"
    return "it used no XLA device"


def last_line(printed: str) -> str:
    """The line of the output that says what went wrong: the last one of a traceback; or ""."""
    lines = [line.strip() for line in printed.splitlines()[-_LAST:] if line.strip()]
    for line in reversed(lines):
        head = line.partition(":")[0]
        if head.endswith(("Error", "Exception", "Interrupt", "Exit")) and " " not in head:
            return line[:300]
    return lines[-1][:300] if lines else ""
