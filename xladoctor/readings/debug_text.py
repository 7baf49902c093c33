"""PT_XLA_DEBUG output: analysis blocks and the lines of torch_xla's own analyzer, in any text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xladoctor.readings.metrics_text import clean
from xladoctor.readings.tables import DebugBlock, Frame, ProfilerLine
from xladoctor.readings.values import time_ns

if TYPE_CHECKING:
    from collections.abc import Iterable

_ANALYSIS = re.compile(
    r"(?P<kind>Post Compilation|Compilation|Unexpected Execution|Execution) Analysis: ?(?P<text>.*)"
)
_FRAME = re.compile(r"(?P<function>\S.*?) \((?P<file>.+):(?P<row>\d+)\)$")
_FREQUENT = re.compile(
    r"pt-xla-profiler: (?P<metric>\w+) too frequent: "
    r"(?P<count>\d+) counts during (?P<steps>\d+) steps"
)
_SLOW = re.compile(
    r"pt-xla-profiler: (?P<metric>\w+) too slow: longest instance took (?P<time>[\d.dhmsu]+us)"
)
_NOT_LOWERED = re.compile(r"pt-xla-profiler: Op\(s\) not lowered: (?P<names>.*?)(?:  Please|$)")
_SIZE = re.compile(r"(?P<label>[A-Z][\w ]+ size): (?P<size>\d+\.\d+) GB")


def parse_debug(lines: Iterable[str], source: str) -> tuple[list[DebugBlock], list[ProfilerLine]]:
    """All analysis blocks and analyzer lines of a text, in the order in which they stand.

    Blocks that are cut at either end are kept with what is there of them.
    """
    blocks: list[DebugBlock] = []
    complaints: list[ProfilerLine] = []
    kind, body = "", list[str]()
    for line in lines:
        if "pt-xla-profiler: " in line:
            complaints += _complaints(clean(line), source)
        if " Analysis: " not in line:
            continue
        match = _ANALYSIS.search(clean(line))
        if match is None:
            continue
        name = match["kind"].lower().replace(" ", "-")
        text = match["text"].strip()
        if name != kind or text.startswith("====="):
            _close(blocks, kind, body, source)
            kind, body = name, []
        if not text.startswith(("=====", "-----")):
            body.append(text)
    _close(blocks, kind, body, source)
    return blocks, complaints


def _complaints(line: str, source: str) -> list[ProfilerLine]:
    found = [
        ProfilerLine("too-frequent", source, m["metric"], int(m["count"]), int(m["steps"]))
        for m in _FREQUENT.finditer(line)
    ]
    for match in _SLOW.finditer(line):
        ns = time_ns(match["time"])
        seconds = None if ns is None else ns / 1e9
        found.append(ProfilerLine("too-slow", source, match["metric"], seconds=seconds))
    for match in _NOT_LOWERED.finditer(line):
        names = tuple(name.strip() for name in match["names"].split(",") if "::" in name)
        if names:
            found.append(ProfilerLine("not-lowered", source, operations=names))
    return found


def _close(blocks: list[DebugBlock], kind: str, body: list[str], source: str) -> None:
    if not body:
        return
    cause: str | None = None
    graph: str | None = None
    numbers: dict[str, int] = {}
    frames: list[Frame] = []
    sizes: dict[str, float] = {}
    for before, text in zip(["", *body], body, strict=False):
        frame = _FRAME.match(text)
        size = _SIZE.match(text)
        if before in {"Compilation Cause", "Execution Cause"}:
            cause = text.replace("`", "").replace("torch_xla.sync()", "torch_xla.sync")
        elif text.startswith("Graph Hash: "):
            graph = text.removeprefix("Graph Hash: ")
        elif match := re.match(r"Number of Graph (Input|Output)s?: (\d+)$", text):
            numbers[match[1]] = int(match[2])
        elif size is not None:
            sizes[size["label"]] = float(size["size"]) * 1e9
        elif frame is not None:
            frames.append((frame["file"], int(frame["row"]), frame["function"]))
    blocks.append(
        DebugBlock(
            kind, source, cause, graph, numbers.get("Input"), numbers.get("Output"),
            tuple(frames), sizes,
        )
    )  # fmt: skip
