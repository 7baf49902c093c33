"""PT_XLA_DEBUG output in any text: analysis blocks, torch_xla's own analyzer, its frame summary."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xladoctor.readings.lines import clean
from xladoctor.readings.tables import DebugBlock, Frame, ProfilerLine, UnloweredSite
from xladoctor.readings.values import time_ns

if TYPE_CHECKING:
    from collections.abc import Iterable

_ANALYSIS = re.compile(
    r"(?P<kind>Post Compilation|Compilation|Unexpected Execution|Execution) Analysis:"
)
_FRAME = re.compile(r"(?P<function>\S.*?) \((?P<file>.+?):(?P<row>\d{1,9})\)")
#: What stands above the cause, and first in a block.
_CAUSES = ("Compilation Cause", "Execution Cause")
#: A frame whose end is on the next line, where a terminal has wrapped it.
_HALF_FRAME = re.compile(r"\S[^(]* \([^()]*")
_WRAPPED_LINES = 3
_CAUSE = re.compile(r"mark_step|sync|torch_xla|dynamo|most likely", re.IGNORECASE)
_HASH = re.compile(r"Graph Hash: (?P<graph>[0-9a-f]{1,64})")
_GRAPH_SIZE = re.compile(r"Number of Graph (Input|Output)s?: (\d{1,19})(?!\d)")
#: What a log writes after the text of a line that it holds ("}, ' |), or the line's own end.
_RECORD = re.compile(r"[\"'|\\].*$")
# People who write of these lines from memory leave out colons and words.
_FREQUENT = re.compile(
    r"pt-xla-profiler:? ?(?P<metric>\w+) too frequent:? "
    r"(?P<count>\d{1,19}) (?:counts )?(?:during|in) (?P<steps>\d{1,19}) steps"
)
_MEMORY = re.compile(
    r"pt-xla-profiler: ?Following metrics too frequent: (?P<all>.*?)"
    r"during (?P<steps>\d{1,19}) steps"
)
_MEMORY_COUNT = re.compile(r"(?P<metric>\w+) \((?P<count>[\d.]{1,24}(?:e\+?\d{1,3})?) counts\)")
_SLOW = re.compile(
    r"pt-xla-profiler: ?(?P<metric>\w+) too slow: longest instance took (?P<time>[\d.dhmsu]+us)"
)
_NOT_LOWERED = re.compile(r"pt-xla-profiler: ?Op\(s\) not lowered: (?P<names>(?:[\w:.]+,? ?)+)")
_OPERATION = re.compile(r"(?P<name>\w+::[\w.]*\w)(?P<comma>,?)")
_SIZE = re.compile(r"(?P<label>[A-Z][\w ]+ size): (?P<size>\d{1,12}\.\d{1,9}) GB")
_SUMMARY = re.compile(r"^.*?pt-xla-profiler: ?|^")
_SUMMARY_COUNT = re.compile(r"FRAME \(count=(?P<count>\d{1,19})\):")
_SUMMARY_OPERATION = re.compile(r'Unlowered Op: "(?P<operation>[^"]+)')


def parse_debug(
    lines: Iterable[str], source: str
) -> tuple[list[DebugBlock], list[ProfilerLine], list[UnloweredSite]]:
    """All analysis blocks, analyzer lines and frames of a text (see :class:`DebugReader`)."""
    reader = DebugReader(source)
    for line in lines:
        reader.feed(line)
    return reader.finish()


class DebugReader:
    """Reads a text line by line and keeps nothing of it but what PT_XLA_DEBUG prints.

    Blocks that are cut at either end are kept with what is there of them.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._blocks: list[DebugBlock] = []
        self._complaints: list[ProfilerLine] = []
        self._sites: list[UnloweredSite] = []
        self._kind = ""
        self._body: list[str] = []
        self._half = 0  # in how many more lines the end of the last frame may come
        self._site: _Site | None = None

    def feed(self, line: str) -> None:
        """Take one line."""
        analysis, profiler = "Analysis:" in line, "pt-xla-profiler" in line
        if not analysis and not profiler and self._site is None and "FRAME (count=" not in line:
            if self._half:
                self._finish_frame(clean(line))
            return
        line = clean(line)
        if profiler:
            self._complaints += _complaints(line, self._source)
        for index, part in enumerate(line.split("\\n")):  # in JSON or a repr
            rest = index and part.lstrip()[:1] in {'"', "'"}  # of the record that holds the lines
            if not rest and (self._site is not None or "FRAME (count=" in part):
                self._feed_summary(part)
            if analysis:
                self._feed_analysis(part)

    def finish(self) -> tuple[list[DebugBlock], list[ProfilerLine], list[UnloweredSite]]:
        """Everything that was read, in the order in which it stood."""
        self._close_block()
        self._close_site()
        return self._blocks, self._complaints, self._sites

    def _feed_analysis(self, line: str) -> None:
        heads = list(_ANALYSIS.finditer(line))  # many, where the ends of lines were lost
        ends = [*(head.start() for head in heads[1:]), len(line)]
        for head, end in zip(heads, ends, strict=False):
            name = head["kind"].lower().replace(" ", "-")
            text = line[head.end() : end].strip()
            if name != self._kind or text.startswith(("=====", *_CAUSES)):
                self._close_block()
                self._kind = name
            if text and not text.startswith(("=====", "-----")):
                self._body.append(text)
                self._half = _WRAPPED_LINES if _HALF_FRAME.fullmatch(text) else 0

    def _finish_frame(self, line: str) -> None:
        """Join the rest of a frame to its beginning; other lines come to nothing there."""
        whole = self._body[-1] + line.strip().lstrip("> ")
        if _FRAME.match(whole):
            self._body[-1] = whole
            self._half = 0
        elif _HALF_FRAME.fullmatch(whole):
            self._body[-1] = whole
            self._half -= 1
        else:
            self._half = 0

    def _close_block(self) -> None:
        self._half = 0
        if self._body:
            self._blocks.append(_block(self._kind, self._body, self._source))
        self._body = []

    def _feed_summary(self, line: str) -> None:
        text = _SUMMARY.sub("", line, count=1).strip()
        start = _SUMMARY_COUNT.search(text)
        if start is not None:
            self._close_site()
            self._site = _Site(int(start["count"]))
            return
        site = self._site
        assert site is not None
        operation = _SUMMARY_OPERATION.match(text)
        frame = _FRAME.match(text)
        if operation is not None:
            site.operation = operation["operation"]
        elif frame is not None:
            site.frames.append((frame["file"], int(frame["row"]), frame["function"]))
        elif text != "Python Frames:":
            self._close_site()

    def _close_site(self) -> None:
        site, self._site = self._site, None
        if site is None:
            return
        name = site.operation
        if name == "xla_fallback":  # the one function through which all go in 2.9
            name = None
        elif name is not None and "::" not in name:
            name = f"aten::{name}"
        if name is not None or site.frames:
            self._sites.append(UnloweredSite(name, self._source, site.count, tuple(site.frames)))


class _Site:
    """A group of the frame summary while it is being read."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.operation: str | None = None
        self.frames: list[Frame] = []


def _complaints(line: str, source: str) -> list[ProfilerLine]:
    found = [
        ProfilerLine("too-frequent", source, m["metric"], int(m["count"]), int(m["steps"]))
        for m in _FREQUENT.finditer(line)
    ]
    for match in _MEMORY.finditer(line):
        for m in _MEMORY_COUNT.finditer(match["all"]):
            try:
                count = round(float(m["count"]))
            except (ValueError, OverflowError):
                continue
            found.append(
                ProfilerLine("too-frequent", source, m["metric"], count, int(match["steps"]))
            )
    for match in _SLOW.finditer(line):
        ns = time_ns(match["time"])
        seconds = None if ns is None else ns / 1e9
        found.append(ProfilerLine("too-slow", source, match["metric"], seconds=seconds))
    for match in _NOT_LOWERED.finditer(line):
        # Each name has a comma after it; a last one without is cut, unless it stands alone.
        ops = list(_OPERATION.finditer(match["names"]))
        names = tuple(op["name"] for op in ops if op["comma"] or len(ops) == 1)
        if names:
            found.append(ProfilerLine("not-lowered", source, operations=names))
    return found


def _block(kind: str, body: list[str], source: str) -> DebugBlock:
    cause: str | None = None
    graph: str | None = None
    numbers: dict[str, int] = {}
    frames: list[Frame] = []
    sizes: dict[str, float] = {}
    for before, text in zip(["", *body], body, strict=False):
        frame = _FRAME.match(text)
        size = _SIZE.match(text)
        if before.startswith(_CAUSES):
            cause = _cause(text)
        elif match := _HASH.match(text):
            graph = match["graph"]
        elif match := _GRAPH_SIZE.match(text):
            numbers[match[1]] = int(match[2])
        elif size is not None:
            sizes[size["label"]] = float(size["size"]) * 2**30  # debug_util.cpp divides by 1024³
        elif frame is not None:
            frames.append((frame["file"], int(frame["row"]), frame["function"]))
    return DebugBlock(
        kind, source, cause, graph, numbers.get("Input"), numbers.get("Output"), tuple(frames),
        sizes,
    )  # fmt: skip


def _cause(text: str) -> str | None:
    """The cause as torch_xla names it, of whatever version; None if another line stands there."""
    text = _RECORD.sub("", text.replace("`", "")).strip(" ,;")
    if not _CAUSE.search(text):
        return None
    return text.replace("torch_xla.sync()", "torch_xla.sync")
