"""What ``xladoctor treat`` shows: what each fix gained, as a table or as JSON."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from xladoctor import visible
from xladoctor.changes import Figures
from xladoctor.findings import stable
from xladoctor.report import device, words
from xladoctor.results import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from xladoctor.changes import Agreement, Judgement, Noise, Step, Treatment, Trial

FORMATS = ("full", "json")


def render(
    treatment: Treatment, output_format: str = "full", *, width: int = 100, color: bool = False
) -> str:
    """A treatment as text in one of :data:`FORMATS`, ending with a newline."""
    if output_format == "json":
        whole = to_json(treatment)
        text = json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        return visible.in_json(text)
    diff, treatment = treatment.diff, visible.of(treatment)
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_jupyter=False,
        force_terminal=color, no_color=not color, highlight=False,
        color_system="truecolor" if color else None, emoji=False, markup=False,
        legacy_windows=False,
    )  # fmt: skip
    console.print(_table(treatment))
    console.print()
    for line in _lines(treatment):
        console.print(line)
    if diff:
        console.print()
        for row in diff.split("\n")[:-1]:
            style = {"+": "green", "-": "red", "@": "cyan"}.get(row[:1], "")
            # A diff is for patch(1) too: never wrapped.
            console.print(Text(visible.code(row), style), soft_wrap=True)
    return visible.guarded(out.getvalue())


def to_json(treatment: Treatment) -> dict[str, Any]:
    """One object; null is "not measured"."""
    return {
        "schema_version": SCHEMA_VERSION,
        "script": treatment.script,
        "args": list(treatment.args),
        "files": list(treatment.files),
        "simulated_cores": treatment.cores,
        "original": _trial_to_json(treatment.original),
        "fixes": [_step_to_json(step) for step in treatment.steps],
        "final": _trial_to_json(treatment.final),
        "noise": _noise_to_json(treatment.noise),
        "not_tried_unsafe": dict(treatment.unsafe),
        "not_tried_one_by_one": dict(treatment.untried),
        "not_tried_impossible": dict(treatment.unmade),
        "without_fix": dict(treatment.unfixed),
        "diff": treatment.diff,
        "written": list(treatment.written),
        "interrupted": treatment.interrupted,
    }


def _trial_to_json(trial: Trial) -> dict[str, Any]:
    figures = trial.figures
    step = figures.step
    return {
        "ran": trial.ran,
        "failed": trial.failed or None,
        "stopped_by_time_limit": trial.stopped,
        "run": trial.run or None,
        "seconds": trial.seconds,
        "cores": figures.cores,
        "steps": figures.steps,
        "compilations": figures.compilations,
        "compilations_after_warmup": figures.after_warmup,
        "host_syncs_per_step": figures.syncs if figures.per_step else None,
        "fallbacks_per_step": figures.fallbacks if figures.per_step else None,
        "step_seconds": None
        if step is None
        else {"median": step.median, "low": step.low, "high": step.high, "count": step.count},
        "tpu": [
            {
                "target": target,
                "device_seconds": None if micro is None else micro / 1e6,
                "memory_bytes": memory,
            }
            for target, (micro, memory) in figures.on_tpu.items()
        ]
        or None,
        # JSON has no word for what is no number.
        "losses": [
            {"label": loss.label, "value": loss.value if loss.value - loss.value == 0 else None}
            for loss in trial.losses
        ],
    }


def _step_to_json(step: Step) -> dict[str, Any]:
    return {
        "fixes": dict(step.counts),
        "places": list(step.places) or None,
        "kept": step.kept,
        "problem": step.judgement.problem,
        "run": _trial_to_json(step.trial),
        "gain": [
            {
                "name": change.name,
                "before": change.before,
                "after": change.after,
                "percent": change.percent,
                "verdict": change.verdict,
                "noise": change.noise or None,
            }
            for change in step.judgement.changes
        ],
        "losses": _agreement_to_json(step.judgement.losses),
    }


def _agreement_to_json(found: Agreement | None) -> dict[str, Any] | None:
    if found is None:
        return None
    first = found.first
    return {
        "compared": found.compared,
        "agreeing": found.agreeing,
        "not_repeatable": found.unsteady,
        "without_counterpart": found.unmatched,
        "tolerance": found.tolerance,
        "first_disagreement": None
        if first is None
        else {
            "label": first.label,
            "before": first.before if first.before - first.before == 0 else None,
            "after": first.after if first.after - first.after == 0 else None,
            "row": first.row,
        },
    }


def _noise_to_json(noise: Noise) -> dict[str, Any] | None:
    if not noise.measured:
        return None
    return {
        "counts": dict(noise.counts),
        "step_ratio": noise.step_ratio,
        "losses_that_differ": sorted(noise.unsteady),
    }


def _table(treatment: Treatment) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("", overflow="fold", ratio=1)
    titles = ("graphs", "after\nwarm-up", "syncs\n/step", "on CPU\n/step", "step", "losses")
    trials = (treatment.original, *(step.trial for step in treatment.steps))
    targets = tuple(dict.fromkeys(name for one in trials for name in one.figures.on_tpu))
    for title in (*titles, *(f"step on\n{target}" for target in targets)):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_row(*_row("as it is", treatment.original, None, targets))
    for step in treatment.steps:
        label = ("+ " if step.kept else "  (not kept) ") + ", ".join(step.counts)
        if step.places:
            label += f" at {', '.join(step.places)}"
        table.add_row(*_row(label, step.trial, step.judgement, targets))
    return table


def _row(
    label: str, trial: Trial, judgement: Judgement | None, targets: tuple[str, ...]
) -> tuple[str, ...]:
    figures = trial.figures if trial.ran else Figures()
    losses = judgement.losses if judgement is not None else None
    step = "-" if figures.step is None else words.seconds(figures.step.median)
    if judgement is not None and any(
        change.name == "step_seconds" and change.noise for change in judgement.changes
    ):
        step = f"~{step}"
    return (
        label,
        words.dash(figures.compilations),
        words.dash(figures.after_warmup),
        _rate(figures.syncs if figures.per_step else None),
        _rate(figures.fallbacks if figures.per_step else None),
        step,
        "-" if losses is None else f"{losses.agreeing} of {losses.compared}",
        *(_on(figures.on_tpu.get(target, (None, None))[0]) for target in targets),
    )


def _on(microseconds: float | None) -> str:
    """Device time of a step on a TPU."""
    return device.time(None if microseconds is None else microseconds / 1e6)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _lines(treatment: Treatment) -> Iterable[Text]:
    """One line on every run, and what the table cannot say."""
    original = treatment.original
    yield _line("as it is", "runs" if original.ran else f"fails: {original.failed}", original)
    before = original
    for step in treatment.steps:
        problem = step.judgement.problem
        if problem is not None:
            yield _line("left out", f"{step.what}: {problem}", step.trial, "red")
        else:
            yield _line("kept", f"{step.what}: {_gained(step, before)}", step.trial, "green")
            before = step.trial
        first = None if step.judgement.losses is None else step.judgement.losses.first
        if first is not None:
            yield Text(
                f"          first other loss, line {first.row} of the output: {first.label} "
                f"{first.after:g} instead of {first.before:g}"
            )
    if not treatment.steps and not treatment.interrupted:
        yield Text(f"No fix was tried: {_why_none(treatment)}.")
    yield from _remarks(treatment)


def _line(head: str, text: str, trial: Trial, style: str = "") -> Text:
    stopped = " (stopped by the time limit)" if trial.stopped else ""
    return Text.assemble((f"{head:10}", style), text, stopped)


def _gained(step: Step, before: Trial) -> str:
    """What a kept fix changed, in words."""
    if not step.trial.ran:
        if stable(step.trial.failed) == stable(before.failed):
            return "it still fails in the same way"
        return f"it still fails ({step.trial.failed})"
    parts = [
        f"{change.title} {change.written(change.before)} -> " + change.written(change.after)
        for change in step.judgement.changes
        if change.verdict in ("better", "worse")
    ]
    known = any(change.before is not None for change in step.judgement.changes)
    return ", ".join(parts) or ("no figure changed" if known else "it runs with it")


def _remarks(treatment: Treatment) -> Iterable[Text]:
    yield Text()
    if any(change.noise for step in treatment.steps for change in step.judgement.changes):
        yield Text("~ difference within noise: the steps of the two overlap.", "dim")
    yield from _not_tried(treatment)
    noise = treatment.noise
    if noise.measured and noise.counts:
        counts = [name.replace("_", " ") for name, apart in noise.counts.items() if apart]
        differ = f"other {', '.join(counts)}" if counts else "the same counts"
        text = f"Two runs of one version gave {differ}"
        if noise.step_ratio is not None:
            text += f"; their typical steps are a factor of {noise.step_ratio:.2f} apart"
        text += "."
        if noise.unsteady:
            number = len(noise.unsteady)
            places = "1 place, which is" if number == 1 else f"{number} places, which are"
            text += f" Their losses differ in {places} not compared."
        yield Text(text, "dim")
    if treatment.final.ran and treatment.final.figures.compilations is None:
        yield Text("Nothing was counted: no process of the program used torch_xla on a device.")
    known = [step.judgement.losses for step in treatment.steps if step.judgement.losses is not None]
    if known:
        yield Text(
            f"Losses agree if they lie within {known[0].tolerance:.0%}, or one unit of the last "
            "digit printed, of one printed before under the same words and whole numbers.",
            "dim",
        )
    if treatment.cores is not None:
        yield Text("Simulated cores: the counts are the program's, the seconds are not.", "dim")
    if treatment.original.figures.on_tpu or treatment.final.figures.on_tpu:
        yield Text("Steps on a TPU are its compiler's estimate of the device alone.", "dim")


def _why_none(treatment: Treatment) -> str:
    """Why nothing was tried; how many of which kind is said by the lines that follow."""
    if treatment.unmade:
        return "none of those that 'xladoctor lint' has can be made here"
    if treatment.unsafe:
        return "those that 'xladoctor lint' has may change the meaning"
    return "'xladoctor lint' has none to try for this program"


def _not_tried(treatment: Treatment) -> Iterable[Text]:
    """What else is known of the program: fixes that were not tried, findings without one."""
    if treatment.unsafe:
        number = sum(treatment.unsafe.values())
        were = "fix was" if number == 1 else "fixes were"
        yield Text(
            f"{number} {were} not tried, which may change the meaning: "
            f"{_codes(treatment.unsafe)} (--unsafe-fixes tries them)."
        )
    if treatment.unmade:
        number = sum(treatment.unmade.values())
        what = "fix was not tried: it" if number == 1 else "fixes were not tried: they"
        yield Text(f"{number} {what} cannot be written as things are: {_codes(treatment.unmade)}.")
    if treatment.untried:
        yield Text(
            f"Too many runs to try each place of {', '.join(treatment.untried)} by itself: "
            f"{sum(treatment.untried.values())} were left out untried."
        )
    if treatment.unfixed:
        number = sum(treatment.unfixed.values())
        what = "finding is left that has" if number == 1 else "findings are left that have"
        files = " ".join(treatment.files)
        yield Text(
            f"{number} {what} no fix: {_codes(treatment.unfixed)} ('xladoctor lint {files}' shows "
            "what to write)."
        )


def _codes(counts: Mapping[str, int]) -> str:
    return ", ".join(code if n == 1 else f"{n} x {code}" for code, n in counts.items())
