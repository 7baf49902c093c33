"""Samples that the cores' samplers give twice, or to nobody.

``DistributedSampler`` divides by what it is told: by a number of replicas that is not that of the
cores, or with one rank for all of them, some samples are never seen and others by every core. What
is compared are the indices of each core's first pass, before anything is loaded. A sampler repeats
or leaves out as many samples as make the shares equal (one less than there are cores at most):
that is right where they train. In an evaluation (a pass in order, with no optimizer step before the
next one) a metric over the cores counts what was repeated twice.
"""

from __future__ import annotations

import functools
import threading
import weakref
from typing import TYPE_CHECKING, Any

from ...agent.points import CORE, FEED, SIMULATE
from ..places import user_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...agent.points import Call
    from ..cores import Core, CoreGroup
    from ..places import Place
    from .memory import Memory

#: Samples of a data set that are looked at; larger ones are not compared.
MOST = 2_000_000
#: Attribute of a sampler: the line that made it.
_PLACE = "_xladoctor_place"


class _Look:
    """Compares what the cores' samplers give in their first pass."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._thread = threading.local()
        self._given: weakref.WeakKeyDictionary[
            CoreGroup, dict[tuple[Place, int], dict[int, tuple[int, list[int]]]]
        ] = weakref.WeakKeyDictionary()

    def feed(self, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around FEED: the thread takes batches for a core."""
        self._thread.core = call.core
        return proceed()

    def making(self, original: Any) -> Any:
        """In the place of a sampler's constructor: notes the line."""

        @functools.wraps(original)
        def init(*args: Any, **kwargs: Any) -> None:
            original(*args, **kwargs)
            args[0].__dict__[_PLACE] = user_frame(threading.get_ident())

        return init

    def iterating(self, original: Any) -> Any:
        """In the place of a sampler's ``__iter__``: notes what it gives."""

        @functools.wraps(original)
        def indices(*args: Any, **kwargs: Any) -> Iterator[int]:
            sampler, given = args[0], original(*args, **kwargs)
            number = getattr(self._thread, "core", None)
            core = self._memory.here() or self._memory.running.core(number)
            if core is not None:
                with self._memory.guarded(core, "samples"):
                    self._evaluated(core)
            place = sampler.__dict__.pop(_PLACE, None)  # so that only its first pass counts
            if core is None or place is None or len(sampler.dataset) > MOST:
                return iter(given)
            listed = list(given)
            with self._memory.guarded(core, "samples"):
                self._compare(core, place, sampler, listed)
            return iter(listed)

        return indices

    def _compare(self, core: Core, place: Place, sampler: Any, listed: list[int]) -> None:
        length = len(sampler.dataset)
        turns: dict[Place, int] = self._memory.of(core).note("samplers", dict)
        turns[place] = turns.get(place, 0) + 1
        with self._lock:
            of_group = self._given.setdefault(core.group, {})
            given = of_group.setdefault((place, turns[place]), {})
            given[core.number] = (length, listed)
            if len(given) < core.group.size:
                return
            shares = list(of_group.pop((place, turns[place])).values())
        if len({size for size, _ in shares}) > 1:
            return  # a data set of each core's own
        every = set().union(*(share for _, share in shares))
        twice = sum(len(share) for _, share in shares) - len(every)
        never = length - len(every)
        if max(twice, never) >= len(shares):
            cores = core.group.cores
            self._memory.tell(
                cores[min(cores)], "samples", place, twice=twice, never=never, length=length
            )
        elif twice and not sampler.shuffle:
            mind = self._memory.of(core)
            mind.notes["padded"] = (mind.steps, place, twice, length)

    def main(self, core: Core, _call: Call, proceed: Callable[[], Any]) -> Any:
        """Around CORE."""
        result = proceed()
        with self._memory.guarded(core, "samples"):
            self._evaluated(core)
        return result

    def _evaluated(self, core: Core) -> None:
        """A pass is over: tell what was repeated if no optimizer has stepped meanwhile."""
        mind = self._memory.of(core)
        steps, place, twice, length = mind.notes.pop("padded", (-1, None, 0, 0))
        if steps == mind.steps:
            self._memory.tell(core, "padded", place, twice=twice, length=length)


def install(memory: Memory) -> None:
    """Watch torch's sampler that divides a data set over cores.

    Args:
        memory: Of the cores.
    """
    from torch.utils.data.distributed import DistributedSampler

    look = _Look(memory)
    memory.running.points.around(FEED, SIMULATE, look.feed, "checks")
    memory.running.around(CORE, look.main, "samples")
    DistributedSampler.__init__ = look.making(DistributedSampler.__init__)
    DistributedSampler.__iter__ = look.iterating(DistributedSampler.__iter__)
