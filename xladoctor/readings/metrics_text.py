"""torch_xla metrics reports in any text: bare, logged, quoted, wrapped, cut, several of them.

Nothing is taken for a report's first line: since 2.0 a report has two client sections, each with
metrics and then counters in alphabetical order, and XRT added server metrics after the counters.
A report ends where the next begins: at a ``[MetricsData; step=N]`` header or at a name that the
present report has already (in another state).
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from xladoctor.readings.lines import clean
from xladoctor.readings.metric_block import Block, count_of, metric_of
from xladoctor.readings.values import parse_value
from xladoctor.results import Metric, MetricsReport

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEADS = ("Metric", "Counter")
_FIELDS = (
    "TotalSamples", "Accumulator", "ValueRate", "Rate", "Mean", "StdDev", "Percentiles", "Value",
)  # fmt: skip
_PLAIN = frozenset({*_HEADS, *_FIELDS})
_KEY = re.compile(rf"(?<![\w.])(?<!::)(?P<key>{'|'.join((*_HEADS, *_FIELDS))}):(?=\s|$)")
_NAME = re.compile(r"[A-Za-z_][\w:.\-]*")
_STEP = re.compile(r"\[MetricsData;\s*step=(?P<step>\d{1,19})\]")
#: How logs name the process of a line, where those of several are mixed: a pod's worker (seen in
#: reports: "2021-04-19 13:28:12 10.164.0.25 [0] "), torchrun ("[rank3]: ", "[default3]:"), mpirun
#: ("[1,3]<stdout>:"), Ray ("(Trainer pid=123, ip=10.0.0.2) ") and docker compose ("trainer-3  | ").
#: Only what stands before each line of a process is taken: a number or a file's name may be the
#: line's own, and then nothing would be put together.
_COLOUR = r"(?:\x1b\[[\d;]*m)*"
_PROCESS = re.compile(
    r"\S+ \S+ (?P<worker>\d{1,3}(?:\.\d{1,3}){3} \[\d+\]) "
    r"|\[(?:rank|default|1,)(?P<rank>\d{1,5})\](?:<std(?:out|err)>)?: ?"
    rf"|{_COLOUR}\((?P<ray>[\w.:]+ pid=\d{{1,9}}(?:, ip=[\d.]{{7,15}})?)\){_COLOUR} ?"
    rf"|{_COLOUR}(?P<container>[A-Za-z][\w.-]{{0,60}}[-_]\d{{1,4}}) +\| ?{_COLOUR} ?"
)
_WRAPPED = re.compile(r"[\d.%=;dhmsuBKMGTP ]+")


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
    """All metrics reports of a text, in the order in which they stand."""
    reader = ReportReader(source, core)
    for line in lines:
        reader.feed(line)
    return reader.finish()


class ReportReader:
    """Reads a text line by line and keeps nothing of it but the reports.

    Args:
        source: What the reports' ``source`` is to be.
        core: What the reports' ``core`` is to be, unless the text itself names the process.
    """

    def __init__(self, source: str, core: int | None = None) -> None:
        self._source = source
        self._core = core
        self._readers: dict[tuple[str, int | None], _Reader] = {}
        self._at = self._reader("", None)

    def feed(self, line: str) -> None:
        """Take one line; any text may stand before, between and after the reports."""
        at = self._at
        # Most lines are whole lines of a report, or have nothing to do with one: be quick there.
        key, colon, text = line.strip().partition(": ")
        if colon and key in _PLAIN and not at.named and ":" not in text.replace("::", ""):
            if "\x1b" not in text and "&" not in text and "<" not in text and "\\" not in text:
                at.take(key, text.rstrip("\"',`"))
                return
        elif not at.busy and "[MetricsData" not in line:
            if "Metric:" not in line and "Counter:" not in line:
                return
        elif not _may_hold_a_key(line):
            at.continue_with(line)
            return
        process = _PROCESS.match(line)
        if process is None:
            self._at = self._reader("", None)
        else:
            rank = process["rank"]
            worker = process["worker"] or process["ray"] or process["container"] or ""
            self._at = self._reader(worker, int(rank) if rank else None)
            line = line[process.end() :]
        self._at.feed(line)

    def _reader(self, worker: str, core: int | None) -> _Reader:
        found = self._readers.get((worker, core))
        if found is None:
            found = self._readers[(worker, core)] = _Reader(bool(worker) or core is not None)
        return found

    def finish(self) -> list[MetricsReport]:
        """Only reports with at least one value.

        Values that are cut, or whose name is cut off, are left out rather than guessed.
        """
        return [
            MetricsReport(
                self._source + (f" ({worker})" if worker else ""),
                self._core if core is None else core,
                draft.step,
                draft.metrics,
                draft.counters,
            )
            for (worker, core), reader in self._readers.items()
            for draft in reader.finish()
        ]


def _may_hold_a_key(line: str) -> bool:
    """A quick look, before a line is cleaned and read: the logs around reports are long."""
    return (
        "Value:" in line
        or "Counter:" in line
        or "Metric:" in line
        or "Samples:" in line
        or "Accumulator:" in line
        or "Rate:" in line
        or "Percentiles:" in line
        or "Mean:" in line
        or "StdDev:" in line
        or "[MetricsData" in line
    )


class _Reader:
    """Reads the lines of one process."""

    def __init__(self, named: bool) -> None:
        self.named = named
        self._done: list[_Draft] = []
        self._draft = _Draft()
        self._block: Block | None = None
        self._open: str | None = None  # the field that a wrapped line would continue

    @property
    def busy(self) -> bool:
        """Whether the next line may belong to something that has begun."""
        return self._block is not None

    def feed(self, line: str) -> None:
        """Take one line that holds a key, somewhere and in whatever dress."""
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
            self.continue_with(line)
            return
        for index, key in enumerate(keys):
            end = keys[index + 1].start() if index + 1 < len(keys) else len(line)
            self.take(key["key"], line[key.end() : end].strip())

    def take(self, key: str, text: str) -> None:
        """Take a key and what stands after it."""
        if key in _HEADS:
            if key == "Metric" or not text[:1].isdigit():
                name = _NAME.match(text)
                before = self._block
                self._close_block()
                if name is not None:
                    self._block = Block(key, name[0].rstrip(".:"))
                    if before is not None and not before.fields:
                        self._block.twin = before.name == self._block.name
                return
            key = "Accumulator"  # before September 2019 it was called Counter as well
        block = self._block
        if block is None:
            return
        if key not in block.fields:
            block.fields[key] = text
            self._open = key
        elif block.twin and block.fields[key] != text:
            block.mixed = True

    def continue_with(self, line: str) -> None:
        """Join a line that a terminal or a mail program had wrapped to the field before it."""
        if self._block is None or self._open is None:
            return
        text = clean(line).strip().lstrip("> ")
        if not text:
            return
        left_out = not text.strip(".")  # "...", as people write for what they do not paste
        if left_out or _WRAPPED.fullmatch(text) is None or self._open == "Value":
            self._open = None
            return
        so_far = self._block.fields[self._open]
        if self._open == "Percentiles" or parse_value(so_far) is None:
            self._block.fields[self._open] = so_far + text

    def _close_block(self) -> None:
        block, self._block, self._open = self._block, None, None
        if block is None or block.mixed:
            return
        if block.kind == "Counter":
            self._add_counter(block)
        else:
            self._add_metric(block)

    def _add_counter(self, block: Block) -> None:
        count = count_of(block.fields.get("Value", ""))
        if count is None:
            return
        counters = self._draft.counters
        if counters.get(block.name) == count:
            # short_metrics_report() prints a counter twice; but if a name in another state
            # follows, these were the first counters of the next report.
            self._draft.repeated[block.name] = count
            return
        if block.name in counters:
            repeated = self._draft.repeated
            self._close_report()
            self._draft.counters.update(repeated)
        if self._draft.repeated:
            self._draft.repeated = {}
        self._draft.counters[block.name] = count

    def _add_metric(self, block: Block) -> None:
        metric = metric_of(block)
        if metric is None:
            return
        if block.name in self._draft.metrics:
            self._close_report()
        if self._draft.repeated:
            self._draft.repeated = {}
        self._draft.metrics[block.name] = metric

    def _close_report(self) -> None:
        if self._draft.metrics or self._draft.counters:
            self._done.append(self._draft)
            self._draft = _Draft()
