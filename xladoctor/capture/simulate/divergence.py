"""What cores bring to a meeting, and which of them are unlike the rest.

Two signs are used, both before anything is launched (torch_xla 2.9.0; 0.03 to 0.5 ms each):

* The hash of the graph above the optimizers' parameters, and above what the user's variables hold.
  Of a graph's first collective: above what it is to exchange. Where cores differ there in shapes or
  numbers only, what is pending is run before the collective, and the cores go on.
* How many tensors wait for a value: something may be kept where no variable of these is.

What passes both shows when a core has to compile after another has launched its graph of the same
meeting.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING, Any

from ..agent import xla

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .places import Place

#: Reads after which the tensor is no longer pending, since the graph has given it its value. All
#: others (``.item()``, ``bool(t)``, ``xm.save``, fallbacks) leave it pending: what the step still
#: does with it is computed once more (torch_xla 2.9.0, seen by running).
ENDING = {"cpu", "to", "tolist", "copy_", "setitem", "repr"}

#: Characters of the text of all graphs of one core that are looked at, at most; torch_xla writes
#: one graph for each live tensor, with what they share written again and again.
_MOST_TEXT = 100_000_000


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
    """What a core is about to launch, or to put into its graph.

    Attributes:
        graph: Hash of the graph that is compared; None when there is none.
        text: Gives the text of that graph, ``hlo`` its text as XLA has it.
        device: "xla:3"; None where only the hash counts.
        reads: The reads since the core's last launch: name ("cpu", "item") and line.
        collectives: What the graph holds, in order.
    """

    graph: str | None
    text: Callable[[], str]
    hlo: Callable[[], str] = str
    device: str | None = None
    reads: tuple[tuple[str, Place | None], ...] = ()
    collectives: tuple[Collective, ...] = ()

    def waiting(self) -> int | None:
        """How many tensors of the device wait for a value; may be asked from any thread."""
        asked = xla.binding("_check_device_tensor_need_materialization")
        return None if asked is None or self.device is None else sum(asked(self.device))

    def whole_text(self) -> str:
        """The graphs of all tensors of the device that wait for a value, if that is bearable."""
        text = self.text()
        report = xla.binding("_xla_tensors_report")
        if report is None or self.device is None:
            return text
        if max(1000, len(text)) * (self.waiting() or 0) > _MOST_TEXT:
            return text
        return str(report(1, self.device))


def odd_ones(values: Mapping[int, Any]) -> tuple[list[int], list[int]] | None:
    """Split the cores into those that are like most and those that are not.

    Args:
        values: Core to what is compared.

    Returns:
        The odd cores and the others; None if all are alike. With two equal halves the one without
        core 0 counts as odd.
    """
    groups = groups_of(values)
    if len(groups) < 2:
        return None
    most = max(groups, key=lambda cores: (len(cores), -cores[0]))
    return sorted(set(values) - set(most)), most


def groups_of(values: Mapping[int, Any]) -> list[list[int]]:
    """The cores that are alike, in the order of their smallest numbers."""
    groups: dict[Any, list[int]] = {}
    for core in sorted(values):
        groups.setdefault(values[core], []).append(core)
    return list(groups.values())


def minority(groups: Sequence[Sequence[int]]) -> list[int]:
    """The cores that are unlike more than half of all; nobody if there is no such majority."""
    size = sum(map(len, groups))
    for group in groups:
        if 2 * len(group) > size:
            return sorted(core for other in groups if other is not group for core in other)
    return []


def extra_collectives(odd: Sequence[Collective], other: Sequence[Collective]) -> list[Collective]:
    """The collectives that only one of two cores has put into its graph, the odd one's first."""
    mine, theirs = collections.Counter(odd), collections.Counter(other)
    return [*(mine - theirs).elements(), *(theirs - mine).elements()]
