"""The new graphs themselves, as XLA was given them; they tell what differs from earlier ones.

XLA writes each module that it compiles into a folder when ``--xla_dump_to`` is among its flags. It
reads its flags once, when the runtime starts. So the flag is put there when torch_xla has been
imported and taken away after the first graph; a child process puts its own there. It does not
change the hash of a graph, and nothing happens unless something is compiled (torch_xla 2.9.0; the
dump makes a compilation 5 to 20 % longer).

Of a program that is divided among devices (SPMD) the module as XLA has divided it is kept too: only
there are its collectives.

The lines of the operations are in the dump only while torch_xla notes them (``_set_ir_debug``),
which makes tracing about a third slower. So that is on while graphs are still new, and off in a
program that has settled. Switching it does not change hashes either.
"""

from __future__ import annotations

import os
import re
import zlib
from typing import TYPE_CHECKING

from . import xla

if TYPE_CHECKING:
    from collections.abc import Callable

    from .writer import Writer

#: Folder for what XLA writes; made and removed by the launcher. Without it nothing is dumped.
SCRATCH = "XLADOCTOR_SCRATCH"

#: How many graphs of one process are kept, and how many bytes of them (compressed).
MOST_GRAPHS, MOST_BYTES = 500, 64_000_000
#: Says how many bytes, if a run directory is to stay smaller than that.
GRAPH_BYTES = "XLADOCTOR_GRAPH_BYTES"

#: Launches of one core without a new graph after which lines are no longer noted.
SETTLED_LAUNCHES = 16

_FLAGS = "XLA_FLAGS"
_KINDS = {
    ".before_optimizations.txt": "txt",
    ".before_optimizations.hlo.pb": "pb",
    "after_optimizations.txt": "part.txt",
    "after_optimizations.hlo.pb": "part.pb",
}

#: The first line of a module that XLA has divided among devices names more than one of them.
_FIRST_LINE = 10_000_000
_DIVIDED = re.compile(rb"\bnum_partitions=(?!1\b)\d")


class Dumps:
    """The modules that XLA has compiled in this process.

    Args:
        writer: Keeps them in the process's folder.
        lines: "never", "settling" (while graphs are still new) or "always": when torch_xla is to
            note the lines of operations.
    """

    def __init__(self, writer: Writer, *, lines: str) -> None:
        self._writer = writer
        self._lines = lines
        self.problem: str | None = None
        self._begin()

    def _begin(self) -> None:
        self._folder: str | None = None
        self._before: str | None = None
        self._armed = False
        self._kept = self._bytes = self._quiet = 0
        self._most_bytes = int(os.environ.get(GRAPH_BYTES) or MOST_BYTES)
        self._noting = False
        self._arm()
        if self._lines != "never":
            self._note_lines(on=True)

    def start_over(self) -> None:
        """Begin again in a forked child."""
        self.disarm()
        self._begin()

    def _arm(self) -> None:
        scratch = os.environ.get(SCRATCH)
        if not scratch or not os.access(scratch, os.W_OK):
            return
        words = [
            word
            for word in os.environ.get(_FLAGS, "").split()
            if scratch not in word and word not in _OURS
        ]
        if any(word.startswith("--xla_dump") for word in words):
            self.problem = (
                "XLA_FLAGS already dumps graphs: why a graph is new is known less exactly"
            )
            return
        self._folder = f"{scratch}/{os.getpid()}"
        self._before = " ".join(words) or None
        os.environ[_FLAGS] = " ".join([*words, f"--xla_dump_to={self._folder}", *_OURS])
        self._armed = True

    def disarm(self) -> None:
        """Give the program's own flags back; XLA has read them by now."""
        if self._armed:
            self._armed = False
            if self._before is None:
                os.environ.pop(_FLAGS, None)
            else:
                os.environ[_FLAGS] = self._before

    def launched(self, compiled: int, cores: Callable[[], int]) -> list[str | None]:
        """Take what a launch has made XLA write.

        Args:
            compiled: How many graphs it compiled.
            cores: Tells how many cores launch in this process.

        Returns:
            The names under which the graphs were kept, in the order in which they were compiled;
            None for those that were not.
        """
        if self._armed:
            self.disarm()
        if not compiled:
            if self._noting and self._lines == "settling":
                self._quiet += 1
                self._note_lines(on=self._quiet < SETTLED_LAUNCHES * max(1, cores()))
            return []
        self._quiet = 0
        if self._lines != "never":
            self._note_lines(on=True)
        names: list[str | None] = [None] * compiled
        if self._folder is None:
            return names
        modules = self._modules()
        # Threads that compile at the same time cannot be told apart.
        if len(modules) == compiled:
            names = [self._keep(modules[number]) for number in sorted(modules)]
        return names

    def left_over(self) -> list[str]:
        """Keep what a launch has made XLA write that does not come back; returns the names."""
        modules = {} if self._folder is None else self._modules()
        names = [self._keep(modules[number]) for number in sorted(modules)]
        return [name for name in names if name is not None]

    def _note_lines(self, *, on: bool) -> None:
        if on == self._noting:
            return
        switch = xla.binding("_set_ir_debug")
        if switch is not None:
            switch(on)
            self._noting = on

    def _modules(self) -> dict[str, dict[str, bytes]]:
        """Read and remove all that lies in the folder: module's number to kind to content."""
        found: dict[str, dict[str, bytes]] = {}
        assert self._folder is not None
        try:
            names = os.listdir(self._folder)
        except OSError:
            return found
        for name in sorted(names, key=lambda name: not name.endswith(".txt")):
            path = f"{self._folder}/{name}"
            kind = next((_KINDS[end] for end in _KINDS if name.endswith(end)), None)
            try:
                if kind is not None:
                    module = found.setdefault(name.split(".", 1)[0], {})
                    if not kind.startswith("part") or "part.txt" in module or _is_divided(path):
                        with open(path, "rb") as file:
                            module[kind] = file.read()
                os.unlink(path)
            except OSError:
                pass
        return found

    def _keep(self, module: dict[str, bytes]) -> str | None:
        if self._kept >= MOST_GRAPHS or self._bytes >= self._most_bytes:
            return None
        name = f"graphs/{self._kept:04}"
        for kind, content in sorted(module.items()):
            packed = zlib.compress(content, 1)
            if not self._writer.keep(f"{name}.{kind}.z", packed):
                return None
            self._bytes += len(packed)
        self._kept += 1
        return name


def _is_divided(path: str) -> bool:
    """Whether a module's text is of one that XLA has divided among devices."""
    with open(path, "rb") as file:
        return path.endswith(".txt") and bool(_DIVIDED.search(file.readline(_FIRST_LINE)))


_OURS = ("--xla_dump_hlo_as_text", "--xla_dump_hlo_as_proto")
