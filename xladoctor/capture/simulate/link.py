"""What the processes of one run say to each other: through ``torch.distributed``, apart from it.

The process group is one of our own (gloo, not the program's default one), its names stand apart in
the store of torchrun's agent. Two roads: small things that everybody has to know go through the
store (:meth:`Link.everyone`), the bytes of collectives from process to process
(:meth:`Link.swap`). A thread says twice a second that this process is alive and where its
cores stand, and hears the same of the others.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import os
import pickle
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .hosts import Share

#: Seconds that a thread gets to end.
_PATIENCE = 5.0
#: Seconds between two signs of life; between two looks for what others bring, at first and at last.
_BEAT, _LOOKS = 0.5, (0.0005, 0.02)


class LinkBrokenError(Exception):
    """The others cannot be reached; the text says who, and why as far as it is known."""


@dataclasses.dataclass(slots=True)
class Peer:
    """What is known of another process.

    Attributes:
        rank: Its number.
        told: What it has said of itself: "pid", "host", "run_dir", "cores", "said".
        heard: Monotonic time of its last sign of life.
        beat: The number of that sign.
        facts: What it said with it.
    """

    rank: int
    told: dict[str, Any]
    heard: float
    beat: int = -1
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)


class Link:
    """The connection of one launch of cores.

    Args:
        share: Which share of the cores this process has.
        launch: Which launch of the program this is; the same in all processes.
        timeout: Seconds after which a process that says nothing is given up.
        status: Gives what is said with every sign of life.

    Raises:
        LinkBrokenError: A process did not come in time, or runs other cores.
    """

    def __init__(
        self, share: Share, launch: str, timeout: float, status: Callable[[], dict[str, Any]]
    ) -> None:
        self.share = share
        self._timeout = timeout
        self._status = status
        self._prefix = f"xladoctor/{share.run}/{launch}"
        self._stop, self._wake = False, threading.Event()
        self._store = self._connect()
        self._beats = self._connect()  # a client waits in a call: the thread needs one of its own
        self._lock = threading.Lock()
        mine = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "run_dir": os.environ.get("XLADOCTOR_RUN_DIR", ""),
            "cores": share.cores,
        }
        said = self.everyone("hello", mine, lambda: None, limit=timeout)
        now = time.monotonic()
        self.peers = {
            rank: Peer(rank, told, now) for rank, told in said.items() if rank != share.rank
        }
        self._check_alike(said)
        #: Whether this process speaks for all that write into the same run directory.
        self.speaks = not any(
            (said[rank]["host"], said[rank]["run_dir"]) == (mine["host"], mine["run_dir"])
            for rank in range(share.rank)
        )
        self._group = self._gloo()
        self._beat(0)
        self._thread = threading.Thread(target=self._keep_alive, name="xladoctor-link", daemon=True)
        self._thread.start()

    # -- small things ---------------------------------------------------------------------
    def everyone(
        self,
        key: str,
        mine: Any,
        check: Callable[[], None],
        limit: float | None = None,
    ) -> dict[int, Any]:
        """What every process brings under a name; waits for all.

        Args:
            key: Used once.
            mine: What this process brings.
            check: Called now and then while it waits; raises to give up.
            limit: Seconds after which it is given up; None for none.

        Raises:
            LinkBrokenError: The store is gone, or the time is over.
        """
        others = [rank for rank in range(self.share.processes) if rank != self.share.rank]
        began = time.monotonic()
        try:
            self._store.set(f"{key}/{self.share.rank}", pickle.dumps(mine))
            # Looked for, not waited for: torch warns of each wait that ends without.
            pause = _LOOKS[0]
            while not self._store.check([f"{key}/{rank}" for rank in others]):
                check()
                if limit is not None and time.monotonic() - began > limit:
                    missing = [one for one in others if not self._store.check([f"{key}/{one}"])]
                    raise LinkBrokenError(
                        f"{self._names(missing)} did not come to the others within {limit:.0f} s"
                    )
                time.sleep(pause)
                pause = min(2 * pause, _LOOKS[1])
            brought = self._store.multi_get([f"{key}/{rank}" for rank in others])
        except _lost() as error:
            raise LinkBrokenError(f"the store of torchrun is gone ({error})") from error
        theirs = map(pickle.loads, brought)
        return {self.share.rank: mine, **dict(zip(others, theirs, strict=True))}

    def forget(self, key: str) -> None:
        """Nobody asks for what this process brought under a name any more."""
        with contextlib.suppress(Exception):
            self._store.delete_key(f"{key}/{self.share.rank}")

    # -- bytes ----------------------------------------------------------------------------
    def swap(
        self, tag: int, outgoing: Mapping[int, Any], incoming: Mapping[int, int]
    ) -> dict[int, Any]:
        """Send bytes to processes and take theirs.

        Args:
            tag: The same in all of them, and of no other exchange at the same time.
            outgoing: Process to a tensor of bytes.
            incoming: Process to the number of bytes that it sends.

        Returns:
            Process to its bytes.

        Raises:
            LinkBrokenError: One of them is gone.
        """
        import torch

        taken = {rank: torch.empty(size, dtype=torch.uint8) for rank, size in incoming.items()}
        try:
            work = [
                self._group.recv([into], rank, tag) for rank, into in taken.items() if len(into)
            ]
            work += [
                self._group.send([out], rank, tag) for rank, out in outgoing.items() if len(out)
            ]
            for one in work:
                one.wait()
        except RuntimeError as error:
            ranks = {*outgoing, *incoming}
            raise LinkBrokenError(
                f"{self._names(ranks)} did not answer ({_first_line(error)})"
            ) from None
        return taken

    # -- life -----------------------------------------------------------------------------
    def look(self) -> str | None:
        """Who is gone, as the subject and the verb of a sentence; None if nobody is."""
        now = time.monotonic()
        for peer in self.peers.values():
            if peer.facts.get("over"):
                continue
            if self._died(peer):
                self.hear()  # its last words may have come meanwhile
                if peer.facts.get("over") or peer.facts.get("failure"):
                    continue
                return f"{self.name(peer.rank)} has died"
            if now - peer.heard > self._timeout:
                return f"{self.name(peer.rank)} has said nothing for {self._timeout:.0f} s"
        return None

    def hurry(self) -> None:
        """Say soon how this process stands."""
        self._wake.set()

    def hear(self) -> None:
        """Hear now how the others stand."""
        with contextlib.suppress(Exception):
            self._hear()

    def tell_now(self) -> None:
        """Say now how this process stands: it may be about to end."""
        with contextlib.suppress(Exception):
            self._beat(-1)

    def client(self, prefix: str) -> Any:
        """A client of the store of its own, for names that begin with ``prefix``."""
        import torch.distributed as dist

        return dist.PrefixStore(prefix, self._connect())

    def close(self) -> None:
        """Say no more.

        A thread that is in C++ when Python ends would end the process with SIGABRT.
        """
        self._stop = True
        self._wake.set()
        self._thread.join(_PATIENCE)

    def name(self, rank: int) -> str:
        """A process in words: "process 1 (cores 8 to 15, on host-b)"."""
        first = rank * self.share.cores
        last = first + self.share.cores - 1
        cores = f"core {first}" if last == first else f"cores {first} to {last}"
        peers = getattr(self, "peers", {})
        host = f", on {peers[rank].told['host']}" if rank in peers else ""
        return f"process {rank} ({cores}{host})"

    def _names(self, ranks: Any) -> str:
        return " and ".join(self.name(rank) for rank in sorted(ranks))

    def _died(self, peer: Peer) -> bool:
        if peer.told["host"] != socket.gethostname():
            return False
        try:
            os.kill(peer.told["pid"], 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False

    def _check_alike(self, said: Mapping[int, Any]) -> None:
        mine = self.share.cores
        for rank, told in said.items():
            if told["cores"] != mine:
                raise LinkBrokenError(
                    f"process {self.share.rank} simulates {mine} cores and process {rank} "
                    f"{told['cores']}: give --simulate-cores the same number on all hosts"
                )

    def _connect(self) -> Any:
        import torch.distributed as dist

        share = self.share
        try:
            store = dist.TCPStore(
                share.address,
                share.port,
                is_master=False,
                timeout=dt.timedelta(seconds=self._timeout),
                wait_for_workers=False,
            )
        except RuntimeError as error:
            raise LinkBrokenError(
                f"the store of torchrun at {share.address}:{share.port} cannot be reached "
                f"({_first_line(error)})"
            ) from None
        return dist.PrefixStore(self._prefix, store)

    def _gloo(self) -> Any:
        import torch.distributed as dist

        limit = dt.timedelta(seconds=self._timeout)
        store = dist.PrefixStore("gloo", self._store)
        try:
            with _standard_output_elsewhere():
                return dist.ProcessGroupGloo(store, self.share.rank, self.share.processes, limit)
        except RuntimeError as error:
            raise LinkBrokenError(
                f"gloo cannot connect the processes ({_first_line(error)})"
            ) from None

    def _keep_alive(self) -> None:
        beat = 1
        while not self._stop:
            self._wake.wait(_BEAT)
            self._wake.clear()
            with contextlib.suppress(Exception):  # a store that is gone shows in the silence
                self._beat(beat)
                self._hear()
            beat += 1

    def _beat(self, beat: int) -> None:
        """Give a sign of life; a negative one is out of turn."""
        facts = pickle.dumps((beat, self._status()))
        with self._lock:
            self._beats.set(f"beat/{self.share.rank}", facts)

    def _hear(self) -> None:
        for rank, peer in self.peers.items():
            with self._lock:
                if not self._beats.check([f"beat/{rank}"]):
                    continue
                beat, facts = pickle.loads(self._beats.get(f"beat/{rank}"))  # noqa: S301
            if beat != peer.beat:
                peer.beat, peer.facts, peer.heard = beat, facts, time.monotonic()


def _lost() -> type[Exception]:
    import torch.distributed as dist

    error: type[Exception] = dist.DistError
    return error


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


@contextlib.contextmanager
def _standard_output_elsewhere() -> Iterator[None]:
    """Send what is written to the standard output to the standard error: gloo says "connected"."""
    try:
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(2, 1)
    except (OSError, ValueError, AttributeError):
        yield
        return
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
