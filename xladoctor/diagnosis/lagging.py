"""XLA414: cores that work longer in each step than the others, which wait for them."""

from __future__ import annotations

import collections
import statistics
from typing import TYPE_CHECKING

from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import cores_text, duration, finding, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xladoctor.diagnosis.case import Case, RunFacts
    from xladoctor.findings import Finding

#: Parts of a step in which a core waits, for its device or for other cores.
_WAITING = frozenset({"execute", "host_sync", "core_wait"})

#: What a core may be busy with, in words and with what to do about it.
_WORK = {
    "input_wait": ("waiting for its data", "look at what feeds it: its disk, its loader's workers"),
    "trace": ("in Python", "look for work that it alone does: logging, saving, a slower CPU"),
    "fallback": ("in operations on its CPU", "its data takes another path than the others'"),
    "compile": ("compiling", "it sees shapes that the others do not see"),
    "transfer": ("sending data to its device", "its batches are larger, or its host is slower"),
}
_ELSE = ("elsewhere", "compare its host with the others")


def find(case: Case) -> Iterator[Finding]:
    """One finding for all cores that lag for the same reason."""
    if case.run is None:
        return
    groups: dict[str, list[int]] = collections.defaultdict(list)
    usual = lagging(case.run)
    for core, (_, part) in usual.items():
        groups[part].append(core)
    steps = case.run.step_count
    for part, cores in groups.items():
        seconds = [usual[core][0] for core in cores]
        doing, suggestion = _WORK.get(part, _ELSE)
        most = f"up to {duration(max(seconds))}" if len(cores) > 1 else duration(seconds[0])
        one, others = len(cores) == 1, len(case.run.cores) - len(cores)
        yield finding(
            "XLA414",
            f"{cores_text(cores, case.run.cores)} {'works' if one else 'work'} {most} longer in "
            f"each step than the others, {doing}: {plural(others, 'core')} wait for "
            f"{'it' if one else 'them'}",
            suggestion,
            seconds=max(seconds) * steps,
            cores=cores,
        )


def lagging(run: RunFacts) -> Mapping[int, tuple[float, str]]:
    """Cores that hold the others up, with the seconds of a step and the part of it that they do.

    A core's own work is what of a step it does not spend waiting. It lags if that is more than
    usual by a share of the step that is worth a word and that chance does not explain, and if the
    others spend as much more in waiting.
    """
    work = _work(run)
    if len(work) < limits.LAGGING_CORES:
        return {}
    own = {core: sum(parts[part] for part in parts if part not in _WAITING)
           for core, parts in work.items()}  # fmt: skip
    own |= {core: row.own for core, row in run.typical.items() if core in own}
    waits = {core: sum(parts[part] for part in parts if part in _WAITING)
             for core, parts in work.items()}  # fmt: skip
    usual, waiting = statistics.median(own.values()), statistics.median(waits.values())
    spread = statistics.median(abs(one - usual) for one in own.values())
    step = usual + waiting
    least = max(limits.LAGGING_SHARE * step, limits.LAGGING_SPREADS * spread)
    found = {}
    for core, seconds in own.items():
        more = seconds - usual
        if more > least and waiting - waits[core] > more / 2:
            found[core] = (more, _busy_with(core, work))
    # Half of all cores are not stragglers: there are two kinds of cores.
    return found if len(found) * limits.LAGGING_MOST <= len(own) else {}


def _work(run: RunFacts) -> dict[int, dict[str, float]]:
    """Seconds of a step by part and core, mean over the steps after warm-up."""
    sums: dict[int, collections.Counter[str]] = {}
    steps: collections.Counter[int] = collections.Counter()
    for row in run.steps:
        if row.first is not None and row.last is not None and row.first > limits.WARMUP_EXECUTIONS:
            steps[row.core] += row.last - row.first + 1
            sums.setdefault(row.core, collections.Counter()).update(row.parts)
    return {
        core: {part: seconds / steps[core] for part, seconds in parts.items()}
        for core, parts in sums.items()
        if steps[core] >= limits.LAGGING_STEPS
    }


def _busy_with(core: int, work: Mapping[int, Mapping[str, float]]) -> str:
    def more(part: str) -> float:
        return work[core][part] - statistics.median(_known(part, list(work.values())))

    return max((part for part in work[core] if part not in _WAITING), key=more, default="other")


def _known(part: str, cores: Sequence[Mapping[str, float]]) -> list[float]:
    return [parts.get(part, 0.0) for parts in cores]
