"""Words for cores that cannot go on, or go on without belonging together: who, where, for whom."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from .divergence import groups_of, minority, odd_ones
from .mismatch import ON_A_TPU, of_collectives
from .places import Place, at_place
from .wording import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .cores import Core, CoreGroup
    from .pod import Standing


@dataclasses.dataclass(frozen=True, slots=True)
class Rendezvous:
    """What a core brings to a rendezvous."""

    payload: bytes
    tag: str | None
    place: Place | None


def stands(group: CoreGroup) -> dict[str, Any]:
    """Where every core stands, as facts of an event.

    Returns:
        ``waits``: core to what it waits for, in words, only of those that wait for others;
        ``for_cores``: core to those that it waits for; ``steps``: core to its optimizer steps;
        ``ended``: cores whose main function has returned; ``again``: those that wait at a line
        where they have met the others before, as in a loop.
    """
    return {
        "ended": sorted(core.number for core in group.everyone.values() if core.ended),
        "waits": group.waits,
        "for_cores": {number: group.waited_for(number) for number in group.waits},
        "steps": {core.number: core.steps for core in group.everyone.values()},
        "again": [number for number in group.waits if group.everyone[number].again],
    }


def sentence(group: CoreGroup) -> str:
    """Who waits where and for whom, and where those are."""
    waiting: dict[str, list[int]] = {}
    others: dict[str, list[int]] = {}
    for core in sorted(group.everyone.values(), key=lambda one: one.number):
        if core.waits_for is not None:
            words = f"{core.waits_for}{at_place(core.place)}"
            missing = group.waited_for(core.number)
            words += f" for {names(missing)}" if missing else ""
            waiting.setdefault(words, []).append(core.number)
        else:
            others.setdefault(_elsewhere(core), []).append(core.number)
    never = [number for number in range(group.size) if number not in group.everyone]
    if never:
        others["has not begun"] = never
    parts = [
        f"{names(numbers)} {'wait' if len(numbers) > 1 else 'waits'} in {words}"
        for words, numbers in waiting.items()
    ]
    parts += [f"{names(numbers)} {_plural(words, numbers)}" for words, numbers in others.items()]
    return "; ".join(parts)


def _elsewhere(core: Core | Standing) -> str:
    if core.ended:
        return f"has already ended, after {_steps(core.steps)}"
    return f"is elsewhere{at_place(core.place)}"


def _steps(count: int) -> str:
    return f"{count} step" + ("" if count == 1 else "s")


def _plural(words: str, numbers: list[int]) -> str:
    if len(numbers) == 1:
        return words
    first, _, rest = words.partition(" ")
    return f"{ {'has': 'have', 'is': 'are'}[first] } {rest}"


def describe(group: CoreGroup, ended: list[int]) -> tuple[str, str, dict[str, Any]]:
    """Say why a meeting cannot take place.

    Returns:
        Kind of the event, the sentence, and the facts for the run directory.
    """
    if not ended:
        found = of_collectives(group)
        if found is not None:
            return found.event, found.message, found.facts
    kind = "core-left" if ended else "cores-differ"
    message = f"xladoctor: the cores do not run the same program: {sentence(group)}. {ON_A_TPU}"
    return kind, message, stands(group)


def tags_differ(brought: Mapping[int, Any]) -> tuple[str, dict[str, Any]] | None:
    """Whether the cores have met in one rendezvous under different names.

    torch_xla 2.9 pairs them all the same, so the program goes on; but each core gets what the
    others sent for something else.

    Args:
        brought: Core to what it brought to the meeting.

    Returns:
        The sentence and the facts for the run directory; None if the tags are equal.
    """
    if not all(isinstance(one, Rendezvous) for one in brought.values()):
        return None
    odd = odd_ones({number: one.tag for number, one in brought.items()})
    if odd is None:
        return None
    groups: dict[tuple[str | None, Place | None], list[int]] = {}
    for number in sorted(brought):
        groups.setdefault((brought[number].tag, brought[number].place), []).append(number)
    parts = [
        f"{names(numbers)} {'are' if len(numbers) > 1 else 'is'} in {tag!r}"
        + (f" at {place[0]}:{place[1]}" if place else "")
        for (tag, place), numbers in groups.items()
    ]
    message = (
        f"xladoctor: the cores meet in one rendezvous under different tags: {'; '.join(parts)}. "
        "torch_xla pairs them all the same, so each gets what the others sent for another purpose"
    )
    by_tag = {number: one.tag for number, one in brought.items()}
    return message, {
        "cores": minority(groups_of(by_tag)),
        "place": brought[odd[1][0]].place,
        "cause_place": brought[odd[0][0]].place,
    }
