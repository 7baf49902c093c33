"""The same batches in all ways: what N cores have read is what one core reads, joined.

The way on N cores keeps each batch that a core's loader gives. In the other ways a loader gives
the batches of all cores, one behind the other along their first dimension, in place of its own, and
as many as each core had; the program's own data set is not read.

A loader is known by its number among those that its core iterates over, and not by when it was
made: frameworks make some anew, and others on one core than on several (Lightning 2.6 puts a
sampler into a new loader where there is more than one core, and trains one core without a thread of
its own). What is iterated over while a batch is being made belongs to that batch.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
from typing import TYPE_CHECKING, Any

from ..agent.points import FEED, SIMULATE
from . import state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..agent.points import Call, Points
    from .settings import Settings

#: Bytes of batches that one way may leave on disk.
MOST_BYTES = 4 << 30
#: Attribute of a data loader: its number among those that its core has iterated over.
_NUMBER = "_xladoctor_number"
#: Attributes in which device loaders keep the loader that they take their batches from.
_INNER = ("_loader", "dataloader", "base_dataloader")


class CannotJoinError(RuntimeError):
    """Batches of several cores cannot be made one."""


class Feeding:
    """Keeps batches, or gives those that were kept.

    Args:
        settings: Of this way.
        fail: Told in a sentence why this way cannot be run.
    """

    def __init__(self, settings: Settings, fail: Callable[[str], None]) -> None:
        self._settings = settings
        self._fail = fail
        self._bytes = 0
        self._lock = threading.Lock()

    def install(self, points: Points) -> None:
        """Begin."""
        from torch.utils.data import DataLoader

        def iterating(original: Any) -> Any:
            @functools.wraps(original)
            def batches(loader: Any) -> Any:
                return self._iterate(loader, original)

            return batches

        def counting(original: Any) -> Any:
            @functools.wraps(original)
            def length(loader: Any) -> int:
                return self._length(loader, original)

            return length

        DataLoader.__iter__ = iterating(DataLoader.__iter__)
        DataLoader.__len__ = counting(DataLoader.__len__)
        points.around(FEED, SIMULATE, self._feed, "verify")

    def _feed(self, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around FEED: a device loader may take its batches from anything that can be iterated."""
        from torch.utils.data import DataLoader

        loader = call.args[0]
        source = getattr(loader, "_cpu_loader", None)
        if source is not None:
            inner = _data_loader(source, DataLoader)
            if inner is not None:
                # Here, in the core's own thread: threads of several loaders begin in any order.
                _numbered(inner)
            elif not isinstance(source, _Source):
                loader._cpu_loader = _Source(self, source)
        return proceed()

    def _iterate(self, loader: Any, original: Any) -> Iterator[Any]:
        if state.makes_batch():
            return iter(original(loader))
        core = state.current()
        key = _numbered(loader)
        epoch = core.epochs.get(key, 0)
        core.epochs[key] = epoch + 1
        if self._settings.source is None:
            self._note_length(loader, core, key)
            with state.aside():
                batches = original(loader)
            return _Noting(core, self._keeping(batches, core, f"{key}-{epoch}"))
        return _Noting(core, self._joined(original, loader, key, epoch))

    # -- keeping ---------------------------------------------------------------------------------
    def _folder(self, core: int) -> str:
        return os.path.join(self._settings.source or self._settings.folder, "batches", str(core))

    def _keeping(self, batches: Iterator[Any], core: state.Core, name: str) -> Iterator[Any]:
        import torch

        folder = os.path.join(self._folder(core.number), name)
        os.makedirs(folder, exist_ok=True)
        for at, batch in enumerate(batches):
            path = os.path.join(folder, f"{at}.pt")
            torch.save(batch, path)
            with self._lock:
                self._bytes += os.path.getsize(path)
            if self._bytes > MOST_BYTES:
                self._fail(
                    f"the batches of the cores are more than {MOST_BYTES >> 30} GB, too many to be "
                    "kept for the other ways: use fewer --steps, or a smaller batch"
                )
            yield batch
        with open(os.path.join(folder, "end"), "w"):
            pass

    def _note_length(self, loader: Any, core: state.Core, key: str) -> None:
        try:
            length = len(loader)
        except TypeError:
            return
        folder = self._folder(core.number)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"{key}.length"), "w") as file:
            json.dump([length, _signature(loader)], file)

    # -- giving ----------------------------------------------------------------------------------
    def _length(self, loader: Any, original: Any) -> int:
        """How many batches a loader gives: as many as it gave a core.

        It may be asked before the loader is iterated over; then it is the first one like it that
        has not been.
        """
        if self._settings.source is not None:
            key = getattr(loader, _NUMBER, None)
            taken = state.current().epochs
            for core in range(self._settings.cores):
                for known, length, signature in self._lengths(core):
                    if known in _same(key) if key else _is_like(loader, known, signature, taken):
                        return length
        return int(original(loader))

    def _lengths(self, core: int) -> Iterator[tuple[str, int, list[Any]]]:
        """The loaders of a core in the way that records, by number: key, length, signature."""
        folder = self._folder(core)
        try:
            names = [name for name in os.listdir(folder) if name.endswith(".length")]
        except OSError:
            return
        for name in sorted(names, key=lambda name: (len(name), name)):
            with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, name)) as file:
                length, signature = json.load(file)
                yield name.removesuffix(".length"), length, signature

    def _joined(self, original: Any, loader: Any, key: str, epoch: int) -> Iterator[Any]:
        folders = self._folders(key, epoch)
        if not folders:  # a loader that only this way iterates over
            yield from original(loader)
            return
        import torch

        at = 0
        while True:
            paths = [os.path.join(folder, f"{at}.pt") for folder in folders]
            paths = [path for path in paths if os.path.exists(path)]
            if not paths:
                return
            batches = [torch.load(path, weights_only=False) for path in paths]
            try:
                batch = joined(batches)
            except CannotJoinError as error:
                self._fail(
                    f"the batches of the cores cannot be joined to one: {error}; pad them to one "
                    "size, which XLA needs anyway"
                )
                raise
            yield batch
            at += 1

    def _folders(self, key: str, epoch: int) -> list[str]:
        """What the cores have kept of a pass over a loader."""
        for known in _same(key):
            folders = [
                os.path.join(self._folder(core), f"{known}-{epoch}")
                for core in range(self._settings.cores)
            ]
            folders = [folder for folder in folders if os.path.isdir(folder)]
            if folders:
                return folders
        return []


class _Noting:
    """An iterator of batches; notes how large the batch is that the program is at."""

    def __init__(self, core: state.Core, batches: Iterator[Any]) -> None:
        self._core = core
        self._batches = batches

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        with state.aside():
            batch = next(self._batches)
        size = leading(batch)
        if size is not None:
            self._core.batch, self._core.from_loader = size, True
        return batch


class _Source:
    """What a device loader iterates over, if it is no data loader."""

    def __init__(self, feeding: Feeding, source: Any) -> None:
        self._feeding = feeding
        self._source = source
        _numbered(self)

    def __iter__(self) -> Any:
        return self._feeding._iterate(self, lambda _: iter(self._source))

    def __len__(self) -> int:
        return len(self._source)


def _data_loader(source: Any, kind: Any) -> Any:
    """The data loader that gives a device loader its batches, which is fed itself; else None."""
    for one in (source, *(getattr(source, name, None) for name in _INNER)):
        if isinstance(one, kind):
            return one
    return None


def _numbered(loader: Any) -> str:
    """The name of a loader; it gets one when its core first iterates over it."""
    if getattr(loader, _NUMBER, None) is None:
        core = state.current()
        where = "main" if core is state.main else "core"
        loader.__dict__[_NUMBER] = f"{where}-{core.loaders}"
        core.loaders += 1
    return str(loader.__dict__[_NUMBER])


def _same(key: str) -> tuple[str, str]:
    """The names that a loader may have in another way: one core may have no thread of its own."""
    where, _, number = key.partition("-")
    return key, f"{'core' if where == 'main' else 'main'}-{number}"


def _signature(loader: Any) -> list[Any]:
    """What loaders of the same data have in common: data set, its length, batch size."""
    data = getattr(loader, "dataset", None)
    try:
        length = len(data)  # type: ignore[arg-type]
    except TypeError:
        length = None
    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return [type(data).__name__, length, size if isinstance(size, int) else None]


def _is_like(loader: Any, known: str, signature: list[Any], taken: dict[str, int]) -> bool:
    """Whether a recorded loader is like one that was not iterated over yet, nor it itself."""
    return signature == _signature(loader) and not any(one in taken for one in _same(known))


def leading(batch: Any) -> int | None:
    """The size of the first dimension of the first tensor in a batch."""
    if hasattr(batch, "dim") and hasattr(batch, "shape"):
        return int(batch.shape[0]) if batch.dim() else None
    values = list(batch.values()) if hasattr(batch, "values") else batch
    if isinstance(values, (list, tuple)):
        for one in values:
            size = leading(one)
            if size is not None:
                return size
    return None


def joined(batches: list[Any]) -> Any:
    """The batches of several cores as the batch of one.

    Raises:
        CannotJoinError: Their shapes do not fit, or they are no tensors and differ.
    """
    import torch

    first = batches[0]
    if len(batches) == 1:
        return first
    if isinstance(first, torch.Tensor):
        if not first.dim():
            return first
        shapes = {tuple(one.shape[1:]) for one in batches}
        if len(shapes) > 1:
            shown = " and ".join(str(list(one.shape)) for one in batches[:2])
            raise CannotJoinError(f"their tensors have the shapes {shown}")
        return torch.cat(batches)
    if hasattr(first, "keys") and hasattr(first, "__getitem__"):
        made = {key: joined([one[key] for one in batches]) for key in first}
        if type(first) is dict:
            return made
        try:
            return type(first)(made)
        except Exception as error:
            raise CannotJoinError(f"a {type(first).__name__} cannot be made anew") from error
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(joined(list(parts)) for parts in zip(*batches, strict=True)))
    if isinstance(first, (list, tuple)):
        if first and not isinstance(first[0], (str, bytes, int, float)):
            return type(first)(joined(list(parts)) for parts in zip(*batches, strict=True))
        return type(first)(one for batch in batches for one in batch)
    return first
