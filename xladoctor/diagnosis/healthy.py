"""The answer for a run in which nothing is wrong: whether its time went where it should."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import duration, plural

if TYPE_CHECKING:
    from xladoctor.diagnosis.case import RunFacts
    from xladoctor.diagnosis.text_answers import Answer

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
            "Give the device more to do in a step (a larger batch), or trace it once with "
            "torch_xla.compile."
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
    shares = _shares(run)
    if not shares:
        return (
            f"Nothing wrong is visible in this run; where its time went is not known.{more}",
            f"It had {facts}.",
            "Let the program take some 20 steps and profile again.",
        )
    part, share, spent = max(shares, key=lambda one: one[1])
    name, advice = _PARTS.get(part, _PARTS["other"])
    where = f"After warm-up {share:.0%} of the time ({duration(spent)} per core) was {name}"
    if on_cpu(run):
        return (
            (
                "Nothing is wrong on the XLA side; how busy a real device would be cannot be told "
                f"from {'simulated cores' if _simulated(run) else 'the CPU'}.{more}"
            ),
            f"It had {facts}. {where} here.",
            "Profile some steps on the real device."
            if part in ("execute", "core_wait", "other")
            else f"{advice.removesuffix('.')}; then profile on the real device.",
        )
    if part == "execute":
        return (
            (
                f"The XLA side of this run is sound: {share:.0%} of the time the device was at "
                f"work.{more}"
            ),
            f"It had {facts}.",
            advice,
        )
    return (
        (
            f"Nothing is wrong on the XLA side, but the device is not what the time goes into: "
            f"{share:.0%} was {name}.{more}"
        ),
        f"It had {facts}. {where}.",
        advice,
    )


def on_cpu(run: RunFacts) -> bool:
    """Whether what stands for the device is the CPU of this machine."""
    devices = {row.device for each in run.runs for row in each.processes if row.device}
    return _simulated(run) or (bool(devices) and devices <= set(_NO_ACCELERATOR))


def _simulated(run: RunFacts) -> bool:
    return any(each.manifest.simulated_cores for each in run.runs)


def _shares(run: RunFacts) -> list[tuple[str, float, float]]:
    """Parts of the time after warm-up: name, share, seconds per core."""
    settled = [
        row for row in run.steps if row.first is not None and row.first > limits.WARMUP_EXECUTIONS
    ]
    total = sum(row.t1 - row.t0 for row in settled)
    cores = len({row.core for row in settled})
    if total <= 0:
        return []
    spent: dict[str, float] = {}
    for row in settled:
        for part, value in row.parts.items():
            spent[part] = spent.get(part, 0.0) + value
    return [(part, value / total, value / cores) for part, value in spent.items() if value > 0]


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
