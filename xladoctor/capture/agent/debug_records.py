"""torch_xla's debug records: read for the hash of each graph, passed on if the user asked for them.

The hash of a graph comes from the record that ``PT_XLA_DEBUG_LEVEL`` has torch_xla write, here into
an anonymous file in memory. torch_xla reads those variables once, at its first graph; so they are
set just before it and put back afterwards, and no child process ever inherits ours. Level 1 writes
a record for each compilation; level 2 also one for each execution (25 to 80 us each), which only
simulated cores need: there a core's graph may be new to it although another core compiled it.

Who has set ``PT_XLA_DEBUG`` gets what torch_xla would have written, where it would have been
written: without our frames, with the cause that torch_xla reads off the innermost frame (ours would
be that one), and of simulated cores only the first of the host, as on a device. The rules are those
of torch_xla 2.9.0, ``torch_xla/csrc/debug_util.cpp``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from pathlib import Path
from typing import Any

_SWITCH, _LEVEL, _FILE, _FRAMES = (
    "PT_XLA_DEBUG",
    "PT_XLA_DEBUG_LEVEL",
    "PT_XLA_DEBUG_FILE",
    "PT_XLA_DEBUG_MAX_FRAME",
)
#: Where the frames lie that are not of the program.
_OURS = str(Path(__file__).parent.parent) + os.sep
#: Frames of ours that may stand in front of the program's, on simulated cores.
_OUR_FRAMES = 64

_RECORD = re.compile(
    r"(?P<kind>Compilation|Execution) Analysis:   Graph Hash: (?P<hash>[0-9a-f]+)\n"
    r".*?Number of Graph Inputs: (?P<inputs>\d+)\n"
    r".*?Number of Graph Outputs: (?P<outputs>\d+)\n"
)
_BLOCK = re.compile(
    r"\n(?P<kind>(?:Unexpected )?(?:Compilation|Execution)) Analysis: =+\n"
    r"(?:(?P=kind) Analysis: [^=\n].*\n)+"
    r"(?P=kind) Analysis: =+\n"
)
#: Between what belongs to one record and the next; the size of a program follows its compilation.
_NEXT = re.compile(r"(?=\n(?:Unexpected )?(?:Compilation|Execution) Analysis: =+\n.* Cause\n)")
_FRAME = re.compile(r"  (?P<function>\S+) \((?P<file>.*):\d+\)$")
_CUT = "  .........."
_READS = "  most likely user code trying to access tensor value before torch_xla.sync"
#: What ends a graph, by a function among its callers, for ``torch_xla.sync``.
_SYNCS = (
    ("next", "parallel_loader.py", "  torch_xla.sync in parallel loader at step end"),
    ("__exit__", "profiler.py", "  torch_xla.sync when exiting a profiler StepTrace region"),
    (
        "extract_compiled_graph_helper",
        "dynamo_bridge.py",
        "  torch_xla.sync when dynamo processing input graphs",
    ),
    (
        "extract_internal",
        "dynamo_bridge.py",
        "  torch_xla.sync when dynamo processing input graphs",
    ),
    ("_compile", "torch_xla.py", "  torch_xla.compile"),
    (
        "_clear_pending_ops_before_compile",
        "torch_xla.py",
        "  torch_xla.compile clear the pending graph prior calling the target function",
    ),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Wish:
    """What the user has asked torch_xla to write.

    Attributes:
        level: 0 nothing, 1 compilations, 2 and above executions too.
        file: Where to; standard error if empty.
        frames: Frames of a record.
    """

    level: int = 0
    file: str = ""
    frames: int = 8

    @classmethod
    def of_environment(cls) -> Wish:
        """As torch_xla reads it, at the first graph."""
        level = _number(_LEVEL, -1)
        if level == -1 and os.environ.get(_SWITCH, "").lower() not in ("", "0", "false"):
            level = 100
        return cls(max(0, level), os.environ.get(_FILE, ""), _number(_FRAMES, 8))

    def told(self, text: str) -> str:
        """What of torch_xla's records the user has asked for, as they are without xladoctor.

        An execution where ``torch_xla.compile(full_graph=True)`` forbids one is written unasked,
        before torch_xla raises its error.
        """
        if self.level:
            return _BLOCK.sub(self._block, text)
        return "".join(self._block(match) for match in _BLOCK.finditer(text))

    def _block(self, match: re.Match[str]) -> str:
        kind = match["kind"]
        if (kind == "Execution" and self.level < 2) or (kind == "Compilation" and not self.level):
            return ""
        prefix = f"{kind} Analysis: "
        lines = [line.removeprefix(prefix) for line in match[0].splitlines()]
        frames = [at for at, line in enumerate(lines) if _FRAME.match(line)]
        if not frames:
            return match[0]
        first, last = frames[0], frames[-1]
        kept = _without_ours(lines[first : last + 1])
        if _is_ours(lines[first]) and kept and lines[3] == _READS:
            lines[3] = _cause(kept)
        cut = len(kept) > self.frames or lines[last + 1] == _CUT
        rest = lines[last + 1 :]
        lines[first:] = kept[: self.frames] + ([_CUT] if cut else []) + rest[rest[:1] == [_CUT] :]
        return "\n" + "".join(f"{prefix}{line}\n" for line in lines[1:])


class DebugRecords:
    """torch_xla's debug records of this process, in memory.

    Args:
        level: What is needed here: 1 for compilations only, 2 for executions too.

    Raises:
        OSError: This system has no anonymous files in memory.
    """

    def __init__(self, level: int) -> None:
        self._level = level
        if not hasattr(os, "memfd_create"):
            raise OSError("no memfd_create on this system")
        self._fd = os.memfd_create("xladoctor-debug", os.MFD_CLOEXEC)
        self._read_once = False
        self._wish: Wish | None = None
        #: The user's variables while ours are shown.
        self._theirs: dict[str, str | None] = {}
        #: Graph to the record of its compilation by a core that does not write.
        self._untold: dict[str, str] = {}

    def arm(self) -> None:
        """Show torch_xla the variables; to be called before a graph ends, cheap after the first."""
        if self._theirs or (self._read_once and not (self._wish and self._wish.level)):
            return
        if self._wish is None:
            self._wish = Wish.of_environment()
        frames = self._wish.frames + _OUR_FRAMES if self._wish.level else 1
        ours = {
            _LEVEL: str(max(self._level, self._wish.level)),
            _FILE: f"/proc/self/fd/{self._fd}",
            _FRAMES: str(frames),
        }
        self._theirs = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)

    def disarm(self) -> None:
        """Put the user's variables back."""
        for name, value in self._theirs.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._theirs = {}

    def take(self, *, tell: bool = True) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The graphs compiled and the graphs executed since the last time, as records.

        Args:
            tell: Whether the user gets what they asked for of them.
        """
        size = os.fstat(self._fd).st_size
        if not size:
            return [], []
        self._read_once = True
        text = os.pread(self._fd, size, 0).decode(errors="surrogateescape")
        os.ftruncate(self._fd, 0)
        if self._wish is not None and (self._wish.level or "Unexpected Execution" in text):
            self._pass_on(self._wish, text, tell=tell)
        found: dict[str, list[dict[str, Any]]] = {"Compilation": [], "Execution": []}
        for match in _RECORD.finditer(text):
            found[match["kind"]].append(
                {
                    "graph": match["hash"],
                    "inputs": int(match["inputs"]),
                    "outputs": int(match["outputs"]),
                }
            )
        return found["Compilation"], found["Execution"]

    def _pass_on(self, wish: Wish, text: str, *, tell: bool) -> None:
        """Tell the user, with what a core that does not write has compiled for the one that does.

        On a device each core compiles its own graphs.
        """
        told = []
        for part in _NEXT.split(text):
            match = _RECORD.search(part)
            graph = match["hash"] if match is not None else ""
            if tell:
                told += [self._untold.pop(graph, ""), part]
            elif match is not None and match["kind"] == "Compilation":
                self._untold[graph] = part
        words = wish.told("".join(told))
        if words:
            with contextlib.suppress(OSError):
                # As torch_xla does: to the descriptor, whatever is in the place of sys.stderr.
                to: Any = wish.file or os.dup(2)
                with open(to, "a", errors="surrogateescape") as file:
                    file.write(words)


def _number(name: str, default: int) -> int:
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return default


def _is_ours(line: str) -> bool:
    match = _FRAME.match(line)
    return match is not None and match["file"].startswith(_OURS)


def _is_thread(line: str) -> bool:
    match = _FRAME.match(line)
    return match is not None and match["file"].endswith(f"{os.sep}threading.py")


def _without_ours(frames: list[str]) -> list[str]:
    """Without our frames, but for those that started the core: a device has its launcher there."""
    outermost = len(frames)
    while outermost and (_is_ours(frames[outermost - 1]) or _is_thread(frames[outermost - 1])):
        outermost -= 1
    return [line for line in frames[:outermost] if not _is_ours(line)] + frames[outermost:]


def _cause(frames: list[str]) -> str:
    """What torch_xla says that has ended the graph, by the frames from the innermost."""
    calls = [(match["function"], match["file"]) for match in map(_FRAME.match, frames) if match]
    function, file = calls[0]
    if function == "mark_step" or (function == "sync" and file.endswith("torch_xla.py")):
        for name, where in calls[1:]:
            for caller, ending, cause in _SYNCS:
                if name == caller and where.endswith(ending):
                    return cause
        return "  user torch_xla.sync"
    if function == "extract_graph_helper" and file.endswith("dynamo_bridge.py"):
        return "  dynamo is compiling a FX graph to HLO"
    return _READS
