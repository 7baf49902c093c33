"""The answer for a run in which nothing is wrong: whether its time went where it should."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import duration, plural
from xladoctor.findings import capital

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.diagnosis.case import RunFacts
    from xladoctor.diagnosis.text_answers import Answer
    from xladoctor.readings.tables import StepRow

#: Parts of the time as a sentence has them, and what to do where most of it goes there.
_PARTS = {
    "execute": ("the device at work", "Go on to more data, or to a larger batch."),
    "compile": (
        "compilation",
        (
            "A longer run has the same compilations: profile more steps, or keep compiled graphs "
            "with xr.initialize_cache(folder)."
        ),
    ),
    "input_wait": (
        "waiting for input",
        (
            "Give the data loader more workers (num_workers, persistent_workers, prefetch_factor), "
            "and load through MpDeviceLoader, which sends batches ahead."
        ),
    ),
    "host_sync": (
        "waiting for reads of device values",
        "Read values less often, and after the step's end.",
    ),
    "trace": (
        "Python and tracing",
        (
            "Give the device more to do in a step (a larger batch), or trace the model once with "
            "torch.compile(model, backend='openxla'), unless it is compiled already."
        ),
    ),
    "fallback": (
        "operations on the CPU",
        "Look at the operations that run on the CPU: 'xladoctor explain XLA501'.",
    ),
    "core_wait": (
        "waiting for other cores",
        "Look at which core comes last: give all of them the same amount of work.",
    ),
    "transfer": (
        "sending data to the device",
        "Send less (uint8 images, bfloat16), and load through MpDeviceLoader, which sends ahead.",
    ),
    "other": ("what could not be told apart", "Profile on the real device."),
}
#: Devices whose time is the CPU's: what share of a step they need says nothing of an accelerator.
_NO_ACCELERATOR = ("CPU",)


def answer(run: RunFacts, small: int) -> Answer:
    """Verdict, why and next.

    Args:
        run: A run without a finding of weight.
        small: How many findings there are all the same (small ones, or of the code alone).
    """
    facts = _facts(run)
    more = f" {plural(small, 'finding')} below." if small else ""
    if run.compilation_count is None:
        return (
            f"Nothing wrong is visible in this run, but it was not seen what it compiled.{more}",
            f"It had {facts}.",
            "Leave out eager mode, or profile on one core: --simulate-cores 1.",
        )
    share = _largest(run)
    if share is None:
        return (
            f"Nothing wrong is visible in this run; where its time went is not known.{more}",
            f"It had {facts}.",
            "Let the program take some 20 steps and profile again.",
        )
    name, advice = _PARTS.get(share.part, _PARTS["other"])
    spent = f"{share.share:.0%} of the time{share.when}"
    why = f"It had {facts}. {capital(name)} took {spent} ({duration(share.seconds)} per core)."
    if on_cpu(run):
        what = "simulated cores" if _simulated(run) else "the CPU"
        unknown = f"how busy a real device would be cannot be told from {what}"
        own = share.part in ("execute", "core_wait", "other")
        return (
            f"Nothing is wrong on the XLA side; {unknown}.{more}"
            if own
            else f"Nothing is wrong on the XLA side, but {spent} was {name}; {unknown}.{more}",
            why,
            "Profile some steps on the real device."
            if own
            else f"{advice.removesuffix('.')}; then profile on the real device.",
        )
    if share.part == "execute":
        return (
            f"The XLA side of this run is sound: {spent} the device was at work.{more}",
            f"It had {facts}.",
            advice,
        )
    return (
        f"Nothing is wrong on the XLA side, but the time went elsewhere: {spent} was {name}.{more}",
        why,
        advice,
    )


def on_cpu(run: RunFacts) -> bool:
    """Whether what stands for the device is the CPU of this machine."""
    devices = {row.device for each in run.runs for row in each.processes if row.device}
    return _simulated(run) or (bool(devices) and devices <= set(_NO_ACCELERATOR))


def _simulated(run: RunFacts) -> bool:
    return any(each.manifest.simulated_cores for each in run.runs)


class _Share(NamedTuple):
    """A part of the time: its name, its share, seconds per core, and of which time."""

    part: str
    share: float
    seconds: float
    when: str = ""


def _largest(run: RunFacts) -> _Share | None:
    """The part that most of the time went into.

    Every program compiles when it begins, and a short run does little else: of one in which that is
    most, the time after the first steps is looked at. (An evaluation warms up later, so this is not
    the time after warm-up.)
    """
    whole = _most(run.steps)
    if whole is None or whole.part != "compile":
        return whole
    settled = [
        row for row in run.steps if row.first is not None and row.first > limits.WARMUP_EXECUTIONS
    ]
    rest = _most(settled)
    after = f" after step {limits.WARMUP_EXECUTIONS}"
    return whole if rest is None else rest._replace(when=after)


def _most(rows: Sequence[StepRow]) -> _Share | None:
    total = sum(row.t1 - row.t0 for row in rows)
    cores = len({row.core for row in rows})
    spent: dict[str, float] = {}
    for row in rows:
        for part, value in row.parts.items():
            spent[part] = spent.get(part, 0.0) + value
    if total <= 0 or not spent:
        return None
    part = max(spent, key=lambda name: spent[name])
    return _Share(part, spent[part] / total, spent[part] / cores)


def _facts(run: RunFacts) -> str:
    late, new = run.after_warmup_count, run.compilation_count
    steps = plural(run.step_count, "step")
    unknown = "how many after warm-up is not known"
    return ", ".join(
        [
            f"{steps} (compilations are not measured)"
            if new is None
            else f"{plural(new, 'compilation')} in {steps}",
            *([] if new is None else [unknown if late is None else f"{late} after warm-up"]),
            plural(sum(run.fallback_counts.values()), "CPU fallback"),
            f"{plural(run.sync_count, 'host sync')} on all cores",
        ]
    )
