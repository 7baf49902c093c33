"""What TorchTPU (and TorchNeuron) write to a log: fallbacks, missing kernels, warnings, caches.

The lines were taken down from runs of torch_tpu 0.2.0 (on a PJRT plug-in for CPUs). They stand in
logs of any kind: prefixes of launchers and the lines of other processes between them do not matter.

Of TorchNeuron the requests of its compilation cache are read, one line each, which it writes with
TORCH_NEURONX_LOG_LEVEL=2: read in its public sources (NeuronLogging.h), not run. For operations on
the CPU its logger has a text and drops it; ``torch_neuronx.get_fallback_ops()`` names them.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

_Key = TypeVar("_Key")

_MARKS = (
    "TPU",
    "TorchTpu",
    "num_cache",
    "num_compilations",
    "CompilationCacheKey",
    "@tt_",
    "File ",
    "[NEFF_CACHE]",
)
_NEFF = re.compile(r"\[NEFF_CACHE\] Cache (?P<what>HIT|MISS) for key:")
_FALLBACK = re.compile(r"operator '(?P<name>[\w:.]{1,200})' is not implemented for TPU\. Falling")
_MISSING = re.compile(
    r"operator '(?P<name>[\w:.]{1,200})' is not implemented for TPU\. Please file"
)
_WARNING = re.compile(
    r"(?:(?P<file>[^\s:][^:]{0,500}):(?P<row>\d{1,9}): \w*Warning: )?"
    r"<(?P<category>TorchTpu/[\w/]{0,100})> (?P<text>.{1,500})"
)
_CACHE = re.compile(r"num_(?P<what>cache_reqs|cache_hits|compilations)=(?P<count>\d{1,19})\b")
_MISS = re.compile(
    r"cache miss for key: CompilationCacheKey\{shapeless_key=(?P<program>[0-9a-f]{1,32}), "
    r"dimensions_key=(?P<sizes>[0-9a-f]{1,32})"
)
_MODULE = re.compile(r"\bmodule @(?P<name>[\w.$-]{1,200})")
_FRAME = re.compile(
    r'File "(?P<file>[^"]{1,500})", line (?P<row>\d{1,9})(?:, in (?P<function>\S+))?'
)
#: A log of weeks has the same programs again and again; more than these are not told apart.
_MOST = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceWarning:
    """A warning of TorchTPU's own categories.

    Attributes:
        category: ``TorchTpu/Performance/TcMalloc/``.
        text: What it says, on one line.
        file, row: Where, if Python's warnings printed it.
    """

    category: str
    text: str
    file: str | None = None
    row: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceLog:
    """What a text holds of TorchTPU's.

    Attributes:
        source: The text.
        fallbacks: Operations that ran on the CPU, and how often.
        missing: Operations that raised because they have no kernel, with the last frame of the
            traceback above (file, row, function), if there was one.
        warnings: Warnings and how often each came.
        requests, hits, compilations: Of the compilation cache, of each process that ended; empty
            where none has.
        sizes: Compiled programs (with ``_set_dump_on_cache_miss``), and for how many different
            sizes of their inputs each was compiled.
        tells_fallbacks: Whether such a log would name operations on the CPU (TorchNeuron's does
            not).
    """

    source: str
    fallbacks: Mapping[str, int]
    missing: Mapping[str, tuple[str, int, str | None] | None]
    warnings: Mapping[DeviceWarning, int]
    requests: tuple[int, ...] = ()
    hits: tuple[int, ...] = ()
    compilations: tuple[int, ...] = ()
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    tells_fallbacks: bool = True


class DeviceLogReader:
    """Reads a text line by line and keeps nothing of it but what TorchTPU wrote."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._fallbacks: dict[str, int] = {}
        self._missing: dict[str, tuple[str, int, str | None] | None] = {}
        self._warnings: dict[DeviceWarning, int] = {}
        self._cache: dict[str, list[int]] = {}
        self._sizes: dict[str, set[str]] = {}
        self._names: dict[str, str] = {}
        self._program: str | None = None
        self._frame: tuple[str, int, str | None] | None = None
        self._neff = {"HIT": 0, "MISS": 0}

    def feed(self, line: str) -> None:
        """Take one line."""
        if not any(mark in line for mark in _MARKS):
            return
        for found in _FALLBACK.finditer(line):
            self._count(self._fallbacks, found["name"])
        for found in _MISSING.finditer(line):
            self._missing.setdefault(found["name"], self._frame)
        for found in _CACHE.finditer(line):
            self._cache.setdefault(found["what"], []).append(int(found["count"]))
        for found in _NEFF.finditer(line):
            self._neff[found["what"]] += 1
        warned = _WARNING.search(line) if "<TorchTpu/" in line else None
        if warned is not None:
            row = int(warned["row"]) if warned["row"] else None
            told = DeviceWarning(warned["category"], warned["text"].rstrip(), warned["file"], row)
            self._count(self._warnings, told)
        self._feed_program(line)
        frame = _FRAME.search(line)
        if frame is not None:
            self._frame = frame["file"], int(frame["row"]), frame["function"]

    def _count(self, counts: dict[_Key, int], key: _Key) -> None:
        if key in counts or len(counts) < _MOST:
            counts[key] = counts.get(key, 0) + 1

    def _feed_program(self, line: str) -> None:
        missed = _MISS.search(line)
        if missed is not None:
            self._program = missed["program"]
            if self._program in self._sizes or len(self._sizes) < _MOST:
                self._sizes.setdefault(self._program, set()).add(missed["sizes"])
            return
        module = _MODULE.search(line) if self._program is not None else None
        if module is not None and self._program is not None:
            self._names.setdefault(self._program, module["name"])
            self._program = None

    def finish(self) -> DeviceLog | None:
        """All of it, None if the text holds nothing of TorchTPU's."""
        own = (self._fallbacks, self._missing, self._warnings, self._cache, self._sizes)
        hits, misses = self._neff["HIT"], self._neff["MISS"]
        if not any(own) and not hits + misses:
            return None
        told = any(own)
        if hits + misses:
            for what, count in (
                ("cache_reqs", hits + misses),
                ("cache_hits", hits),
                ("compilations", misses),
            ):
                self._cache.setdefault(what, []).append(count)
        sizes: dict[str, int] = {}
        for program, keys in self._sizes.items():
            name = self._names.get(program, program)
            sizes[name] = max(sizes.get(name, 0), len(keys))
        counts = {what: tuple(found) for what, found in self._cache.items()}
        return DeviceLog(
            self._source, self._fallbacks, self._missing, self._warnings,
            counts.get("cache_reqs", ()), counts.get("cache_hits", ()),
            counts.get("compilations", ()), sizes, told,
        )  # fmt: skip
