"""Samples that every core augments with the same random numbers.

A data set that draws on the host (a crop, a flip, noise) draws from generators that are seeded
alike on all cores as a rule, by the line that makes the weights equal: each core then does the same
to its own samples. What is compared is where a generator stands before a loader fetches a batch, in
the first batches that draw; only in the core's own process, where no other code draws meanwhile.
"""

from __future__ import annotations

import functools
import random
import sys
import threading
import zlib
from typing import TYPE_CHECKING, Any

from ...agent.points import FEED, SIMULATE
from ..places import is_users
from ..randomness import current
from .memory import Memory, place_of, watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...agent.points import Call
    from ..cores import Core
    from ..places import Place
    from ..randomness import Generators

#: Batches of a data set that are compared, and those that are looked at for draws.
COMPARED, LOOKED_AT = 2, 4


class _Look:
    """Notes where a core's generators stand when its loaders fetch."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._thread = threading.local()

    def feed(self, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around FEED: the thread takes batches for a core."""
        self._thread.core = call.core
        return proceed()

    def seeding(self, name: str) -> Callable[..., None]:
        """Notes the line that seeds a generator."""

        def look(core: Core, *args: Any, **kwargs: Any) -> None:  # noqa: ARG001
            self._memory.of(core).note("seeded", dict)[name] = place_of(core)

        return look

    def fetching(self, original: Any) -> Any:
        """In the place of a fetcher's ``fetch``."""
        look = self

        @functools.wraps(original)
        def fetch(self: Any, possibly_batched_index: Any) -> Any:
            mine = current()
            core = look._memory.here() or look._memory.running.core(
                getattr(look._thread, "core", None)
            )
            if mine is None or core is None:
                return original(self, possibly_batched_index)
            fetches = look._memory.of(core).note("fetches", dict)
            count, seen = fetches.setdefault(type(self.dataset), [0, {}])
            if count >= LOOKED_AT:
                return original(self, possibly_batched_index)
            fetches[type(self.dataset)][0] += 1
            before = _states(mine)
            made = original(self, possibly_batched_index)
            with look._memory.guarded(core, "sample-draws"):
                for name, state in _states(mine).items():
                    if state != before[name]:
                        seen.setdefault(name, []).append(f"{count + 1}:{before[name]}")
                        look._tell(core, name, seen[name], type(self.dataset))
            return made

        return fetch

    def _tell(self, core: Core, name: str, seeds: list[str], dataset: type) -> None:
        if len(seeds) != COMPARED:
            return
        place = self._memory.of(core).note("seeded", dict).get(name) or _draws_at(dataset)
        self._memory.tell(
            core,
            "sample-draws",
            place,
            operation=name,
            seeds=list(seeds),
            dataset=dataset.__name__,
        )


def install(memory: Memory) -> None:
    """Watch what fetches, and what seeds.

    Args:
        memory: Of the cores.
    """
    import torch
    from torch.utils.data._utils import fetch

    look = _Look(memory)
    memory.running.points.around(FEED, SIMULATE, look.feed, "checks")
    for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        kind.fetch = look.fetching(kind.fetch)
    watch(random, "seed", memory, look.seeding("random"))
    for owner in (torch, torch.random):
        watch(owner, "manual_seed", memory, look.seeding("torch"))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        watch(numpy.random, "seed", memory, look.seeding("numpy.random"))


def _states(generators: Generators) -> dict[str, int]:
    """Where a core's generators stand, as one number each."""
    states = {
        "torch": zlib.crc32(generators.torch.get_state().numpy()),
        "random": hash(generators.python.getstate()),
    }
    if generators.numpy is not None:
        state = generators.numpy.get_state(legacy=False)["state"]
        states["numpy.random"] = zlib.crc32(state["key"], state["pos"])
    return states


def _draws_at(dataset: type) -> Place | None:
    """Where the user's data set makes its samples; None for one of a library."""
    for name in ("__getitem__", "__getitems__", "__iter__"):
        code = getattr(getattr(dataset, name, None), "__code__", None)
        if code is not None and is_users(code.co_filename):
            return code.co_filename, code.co_firstlineno, name
    return None
