"""What the program gives to its cores is each core's own, as for processes.

``torch_xla.launch(main, args=(flags,))`` sends ``flags`` to each process by pickle. Here one
process receives it for all cores: ``flags.lr *= xr.world_size()`` at the begin of ``main`` would
multiply as often as there are cores. So it is sent once more, to each core. As between processes,
tensors share their memory; numpy's arrays do too, to spare it, and what is larger than
:data:`MOST_BYTES` without them, or cannot be sent a second time, is one for all cores.
"""

from __future__ import annotations

import io
import pickle
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

#: What is pickled is larger when it is loaded, and each core has it.
MOST_BYTES = 16 * 2**20


def for_each_core(function: Callable[[], Any]) -> Callable[[], Any]:
    """The function with arguments that each caller has for itself.

    Args:
        function: Holds its arguments; it has been pickled once, so it should let itself be again.

    Returns:
        The same function if that is not possible, or too large.
    """
    shared: list[Any] = []
    stream = io.BytesIO()
    try:
        _Pickler(stream, shared).dump(function)
        content = stream.getvalue()
        if len(content) > MOST_BYTES:
            return function
        _Unpickler(io.BytesIO(content), shared).load()
    except Exception:
        return function

    def own() -> Any:
        mine: Callable[[], Any] = _Unpickler(io.BytesIO(content), shared).load()
        return mine()

    return own


class _Pickler(pickle.Pickler):
    """Leaves out the memory of tensors, and arrays, and collects them."""

    def __init__(self, stream: io.BytesIO, shared: list[Any]) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self._shared = shared
        torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
        self._kinds = (torch.storage.TypedStorage, torch.storage.UntypedStorage) + (
            () if numpy is None else (numpy.ndarray,)
        )

    def persistent_id(self, obj: Any) -> int | None:
        """Its place among what is shared; None for all else."""
        if not isinstance(obj, self._kinds):
            return None
        self._shared.append(obj)
        return len(self._shared) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, shared: list[Any]) -> None:
        super().__init__(stream)
        self._shared = shared

    def persistent_load(self, pid: Any) -> Any:
        """What was left out."""
        return self._shared[pid]
