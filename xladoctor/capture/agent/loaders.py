"""Which data loader feeds a core: where it was made, where its loop is, which batch it has given.

A graph that is new because a batch has another size is changed where the loader is made, and no
frame of the step knows that line.

Facts used (torch 2.9.0): a ``DataLoader`` and its iterators share one ``_index_sampler``, which no
other loader has; an iterator counts its batches in ``_num_yielded``; torch_xla's ``ParallelLoader``
has what it takes its batches from as ``_cpu_loader``.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .sites import Sites

#: Frames as they are recorded: file, row, function.
Frames = tuple[tuple[str, int, str], ...]


class Feed:
    """The batches that one pass over a loader has given to a core.

    Attributes:
        made: Where the loader was made; () if that was not seen.
        loop: The site of the loop over it.
        number: How many batches it has given.
        over: Whether the pass is over.
    """

    __slots__ = ("_of", "_sampler", "loop", "made", "number", "over")

    def __init__(self, of: Any, sampler: Any, made: Frames, loop: int) -> None:
        self._of = _reference(of)
        self._sampler = _reference(sampler)
        self.made = made
        self.loop = loop
        self.number = 0
        self.over = False

    def is_of(self, source: Any) -> bool:
        """Whether it is the pass that an iterator makes."""
        return self._of is not None and self._of() is source

    def row(self, sites: Sites) -> dict[str, Any]:
        """As the run directory has it; ``batches`` is None for a loader that knows no number."""
        sampler = None if self._sampler is None else self._sampler()
        batches = None
        with contextlib.suppress(Exception):
            batches = None if sampler is None else len(sampler)
        return {
            "made": sites.of(self.made) if self.made else None,
            "loop": self.loop,
            "batch": self.number,
            "batches": batches,
            "over": self.over,
        }


class Loaders:
    """The loaders of one process."""

    def __init__(self) -> None:
        self._made: weakref.WeakKeyDictionary[Any, Frames] = weakref.WeakKeyDictionary()

    def made(self, loader: Any, frames: Frames) -> None:
        """A loader has been made by these lines."""
        with contextlib.suppress(Exception):
            self._made[loader._index_sampler] = frames

    def gave(
        self, feed: Feed | None, source: Any, *, batch: bool, loop: Callable[[], int]
    ) -> Feed | None:
        """What feeds a core after an iterator has been asked for a batch.

        Args:
            feed: What fed the core before.
            source: The iterator, or torch_xla's ParallelLoader.
            batch: Whether it gave one; else the pass is over.
            loop: Gives the site of the loop.
        """
        if feed is None or not feed.is_of(source):
            if not batch:
                return feed  # an empty pass feeds nobody
            sampler = self._sampler_of(source)
            made: Frames = ()
            with contextlib.suppress(Exception):
                made = self._made.get(sampler, ()) if sampler is not None else ()
            feed = Feed(source, sampler, made, loop())
        feed.over = not batch
        counted = getattr(source, "_num_yielded", None)
        if batch:
            # Persistent workers make one iterator for all passes, and count from 0 in each.
            feed.number = counted if isinstance(counted, int) else feed.number + 1
        return feed

    def _sampler_of(self, source: Any) -> Any:
        """What the loader behind an iterator takes its indices from; None if nobody knows it."""
        inner = getattr(source, "_cpu_loader", source)
        for one in (inner, *_parts(inner)):
            sampler = getattr(one, "_index_sampler", None)
            with contextlib.suppress(Exception):
                if sampler is not None and (one is inner or sampler in self._made):
                    return sampler
        return None


def _parts(loader: Any) -> list[Any]:
    """What a wrapper around a loader holds."""
    try:
        return list(vars(loader).values())[:32]
    except TypeError:
        return []


def _reference(thing: Any) -> Any:
    try:
        return None if thing is None else weakref.ref(thing)
    except TypeError:
        return None
