"""The ways of a program, run one after the other, and the verdict on them."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from xladoctor import __version__
from xladoctor.capture import launch, rundir
from xladoctor.capture import verify as inside
from xladoctor.cli.run_findings import findings_of
from xladoctor.errors import XladoctorError
from xladoctor.planning.traced import last_line
from xladoctor.verify import compare, explain, records
from xladoctor.verify.result import Divergence, Verdict
from xladoctor.verify.words import in_way, way_words

if TYPE_CHECKING:
    from rich.console import Console

    from xladoctor.findings import Finding
    from xladoctor.verify.records import Record

_SAME_INPUT = (
    "batches are those that the cores read, joined for one core; random numbers are drawn on "
    "the host, by step and place in the batch, and are the same in all ways"
)

#: Further runs that show what rounding does where a gradient has a corner: one rounding error falls
#: to one side or the other, so each run shows about half of the corners.
_RUNS_AT_CORNERS = 4


class Runs:
    """Runs the command in one way after the other.

    Args:
        words: The command.
        folder: Takes what they leave; gone afterwards.
        steps: Optimizer steps of each.
        time_limit: Seconds of each.
        console: For progress.
    """

    def __init__(
        self, words: list[str], folder: Path, steps: int, time_limit: float, console: Console
    ) -> None:
        self._words = words
        self._folder = folder
        self._steps = steps
        self._time_limit = time_limit
        self._console = console
        self.first: Record | None = None
        self._source: Path | None = None

    def make(
        self,
        way: str,
        *,
        rounding: float = 0.0,
        signs: int = 0,
        steps: int | None = None,
        again: bool = False,
    ) -> Record:
        """Run one way; the first that is run gives its batches to the others.

        Args:
            way: Which.
            rounding: Relative size of the changes of its weights; 0 for none.
            signs: Which signs they have.
            steps: Fewer than the others make.
            again: As it was, once more.

        Raises:
            XladoctorError: It made no step, and why.
        """
        extra = " with rounding errors added" if rounding else " again" if again else ""
        self._console.print(f"xladoctor: running {in_way(way)}{extra}", soft_wrap=True)
        kind = f"-rounded-{signs}" if rounding else "-again" if again else ""
        folder = self._folder / f"{way}{kind}"
        run_dir = folder / "run"
        run_dir.mkdir(parents=True)
        own = self.first is None or (self.first.way == way and again)
        settings = inside.Settings(
            way,
            str(folder),
            steps or self._steps,
            source=None if own else str(self._source),
            cores=1 if self.first is None or own else max(1, len(self.first.cores)),
            rounding=rounding,
            signs=signs,
        )
        cores = None if way == "cpu" else 1 if way == "xla" else int(way.rpartition("-")[2])
        environ = launch.environment(os.environ, run_dir, cores=cores)
        if cores is None:
            environ |= {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "1"}
        environ |= inside.environment(settings)
        printed = folder / "output.txt"
        manifest = rundir.Manifest(__version__, self._words, str(Path.cwd()), 0.0, cores)
        rundir.write_manifest(run_dir, manifest)
        began = time.monotonic()
        with printed.open("wb") as output:
            code = launch.run(self._words, environ, output=output, time_limit=self._time_limit)
        if code and time.monotonic() - began >= self._time_limit:
            raise XladoctorError(
                f"{in_way(way)} the program did not make its steps within {self._time_limit:g} s: "
                "give --time-limit more seconds, or compare fewer --steps"
            )
        record = records.read(folder, way)
        if record.cannot is not None or not record.steps or (code and not record.complete):
            raise XladoctorError(self._why(way, record, run_dir, code, printed))
        if self.first is None:
            self.first, self._source = record, folder
        return record

    def findings(self, way: str) -> tuple[Finding, ...]:
        """What the linter and the run of a way found that makes results wrong."""
        run_dir = self._folder / way / "run"
        with contextlib.suppress(XladoctorError):
            return explain.wrong(findings_of(run_dir, self._words, self._console))
        return ()

    @staticmethod
    def _why(way: str, record: Record, run_dir: Path, code: int, printed: Path) -> str:
        if record.cannot is not None:
            return f"{in_way(way)} {record.cannot}"
        refused = rundir.refused(run_dir) or next(iter(rundir.not_started(run_dir)), None)
        if refused is not None:
            return refused
        if code:
            text = printed.read_text(encoding="utf-8", errors="replace")
            said = last_line(text) or f"exit code {launch.shell_code(code)}"
            return f"{in_way(way)} the program failed at step {len(record.steps) + 1}: {said}"
        return (
            f"{in_way(way)} the program made no optimizer step: verify compares the steps of a "
            "torch.optim optimizer"
        )


def compared(runs: Runs, wanted: list[str], *, asked: bool) -> Verdict:
    """Run all ways and say where they part.

    Raises:
        XladoctorError: Fewer than two could be run, or the program is another one each time.
    """
    notes: list[str] = []
    made: dict[str, Record] = {wanted[-1]: runs.make(wanted[-1])}
    if wanted[-1].startswith("xla-") and len(made[wanted[-1]].cores) < 2:
        notes.append(_alone(made[wanted[-1]]))
    for way in reversed(wanted[:-1]):
        try:
            made[way] = runs.make(way)
        except XladoctorError as error:  # noqa: PERF203  (two ways at most)
            if asked or len(wanted) - 1 < 2:
                raise
            notes.append(f"{way_words(way)} is left out: {error}")
    ways = [way for way in wanted if way in made]
    if len(ways) < 2:
        raise XladoctorError("; ".join(notes))
    plain = made[ways[0]]
    rounded = runs.make(ways[0], rounding=compare.rounding_of(plain.steps))
    tolerance = compare.tolerances(plain, rounded)
    divergence, largest = _parting(ways, made, tolerance)
    corner = ""
    if divergence is not None:
        _refuse_chance(runs, made, divergence, tolerance)
        parting, corner = _beyond_corners(runs, ways, made, tolerance, (divergence, largest))
        divergence, largest = parting
    findings = runs.findings(wanted[-1])
    if divergence is not None:
        before = ways[ways.index(divergence.way) - 1]
        divergence = explain.explained(divergence, made[before], made[divergence.way], findings)
    return Verdict(
        ways=tuple(ways),
        steps=min(len(record.steps) for record in (*made.values(), rounded)),
        divergence=divergence,
        largest=largest,
        findings=explain.shown(findings, divergence),
        notes=(
            *notes,
            *([corner] if corner else []),
            *_notes([made[way] for way in ways]),
        ),
    )


def _alone(record: Record) -> str:
    """What a way on several cores is to a program that has one."""
    if "SPMD" in record.carried:
        return (
            f"the program is one for all devices (SPMD): {way_words(record.way)} are so many "
            "devices to it, over which it shards what it marks; each way reads the same batches"
        )
    return f"the program trains on one core: {way_words(record.way)} are one XLA core to it"


def _when(divergence: Divergence) -> tuple[int, int]:
    return divergence.step, ("loss", *records.KINDS).index(divergence.what)


def _parting(
    ways: list[str], made: dict[str, Record], tolerance: compare.Tolerances
) -> tuple[Divergence | None, float]:
    """The first place where two ways part, and the largest difference that counts as equal."""
    largest, divergences = 0.0, []
    for left, right in itertools.pairwise(ways):
        found, distance = compare.part(made[left], made[right], tolerance)
        largest = max(largest, distance)
        if found is not None:
            divergences.append(found)
    return min(divergences, key=_when, default=None), largest


def _beyond_corners(
    runs: Runs,
    ways: list[str],
    made: dict[str, Record],
    tolerance: compare.Tolerances,
    parting: tuple[Divergence, float],
) -> tuple[tuple[Divergence | None, float], str]:
    """Where the ways part by more than rounding does at corners of the program's functions.

    Returns:
        As :func:`_parting`, which gave ``parting``, and a note.
    """
    divergence = parting[0]
    plain = made[ways[0]]
    size = compare.MARGIN * compare.rounding_of(plain.steps)
    found: Divergence | None
    found, largest = parting
    left = _RUNS_AT_CORNERS
    for signs in range(1, 1 + 2 * _RUNS_AT_CORNERS):
        if not left or found is None or found.difference is None or found.other == found.way:
            break  # no number on one side, or cores that had the same numbers to begin with
        if found is divergence and found.what == "loss":
            break  # a loss has no corners
        left -= 1
        # What a corner has moved once is moved at every later step.
        steps = found.step if found.step == divergence.step else None
        changed = runs.make(ways[0], rounding=size, signs=signs, steps=steps)
        tolerance = compare.widened(tolerance, plain, changed)
        found, largest = _parting(ways, made, tolerance)
        if steps and found is not None and found.step > divergence.step:
            left = _RUNS_AT_CORNERS
    ended = found is None or found.step > divergence.step
    note = _corner(divergence) if ended and tolerance.corner is not None else ""
    return (found, largest), note


def _corner(divergence: Divergence) -> str:
    """What seemed to part and is rounding."""
    what = f"{divergence.what} {divergence.name}".strip()
    return (
        f"at step {divergence.step} rounding alone changes the {what} by as much as the ways "
        f"differ ({divergence.difference or 0.0:.2g} of its largest value), as it does where the "
        "input of a ReLU or an absolute value is next to zero: of later steps losses, weights and "
        "buffers are compared, not gradients"
    )


def _refuse_chance(
    runs: Runs, made: dict[str, Record], divergence: Divergence, tolerance: compare.Tolerances
) -> None:
    """Run the way that parts once more: a program that differs from itself cannot be compared.

    Raises:
        XladoctorError: It does, by the step at which the ways part.
    """
    first = made[divergence.way]
    again = runs.make(divergence.way, again=True)
    chance, _ = compare.part(
        dataclasses.replace(first, cores={0: first.steps}),
        dataclasses.replace(again, cores={0: again.steps}),
        # What rounding does was measured by two runs of the program: of one that is another one
        # each time that says nothing, and two equal runs round alike.
        compare.Tolerances(tolerance.floor, known=tolerance.known),
    )
    if chance is not None and _when(chance) <= _when(divergence):
        what = f"{chance.what} {chance.name}".strip()
        raise XladoctorError(
            f"the program is not deterministic by itself: two equal runs on "
            f"{way_words(divergence.way)} part at step {chance.step} ({what}); seed what it draws "
            "from (files in an order of the system, the clock, os.urandom)"
        )


def _notes(made: list[Record]) -> list[str]:
    """What was made equal and how, and what is shorter than was asked for."""
    notes = [_SAME_INPUT]
    carried = dict.fromkeys(one for record in made for one in record.carried)
    hyper = [one for one in carried if one.endswith(" of the optimizer")]
    if hyper:
        notes.append(f"{', '.join(hyper)}: as on the cores, at each step")
    if "batch normalization" in carried:
        notes.append("batch normalization works by the cores' shares of the batch in all ways")
    if "running variance" in carried:
        notes.append(
            "the running variance of batch normalization is kept as XLA keeps it, where PyTorch "
            "multiplies that of the batch by n/(n-1)"
        )
    if "differing on purpose" in carried:
        notes.append(
            "parameters that differ from core to core on purpose, or by ZeRO's shares, are left out"
        )
    notes += [
        f"not everything could be recorded {in_way(record.way)} ({record.errors[0]})"
        for record in made
        if record.errors
    ]
    counts = {record.way: len(record.steps) for record in made}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{count} {in_way(way)}" for way, count in counts.items())
        notes.append(f"the ways made different numbers of steps ({listed})")
    return notes
