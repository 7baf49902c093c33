"""Whether the cores of all processes train one model, from sketches of their parameters.

The cores of a process compare their parameters in memory (``agreement``). Between processes that
would be the whole model at every step; so each brings a sketch to the next meeting: a checksum, and
64 values with the sum and the norm, which tell a difference of rounding from another one.

Every process decides from the same sketches; the one that has the odd core tells.
"""

from __future__ import annotations

import dataclasses
import zlib
from typing import TYPE_CHECKING, Any

from .divergence import odd_ones

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .pod import Pod

#: Values of a parameter that are sent.
_VALUES = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Sketch:
    """What is sent of a parameter.

    Attributes:
        checksum: Of its bytes.
        shape: Number of its elements, and their type.
        values: Some of them, at even distances; then their norm and sum over all of them.
        largest: Absolute value of the largest.
    """

    checksum: int
    shape: tuple[int, str]
    values: tuple[float, ...]
    largest: float

    @classmethod
    def of(cls, values: Any) -> Sketch:
        """Sketch a parameter.

        Args:
            values: Its values on the host, in one row.
        """
        import torch

        checksum = zlib.crc32(values.view(torch.uint8).numpy())
        stride = max(1, values.numel() // _VALUES)
        wide = values[::stride][:_VALUES].to(torch.float64)
        whole = values.to(torch.float64)
        row = (*wide.tolist(), float(whole.norm()), float(whole.sum()))
        largest = float(whole.abs().max()) if values.numel() else 0.0
        return cls(checksum, (values.numel(), str(values.dtype)), row, largest)

    def near(self, other: Sketch, tolerance: float) -> bool:
        """Whether what differs is rounding: a share ``tolerance`` of the largest value."""
        if self.checksum == other.checksum:
            return True
        # A norm and a sum gather the rounding of all values.
        limits = [tolerance * self.largest] * (len(self.values) - 2)
        limits += [tolerance * self.largest * self.shape[0]] * 2
        return all(
            abs(mine - theirs) <= limit or (mine != mine and theirs != theirs)
            for mine, theirs, limit in zip(self.values, other.values, limits, strict=True)
        )

    def distance(self, other: Sketch) -> float:
        """The largest difference that is seen."""
        seen = [abs(a - b) for a, b in zip(self.values, other.values, strict=True)]
        return max(seen[:-2], default=0.0) or max(seen)


@dataclasses.dataclass(frozen=True, slots=True)
class Offered:
    """What the cores of a process have after one step of one optimizer.

    Attributes:
        key: The optimizer's number and the step's.
        cores: Core to the sketches of its parameters.
    """

    key: tuple[int, int]
    cores: dict[int, list[Sketch]]


class Sketches:
    """The comparisons of one launch that the processes make together.

    Args:
        pod: The cores.
        tolerance: Share of the largest value that is no difference.
        decide: Gets an optimizer's number, the step, the number of the first parameter that
            differs (None if none does), the odd cores, the others and the distance; returns
            whether that parameter counts.
    """

    def __init__(self, pod: Pod, tolerance: float, decide: Callable[..., bool]) -> None:
        self._tolerance = tolerance
        self._decide = decide
        self._pod = pod
        self._open: dict[tuple[int, int], dict[int, list[Sketch]]] = {}
        pod.on_compared = self.hear

    def offer(self, key: tuple[int, int], values: Mapping[int, Sequence[Any]]) -> None:
        """Bring what the cores of this process have to the next meeting.

        Args:
            key: The optimizer's number and the step's.
            values: Core to its parameters on the host; the same object for cores that are equal.
        """
        made: dict[int, list[Sketch]] = {}
        for theirs in values.values():
            if id(theirs) not in made:
                made[id(theirs)] = [Sketch.of(one) for one in theirs]
        self._pod.offer(Offered(key, {core: made[id(one)] for core, one in values.items()}))

    def hear(self, offered: Sequence[Offered]) -> None:
        """What all processes have brought to a meeting."""
        for one in offered:
            known = self._open.setdefault(one.key, {})
            known.update(one.cores)
            if len(known) == self._pod.size:
                del self._open[one.key]
                self._compare(one.key, known)

    def _compare(self, key: tuple[int, int], cores: dict[int, list[Sketch]]) -> None:
        rows = [cores[core] for core in sorted(cores)]
        shapes = {tuple(one.shape for one in row) for row in rows}
        if len(shapes) > 1:
            return  # different models by design
        for at in range(len(rows[0])):
            found = self._groups({core: row[at] for core, row in cores.items()})
            if found is not None and self._decide(*key, at, *found):
                return
        self._decide(*key, None, [], [], 0.0)

    def _groups(self, sketches: dict[int, Sketch]) -> tuple[list[int], list[int], float] | None:
        """The odd cores, the others and the largest distance; None if all are alike."""
        kinds: list[Sketch] = []
        marks: dict[int, int] = {}
        for core in sorted(sketches):
            mine = sketches[core]
            mark = next((n for n, one in enumerate(kinds) if mine.near(one, self._tolerance)), None)
            if mark is None:
                mark = len(kinds)
                kinds.append(mine)
            marks[core] = mark
        found = odd_ones(marks)
        if found is None:
            return None
        return (*found, max(one.distance(kinds[0]) for one in kinds[1:]))
