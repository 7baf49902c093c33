"""Whether a change to a program may stay: what one run of it showed, held against another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.changes import Judgement, Noise, Trial
from xladoctor.diagnosis import gain, printed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.changes import Agreement, Change, Figures
    from xladoctor.results import Report

#: A step may take so many times and so many seconds longer before that counts as worse: short runs
#: on a shared machine say no more.
SLOWER = 1.5
SLOWER_SECONDS = 0.1
#: A run that was ended early must have made so many steps: the one that was cut has other counts.
FEWEST_STEPS = 20
#: Counts per step may grow by this share: a last batch more or less moves them that far.
ROOM = 0.05


def noise(one: Trial, other: Trial) -> Noise:
    """What differs between two runs of one program by itself."""
    counts = {
        change.name: abs(change.after - change.before)
        for change in gain.changes(one.figures, other.figures)
        if change.unit == "" and change.before is not None and change.after is not None
    }
    ratio = None
    if one.figures.step is not None and other.figures.step is not None:
        low, high = sorted((one.figures.step.median, other.figures.step.median))
        ratio = high / low if low > 0 else None
    return Noise(True, printed.unsteady(one.losses, other.losses), counts, ratio)


def judge(before: Trial, after: Trial, apart: Noise, *, keeps_numbers: bool) -> Judgement:
    """Say what a change gained and whether it may stay.

    Args:
        before: The run without it.
        after: The run with it.
        apart: What differs between two runs without any change.
        keeps_numbers: Whether the change is meant to leave the losses as they are.
    """
    if not (before.ran and after.ran):
        # How far a program came that failed says nothing about how well it runs.
        return Judgement((), None, _failed(before, after))
    changes = gain.changes(before.figures, after.figures)
    cut = before.stopped or after.stopped
    losses = printed.agreement(before.losses, after.losses, apart.unsteady, cut=cut)
    harmless = set() if cut else _no_more_in_all(before.figures, after.figures)
    return Judgement(changes, losses, _problem(changes, losses, apart, keeps_numbers, harmless))


def is_doubtful(judged: Judgement, apart: Noise) -> bool:
    """Whether a problem may not be there in another run: seconds, losses, counts that vary."""
    if judged.problem is None:
        return False
    return not any(
        change.verdict == "worse"
        and change.name not in ("step_seconds", "compilations")
        and apart.counts.get(change.name) == 0
        for change in judged.changes
    )


def _failed(before: Trial, after: Trial) -> str | None:
    if before.ran and not after.ran:
        return f"the program fails with it ({after.failed})"
    return None  # nothing is worse than a program that fails


def _problem(
    changes: Sequence[Change],
    losses: Agreement | None,
    apart: Noise,
    keeps_numbers: bool,
    harmless: set[str],
) -> str | None:
    fewer = any(change.verdict == "better" for change in changes if change.unit == "")
    for change in changes:
        if change.verdict != "worse" or change.before is None or change.after is None:
            continue
        if change.name in harmless or change.name.startswith("tpu_memory:"):
            continue
        if change.name.startswith("tpu_step:"):
            if not fewer and change.after > change.before * (1 + ROOM):
                old, new = change.written(change.before), change.written(change.after)
                return f"more {change.title}: {new} instead of {old}"
            continue
        if change.name == "step_seconds":
            ratio = change.after / change.before if change.before else 0.0
            longer = change.after - change.before
            if ratio > SLOWER * (apart.step_ratio or 1.0) and longer > SLOWER_SECONDS and not fewer:
                return f"a step takes {ratio:.1f} times as long"
        elif change.name != "compilations" and change.after > (
            change.before * (1 + ROOM) + apart.counts.get(change.name, 0.0) + 0.01
        ):
            old, new = change.written(change.before), change.written(change.after)
            return f"more {change.title}: {new} instead of {old}"
    if keeps_numbers and losses is not None and losses.agreeing < losses.compared:
        return f"only {losses.agreeing} of {losses.compared} printed losses are as before"
    return None


def _no_more_in_all(before: Figures, after: Figures) -> set[str]:
    """Figures that are no worse when the whole run is looked at.

    With drop_last an epoch has a step less, over which its one read is divided; and with fewer
    graphs the place where warm-up ends moves.
    """
    totals = {
        "host_syncs": (_total(before, before.syncs), _total(after, after.syncs)),
        "fallbacks": (_total(before, before.fallbacks), _total(after, after.fallbacks)),
    }
    found = {
        name
        for name, (old, new) in totals.items()
        if old is not None and new is not None and new <= old * (1 + 1e-9)
    }
    if (before.compilations or 0) > (after.compilations or 0) > 0:
        found.add("compilations_after_warmup")
    return found


def _total(figures: Figures, count: float | None) -> float | None:
    if count is None or not figures.per_step or figures.steps is None:
        return None
    return count * figures.steps


def trial(report: Report, *, ran: bool, output: str, stopped: bool = False, run: str = "") -> Trial:
    """What a recorded run showed.

    Args:
        report: What was recorded.
        ran: Whether the program ended well.
        output: What it printed, for its losses.
        stopped: Whether the time limit ended it: it ran, if it made enough steps.
        run: The run directory, as it is shown.
    """
    steps = report.summary.steps
    if stopped and (steps or 0) < FEWEST_STEPS:
        made = f"{steps} step{'' if steps == 1 else 's'}" if steps else "no step"
        failed = f"it made {made} within the time limit, too few to compare"
        return Trial(ran=False, failed=failed, stopped=True, run=run)
    return Trial(
        ran or stopped,
        gain.figures(report),
        printed.losses(output),
        "" if ran or stopped else _why(report),
        stopped,
        run,
    )


def _why(report: Report) -> str:
    failures: Sequence[str] = [
        item.message for item in report.findings if item.code in {"XLA411", "XLA413"}
    ]
    return failures[0] if failures else report.summary.verdict
