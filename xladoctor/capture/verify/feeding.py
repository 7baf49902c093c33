"""The same batches in all ways: what N cores have read is what one core reads, joined.

The way on N cores keeps each batch that a core's loader gives. In the other ways a loader gives
the batches of all cores, one behind the other along their first dimension, in place of its own, and
as many as each core had; the program's own data set is not read.
"""

from __future__ import annotations

import functools
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
#: Attribute of a data loader: its number among those of its core.
_NUMBER = "_xladoctor_number"


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

        def making(original: Any) -> Any:
            @functools.wraps(original)
            def init(loader: Any, *args: Any, **kwargs: Any) -> None:
                _numbered(loader)
                original(loader, *args, **kwargs)

            return init

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

        DataLoader.__init__ = making(DataLoader.__init__)
        DataLoader.__iter__ = iterating(DataLoader.__iter__)
        DataLoader.__len__ = counting(DataLoader.__len__)
        points.around(FEED, SIMULATE, self._feed, "verify")

    def _feed(self, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around FEED: a device loader may take its batches from anything that can be iterated."""
        from torch.utils.data import DataLoader

        loader = call.args[0]
        source = getattr(loader, "_cpu_loader", None)
        if source is not None and not _holds_loader(source, DataLoader):
            loader._cpu_loader = _Source(self, source)
        return proceed()

    def _iterate(self, loader: Any, original: Any) -> Iterator[Any]:
        core = state.current()
        key = _key(loader)
        epoch = core.epochs.get(key, 0)
        core.epochs[key] = epoch + 1
        name = os.path.join(f"{key}-{epoch}")
        if self._settings.source is None:
            self._note_length(loader, core, key)
            return _Noting(core, self._keeping(original(loader), core, name))
        return _Noting(core, self._joined(original, loader, name))

    # -- keeping ---------------------------------------------------------------------------------
    def _folder(self, core: int, name: str) -> str:
        base = self._settings.source or self._settings.folder
        return os.path.join(base, "batches", str(core), name)

    def _keeping(self, batches: Iterator[Any], core: state.Core, name: str) -> Iterator[Any]:
        import torch

        folder = self._folder(core.number, name)
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
        folder = os.path.join(self._settings.folder, "batches", str(core.number))
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"{key}.length"), "w") as file:
            file.write(str(length))

    # -- giving ----------------------------------------------------------------------------------
    def _length(self, loader: Any, original: Any) -> int:
        if self._settings.source is not None:
            for core in range(self._settings.cores):
                path = os.path.join(
                    self._settings.source, "batches", str(core), f"{_key(loader)}.length"
                )
                try:
                    with open(path) as file:
                        return int(file.read())
                except (OSError, ValueError):
                    continue
        return int(original(loader))

    def _joined(self, original: Any, loader: Any, name: str) -> Iterator[Any]:
        folders = [self._folder(core, name) for core in range(self._settings.cores)]
        folders = [folder for folder in folders if os.path.isdir(folder)]
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
        setattr(self, _NUMBER, f"source-{state.current().loaders}")
        state.current().loaders += 1

    def __iter__(self) -> Any:
        return self._feeding._iterate(self, lambda _: iter(self._source))

    def __len__(self) -> int:
        return len(self._source)


def _holds_loader(source: Any, kind: Any) -> bool:
    """Whether a data loader is what gives the batches: then it is fed itself."""
    if isinstance(source, kind):
        return True
    inner = [getattr(source, name, None) for name in ("_loader", "dataloader", "base_dataloader")]
    return any(isinstance(one, kind) for one in inner)


def _numbered(loader: Any) -> None:
    core = state.current()
    where = "main" if core is state.main else "core"
    loader.__dict__[_NUMBER] = f"{where}-{core.loaders}"
    core.loaders += 1


def _key(loader: Any) -> str:
    return str(getattr(loader, _NUMBER, "loader"))


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
