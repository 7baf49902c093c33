"""Loader workers that start at once: they are forked from a copy of the process made in time.

torch_xla's child process was spawned, so ``DataLoader(num_workers=2)`` spawns its workers too, and
each imports the program, torch and torch_xla again: about 5 seconds of CPU for a worker. On a TPU
host with a hundred CPUs that is bearable; 8 cores with 2 workers each are 16 such starts, in every
epoch, on a laptop. Forking them from the running process is not safe: the runtime has threads.

So the process forks once before its runtime starts, and that copy, which has imported everything,
becomes the server of Python's own "forkserver" start method. For the program nothing else changes:
the data set is still sent to the worker by pickle, as it is when workers are spawned.
"""

from __future__ import annotations

import functools
import os
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def install() -> None:
    """Start the server before the cores of a spawned process begin, and let loaders use it."""
    from torch.utils.data import dataloader
    from torch_xla._internal import pjrt

    server = _Server()
    original = pjrt._run_thread_per_device

    # functools.wraps keeps the name by which torch_xla pickles the function.
    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        server.start()
        return original(*args, **kwargs)

    pjrt._run_thread_per_device = run
    iterator: Any = dataloader._MultiProcessingDataLoaderIter
    iterator.__init__ = _initializer(iterator.__init__, server)


class _Server:
    """The fork server of this process."""

    def __init__(self) -> None:
        self._process: int | None = None

    def start(self) -> None:
        """Fork the server, if this is a process that would spawn its workers; never raises."""
        import multiprocessing

        try:
            spawns = multiprocessing.get_start_method(allow_none=True) == "spawn"
            if spawns and threading.active_count() == 1 and self._process != os.getpid():
                _fork_server()
                self._process = os.getpid()
        except Exception:
            self._process = None  # the workers are spawned, as without us

    @property
    def serves(self) -> bool:
        """Whether this process has a server."""
        return self._process == os.getpid()


def _initializer(original: Callable[..., None], server: _Server) -> Any:
    @functools.wraps(original)
    def init(self: Any, loader: Any) -> None:
        import multiprocessing

        if (
            not server.serves
            or loader.multiprocessing_context is not None
            or multiprocessing.get_start_method(allow_none=True) != "spawn"
        ):
            original(self, loader)
            return
        loader.multiprocessing_context = "forkserver"
        try:
            original(self, loader)
        finally:
            loader.multiprocessing_context = None

    return init


def _fork_server() -> None:
    """What ``multiprocessing.forkserver.ensure_running`` does, with a fork in place of a start.

    Written against the standard library of Python 3.10 to 3.13.
    """
    import socket
    from multiprocessing import connection, forkserver, resource_tracker, util

    known: Any = forkserver._forkserver
    if known._forkserver_pid is not None:
        return
    resource_tracker.ensure_running()
    with socket.socket(socket.AF_UNIX) as listener:
        address = connection.arbitrary_address("AF_UNIX")  # type: ignore[attr-defined]
        listener.bind(address)
        listener.listen()
        alive_r, alive_w = os.pipe()
        process = os.fork()
        if process == 0:
            try:
                os.close(alive_w)
                util._finalizer_registry.clear()  # type: ignore[attr-defined]
                forkserver.main(listener.detach(), alive_r, [])
            finally:
                os._exit(0)
        os.close(alive_r)
    known._forkserver_address = address
    known._forkserver_alive_fd = alive_w
    known._forkserver_pid = process
