"""Which core builds another graph than the rest, and what differs: said before the run hangs.

Two signs are used (torch_xla 2.9.0):

* The hash of what the optimizers' parameters wait for. Each core brings it to the meeting before a
  launch, so a difference is found before anything is launched. 0.03 to 0.5 ms for each step.
* A core that has to compile after another has launched its graph of the same meeting. That also
  sees what no parameter depends on, such as a loss that one core alone has read before the launch.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from typing import TYPE_CHECKING, Any

from .reductions import COLLECTIVE_NODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .places import Place

#: How many differing operations of each graph a message shows.
_SHOWN = 3
_NODE = re.compile(
    r"%\d+ = (?P<shape>[^ ]+?)(?:\{[\d,]*\})? (?P<operation>[\w:]+)\("
    r"(?:.*?, value=(?P<value>[^,]+))?"
    r"(?:.*?location=[^ ]*?@(?P<place>[^ :@]+:\d+))?"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Collective:
    """A collective that a core has put into its pending graph.

    Attributes:
        name: "all_reduce".
        detail: What must be equal on all cores: shapes, kind of reduction, groups.
        place: The user's line; it may differ from core to core.
    """

    name: str
    detail: str
    place: Place | None = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Pending:
    """What a core is about to launch.

    Attributes:
        graph: Hash of the graph above the optimizers' parameters; None when none has stepped.
        text: Gives the text of that graph.
        reads: The reads since the core's last meeting, as names ("cpu", "item").
        read_at: The lines of the reads, as far as they are known.
        collectives: What the graph holds, in order.
    """

    graph: str | None
    text: Callable[[], str]
    reads: tuple[str, ...] = ()
    read_at: tuple[Place, ...] = ()
    collectives: tuple[Collective, ...] = ()


def odd_ones(values: Mapping[int, Any]) -> tuple[list[int], list[int]] | None:
    """Split the cores into those that are like most and those that are not.

    Args:
        values: Core to what is compared.

    Returns:
        The odd cores and the others; None if all are alike. With two equal halves the one without
        core 0 counts as odd.
    """
    groups: dict[Any, list[int]] = {}
    for core in sorted(values):
        groups.setdefault(values[core], []).append(core)
    if len(groups) < 2:
        return None
    most = max(groups.values(), key=lambda cores: (len(cores), -cores[0]))
    return sorted(set(values) - set(most)), most


#: What an operation of a graph is known by: name, shape, constant's value or "".
Operation = tuple[str, str, str]


def difference(
    odd: str, other: str, shows: Callable[[str, int], bool] = lambda _file, _row: True
) -> str:
    """What differs between two graphs.

    Args:
        odd: Text of the one, as ``_get_xla_tensors_text`` gives it.
        other: Text of the other.
        shows: Whether a line (the last part of its file's name, row) is to be shown: the innermost
            line of an operation is often one of torch's own, which tells nobody anything.

    Returns:
        "it has aten::sin f32[4,4] (train.py:12); the others have ...", or "" if the operations
        are the same.
    """
    mine, theirs = _operations(odd), _operations(other)
    parts = []
    for words, extra, text in (
        ("it has", mine - theirs, odd),
        ("the others have", theirs - mine, other),
    ):
        if extra:
            places = {
                operation: place
                for operation, place in _places(text).items()
                if shows(place.rpartition(":")[0], int(place.rpartition(":")[2]))
            }
            shown = [
                f"{name} {shape}"
                + (f" {value}" if value else "")
                + (f" ({count} times)" if count > 1 else "")
                + (f" ({places[name, shape, value]})" if (name, shape, value) in places else "")
                for (name, shape, value), count in _collectives_first(extra)[:_SHOWN]
            ]
            more = len(extra) - len(shown)
            parts.append(f"{words} {', '.join(shown)}" + (f" and {more} more" if more else ""))
    return "; ".join(parts)


def extra_collectives(odd: Sequence[Collective], other: Sequence[Collective]) -> list[Collective]:
    """The collectives that only one of two cores has put into its graph, the odd one's first."""
    mine, theirs = collections.Counter(odd), collections.Counter(other)
    return [*(mine - theirs).elements(), *(theirs - mine).elements()]


def lines_of_difference(odd: str, other: str) -> list[tuple[str, int]]:
    """The lines that made what only one of the graphs has, the odd one's first.

    Returns:
        Pairs of file name (its last part only) and row.
    """
    mine, theirs = _operations(odd), _operations(other)
    found: list[tuple[str, int]] = []
    for extra, text in ((mine - theirs, odd), (theirs - mine, other)):
        places = _places(text)
        for operation, _ in _collectives_first(extra):
            if operation in places and operation[0] != "xla::device_data":
                file, _, row = places[operation].rpartition(":")
                found.append((file, int(row)))
    return found


def _collectives_first(
    extra: collections.Counter[Operation],
) -> list[tuple[Operation, int]]:
    """What other cores have to take part in tells more than the sums and products around it."""
    return sorted(extra.items(), key=lambda one: COLLECTIVE_NODE.match(one[0][0]) is None)


def _operations(text: str) -> collections.Counter[Operation]:
    return collections.Counter(operation for operation, _ in _nodes(text))


def _places(text: str) -> dict[Operation, str]:
    """The line of each operation, the last one if there are several."""
    return {operation: place for operation, place in _nodes(text) if place}


def _nodes(text: str) -> Iterator[tuple[Operation, str]]:
    for line in text.splitlines():
        match = _NODE.match(line.strip())
        if match:
            operation = match["operation"], match["shape"], match["value"] or ""
            yield operation, match["place"] or ""
