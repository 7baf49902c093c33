"""Cores that meet, but not with the same graph: who, what differs, and whether they can go on.

Everything is decided when all cores are there and before any of them launches, by the one that
comes last but from what all have brought: the answer does not depend on the order of arrival.

Three kinds are told apart: other collectives, or other operations around them (the run is stopped:
on devices it can hang); the same operations on other shapes or numbers (told, and if nothing
pending holds a collective yet, run apart); other shares of the same tensors, as FSDP cuts them (by
design: nothing is said).
"""

from __future__ import annotations

import dataclasses
import gc
from typing import TYPE_CHECKING, Any

from . import comparison
from .comparison import CONSTANTS, OPERATIONS, SHAPES, SHARES, Graph
from .divergence import ENDING, Pending, extra_collectives, groups_of, minority, odd_ones
from .places import at_place, is_users, place_named
from .wording import names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .cores import CoreGroup, Meeting
    from .divergence import Collective

ON_A_TPU = (
    "On a TPU this can hang or give wrong results: every core must run the same graphs, "
    "in the same order"
)

#: What differs is the part of a tensor that each core takes, but after a collective of the graph:
#: XLA's CPU runtime lets a collective meet that of the same executable only, and torch_xla cannot
#: run the first half of a graph, because the second would run it again.
AFTER_A_COLLECTIVE = (
    "Each takes another part of a tensor. On a TPU such a program runs; on simulated cores only "
    "cores with the same graph can meet, and what differs comes after a collective of this graph: "
    "call torch_xla.sync() behind that collective"
)

#: Groups of cores that a sentence tells apart.
_GROUPS_SHOWN = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Mismatch:
    """What differs between the graphs with which cores have met.

    Attributes:
        event: Its name for ``on_event``.
        message: In words; "" if it is by design.
        facts: For the run directory.
        stops: Whether the run cannot go on.
    """

    event: str
    message: str
    facts: dict[str, Any]
    stops: bool = True


def of_graphs(group: CoreGroup, meeting: Meeting, *, launch: bool) -> Mismatch | None:
    """Whether cores that are here for the same collectives have the same graph.

    Args:
        group: The cores.
        meeting: All of them are in it.
        launch: Whether they are about to launch; else each is about to put the first collective
            into its graph.

    Returns:
        None if they have.
    """
    brought: Mapping[int, Pending] = meeting.brought
    groups = groups_of({number: one.graph for number, one in brought.items()})
    whole = len(groups) == 1
    if whole:
        groups = groups_of(_by_what_waits(brought))
    if len(groups) == 1:
        return None
    return _of_groups(group, brought, groups, launch=launch, whole=whole)


def _by_what_waits(brought: Mapping[int, Pending]) -> dict[int, int | None]:
    """Tell the cores apart by how many tensors wait for a value."""
    counts = {number: one.waiting() for number, one in brought.items()}
    if len(groups_of(counts)) > 1:
        # What only circles of references keep alive goes at another time in a process of its own.
        gc.collect()
        counts = {number: one.waiting() for number, one in brought.items()}
    return counts


def _of_groups(
    group: CoreGroup,
    brought: Mapping[int, Pending],
    groups: list[list[int]],
    *,
    launch: bool,
    whole: bool,
) -> Mismatch:
    texts = [
        brought[group[0]].whole_text() if whole else brought[group[0]].text() for group in groups
    ]
    graphs = [Graph.read(text) for text in texts]
    kind = comparison.kind_of(graphs)
    number = None
    if kind in (CONSTANTS, SHARES) and not whole:
        number = comparison.first_number([brought[group[0]].hlo() for group in groups], is_users)
        kind = CONSTANTS if number is not None else kind
    stops = launch or kind == OPERATIONS
    few = minority(groups)
    odd, other = _two(groups, few)
    mine, theirs = graphs[odd], graphs[other]
    place = group.everyone[groups[odd][0]].place
    facts: dict[str, Any] = {
        "what": kind,
        "stopped": stops,
        "cores": few,
        "groups": groups,
        "differs": [
            comparison.facts(graph, graphs[other if at != other else odd])
            for at, graph in enumerate(graphs)
        ],
        "texts": texts,
        "place": place,
    }
    if kind == SHARES:
        message = f"xladoctor: {_who(groups, few)} for the same launch{at_place(place)}. "
        message = message + AFTER_A_COLLECTIVE if stops else ""
        return Mismatch("graphs-differ" if stops else "graphs-vary", message, facts, stops)
    lines = (place_named(*line) for line in comparison.lines(mine, theirs))
    facts["cause_place"] = next((line for line in lines if line is not None), None)
    if number is not None:
        facts["cause_place"] = (number[0], number[1], "")
    why = (
        _reads(brought, groups, odd, other, facts)
        or (number and _number(number, groups))
        or _why(kind, graphs, groups, odd, other)
    )
    facts["difference"] = why
    message = (
        f"xladoctor: {_who(groups, few)} for the same launch{at_place(place)}"
        + (f": {why}" if why else "")
        + ("" if stops else ". The simulation runs what differs by itself and goes on")
        + f". {ON_A_TPU}"
    )
    return Mismatch("graphs-differ" if stops else "graphs-vary", message, facts, stops)


def _two(groups: Sequence[Sequence[int]], few: Sequence[int]) -> tuple[int, int]:
    """The groups to compare: an odd one and the most frequent, else the first two."""
    if not few:
        return 0, 1
    odd = next(at for at, group in enumerate(groups) if group[0] in few)
    return odd, max(range(len(groups)), key=lambda at: len(groups[at]))


def _who(groups: Sequence[Sequence[int]], few: list[int]) -> str:
    everybody = sorted(core for group in groups for core in group)
    if few:
        rest = [core for core in everybody if core not in few]
        if len(few) == 1 or len(groups) == 2:
            verb = "builds" if len(few) == 1 else "build"
            return f"{names(few)} {verb} another graph than {names(rest)}"
        return f"{names(few)} build other graphs than {names(rest)}"
    if len(groups) == 2:
        return f"{names(list(groups[0]))} and {names(list(groups[1]))} build different graphs"
    return f"{names(everybody)} build {len(groups)} different graphs"


def _why(
    kind: str, graphs: Sequence[Graph], groups: Sequence[list[int]], odd: int, other: int
) -> str:
    """What differs, in words."""
    if kind == SHAPES:
        shapes = comparison.first_shapes(graphs)
        if shapes is not None:
            shown = list(zip(shapes, groups, strict=True))[:_GROUPS_SHOWN]
            more = len(groups) - len(shown)
            return (
                ", ".join(f"{shape} on {names(group)}" for shape, group in shown)
                + (f" and {more} more" if more else "")
                + ": pad to one length on all cores"
            )
    mine, theirs = comparison.words(
        graphs[odd], graphs[other], lambda file, row: place_named(file, row) is not None
    )
    parts = [
        f"{names(groups[at])} {'has' if len(groups[at]) == 1 else 'have'} {what}"
        for at, what in ((odd, mine), (other, theirs))
        if what
    ]
    return "; ".join(parts)


def _number(found: tuple[str, int, list[str]], groups: Sequence[list[int]]) -> str:
    file, row, values = found
    cores: dict[str, list[int]] = {}
    for value, group in zip(values, groups, strict=True):
        cores.setdefault(value, []).extend(group)
    each = ", ".join(f"{value} on {names(sorted(at))}" for value, at in cores.items())
    return (
        f"the number at {file}:{row} is {each}; torch_xla makes a constant of 0 and 1, and an "
        "input of any other number: let it be one number on all cores, or move it to the device "
        "as a tensor"
    )


def _reads(
    brought: Mapping[int, Pending],
    groups: Sequence[Sequence[int]],
    odd: int,
    other: int,
    facts: dict[str, Any],
) -> str:
    """Reads that have ended the graph of some cores only; they explain all that differs."""
    ending = [
        [(name, place) for name, place in brought[groups[at][0]].reads if name in ENDING]
        for at in (odd, other)
    ]
    if [name for name, _ in ending[0]] == [name for name, _ in ending[1]]:
        return ""
    reader = 0 if len(ending[0]) >= len(ending[1]) else 1
    facts["what"] = "reads"
    facts["cause_place"] = next((place for _, place in ending[reader] if place), None)
    who, whom = (names(list(groups[(odd, other)[at]])) for at in (reader, 1 - reader))
    done = ", ".join(dict.fromkeys(name for name, _ in ending[reader]))
    return f"{who} read values before it ({done}) and {whom} did not"


def of_collectives(group: CoreGroup) -> Mismatch | None:
    """Cores that are here for other collectives, or for the same ones in another order."""
    brought = group.meeting.brought
    if not all(isinstance(one, Pending) for one in brought.values()):
        return None
    held = {number: one.collectives for number, one in brought.items()}
    odd = odd_ones(held)
    if odd is None:
        return None
    groups = groups_of(held)
    mine, theirs = (brought[cores[0]].collectives for cores in odd)
    extra = extra_collectives(mine, theirs)
    if extra:
        first = extra[0]
        have, lack = odd if first in mine else (odd[1], odd[0])
    else:
        first = next(one for one, two in zip(mine, theirs, strict=True) if one != two)
        have, lack = odd
    verb = "come" if len(have) > 1 else "comes"
    lacking = group.everyone[lack[0]].place
    at_lack = at_place(lacking)
    instead = _instead(brought[lack[0]].collectives, brought[have[0]].collectives, first)
    if instead is None:
        goes = f"{names(lack)} {'launch' if len(lack) > 1 else 'launches'} a graph without it"
    else:
        goes = f"{names(lack)} {'come' if len(lack) > 1 else 'comes'} to {_named(instead)}"
        at_lack = "" if instead.place else at_lack
    only = "only " if extra else ""
    message = (
        f"xladoctor: {only}{names(have)} {verb} to {_named(first)}; {goes}{at_lack}. {ON_A_TPU}"
    )
    facts = {
        "what": "collectives",
        "stopped": True,
        "cores": minority(groups),
        "groups": groups,
        "difference": f"{first.name} {first.detail}",
        "place": lacking,
        "cause_place": first.place,
    }
    return Mismatch("collectives-differ", message, facts)


def _instead(
    lacks: Sequence[Collective], has: Sequence[Collective], first: Collective
) -> Collective | None:
    """The collective that stands where the others have another one."""
    at = list(has).index(first)
    return lacks[at] if at < len(lacks) else None


def _named(collective: Collective) -> str:
    place = collective.place
    where = f" at {place[0]}:{place[1]}" if place else ""
    return f"{collective.name} ({collective.detail}){where}"
