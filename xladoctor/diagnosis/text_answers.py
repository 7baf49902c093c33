"""The answer in three lines to pasted text without a problem: sound, too early, too little."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from xladoctor.diagnosis.device_idle import device_bound
from xladoctor.diagnosis.thresholds import FEWEST_SAMPLES
from xladoctor.diagnosis.words import duration, plural
from xladoctor.findings import capital

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.diagnosis.pasted import Pasted, State
    from xladoctor.findings import Finding

#: Verdict, why, next.
Answer = tuple[str, str, str]

#: What to do with a report of a program's start; many are pasted because it seems to hang there.
_WHEN_EARLY = (
    "Print metrics_report() at two steps some 20 apart and give both; if the program stands still "
    "here, it traces or compiles its first step: py-spy dump --pid shows where."
)
#: Kinds of analysis blocks, by what torch_xla calls them, in words.
_BLOCKS = {
    "compilation": ("compilation", "compilations"),
    "execution": ("execution", "executions"),
}
_TOO_LITTLE = "This report shows too little to tell."
_TOO_LITTLE_DEBUG = "This debug output shows too little to tell."
_TOO_LITTLE_LOG = "TorchTPU's log shows no fallback and no warning that matters."
_COMPILES_LONG = "Compilation takes long; whether it pays off, this report does not show."
#: The verdicts that say neither that something is wrong nor that nothing is.
TOO_LITTLE = frozenset({_TOO_LITTLE, _TOO_LITTLE_DEBUG, _TOO_LITTLE_LOG, _COMPILES_LONG})
_GIVE_ALL = "Give the whole text of metrics_report(), at two steps some 20 apart."


def early(pasted: Pasted) -> Answer | None:
    """The answer if only the start of the program is in the text; else None."""
    state = pasted.main
    if state is None or not all(each.too_early for each in pasted.states):
        return None
    ran, new, steps = state.executions, state.new_graphs, state.steps
    within = f" in {plural(steps, 'step')}" if steps else ""
    if ran and state.reused_graphs is None:
        seen = f"{plural(ran, 'graph')} ran{within} and none was needed twice"
    elif ran:
        seen = f"{plural(ran, 'graph')} ran{within}"
    elif new:
        seen = f"{plural(new, 'compilation')}{within}"
    else:
        seen = "nothing ran yet"
    return (
        "It is too early to tell.",
        f"This report is of the start of the program: {seen}.",
        _WHEN_EARLY,
    )


def sound(pasted: Pasted, informed: Sequence[Finding]) -> Answer:
    """The answer if no finding is serious.

    Args:
        pasted: The text.
        informed: The findings, all of them information only.
    """
    state = pasted.main
    if state is None and pasted.devices and not pasted.debug:
        return _sound_log(pasted)
    if state is None:
        return _sound_debug(pasted, informed)
    too_little = _too_little(state)
    compiling = next((found for found in informed if found.code == "XLA211"), None)
    if too_little is not None and compiling is not None:
        return (
            _COMPILES_LONG,
            f"{capital(compiling.message)}.",
            f"{capital(compiling.suggestion)}. {_GIVE_ALL}",
        )
    if too_little is not None:
        return _TOO_LITTLE, too_little, _GIVE_ALL
    facts = _facts(state)
    settled = state.reused_graphs or (state.executions or 0) > (state.new_graphs or 0) > 0
    longest = state.metric("ExecuteTime", "ExecuteReplicatedTime")
    typical = longest.percentiles.get("50") if longest else None
    left = f" (typically {duration(typical)} an execution)" if typical else ""
    covered, executed = state.covered_seconds, state.execute_seconds
    if covered and executed and executed <= covered:
        facts.append(f"{duration(executed)} of execution in {duration(covered)} of run time")
    verdict = "The XLA side is sound." if settled else "Nothing wrong is visible in this report."
    if settled and device_bound(state):
        waited = duration(state.seconds("DeviceLockWait") or 0.0)
        return (
            verdict,
            f"It shows {', '.join(facts)}; the host waited {waited} for the device, as it should.",
            f"The device is the bottleneck{left}: bfloat16 or more cores help, the input does not.",
        )
    return (
        verdict,
        f"It shows {', '.join(facts)}.",
        f"What is left is the time on the device{left} and the input pipeline.",
    )


def _sound_log(pasted: Pasted) -> Answer:
    compiled = [count for log in pasted.devices for count in log.compilations]
    counted = (
        f"It counts {plural(max(compiled), 'compilation')} in a process, which only two logs of "
        "runs of different length can tell to be many."
        if compiled
        else "No process has ended in it, so its compilations are not counted."
    )
    what_next = (
        "Set torch.tpu._set_dump_on_cache_miss(True) after warm-up: what is compiled later is "
        "then in the log."
    )
    return _TOO_LITTLE_LOG, counted, what_next


def _sound_debug(pasted: Pasted, informed: Sequence[Finding]) -> Answer:
    if informed:
        return (
            _TOO_LITTLE_DEBUG,
            f"{capital(informed[0].message)}, but not whether each step has it.",
            "Give the output of some 20 steps, or metrics_report() of the same run.",
        )
    causes = [block.cause for block in pasted.debug if block.kind in _BLOCKS]
    if None in causes and len(causes) < FEWEST_SAMPLES:
        return (
            _TOO_LITTLE_DEBUG,
            "It is cut where it says why a graph was compiled or executed.",
            "Give the output of some 20 steps, or metrics_report() of the same run.",
        )
    kinds = collections.Counter(block.kind for block in pasted.debug)
    shown = [plural(kinds[kind], *names) for kind, names in _BLOCKS.items() if kinds[kind]]
    sizes = kinds["post-compilation"]
    why = (
        f"It shows {' and '.join(shown)}, and no value that is read before a step's end."
        if shown
        else f"It shows the size of {plural(sizes, 'graph')}, which most devices have room for."
        if sizes
        else "What pt-xla-profiler counts does not grow from step to step."
    )
    return (
        "Nothing wrong is visible in this debug output.",
        why,
        "For counts and times give metrics_report() as well.",
    )


def _too_little(state: State) -> str | None:
    """Why nothing can be said of a report that is cut; None if something can."""
    new, ran, reused, steps = state.new_graphs, state.executions, state.reused_graphs, state.steps
    known = [value for value in (new, ran, reused, steps) if value is not None]
    if len(known) > 1:
        return None
    if new is not None:
        seen = f"{plural(new, 'compilation')}, but not for how many steps or executions"
    elif ran is not None:
        seen = f"{plural(ran, 'execution')}, but not of how many graphs"
    elif known:
        what = "graph that was reused" if reused is not None else "step"
        many = "graphs that were reused" if reused is not None else "steps"
        seen = f"{plural(known[0], what, many)}, and nothing of what was compiled"
    else:
        ended = state.samples("TensorsGraphSize", "SyncTensorsGraphSize")
        server = [name for name in state.metrics if name.startswith("Xrt")]
        if ended is not None:
            seen = f"{plural(ended, 'graph')}, but not how many of them were compiled"
        elif server:
            counts = [f"{n} {c:,}" for n in ("XrtCompile", "XrtExecute") if (c := state.samples(n))]
            return (
                f"It has only what the TPU worker counts ({', '.join(counts or server)}), which is "
                "of all programs and cores since the worker was started."
            )
        else:
            return "It has neither compilations nor executions nor steps; it may be cut."
    return f"It shows {seen}; it may be cut."


def _facts(state: State) -> list[str]:
    facts = []
    if state.new_graphs is not None:
        facts.append(plural(state.new_graphs, "compilation"))
    if state.reused_graphs is not None:
        facts.append(f"{state.reused_graphs:,} graphs reused")
    if state.executions is not None:
        facts.append(plural(state.executions, "execution"))
    if state.steps is not None:
        facts.append(plural(state.steps, "step"))
    reads = state.scalar_reads if state.scalar_reads is not None else state.reads
    if facts and reads is not None:
        facts.append(plural(reads, "read"))
    return facts
