"""The answer in three lines: verdict, why, next. Healthy and too early are answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis import deaths, healthy, ranking, text_answers
from xladoctor.diagnosis.thresholds import (
    CAUSED_BY_FALLBACKS,
    EARLY_STEPS,
    FEW_LATE_GRAPHS,
    FEWEST_SAMPLES,
)
from xladoctor.diagnosis.words import at, plural
from xladoctor.findings import Severity, capital

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.diagnosis.case import Case
    from xladoctor.diagnosis.text_answers import Answer
    from xladoctor.findings import Finding

#: What a finding means for the run, by code; the most telling first.
_MEANING = {
    "XLA411": "The run failed",
    "XLA413": "The run hung: its cores wait for each other",
    "XLA420": "A core left the loop while the others went on",
    "XLA405": "The cores do not come to the same collectives",
    "XLA410": "The cores build different graphs",
    "XLA421": "The cores build different graphs",
    "XLA433": "Part of the model gets no gradient",
    "XLA316": "Part of the model gets no gradient",
    "XLA305": "Nothing is trained: the optimizer holds other weights",
    "XLA317": "Labels or indices are out of range",
    "XLA318": "A write is applied once for each repetition",
    "XLA322": "An operation gives another result than PyTorch's",
    "XLA448": "The cores do not share the samples out",
    "XLA436": "Each core clips by a norm of its own",
    "XLA303": "Each core clips by a norm of its own",
    "XLA434": "All cores draw the same random numbers",
    "XLA437": "The checkpoint holds one core's share of the model",
    "XLA412": "The cores train different models",
    "XLA732": "Weights of few bits do not move",
    "XLA301": "The graph is never ended where a step ends",
    "XLA201": "Shapes depend on the data, so graphs cannot be reused",
    "XLA202": "Shapes depend on the data, so graphs cannot be reused",
    "XLA702": "Device memory is short",
    "XLA710": "Device memory grows from step to step",
    "XLA414": "One core comes late and the others wait for it",
    "XLA215": "torch.compile keeps recapturing its graphs",
    "XLA214": "Compiled graphs are not found on disk",
    "XLA610": "The host sends constants to the device in every step",
    "XLA212": "The graph is too large",
    "XLA211": "Compilation takes too long",
    "XLA203": "The last batch of the loader triggers its own compilation",
    "XLA501": "Operations run on the CPU in the middle of the step",
    "XLA714": "Every operation is compiled and launched by itself",
    "XLA601": "The device waits for its input",
    "XLA602": "The host cannot trace steps fast enough for the device",
}


#: New graphs after warm-up, as the run finds them or as the linter names their reason.
_COMPILES_LATE = ("XLA205", "XLA206", "XLA207", "XLA208", "XLA209", "XLA210", "XLA315")


def verdict(case: Case, findings: Sequence[Finding]) -> Answer:
    """Verdict, why and next, each one sentence (see :func:`conclusive`).

    Args:
        case: What is known.
        findings: All of the report, in its order.
    """
    early = _early(case)
    measured = [f for f in findings if f.confirmed_by != ("lint",)]
    serious = [f for f in measured if f.severity is not Severity.INFO]
    killed = deaths.answer(case.run, serious) if case.run is not None else None
    if killed is not None:
        return killed
    if serious:
        return _problem(case, _reason(case, serious), findings, early)
    if early is not None:
        return early
    if case.run is not None:
        return healthy.answer(case.run, len(findings))
    assert case.pasted is not None
    return text_answers.sound(case.pasted, measured)


def conclusive(case: Case, findings: Sequence[Finding], answer: Answer) -> bool:
    """Whether an answer is more than "it is too early (or too little) to tell"."""
    serious = any(f.severity is not Severity.INFO for f in findings)
    return serious or (answer[0] not in text_answers.TOO_LITTLE and _early(case) is None)


def _reason(case: Case, findings: Sequence[Finding]) -> Finding:
    """The first finding, or what brings it about: fallbacks read their inputs from the device."""
    first = findings[0]
    if first.code != "XLA101" or case.run is not None:
        return first
    fallbacks = [finding for finding in findings if finding.code == "XLA501"]
    runs = sum(finding.count or 0 for finding in fallbacks)
    uncounted = any(finding.count is None for finding in fallbacks)  # those of pt-xla-profiler
    caused = fallbacks and (uncounted or runs >= CAUSED_BY_FALLBACKS * (first.count or 0))
    return fallbacks[0] if caused else first


def _problem(
    case: Case, worst: Finding, findings: Sequence[Finding], early: Answer | None
) -> Answer:
    meaning = _MEANING.get(worst.code)
    if worst.code in _COMPILES_LATE:
        meaning = _late_graphs(worst)
    errors = case.run.errors if case.run is not None else []
    if worst.code == "XLA411" and errors and all(row.feeding for row in errors):
        meaning = "The loop ended early: a batch could not be loaded, and torch_xla says nothing"
    elif meaning is None and not worst.code.startswith("XLA1"):
        meaning = f"{worst.name.replace('-', ' ').capitalize()} ({worst.code})"
    elif meaning is None and case.run is None and (worst.count or 0) < FEWEST_SAMPLES:
        meaning = "The host reads device values before the step's end"
    elif meaning is None and case.run is None:
        meaning = "The host keeps reading device values"
    elif meaning is None:
        meaning = "The host waits for the device in every step"
    total = case.run.time.total if case.run is not None else None
    if worst.seconds and total and worst.seconds / total >= 0.01:
        meaning += f": {min(1.0, worst.seconds / total):.0%} of the time of the run"
    others = len(findings) - 1  # as many as the list has besides the one that is told here
    more = f" {plural(others, 'more finding')} below." if others else ""
    place = f"{at(worst.locations[0])}: " if worst.locations else ""
    said = f"{meaning}: "  # the verdict says it already
    told = worst.message
    if not place and told[: len(said)].lower() == said.lower():
        told = told[len(said) :]
    why = place + told + ("" if worst.message.endswith((".", "?", "!")) else ".")
    ended = _how_it_ended(case)
    if ended and worst.severity.rank != 0:
        more = f" The command ended with {ended}." + more
    elif early is not None and worst.severity.rank != 0:
        more = " The run is short: numbers are those of its start." + more
    suggestion = worst.suggestion or f"read 'xladoctor explain {worst.code}'"
    cause = ranking.cause_of(worst, findings)
    if cause is not None:
        where = f"{at(cause.locations[0])}: " if cause.locations else ""
        why += f" Likely cause: {where}{cause.message} ({cause.code})."
        suggestion = cause.suggestion or suggestion
    return f"{meaning}.{more}", capital(why), capital(suggestion) + "."


def _late_graphs(finding: Finding) -> str:
    """What new graphs after warm-up mean: one or two are no habit."""
    each = (finding.count or 0) / max(1, len(finding.cores))
    if finding.count is None or each > FEW_LATE_GRAPHS:
        return "The program keeps recompiling"
    return "One graph was compiled late" if each <= 1 else "A few graphs were compiled late"


def _how_it_ended(case: Case) -> str:
    """The signal or exit code with which a recorded command failed; "" if it did not."""
    if case.run is None:
        return ""
    manifest = case.run.runs[0].manifest
    return manifest.signal or (f"exit code {manifest.exit_code}" if manifest.exit_code else "")


def _early(case: Case) -> Answer | None:
    run, pasted = case.run, case.pasted
    if run is not None:
        if not run.cores:
            if run.runs[0].manifest.exit_code:
                return (
                    "The command failed before it used an XLA device.",
                    "Nothing was recorded; what its own output says is why.",
                    "Fix that (findings below come from reading the code), then profile again.",
                )
            return (
                "Nothing was recorded.",
                "No process of the command used an XLA device.",
                "Check that the program imports torch_xla and gets its device from it.",
            )
        how = _how_it_ended(case)
        if how:
            return (
                f"The command did not finish: it ended with {how}.",
                f"{plural(run.step_count, run.step_word)} per core had been recorded by then.",
                "Fix what its own output names, then profile again.",
            )
        if run.step_count <= EARLY_STEPS:
            steps = plural(run.step_count, run.step_word) if run.step_count else "no step"
            return (
                "It is too early to tell.",
                f"Each core was seen for {steps}, and the first {EARLY_STEPS} are warm-up.",
                "Let the program take some 20 steps and profile again.",
            )
        return None
    assert pasted is not None
    return text_answers.early(pasted)
