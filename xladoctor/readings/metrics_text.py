"""torch_xla metrics reports in any text: bare, logged, quoted, wrapped, cut, several of them.

Nothing is taken for a report's first line: since 2.0 a report has two client sections, each with
metrics and then counters in alphabetical order, and XRT added server metrics after the counters.
A report ends where the next begins: at a ``[MetricsData; step=N]`` header or at a name that the
present report has already (in another state).
"""

from __future__ import annotations

import dataclasses
import html
import math
import re
from typing import TYPE_CHECKING

from xladoctor.readings.values import Unit, parse_value
from xladoctor.results import Metric, MetricsReport

if TYPE_CHECKING:
    from collections.abc import Iterable

_KEY = re.compile(
    r"(?<![\w:.])(?P<key>Metric|Counter|TotalSamples|Accumulator|ValueRate|Rate|Mean|StdDev"
    r"|Percentiles|Value):(?=\s|$)"
)
_NAME = re.compile(r"[A-Za-z_][\w:.\-]*")
_STEP = re.compile(r"\[MetricsData;\s*step=(?P<step>\d+)\]")
_INTEGER = re.compile(r"\d{1,19}(?!\S)")  # a 64-bit counter has no more digits
#: How the log of a pod names the worker of a line; the workers' lines are mixed. Seen in reports:
#: "2021-04-19 13:28:12 10.164.0.25 [0] ".
_WORKER = re.compile(r"\S+ \S+ (?P<worker>\d{1,3}(?:\.\d{1,3}){3} \[\d+\]) ")
_PERCENTILE = re.compile(r"(?P<head>\d+(?:\.\d+)?)%=(?P<value>[^;\s]+)")
_WRAPPED = re.compile(r"[\d.%=;dhmsuBKMGTP ]+")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MARKUP = re.compile(r"</?(?:p|pre|code|br|div|span|blockquote)\b[^>]*>", re.IGNORECASE)

#: Metrics whose unit is fixed: a value of theirs without it has been cut ("1.03" of "1.03KB").
_BYTE_METRICS = frozenset({"InboundData", "OutboundData", "XrtExecutorEvict"})


@dataclasses.dataclass(slots=True)
class _Block:
    """A metric or counter while it is being read."""

    kind: str
    name: str
    fields: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(slots=True)
class _Draft:
    """A report while it is being read."""

    step: int | None = None
    metrics: dict[str, Metric] = dataclasses.field(default_factory=dict)
    counters: dict[str, int] = dataclasses.field(default_factory=dict)
    repeated: dict[str, int] = dataclasses.field(default_factory=dict)


def parse_reports(
    lines: Iterable[str], source: str, core: int | None = None
) -> list[MetricsReport]:
    """All metrics reports of a text, in the order in which they stand.

    Args:
        lines: The text, line by line; any text may stand before, between and after.
        source: What the reports' ``source`` is to be.
        core: What the reports' ``core`` is to be.

    Returns:
        Only reports with at least one value. Values that are cut, or whose name is cut off, are
        left out rather than guessed.
    """
    readers = {"": _Reader()}
    for line in lines:
        worker = _WORKER.match(line)
        name = f" ({worker['worker']})" if worker else ""
        if name not in readers:
            readers[name] = _Reader()
        readers[name].feed(line)
    return [
        MetricsReport(source + name, core, draft.step, draft.metrics, draft.counters)
        for name, reader in readers.items()
        for draft in reader.finish()
    ]


def clean(line: str) -> str:
    """A line without terminal colours, HTML markup and entities, and the dressing of logs."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if "&" in line:
        line = html.unescape(line)
    if "<" in line:
        line = _MARKUP.sub(" ", line)
    return line.rstrip().rstrip("\"',`") if line.rstrip()[-1:] in "\"',`" else line


class _Reader:
    """Reads line by line; holds no more than the report at hand."""

    def __init__(self) -> None:
        self._done: list[_Draft] = []
        self._draft = _Draft()
        self._block: _Block | None = None
        self._open: str | None = None  # the field that a wrapped line would continue

    def feed(self, line: str) -> None:
        """Take one line."""
        if self._open is None and ":" not in line and "[MetricsData" not in line:
            return
        line = clean(line)
        if "\\n" in line:  # a report inside a JSON log or a repr
            for part in line.split("\\n"):
                self._feed_clean(part)
            return
        self._feed_clean(line)

    def finish(self) -> list[_Draft]:
        """All reports that hold anything."""
        self._close_block()
        self._close_report()
        return self._done

    def _feed_clean(self, line: str) -> None:
        header = _STEP.search(line)
        if header is not None:
            self._close_block()
            self._close_report()
            self._draft.step = int(header["step"])
            line = line[header.end() :]
        keys = list(_KEY.finditer(line))
        if not keys:
            self._continue(line)
            return
        for index, key in enumerate(keys):
            end = keys[index + 1].start() if index + 1 < len(keys) else len(line)
            self._take(key["key"], line[key.end() : end].strip())

    def _take(self, key: str, text: str) -> None:
        old_accumulator = key == "Counter" and text[:1].isdigit()  # before September 2019
        if key in {"Metric", "Counter"} and not old_accumulator:
            name = _NAME.match(text)
            self._close_block()
            if name is not None:
                self._block = _Block(key, name[0].rstrip(".:"))
            return
        if old_accumulator:
            key = "Accumulator"
        if self._block is not None and key not in self._block.fields:
            self._block.fields[key] = text
            self._open = key

    def _continue(self, line: str) -> None:
        """Join a line that a terminal or a mail program had wrapped to the field before it."""
        text = line.strip()
        if self._block is None or self._open is None or not text:
            return
        if _WRAPPED.fullmatch(text) is None or self._open == "Value":
            self._open = None
            return
        so_far = self._block.fields[self._open]
        if self._open == "Percentiles" or parse_value(so_far) is None:
            self._block.fields[self._open] = so_far + text

    def _close_block(self) -> None:
        block, self._block, self._open = self._block, None, None
        if block is None:
            return
        if block.kind == "Counter":
            self._add_counter(block)
        else:
            self._add_metric(block)

    def _add_counter(self, block: _Block) -> None:
        value = _INTEGER.match(block.fields.get("Value", ""))
        if value is None:
            return
        count, counters = int(value[0]), self._draft.counters
        if counters.get(block.name) == count:
            # short_metrics_report() prints a counter twice; but if a name in another state
            # follows, these were the first counters of the next report.
            self._draft.repeated[block.name] = count
            return
        if block.name in counters:
            repeated = self._draft.repeated
            self._close_report()
            self._draft.counters.update(repeated)
        self._draft.repeated = {}
        self._draft.counters[block.name] = count

    def _add_metric(self, block: _Block) -> None:
        metric = _metric(block)
        if metric is None:
            return
        if block.name in self._draft.metrics:
            self._close_report()
        self._draft.repeated = {}
        self._draft.metrics[block.name] = metric

    def _close_report(self) -> None:
        if self._draft.metrics or self._draft.counters:
            self._done.append(self._draft)
            self._draft = _Draft()


def _metric(block: _Block) -> Metric | None:
    """The metric of a block; None if nothing but its name could be read."""
    samples = _INTEGER.match(block.fields.get("TotalSamples", ""))
    accumulator = parse_value(block.fields.get("Accumulator", ""))
    found = [accumulator] if accumulator else []
    percentiles: dict[str, float] = {}
    for match in _PERCENTILE.finditer(block.fields.get("Percentiles", "")):
        value = parse_value(match["value"])
        if value is None:
            continue
        if found and value[1] != found[0][1]:
            continue  # cut in the middle of its unit
        found.append(value)
        percentiles[match["head"]] = value[0]
    if samples is None and not found:
        return None
    unit: Unit = found[0][1] if found else ""
    if block.name in _BYTE_METRICS and unit == "":
        accumulator, unit, percentiles = None, "B", {}
    return Metric(
        total_samples=int(samples[0]) if samples else None,
        accumulator=accumulator[0] if accumulator else None,
        unit=unit,
        percentiles=percentiles,
        **_rates(block, unit),
    )


def _rates(block: _Block, unit: Unit) -> dict[str, float | None]:
    """``ValueRate``, ``Rate`` and ``Mean``; what is missing or cut is None."""
    out: dict[str, float | None] = {"value_rate": None, "rate": None, "mean": None}
    number, slash, _ = block.fields.get("ValueRate", "").partition("/")
    value = parse_value(number) if slash else None
    if value is not None and value[1] == unit:
        out["value_rate"] = value[0]
    number, slash, _ = block.fields.get("Rate", "").partition("/")
    if slash:
        try:
            value_per_second = float(number)
        except ValueError:
            value_per_second = math.inf
        out["rate"] = value_per_second if math.isfinite(value_per_second) else None
    value = parse_value(block.fields.get("Mean", ""))
    if value is not None and value[1] == unit:
        out["mean"] = value[0]
    return out
