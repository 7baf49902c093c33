"""Data loaders that give every core the same samples.

Each core makes its own loader over the same data set; without a sampler that shares the samples out
all of them do the same work. Only batches of a ``DataLoader`` count that takes its indices in order
or at random, or streams: equal batches without a loader are made so on purpose, and so are those
behind a sampler that shares out. What is compared are bytes of the host's tensors before they are
sent, of the first pass over each loader: its first batches in their order, and all of its samples
in any order (each core shuffles by its own random numbers).
"""

from __future__ import annotations

import dataclasses
import threading
import weakref
import zlib
from typing import TYPE_CHECKING, Any

from ...agent.points import CORE, FEED, LOADER, MADE, SIMULATE, STEP
from ..places import user_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...agent.points import Call
    from ..cores import Core, CoreGroup
    from ..places import Place
    from .memory import Memory

#: Batches whose order is compared; fewer than two prove nothing.
FIRST, FEWEST = 4, 2
#: Bytes of a batch, and of a sample, that are looked at.
BATCH_BYTES, SAMPLE_BYTES = 1 << 16, 256
#: Samples of a pass that are looked at; a longer one is compared by its first batches only.
MOST_SAMPLES = 20_000
#: Tensors of a batch that are looked at.
MOST_TENSORS = 8


@dataclasses.dataclass(slots=True)
class _Pass:
    """The first pass of a core over a loader.

    Attributes:
        place: Where the loader was made.
        first: Digests of its first batches.
        samples: Sum of the digests of its samples, as long as all are known.
        count: How many samples.
        whole: Whether it has come to its end.
        stepped: Whether an optimizer has stepped since it began.
        streams: Whether the data set gives its samples without indices.
    """

    place: Place
    streams: bool
    first: list[int] = dataclasses.field(default_factory=list)
    samples: int = 0
    count: int = 0
    whole: bool = False
    stepped: bool = False

    def add(self, batch: Any) -> None:
        """Take a batch in."""
        tensors = list(_tensors(batch))[:MOST_TENSORS]
        if not tensors:
            return
        if len(self.first) < FIRST:
            self.first.append(
                sum(_digest(one, BATCH_BYTES) * (at + 1) for at, one in enumerate(tensors))
            )
        largest = max(tensors, key=lambda one: one.numel())
        rows = len(largest) if largest.dim() else 1
        self.count += rows
        if self.count <= MOST_SAMPLES:
            kept = _bytes(largest.reshape(rows, -1), SAMPLE_BYTES)
            self.samples += sum(zlib.crc32(row) for row in kept)

    def like(self, other: _Pass) -> bool:
        """Whether both gave the same, and more than one thing over and over."""
        if len(set(self.first)) >= FEWEST and self.first == other.first:
            return True
        every = self.whole and other.whole and 1 < self.count <= MOST_SAMPLES
        return (
            every
            and (self.count, self.samples) == (other.count, other.samples)
            and (len({*self.first, *other.first}) >= FEWEST)
        )


class Look:
    """Compares what the cores' loaders give.

    Args:
        memory: Of the cores.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._made: weakref.WeakKeyDictionary[Any, tuple[Place, bool]] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._thread = threading.local()
        self._ended: weakref.WeakKeyDictionary[
            CoreGroup, dict[tuple[Place, int], dict[int, _Pass]]
        ] = weakref.WeakKeyDictionary()

    def made(self, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around MADE."""
        place = user_frame(threading.get_ident())
        indices = getattr(call.args[0], "_index_sampler", None)
        if place is not None and indices is not None and _shares_nothing_out(call.args[0]):
            with self._lock:
                self._made[indices] = (place, _streams(call.args[0]))
        return proceed()

    def feed(self, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around FEED: the thread takes batches for a core."""
        self._thread.core = call.core
        return proceed()

    def batch(self, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around LOADER."""
        number = getattr(self._thread, "core", None) if call.core is None else call.core
        core = self._memory.running.core(number)
        if core is None or call.what != "DataLoader":
            return proceed()
        with self._memory.guarded(core, "batches"):
            found = self._pass(core, call.args[0])
        try:
            given = proceed()
        except StopIteration:
            if found is not None:
                found.whole = True
            raise
        if found is not None:
            with self._memory.guarded(core, "batches"):
                found.add(given)
        return given

    def step(self, core: Core, _call: Call, proceed: Callable[[], Any]) -> Any:
        """Around STEP."""
        now = self._memory.of(core).notes.get("pass")
        if now is not None:
            now.stepped = True
        return proceed()

    def main(self, core: Core, _call: Call, proceed: Callable[[], Any]) -> Any:
        """Around CORE."""
        result = proceed()
        with self._memory.guarded(core, "batches"):
            self._end(core)
        return result

    def _pass(self, core: Core, iterator: Any) -> _Pass | None:
        """The pass that an iterator makes; None if it is not the first over its loader.

        Fact used (torch 2.9.0): ``_num_yielded`` is 0 before a pass, with persistent workers too.
        """
        if getattr(iterator, "_num_yielded", None) == 0:
            self._end(core)
        indices = getattr(iterator, "_index_sampler", None)
        with self._lock:
            made = self._made.get(indices) if indices is not None else None
        if made is None:
            return None
        mind = self._memory.of(core)
        begun: weakref.WeakKeyDictionary[Any, tuple[Any, _Pass]] = mind.note(
            "passes", weakref.WeakKeyDictionary
        )
        known = begun.get(indices)
        if known is not None:
            return known[1] if known[0]() is iterator and not known[1].whole else None
        found = _Pass(*made)
        begun[indices] = (weakref.ref(iterator), found)
        mind.notes["pass"] = found
        return found

    def _end(self, core: Core) -> None:
        """Another loader has its turn: what the last one gave is compared with the other cores'."""
        mind = self._memory.of(core)
        found: _Pass | None = mind.notes.pop("pass", None)
        if found is None or not found.first:
            return
        turns: dict[Place, int] = mind.note("turns", dict)
        turns[found.place] = turns.get(found.place, 0) + 1
        key = (found.place, turns[found.place])
        group = core.group
        with self._lock:
            ended = self._ended.setdefault(group, {}).setdefault(key, {})
            ended[core.number] = found
            passes = [ended[number] for number in sorted(ended)]
        if len(passes) == len(group.cores) and all(one.like(passes[0]) for one in passes):
            self._memory.tell(
                group.cores[min(group.cores)],
                "batches",
                found.place,
                batches=len(found.first),
                order=all(one.first == passes[0].first for one in passes),
                stepped=all(one.stepped for one in passes),
                streams=found.streams,
            )


def install(memory: Memory) -> None:
    """Watch the loaders."""
    look = Look(memory)
    running = memory.running
    running.points.around(MADE, SIMULATE, look.made, "checks")
    running.points.around(FEED, SIMULATE, look.feed, "checks")
    running.points.around(LOADER, SIMULATE, look.batch, "checks")
    running.around(STEP, look.step, "checks")
    running.around(CORE, look.main, "checks")


def _shares_nothing_out(loader: Any) -> bool:
    """Whether a loader takes all samples of its data set: in order, at random, or as they come."""
    from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

    if _streams(loader):
        return True
    batches = getattr(loader, "batch_sampler", None)
    if batches is not None and type(batches) is not BatchSampler:
        return False
    return type(getattr(loader, "sampler", None)) in (SequentialSampler, RandomSampler)


def _streams(loader: Any) -> bool:
    from torch.utils.data import IterableDataset

    return isinstance(getattr(loader, "dataset", None), IterableDataset)


def _tensors(batch: Any, depth: int = 4) -> Iterator[Any]:
    """The host's tensors of a batch, in their order."""
    import torch

    if isinstance(batch, torch.Tensor):
        if batch.device.type == "cpu" and batch.numel() and batch.layout is torch.strided:
            yield batch
    elif depth and isinstance(batch, (list, tuple)):
        for one in batch:
            yield from _tensors(one, depth - 1)
    elif depth and hasattr(batch, "values") and hasattr(batch, "keys"):
        for one in batch.values():
            yield from _tensors(one, depth - 1)


def _digest(tensor: Any, most: int) -> int:
    """A number made of a tensor's shape and of up to ``most`` of its bytes, spread over it."""
    row = tensor.reshape(1, -1)
    return zlib.crc32(_bytes(row, most)[0], zlib.crc32(repr(tuple(tensor.shape)).encode()))


def _bytes(rows: Any, most: int) -> Any:
    """Up to ``most`` bytes of each row of a host tensor, spread over it, as a NumPy array."""
    import torch

    step = max(1, rows.shape[1] * rows.element_size() // most)
    return rows.detach()[:, ::step].contiguous().view(torch.uint8).numpy()
