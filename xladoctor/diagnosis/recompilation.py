"""XLA210 recompilation-after-warmup; XLA203 a smaller last batch, XLA201 sizes from data."""

from __future__ import annotations

import collections
import dataclasses
import re
from typing import TYPE_CHECKING

from xladoctor.diagnosis import recompilation_text, step_boundary
from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.dynamic_shapes import DATA_DEPENDENT
from xladoctor.diagnosis.words import (
    duration,
    finding,
    is_installed,
    noted,
    package_of,
    plural,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.case import Case, RunFacts
    from xladoctor.findings import Finding, Location
    from xladoctor.results import Compilation

_SHAPES = re.compile(r"\w+\[(?P<old>[\d,]*)\](?:\{[^}]*\})? -> \w+\[(?P<new>[\d,]*)\]")

_NAMED = re.compile(r"input \d+ \((?P<name>.+?)\): (?P<change>.*)")

#: What the cause means and what to do, by kind of cause.
_ADVICE = {
    "input-shape": (
        "an input changed its shape",
        "pad to a few fixed sizes (or bucket by length), so graphs are reused",
    ),
    "op-changed": (
        "the operations differ from those of the graph before",
        "look for a Python branch that depends on data or on the step, and use torch.where",
    ),
    "constant-changed": (
        "a number of the program that is part of the graph changed",
        "give the number as a tensor on the device, or keep the size fixed and mask the rest",
    ),
    "live-tensors-changed": (
        "other tensors were alive than before",
        "drop or detach tensors that are kept across steps (lists of losses, metrics)",
    ),
    "graph-grew": (
        "the graph grows from step to step",
        "call detach() on what is kept across steps (a running loss): it carries its whole history",
    ),
    "host-sync-split": (
        "a read cut the graph at another place",
        "read device values only after the step's end, every 10 to 30 steps",
    ),
    "unknown": (
        "why is not known",
        "compare the shapes and Python values of this step with those of the step before",
    ),
}
#: Kinds of cause for which the lines of operations tell more than that of the graph's end.
_LINES_HELP = ("op-changed", "graph-grew", "unknown")
#: The same for inputs that changed their type only.
_OTHER_TYPE = (
    "an input changed its type",
    "give it the same type in every step: x.to(torch.float32) on the host, the same autocast",
)


def find(case: Case) -> Iterator[Finding]:
    """One finding a program point (recorded run) or one for the program (pasted report)."""
    if case.run is not None:
        yield from _from_run(case.run)
    if case.pasted is not None:
        yield from recompilation_text.find(case.pasted)


def is_smaller_batch(compilation: Compilation) -> bool:
    """Whether only the first dimension of inputs shrank, as the rest of a data set makes it.

    Where the record says which loader feeds a core, it must be the last batch of one.
    """
    if compilation.cause.kind != "input-shape":
        return False
    if compilation.feeds_recorded and (compilation.fed is None or compilation.fed.last is False):
        return False
    changes = list(_SHAPES.finditer(compilation.cause.detail))
    if not changes:
        return False
    for change in changes:
        old, new = change["old"].split(","), change["new"].split(",")
        if len(old) != len(new) or old[1:] != new[1:]:
            return False
        if not (old[0] and new[0]) or int(new[0]) >= int(old[0]):
            return False  # a number has no rows
    return True


@dataclasses.dataclass(frozen=True, slots=True)
class _Groups:
    """Compilations after warm-up by the problem that they are; each is in one group at most."""

    last_batches: list[list[Compilation]]
    sized: dict[tuple[Location | None, str], list[Compilation]]
    others: list[list[Compilation]]


def told(run: RunFacts) -> set[int]:
    """The compilations (by ``id``) whose time the findings of this module count."""
    groups = _groups(run)
    lists = (*groups.last_batches, *groups.sized.values(), *groups.others)
    return {id(item) for items in lists for item in items}


def _from_run(run: RunFacts) -> Iterator[Finding]:
    groups = _groups(run)
    # One short batch passes through all lines of its loop: that is one problem.
    yield from (_last_batch(items) for items in groups.last_batches)
    yield from (_data_sized(run, *key, items) for key, items in groups.sized.items())
    yield from (_recompilation(run, late) for late in groups.others)


def _groups(run: RunFacts) -> _Groups:
    points: dict[object, list[Compilation]] = {}
    sized: dict[tuple[Location | None, str], list[Compilation]] = {}
    for item in run.compilations:
        maker = _maker(run, item)
        if maker is None:
            points.setdefault((item.location, item.via), []).append(item)
        elif item.after_warmup:
            sized.setdefault((item.cause.location or item.location, maker), []).append(item)
    last_batches: dict[tuple[int | None, Location | None], list[Compilation]] = {}
    remaining: list[list[Compilation]] = []
    growing = step_boundary.told(run)
    for items in points.values():
        # Graphs that grow where no step ends, and cores that differ, are problems of their own.
        late = [
            item
            for item in items
            if item.after_warmup
            and item.cause.kind != "core-divergence"
            and (item.cause.kind != "graph-grew" or item.location in run.step_ends)
            and id(item) not in growing
        ]
        smaller = [
            item for item in items if is_smaller_batch(item) and _sized_here(run, item) is None
        ]
        shapes = [item for item in late if item.cause.kind == "input-shape"]
        # One or two other sizes of a line are the rest of its data; more are varying inputs.
        sizes = {(item.step, item.cause.detail) for item in smaller}
        if len(sizes) <= 2 and all(item in smaller for item in shapes):
            for item in smaller:
                made = None if item.fed is None else item.fed.made
                last_batches.setdefault((item.step, made), []).append(item)
            late = [item for item in late if item not in smaller]
        remaining.append(late)
    for late in remaining:
        _join_last_batches(late, last_batches)
        for item in list(late):
            maker = _sized_here(run, item)
            if maker is not None:
                sized.setdefault((item.cause.location or item.location, maker), []).append(item)
                late.remove(item)
    late_ones = [late for late in remaining if late and _counts(late)]
    return _Groups(list(last_batches.values()), sized, late_ones)


def _counts(late: list[Compilation]) -> bool:
    """Whether it is worth a word; small graphs of ``xm.rendezvous`` are when there are many."""
    return not all(item.modelled for item in late) or len(late) >= limits.FEWEST_SIZES_EXCHANGED


def _join_last_batches(
    late: list[Compilation],
    last_batches: dict[tuple[int | None, Location | None], list[Compilation]],
) -> None:
    """Move what a step with a short batch had to compile besides to it.

    All graphs of that step that depend on the batch are new, also at lines that meet other sizes
    too, and the optimizer's, although nothing in sight of its own line has changed its shape.
    """
    for (step, _), batch in last_batches.items():
        for item in list(late):
            belongs = item.cause.kind == "unknown" or is_smaller_batch(item)
            if belongs and step is not None and item.step == step:
                batch.append(item)
                late.remove(item)


def _maker(run: RunFacts, item: Compilation) -> str | None:
    """The operation whose result has another size with other data, if that made the graph new."""
    if item.cause.kind == "input-shape" and item.cause.location is not None:
        return _data_dependent(run, item.cause.location)
    # A core may meet a size for the first time long after the others: no earlier graph of its own.
    if item.cause.kind in ("input-shape", "host-sync-split", "unknown"):
        return None if is_smaller_batch(item) else _data_dependent(run, item.location)
    return None


def _sized_here(run: RunFacts, item: Compilation) -> str | None:
    """The operation that gives what shrank, if that has no name in the program: no batch does."""
    if item.cause.kind != "input-shape" or "(" in item.cause.detail:
        return None
    return _data_dependent(run, item.cause.location or item.location)


def _data_sized(
    run: RunFacts, place: Location | None, operation: str, items: list[Compilation]
) -> Finding:
    example = next((item for item in items if item.cause.detail), items[0])
    change = _SHAPES.search(example.cause.detail)
    detail = f" ({change[0]})" if change else ""
    seconds = _wall(items)
    cost = "" if seconds is None else f" in {duration(seconds)}"
    return finding(
        "XLA201",
        f"{plural(_most(run, items), 'new graph')} compiled after warm-up{cost}: the size of what "
        f"{operation} gives here depends on the data{detail}",
        "keep the size: use torch.where or a multiplication by the mask",
        at=place,
        count=sum(len(item.cores) for item in items),
        seconds=seconds,
        cores=[core for item in items for core in item.cores],
        related=_ends(items),
    )


def _most(run: RunFacts, items: list[Compilation]) -> int:
    """How many of these graphs were new for one core, at most."""
    return max(
        (sum(core in item.cores for item in items) for core in run.cores),
        default=len(items),
    )


def _ends(items: list[Compilation]) -> list[Location]:
    """Where these graphs end, as related places."""
    places = dict.fromkeys(item.location for item in items if item.location is not None)
    return [noted(place, "the graph ends here") for place in places]


def _feeding(items: list[Compilation]) -> list[Location]:
    """The loader whose batches these graphs are of, and the loop over it, as related places."""
    made = dict.fromkeys(item.fed.made for item in items if item.fed is not None)
    loops = dict.fromkeys(item.fed.loop for item in items if item.fed is not None)
    return [
        *(noted(place, "the loader is made here") for place in made if place is not None),
        *(noted(place, "the loop over it") for place in loops if place is not None),
    ]


def _last_batch(items: list[Compilation]) -> Finding:
    changes = [text for item in items for text in item.cause.detail.split("; ") if text]
    # A variable's name tells more than the number of an input.
    change = next((text for text in changes if "(" in text), changes[0] if changes else "")
    named = _NAMED.match(change)
    if named:
        change = f"{named['name']}: {named['change']}"
    count = len(items)
    seconds = _wall(items)
    cost = "" if seconds is None else f" in {duration(seconds)}"
    feeding = _feeding(items)
    return finding(
        "XLA203",
        "the smaller last batch triggers its own compilation: "
        f"{plural(count, _noun(items))}{cost} ({change})",
        "give the data loader drop_last=True, or pad the last batch",
        at=feeding[0] if feeding else items[0].location,
        count=sum(len(item.cores) for item in items),
        seconds=seconds,
        cores=[core for item in items for core in item.cores],
        related=[*feeding[1:], *_ends(items)],
    )


def _noun(items: list[Compilation]) -> str:
    """What was compiled: in eager mode, operations."""
    return "operation" if all(item.trigger == "eager" for item in items) else "graph"


def _recompilation(run: RunFacts, items: list[Compilation]) -> Finding:
    kind = collections.Counter(item.cause.kind for item in items).most_common(1)[0][0]
    meaning, advice = _ADVICE.get(kind, _ADVICE["unknown"])
    example = next(item for item in items if item.cause.kind == kind)
    if example.cause.other_type:
        meaning, advice = _OTHER_TYPE
    detail = f": {example.cause.detail}" if example.cause.detail else ""
    if kind == "unknown" and detail:
        detail = f" ({example.cause.detail})"
    if kind in _LINES_HELP and all(item.trigger == "loader" for item in items):
        return _left_over(run, items, example)
    feeding = _feeding([item for item in items if item.cause.kind == "input-shape"])
    # The line that makes what varies; else the loader that feeds it; else where the graph ends.
    place, inside = example.cause.location or next(iter(feeding), None), None
    if place is not None and is_installed(place.filename) and example.location is not None:
        # A framework makes it: the user's line is the one that calls the framework.
        place, inside = (
            example.location,
            noted(place, f"made here, in {package_of(place.filename)}"),
        )
    seconds = _wall(items)
    cost = "" if seconds is None else f" in {duration(seconds)}"
    evaluation = _after_evaluation(run, items) if kind in _LINES_HELP else None
    if evaluation is not None:
        detail += ", in the first step after an evaluation"
        advice = (
            "look at what the evaluation leaves behind: model.train() that is not called again, "
            "weights that FSDP has gathered; one compilation is no harm"
        )
    if place is None and kind in _LINES_HELP:
        advice += "; --detail high names the lines of these operations"
    return finding(
        "XLA210",
        f"{plural(_most(run, items), 'new graph')} compiled after warm-up{cost}: {meaning}{detail}",
        advice,
        at=place or example.location,
        count=sum(len(item.cores) for item in items),
        seconds=seconds,
        cores=[core for item in items for core in item.cores],
        related=[
            *([inside] if inside else []),
            *_ends([example, *items]),
            *feeding,
            *([noted(evaluation, "the evaluation before this step")] if evaluation else []),
        ],
        certain=not _seldom(run, items, seconds),
    )


def _after_evaluation(run: RunFacts, items: list[Compilation]) -> Location | None:
    """The evaluation just before the steps in which graphs were new, if that is so of all."""
    places = [
        run.evaluation_before(item.step, item.cores[0]) if item.trigger == "step" else None
        for item in items
    ]
    return places[0] if all(places) else None


def _left_over(run: RunFacts, items: list[Compilation], example: Compilation) -> Finding:
    """Work that nothing had ended was left when a device loader began, or went on."""
    seconds = _wall(items)
    cost = "" if seconds is None else f" in {duration(seconds)}"
    made = example.cause.location
    return finding(
        "XLA210",
        f"{plural(_most(run, items), 'new graph')} compiled after warm-up{cost}: what had been "
        "traced and not run was left when this loop took its next batch"
        + (f" ({example.cause.detail})" if example.cause.detail else ""),
        "end the graph where that work ends, after the evaluation for example: torch_xla.sync()",
        at=example.location,
        count=sum(len(item.cores) for item in items),
        seconds=seconds,
        cores=[core for item in items for core in item.cores],
        related=[noted(made, "some of that work")] if made is not None else [],
        certain=not _seldom(run, items, seconds),
    )


def _seldom(run: RunFacts, items: list[Compilation], seconds: float | None) -> bool:
    """Whether it is known to have cost next to nothing: a graph or two, a small share of the run.

    On a device that compiles for longer the share may be larger; then it is measured there.
    """
    total = run.time.total
    if seconds is None or not total or _most(run, items) > limits.FEW_LATE_GRAPHS:
        return False
    return seconds / total < limits.SMALL_SHARE


def _data_dependent(run: RunFacts, place: Location | None) -> str | None:
    """An operation of this line that ran on the CPU and whose result has a size of its own."""
    if place is None:
        return None
    for operation in run.fallbacks_at.get(place, ()):
        if operation.partition("::")[2].partition(".")[0] in DATA_DEPENDENT:
            return operation
    return None


def _wall(items: list[Compilation]) -> float | None:
    """Wall seconds of compilations: while one core compiles a graph, the others wait for it."""
    known = [item.seconds for item in items if item.seconds is not None]
    return sum(known) if known else None
