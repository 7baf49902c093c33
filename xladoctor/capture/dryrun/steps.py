"""Which graphs make up a step, and when enough steps have been seen.

A step ends with the launch that follows the optimizer's step. The first ones differ (the state of
the optimizer comes into being), so the program goes on until two steps in a row were the same
graphs. Then there is nothing more to learn from it, and the process ends: no more of the program
runs on values that mean nothing.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import os
import sys
import threading
import zlib
from typing import TYPE_CHECKING, Any

from ..agent.process import Process, at_end_of_child
from . import differences

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..agent.points import Call
    from ..agent.writer import Writer

#: Steps after which a program that traces another graph each time is ended.
MOST_STEPS = 12

#: How the process ends when everything is known; the launcher does not ask further.
DONE = 0


class Steps:
    """The steps of one process.

    Args:
        writer: Takes the graphs.
        process: Takes the rows.
    """

    def __init__(self, writer: Writer, process: Process) -> None:
        self._writer = writer
        self._process = process
        self._lock = threading.RLock()
        self._kept: dict[str, str | None] = {}
        self._graphs: list[str] = []
        self._before: list[str] | None = None
        self._stepper: int | None = None
        self._stepped = 0
        self._backward = 0
        #: Whether a backward pass has begun: what the program does now is what it will do.
        self.training = False
        self._closed = False
        self._count = 0
        self._batches: collections.Counter[int] = collections.Counter()
        self._uploads: dict[int, set[int]] = {}
        atexit.register(self._program_ended)

    def graph(self, name: str, make: Callable[[], bytes]) -> None:
        """A graph was to be launched.

        Args:
            name: torch_xla's hash of it.
            make: Gives it as a serialized ``HloProto``; called if it is new.
        """
        with self._lock:
            self.prepare(name, make)
            self._graphs.append(name)

    def prepare(self, name: str, make: Callable[[], bytes]) -> None:
        """A graph was to be compiled."""
        self._begin()
        if name in self._kept:
            return
        path = f"graphs/{len(self._kept):04}"
        kept = self._writer.keep(f"{path}.pb.z", zlib.compress(make(), 1))
        self._kept[name] = path if kept else None

    def again(self, name: str) -> None:
        """A graph that was prepared was to be launched."""
        self._graphs.append(name)

    def stepped(self) -> None:
        """The optimizer has made its step, in the thread that calls."""
        self._begin()
        self._stepped += 1
        self._stepper = threading.get_ident()

    def batch(self, batch: Any) -> None:
        """A data loader gives a batch to the thread that calls."""
        size = _leading(batch)
        if size is not None:
            self._batches[threading.get_ident()] += size

    def upload(self, call: Call) -> None:
        """Tensors go to the device."""
        first = call.args[0] if call.args else ()
        for tensor in first if isinstance(first, (list, tuple)) else (first,):
            if getattr(tensor, "dim", int)():
                self._uploads.setdefault(threading.get_ident(), set()).add(int(tensor.shape[0]))

    def backward(self) -> None:
        """A backward pass begins."""
        self.training = True
        self._backward += 1

    def launched(self) -> None:
        """A launch that ends a step, if the optimizer has made one."""
        self._begin()
        if not self._stepped:
            return
        with self._lock:
            self._count += 1
            graphs, self._graphs = self._graphs, []
            settled = graphs == self._before
            if settled or self._count >= MOST_STEPS:
                self._write(graphs, settled=settled)
                self._end()
            self._before = graphs
            self._stepped = self._backward = 0
            self._batches.clear()
            self._uploads.clear()

    def fail(self, why: str) -> None:
        """The program cannot be traced; ends the process."""
        self._begin()
        self._process.write({"e": "trace-failed", "why": why})
        self._end()

    def _begin(self) -> None:
        if self._process.start():
            at_end_of_child(self._program_ended)

    def _write(self, graphs: list[str], *, settled: bool) -> None:
        self._closed = True
        different = differences.traced()
        if different:
            self._process.note(
                f"a TPU host traces {', '.join(different)} otherwise than a CPU: what these cost "
                "may differ"
            )
        self._process.write(
            {
                "e": "traced-step",
                "step": self._count,
                "settled": settled,
                "graphs": [{"graph": name, "hlo": self._kept[name]} for name in graphs],
                "samples": self._samples(),
            }
        )

    def _samples(self) -> int | None:
        """Samples of this step: from the loader's batches, else from what was uploaded.

        What is uploaded by hand is a batch for each backward pass, if all of it has one length.
        """
        stepper = self._stepper or 0
        if stepper in self._batches:
            return self._batches[stepper]
        sizes = self._uploads.get(stepper, set())
        if len(sizes) != 1:
            return None
        return next(iter(sizes)) * max(1, self._backward // max(1, self._stepped))

    def _program_ended(self) -> None:
        """The program came to its end by itself; its last step stands for what it does."""
        if self._closed or not self._process.started:
            return
        if self._count and self._before is not None:
            self._write(self._before, settled=False)
        elif self._stepped and self._graphs:
            self._count = 1
            self._write(self._graphs, settled=False)
        else:
            self._closed = True
            self._process.write({"e": "trace-failed", "why": "it made no optimizer step"})

    def _end(self) -> None:
        self._closed = True
        self._process.write({"e": "end", "t": 0.0})
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(DONE)


def _leading(batch: Any) -> int | None:
    """The size of the first dimension of the first tensor in a batch."""
    if hasattr(batch, "dim") and hasattr(batch, "shape"):
        return int(batch.shape[0]) if batch.dim() else None
    if isinstance(batch, dict) or hasattr(batch, "values"):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        for one in batch:
            size = _leading(one)
            if size is not None:
                return size
    return None
