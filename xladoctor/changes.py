"""What changed between two runs: the types that ``compare`` and ``treat`` show.

``diagnosis`` makes them of reports; ``report`` turns them into text and JSON. None always means
"not measured".
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from xladoctor import amounts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xladoctor.findings import Severity
    from xladoctor.results import Report


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """Where the middle half of some seconds lies: what a median alone would hide.

    Attributes:
        median: The value in the middle.
        low, high: The quartiles.
        count: Of how many values.
    """

    median: float
    low: float
    high: float
    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """What one run showed; None where it was not measured.

    Attributes:
        compilations: New graphs of one core.
        after_warmup: Those after the first three executions of their program point.
        syncs: Host syncs per step of one core; their number if the steps are not known.
        fallbacks: Operations run on the CPU per step of one core; likewise.
        per_step: Whether these two are per step.
        step: Wall seconds of the steps after warm-up, all cores together.
        steps: Optimizer steps of one core.
        cores: How many cores.
        on_tpu: By target: microseconds of device time of the typical step, and bytes of memory.
    """

    compilations: int | None = None
    after_warmup: int | None = None
    syncs: float | None = None
    fallbacks: float | None = None
    per_step: bool = False
    step: Spread | None = None
    steps: int | None = None
    cores: int | None = None
    on_tpu: Mapping[str, tuple[float | None, int | None]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One figure of two runs.

    Attributes:
        name: Its key in JSON.
        title: What it is called.
        unit: "" for counts, "s" for seconds, "us" for estimated microseconds of a device, "B" for
            bytes.
        before, after: None where it was not measured.
        verdict: "better", "worse", "same", or "unknown" if one of them is None.
        percent: How much more (or less, below 0) it is after; None if that is no number.
        noise: Why a difference does not count, "" if it does.
    """

    name: str
    title: str
    unit: str
    before: float | None
    after: float | None
    verdict: str
    percent: float | None = None
    noise: str = ""

    def written(self, value: float | None) -> str:
        """One of the two values as people read it in a sentence."""
        if value is None:
            return "not measured"
        if self.unit == "s":
            return f"{value:.3g} s"
        if self.unit:
            return amounts.device_time(value / 1e6) if self.unit == "us" else amounts.size(value)
        return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


@dataclasses.dataclass(frozen=True, slots=True)
class Counted:
    """What the findings of one code say together."""

    findings: int = 0
    count: int | None = None
    seconds: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CodeChange:
    """The findings of one code before and after.

    Attributes:
        code, name, severity: Of the rule (the worst severity, if they differ).
        verdict: "gone", "new" or "still".
        before, after: What there was.
    """

    code: str
    name: str
    severity: Severity
    verdict: str
    before: Counted
    after: Counted


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that ``compare`` shows.

    Attributes:
        before, after: The reports.
        changes: The figures.
        time: Part of the time to its seconds per core and step, before and after.
        codes: The findings by code: new ones first, then gone ones, then those that stayed.
        notes: What makes the two hard to compare, in sentences.
    """

    before: Report
    after: Report
    changes: tuple[Change, ...]
    time: dict[str, tuple[float | None, float | None]]
    codes: tuple[CodeChange, ...]
    notes: tuple[str, ...]

    def titles(self, verdict: str) -> list[str]:
        """What the figures with a verdict are called."""
        return [change.title for change in self.changes if change.verdict == verdict]


@dataclasses.dataclass(frozen=True, slots=True)
class Gate:
    """What limits say: sentences for those that were broken and for those nobody can judge."""

    broken: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Loss:
    """A printed loss.

    Attributes:
        label: What was printed before it ("train_loss"), and the whole numbers of the line (the
            epoch, the step, the core): two losses with one label are the same quantity.
        value: The number.
        digit: One unit of its last printed digit.
        row: Line of the output, from 1.
    """

    label: str
    value: float
    digit: float
    row: int


@dataclasses.dataclass(frozen=True, slots=True)
class Disagreement:
    """The first printed loss that another run of the program did not print."""

    label: str
    before: float
    after: float
    row: int


@dataclasses.dataclass(frozen=True, slots=True)
class Agreement:
    """How the losses printed after a change fit those printed before it.

    Attributes:
        compared: How many of them have a counterpart with the same label.
        agreeing: How many of those agree.
        unsteady: How many were left out: they differ between two runs of one program as well.
        unmatched: How many have no counterpart (other epochs, other words).
        first: The first that does not agree.
        tolerance: How far two losses may lie apart, relative to the larger.
    """

    compared: int
    agreeing: int
    unsteady: int = 0
    unmatched: int = 0
    first: Disagreement | None = None
    tolerance: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """What one run showed.

    Attributes:
        ran: Whether the program ended with exit code 0, or was stopped by us while it made steps.
        figures: What was counted.
        losses: The losses that it printed.
        failed: Why it failed, in one sentence; "" if it ran.
        stopped: Whether the time limit ended it.
        run: The run directory, as it is shown; "" if nothing was recorded.
        seconds: How long it took; None if nobody looked.
    """

    ran: bool
    figures: Figures = dataclasses.field(default_factory=Figures)
    losses: tuple[Loss, ...] = ()
    failed: str = ""
    stopped: bool = False
    run: str = ""
    seconds: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Noise:
    """How far two runs of one program lie apart.

    Attributes:
        measured: False if the program was run once only.
        unsteady: Labels of losses that differ.
        counts: Figure to by how much its count differs.
        step_ratio: The longer typical step divided by the shorter.
    """

    measured: bool = False
    unsteady: frozenset[str] = frozenset()
    counts: dict[str, float] = dataclasses.field(default_factory=dict)
    step_ratio: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Judgement:
    """A trial held against the one before.

    Attributes:
        changes: The figures side by side.
        losses: How the printed losses fit; None if there is nothing to compare.
        problem: Why the change must not stay; None if it may.
    """

    changes: tuple[Change, ...]
    losses: Agreement | None
    problem: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One kind of fix that was tried.

    Attributes:
        what: "3 x XLA101 host-sync-in-step".
        counts: Code to how many fixes of it were made.
        trial: The run with them.
        judgement: That run held against the one before.
        places: "train.py:52" for each, if only some places of the kind were tried; else empty.
    """

    what: str
    counts: Mapping[str, int]
    trial: Trial
    judgement: Judgement
    places: tuple[str, ...] = ()

    @property
    def kept(self) -> bool:
        """Whether the fixes stay."""
        return self.judgement.problem is None


@dataclasses.dataclass(frozen=True, slots=True)
class Treatment:
    """Everything that ``treat`` shows.

    Attributes:
        script, args, cores: What was run, and on how many simulated cores (or None).
        files: The script and the files that were treated with it.
        original, final: The first run, and the run with all fixes that were kept.
        noise: What differs between two runs of one version.
        steps: The fixes, in the order in which they were tried.
        diff: What the kept ones change.
        written: Files that were written.
        interrupted: Whether the user ended it early.
        unsafe: Code to how many fixes of it were not tried, because they may change the meaning.
        untried: Code to how many places of it were not tried one by one, since there were too many.
        unmade: Code to how many fixes of it could not be written, so that they were not tried.
        unfixed: Code to how many findings of it are left for which there is no fix.
    """

    script: str
    args: tuple[str, ...]
    cores: int | None
    files: tuple[str, ...]
    original: Trial
    final: Trial
    noise: Noise
    steps: tuple[Step, ...]
    diff: str
    written: tuple[str, ...]
    interrupted: bool
    unsafe: Mapping[str, int] = dataclasses.field(default_factory=dict)
    untried: Mapping[str, int] = dataclasses.field(default_factory=dict)
    unmade: Mapping[str, int] = dataclasses.field(default_factory=dict)
    unfixed: Mapping[str, int] = dataclasses.field(default_factory=dict)
