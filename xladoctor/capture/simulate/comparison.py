"""What differs between the graphs of cores: operations, shapes, constants, or only their shares.

Works on the text of graphs as torch_xla 2.9.0 gives it (``_get_xla_tensors_text``, and the report
of live tensors, which has one graph for each tensor).
"""

from __future__ import annotations

import collections
import dataclasses
import re
from typing import TYPE_CHECKING, Any

from .reductions import COLLECTIVE_NODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: How many differing operations of each graph a message shows, and how many the facts hold.
_SHOWN, MOST_FACTS = 3, 50
_NODE = re.compile(
    r"%\d+ = (?P<shape>[^ ]+?)(?:\{[\d,]*\})? (?P<operation>[\w:]+)\("
    r"(?:.*?, value=(?P<value>[^,]+))?"
    r"(?:.*?location=[^ ]*?@(?P<place>[^ :@]+:\d+))?"
)
#: A Python number in a graph's HLO text: a constant, or an input.
_NUMBER = re.compile(
    r" = \w+\[\] (?:constant\((?P<value>[^)]*)\)|parameter\(\d+\)), "
    r'metadata=\{op_type="(?:prim__Constant|xla__device_data)" .*?'
    r'source_file="(?P<file>[^"]*)" source_line=(?P<row>\d+)'
)
#: Inputs of a graph, and what takes the place of an input if its value is 0 or 1.
_DATA, _CONSTANT = "xla::device_data", "prim::Constant"

#: What an operation of a graph is known by: name, shape, constant's value or "".
Operation = tuple[str, str, str]

#: Kinds of differences. Graphs that differ in their ``SHARES`` alone (which part of a tensor each
#: core takes, how each pads it) differ by design.
OPERATIONS, SHAPES, CONSTANTS, SHARES = "operations", "shapes", "constants", "shares"


@dataclasses.dataclass(frozen=True)
class Graph:
    """A graph, as what it is made of.

    Attributes:
        operations: How often each is in it, in the order of their first places in the text.
        places: Operation to its line ("train.py:12"), the last one if there are several.
    """

    operations: collections.Counter[Operation]
    places: dict[Operation, str]

    @classmethod
    def read(cls, text: str) -> Graph:
        """Read one graph, or several that share operations (of one core's live tensors)."""
        whole: collections.Counter[Operation] = collections.Counter()
        places: dict[Operation, str] = {}
        for part in text.split("IR {"):
            here: collections.Counter[Operation] = collections.Counter()
            for operation, place in _nodes(part):
                here[operation] += 1
                if place:
                    places[operation] = place
            whole |= here
        return cls(whole, places)

    def counted(self, known_by: Callable[[Operation], Any]) -> collections.Counter[Any]:
        """How often each is in it, by a part of what it is known by; numbers are left out."""
        found: collections.Counter[Any] = collections.Counter()
        for operation, count in self.operations.items():
            if not _is_number(operation):
                found[known_by(operation)] += count
        return found


def kind_of(graphs: Sequence[Graph]) -> str:
    """In what the graphs of several cores differ, the weightiest first.

    The text tells the values of no constants (see :func:`first_number`) and hardly any attributes.
    """
    for kind, known_by in ((OPERATIONS, _name), (SHAPES, _name_and_shape)):
        counted = [graph.counted(known_by) for graph in graphs]
        if any(one != counted[0] for one in counted[1:]):
            return kind
    if any(graph.operations != graphs[0].operations for graph in graphs[1:]):
        return CONSTANTS
    return SHARES


def _name(operation: Operation) -> str:
    return operation[0]


def _name_and_shape(operation: Operation) -> tuple[str, str]:
    return operation[:2]


def _is_number(operation: Operation) -> bool:
    """A Python number: equal ones share one input, and 0 and 1 are no inputs at all."""
    return operation[0] in (_DATA, _CONSTANT) and operation[1].endswith("[]")


def words(
    odd: Graph, other: Graph, shows: Callable[[str, int], bool] = lambda _file, _row: True
) -> tuple[str, str]:
    """What each of two graphs has that the other has not.

    Args:
        odd: The one.
        other: The other.
        shows: Whether a line (the last part of its file's name, row) is to be shown: the innermost
            line of an operation is often one of torch's own, which tells nobody anything.

    Returns:
        "aten::sin f32[4,4] (train.py:12)" for each; "" if it has nothing of its own.
    """
    mine, theirs = odd.operations - other.operations, other.operations - odd.operations
    return _named(odd, mine, shows), _named(other, theirs, shows)


def _named(
    graph: Graph, extra: collections.Counter[Operation], shows: Callable[[str, int], bool]
) -> str:
    shown = []
    for (name, shape, value), count in _telling_first(extra)[:_SHOWN]:
        place = graph.places.get((name, shape, value), "")
        if place:
            file, _, row = place.rpartition(":")
            place = f" ({place})" if shows(file, int(row)) else ""
        shown.append(
            f"{name} {shape}"
            + (f" {value}" if value else "")
            + (f" ({count} times)" if count > 1 else "")
            + place
        )
    more = len(extra) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def facts(graph: Graph, other: Graph) -> list[dict[str, Any]]:
    """What one graph has and the other has not, for the run directory."""
    extra = graph.operations - other.operations
    return [
        {
            "operation": operation[0],
            "shape": operation[1],
            "value": operation[2] or None,
            "count": count,
            "place": graph.places.get(operation),
        }
        for operation, count in _telling_first(extra)[:MOST_FACTS]
    ]


def lines(odd: Graph, other: Graph) -> list[tuple[str, int]]:
    """The lines that made what only one of the graphs has, the odd one's first.

    Returns:
        Pairs of file name (its last part only) and row.
    """
    found: list[tuple[str, int]] = []
    for graph, against in ((odd, other), (other, odd)):
        for operation, _ in _telling_first(graph.operations - against.operations):
            place = graph.places.get(operation)
            if place and operation[0] != _DATA:
                file, _, row = place.rpartition(":")
                found.append((file, int(row)))
    return found


def first_shapes(graphs: Sequence[Graph]) -> list[str] | None:
    """The shape, one for each graph, of the first input whose shape is not the same in all.

    Returns:
        None if the inputs are alike, or not as many in each.
    """
    inputs = [
        collections.Counter(
            {
                shape: count
                for (name, shape, _), count in graph.operations.items()
                if name == _DATA and not shape.endswith("[]")
            }
        )
        for graph in graphs
    ]
    shared = inputs[0]
    for one in inputs[1:]:
        shared = shared & one
    own = [list((one - shared).elements()) for one in inputs]
    return [shapes[0] for shapes in own] if all(own) else None


def first_number(
    texts: Sequence[str], shows: Callable[[str], bool]
) -> tuple[str, int, list[str]] | None:
    """The first line that has put another Python number into each graph.

    Args:
        texts: The graphs as HLO text.
        shows: Whether a file (its whole path) is the user's.

    Returns:
        File, row and for each graph the number's words: "0", or "an input".
    """
    found = [_numbers(text) for text in texts]
    for place in dict.fromkeys(place for numbers in found for place in numbers):
        counted = [numbers.get(place, collections.Counter()) for numbers in found]
        shared = counted[0]
        for one in counted[1:]:
            shared = shared & one
        own = [", ".join((one - shared).elements()) for one in counted]
        if shows(place[0]) and len(set(own)) > 1:
            # An input that is not there is shared with an equal number of another line.
            return (*place, [one or "an input" for one in own])
    return None


def _numbers(text: str) -> dict[tuple[str, int], collections.Counter[str]]:
    found: dict[tuple[str, int], collections.Counter[str]] = {}
    for match in _NUMBER.finditer(text):
        place = match["file"], int(match["row"])
        found.setdefault(place, collections.Counter())[match["value"] or "an input"] += 1
    return found


def _telling_first(extra: collections.Counter[Operation]) -> list[tuple[Operation, int]]:
    """What other cores have to take part in tells more than the sums and products around it."""
    return sorted(extra.items(), key=lambda one: COLLECTIVE_NODE.match(one[0][0]) is None)


def _nodes(text: str) -> Iterator[tuple[Operation, str]]:
    for line in text.splitlines():
        match = _NODE.match(line.strip())
        if match:
            operation = match["operation"], match["shape"], match["value"] or ""
            yield operation, match["place"] or ""
