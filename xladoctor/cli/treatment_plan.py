"""One treatment: which fixes are tried in which order, and which of them stay."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from xladoctor import catalogue
from xladoctor.capture.masking import masked
from xladoctor.changes import Noise, Step, Treatment, Trial
from xladoctor.cli.trials import OUTPUT, Interrupted, Runner, asks_for_arguments
from xladoctor.diagnosis import trial
from xladoctor.errors import UsageError
from xladoctor.findings import Severity
from xladoctor.lint import fixes, sources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.changes import Judgement
    from xladoctor.findings import Finding
    from xladoctor.lint.fix_session import Place, Program, Version

_AGAIN = "the same again, to see what differs by itself"
#: A kind that makes the program worse is halved, and halved again, so many runs long.
MOST_RUNS_OF_A_KIND = 8


@dataclasses.dataclass(slots=True)
class TreatmentPlan:
    """One treatment from the first run to the last; what is known at any time can be shown.

    Attributes:
        runs: Runs the versions.
        before: The files as they are.
        unsafe: Whether fixes that may change the meaning are tried.
        repeat: Whether one version is run twice, and a fix that seems to do harm once more.
        version: The files with all fixes that were kept so far.
        first, last: The first run, and the run of ``version``.
        apart: How far two runs of one version lie apart.
        steps: What was tried.
        untried: Code to how many of its places were not tried, since there were too many.
        interrupted: The exit code if the user ended it, else None.
    """

    runs: Runner
    before: Version
    unsafe: bool
    repeat: bool
    version: Version = dataclasses.field(default_factory=dict)
    first: Trial = dataclasses.field(default_factory=lambda: Trial(ran=False))
    last: Trial = dataclasses.field(default_factory=lambda: Trial(ran=False))
    apart: Noise = dataclasses.field(default_factory=Noise)
    steps: list[Step] = dataclasses.field(default_factory=list)
    untried: dict[str, int] = dataclasses.field(default_factory=dict)
    interrupted: int | None = None
    _tried: set[str] = dataclasses.field(default_factory=set)

    def run(self) -> None:
        """Run the program, then every kind of fix; ends early if the user interrupts a run.

        Raises:
            UsageError: The program cannot run without arguments, or the time limit is too short.
        """
        self.version = self.before
        try:
            script = self.runs.program.script
            self.first = self.last = self._run(self.before, f"{script} as it is")
            self._check_arguments()
            if self.first.stopped and not self.first.ran:
                raise UsageError(f"{script}: {self.first.failed}: give it a longer --time-limit")
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
        left = self.runs.program.findings(self.version)
        unsafe = [item for item in left if item.fix is not None and not self._may_try(item)]
        told = {code for step in self.steps for code in step.counts}
        unmade = [item for item in left if self._may_try(item) and item.code in self._tried - told]
        return Treatment(
            script=script,
            args=tuple(masked(args)),
            cores=cores,
            files=self.runs.program.names,
            original=self.first,
            final=self.last,
            noise=self.apart,
            steps=tuple(self.steps),
            diff=_difference(self.runs.program, self.before, self.version),
            written=written,
            interrupted=self.interrupted is not None,
            unsafe=_counts(unsafe),
            untried=dict(self.untried),
            unmade=_counts(unmade),
            unfixed=_counts([item for item in left if item.fix is None]),
        )

    def _check_arguments(self) -> None:
        asked = asks_for_arguments(self.first, Path(self.first.run) / OUTPUT)
        if asked is not None and not self.runs.args:
            script = self.runs.program.script
            raise UsageError(
                f"{script} asks for arguments ({asked}): put them after '--', for example "
                f"'xladoctor treat {script} -- --epochs 1'"
            )

    def _may_try(self, item: Finding) -> bool:
        return fixes.is_applicable(item, unsafe=self.unsafe)

    def _repeat(self) -> None:
        """Run once more what runs, to know how far two runs of one program lie apart."""
        if self.repeat and self.last.ran and not self.apart.measured:
            again = self._run(self.version, _AGAIN)
            if again.ran:
                self.apart = trial.noise(self.last, again)

    def _try_all(self) -> None:
        """Apply one kind of fix after the other and keep those that do not make it worse."""
        while True:
            codes = self._next_codes()
            if not codes:
                return
            self._tried |= codes
            # What is good alone must not be lost with what is bad.
            if self._try(codes) is False:
                for code in sorted(codes):
                    if len(codes) == 1 or self._try(frozenset({code})) is False:
                        self._try_places(code)
            self._repeat()

    def _try(self, codes: frozenset[str], places: Sequence[Place] | None = None) -> bool | None:
        """Whether fixes were kept; None if there were none to make."""
        fixed, made, codes = self._fixed(codes, places)
        if fixed == self.version:
            return None
        what = _describe(made)
        where: tuple[str, ...] = ()
        if places is not None:
            where = tuple(dict.fromkeys(_place(item) for item in made))
            what += f" ({', '.join(where)})"
        now = self._run(fixed, f"with {what}")
        judged = self._judge(codes, now)
        if self.repeat and now.ran and trial.is_doubtful(judged, self.apart):
            # A fix is not left out for what one run of a busy machine showed.
            again = self._run(fixed, "the same again, before it is left out")
            second = self._judge(codes, again)
            if second.problem is None:
                now, judged = again, second
        counts = Counter(item.code for item in made)
        self.steps.append(Step(what, dict(sorted(counts.items())), now, judged, where))
        if judged.problem is None:
            self.version, self.last = fixed, now
        return judged.problem is None

    def _fixed(
        self, codes: frozenset[str], places: Sequence[Place] | None
    ) -> tuple[Version, list[Finding], frozenset[str]]:
        """The version with fixes, and with those of kinds of which they make the first finding.

        A sum that is kept on the device is read where it is shown until that line is fixed too.
        """
        program = self.runs.program
        fixed, made = program.fixed(self.version, codes, unsafe=self.unsafe, places=places)
        before = {item.code for item in program.findings(self.version)}
        after = {item.code for item in program.findings(fixed) if self._may_try(item)}
        follow = frozenset(after - before - codes)
        if follow and made:
            fixed, more = program.fixed(fixed, follow, unsafe=self.unsafe)
            made = [*made, *more]
        return fixed, made, codes | follow

    def _judge(self, codes: frozenset[str], now: Trial) -> Judgement:
        keeps = not any(catalogue.page(code).changes_numbers for code in codes)
        return trial.judge(self.last, now, self.apart, keeps_numbers=keeps)

    def _try_places(self, code: str) -> None:
        """Halve a kind that made it worse until what does the harm stands alone."""
        kind = frozenset({code})
        places = self.runs.program.places(self.version, kind, unsafe=self.unsafe)
        waiting = _halves(places)
        for _ in range(MOST_RUNS_OF_A_KIND):
            if not waiting:
                return
            part = waiting.pop(0)
            if self._try(kind, part) is False:
                waiting = _halves(part) + waiting
        if waiting:
            self.untried[code] = sum(map(len, waiting))

    def _next_codes(self) -> frozenset[str]:
        """The codes whose fixes are to be tried next, together; empty when all have been.

        While the program fails, what may be why comes first: removed names, then errors, then all
        the rest, since nothing can be measured of a fix by itself.
        """
        found = self.runs.program.findings(self.version)
        open_ones = [item for item in found if self._may_try(item) and item.code not in self._tried]
        codes = {item.code for item in open_ones}
        first = {code for code in codes if catalogue.page(code).needed_to_run}
        if not first and not self.last.ran:
            first = {item.code for item in open_ones if item.severity is Severity.ERROR} or codes
        return frozenset(first or sorted(codes)[:1])

    def _run(self, version: Version, what: str) -> Trial:
        """Run a version, and tell the runner how many runs there may still be with it."""
        found = self.runs.program.findings(self.version)
        codes = {item.code for item in found if self._may_try(item)} - self._tried
        kinds = len([code for code in codes if not catalogue.page(code).needed_to_run])
        together = any(catalogue.page(code).needed_to_run for code in codes)
        again = self.repeat and not self.apart.measured and what != _AGAIN
        self.runs.ahead = 1 + kinds + together + again
        return self.runs.run(version, what)


def _halves(places: Sequence[Place]) -> list[Sequence[Place]]:
    """The two halves; nothing of one place, which cannot be halved."""
    middle = len(places) // 2
    return [places[:middle], places[middle:]] if middle else []


def _counts(found: Sequence[Finding]) -> dict[str, int]:
    return dict(sorted(Counter(item.code for item in found).items()))


def _place(item: Finding) -> str:
    return item.locations[0].at


def _describe(made: Sequence[Finding]) -> str:
    counts = Counter(item.code for item in made)
    if len(counts) == 1:
        return "".join(f"{n} x {code} {catalogue.page(code).name}" for code, n in counts.items())
    return " + ".join(f"{number} x {code}" for code, number in sorted(counts.items()))


def _difference(program: Program, before: Version, after: Version) -> str:
    """What the kept fixes change, as a unified diff; "" if nothing."""
    lines: list[str] = []
    for name in program.names:
        if after and after[name] != before[name]:
            lines += sources.difference(name, before[name], after[name])
    return "".join(f"{line}\n" for line in lines)
