"""What the user names on the command line: run directories, texts, notebooks, standard input."""

from __future__ import annotations

import codecs
import dataclasses
import io
import itertools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from xladoctor.errors import SourceError, UsageError
from xladoctor.readings.debug_text import DebugReader
from xladoctor.readings.lines import bounded
from xladoctor.readings.metric_json import parse_json
from xladoctor.readings.metrics_text import ReportReader
from xladoctor.readings.run import read_run
from xladoctor.readings.spmd_text import ComplaintReader
from xladoctor.readings.tables import Readings
from xladoctor.readings.torchtpu_text import DeviceLogReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from xladoctor.readings.spmd_text import Regathered
    from xladoctor.readings.tables import DebugBlock, ProfilerLine, Run, UnloweredSite
    from xladoctor.readings.torchtpu_text import DeviceLog
    from xladoctor.results import MetricsReport

#: The source that means standard input.
STDIN = "-"

_ORDINAL = re.compile(r"\.(\d{1,4})$")  # XLA_METRICS_FILE and PT_XLA_DEBUG_FILE add the core


#: Notebooks and JSON are read as a whole; larger ones are not what people save.
_LARGEST_NOTEBOOK = 256 * 2**20
_LARGEST_JSON = 32 * 2**20

#: Names of which every torch_xla report has some; reports of its look-alikes have none of them.
_OWN_NAMES = frozenset(
    {
        "CompileTime", "ExecuteTime", "ExecuteReplicatedTime", "MarkStep", "CreateXlaTensor",
        "TransferToServerTime", "TransferFromServerTime", "TransferToDeviceTime",
        "TransferFromDeviceTime", "InboundData", "OutboundData", "UncachedCompile",
        "CachedCompile", "UncachedSyncTensors", "CachedSyncTensors", "DeviceLockWait",
        "IrValueTensorToXlaData", "CreateDataHandles", "DestroyXlaTensor", "LazyTracing",
        "TensorsGraphSize", "InputOutputAliasCount", "DynamoExtractCompiledGraph",
    }
)  # fmt: skip
_OWN_SPACES = (
    "xla::",
    "aten::",
    "Xrt",
    "XRT",
    "torchvision::",
    "torch_xla::",
    "Xla",
    "PersistentCache",
)


@dataclasses.dataclass(slots=True)
class _Found:
    runs: list[Run] = dataclasses.field(default_factory=list)
    reports: list[MetricsReport] = dataclasses.field(default_factory=list)
    debug: list[DebugBlock] = dataclasses.field(default_factory=list)
    profiler: list[ProfilerLine] = dataclasses.field(default_factory=list)
    unlowered: list[UnloweredSite] = dataclasses.field(default_factory=list)
    devices: list[DeviceLog] = dataclasses.field(default_factory=list)
    regathered: list[tuple[Regathered, int]] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)


def load(sources: Sequence[str | Path], stdin: str | TextIO | None = None) -> Readings:
    """Read run directories, notebooks, and texts that hold metrics reports or PT_XLA_DEBUG output.

    Of programs for TorchTPU, what it writes to their logs.

    Args:
        sources: Paths, or ``-`` for ``stdin``. Several are the cores of one run.
        stdin: Standard input or its text, for ``-``.

    Raises:
        SourceError: A source cannot be read or holds nothing that xladoctor knows.
        UsageError: No source at all.
    """
    if not sources:
        raise UsageError("no source given: name a run directory or a file with a metrics report")
    found = _Found()
    names = [str(source) for source in sources]
    for name, core in zip(names, _cores_of(names), strict=True):
        path = Path(name)
        if name != STDIN and path.is_dir():
            found.runs.append(read_run(path))
            continue
        _read_text(name, stdin, core, found)
    return Readings(
        runs=tuple(found.runs),
        reports=tuple(found.reports),
        debug=tuple(found.debug),
        profiler=tuple(found.profiler),
        unlowered=tuple(found.unlowered),
        devices=tuple(found.devices),
        regathered=tuple(found.regathered),
        notes=(*(note for run in found.runs for note in run.notes), *found.notes),
        sources=tuple(_shown(name) for name in names),
    )


def _shown(name: str) -> str:
    return "standard input" if name == STDIN else name


def _cores_of(names: Sequence[str]) -> Sequence[int | None]:
    """The core of each source: its ordinal, or its position where they have none of their own."""
    ordinals = [_ORDINAL.search(name) for name in names]
    found = [int(match[1]) for match in ordinals if match]
    if len(found) == len(names) and len(set(found)) == len(found):
        return found
    return range(len(names)) if len(names) > 1 else [None]


def _read_text(name: str, stdin: str | TextIO | None, core: int | None, found: _Found) -> None:
    shown = _shown(name)
    reports_of, debug_of = ReportReader(shown, core), DebugReader(shown)
    device_of, complaints_of = DeviceLogReader(shown), ComplaintReader()
    empty, document = True, _Document()
    for line in _lines(name, stdin):
        if empty:
            empty = not line.strip()
        if document.open:
            document.feed(line)
        reports_of.feed(line)
        debug_of.feed(line)
        device_of.feed(line)
        complaints_of.feed(line)
    reports = reports_of.finish()
    blocks, complaints, sites = debug_of.finish()
    device, regathered = device_of.finish(), complaints_of.finish()
    nothing = not any((reports, blocks, complaints, sites, device, regathered))
    if nothing:
        if empty:
            raise SourceError(f"{shown}: this is empty: put the output of metrics_report() there")
        reports = parse_json(document.text, shown, core)
    if nothing and not reports:
        raise SourceError(
            f"{shown}: no torch_xla metrics report and no PT_XLA_DEBUG output was found in it, "
            "and nothing that TorchTPU logs: "
            "give the text that torch_xla.debug.metrics.metrics_report() returns at the run's end"
        )
    if reports and not any(_is_own(report) for report in reports):
        found.notes.append(
            f"{shown}: the names in this report are not those of torch_xla: it may be the report "
            "of another tool (Ratex, a TensorFlow program). Its values are shown as they are; what "
            "is said of them holds only as far as its names mean the same."
        )
    found.reports += reports
    found.debug += blocks
    found.profiler += complaints
    found.unlowered += sites
    found.devices += [] if device is None else [device]
    found.regathered += regathered.items()


def _is_own(report: MetricsReport) -> bool:
    """Whether a report's names are torch_xla's: its operations, or, if it shows none, any other."""
    names = (*report.metrics, *report.counters)
    operations = [name for name in names if "::" in name]
    if operations:
        return any(name.startswith(_OWN_SPACES) for name in operations)
    return any(name in _OWN_NAMES or name.startswith(_OWN_SPACES) for name in names)


class _Document:
    """Keeps a text that begins like JSON, as long as it is one that people dump metrics into."""

    def __init__(self) -> None:
        self._lines: list[str] | None = []
        self._length = 0

    @property
    def open(self) -> bool:
        """Whether the text may still be such a document."""
        return self._lines is not None

    def feed(self, line: str) -> None:
        """Take one line."""
        if self._lines is None:
            return
        if not self._lines and not line.lstrip().startswith(("{", "[")):
            if line.strip():
                self._lines = None
            return
        self._lines.append(line)
        self._length += len(line)
        if self._length > _LARGEST_JSON:
            self._lines = None

    @property
    def text(self) -> str:
        """The whole text; empty if it is no JSON or too long."""
        return "".join(self._lines or ())


def _lines(name: str, stdin: str | TextIO | None) -> Iterator[str]:
    """The lines of a source; of a notebook, the lines of its outputs."""
    if name == STDIN:
        yield from bounded(io.StringIO(stdin) if isinstance(stdin, str) else stdin or io.StringIO())
        return
    path = Path(name)
    try:
        with path.open("rb") as raw:
            start = raw.read(8192)
        encoding = _encoding(start, name)
        with path.open(encoding=encoding, errors="replace", newline=None) as text:
            if path.suffix == ".ipynb":
                if path.stat().st_size > _LARGEST_NOTEBOOK:
                    raise SourceError(
                        f"{name}: this notebook is larger than 256 MB: clear its images and save "
                        "it again, or give the text of the report alone"
                    )
                yield from _notebook_lines(text.read(), name)
            else:
                yield from bounded(text)
    except FileNotFoundError:
        raise SourceError(f"{name}: there is no such file or folder") from None
    except OSError as error:
        raise SourceError(f"{name}: this cannot be read ({error.strerror})") from error


def _encoding(start: bytes, name: str) -> str:
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"  # a PowerShell redirection
    if b"\0" in start:
        raise SourceError(
            f"{name}: this is a binary file, not text: give the text that metrics_report() returned"
        )
    return "utf-8-sig"


def _notebook_lines(text: str, name: str) -> Iterator[str]:
    try:
        notebook = json.loads(text)
        cells = notebook["cells"] if "cells" in notebook else notebook["worksheets"][0]["cells"]
        outputs = itertools.chain.from_iterable(cell.get("outputs", ()) for cell in cells)
        for output in outputs:
            for part in _output_texts(output):
                yield from _joined(part).splitlines(keepends=True)
                yield "\n"
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise SourceError(
            f"{name}: this is not a notebook that can be read: save it again"
        ) from None


def _output_texts(output: dict[str, Any]) -> Iterable[Any]:
    yield output.get("text", "")
    data = output.get("data") or {}
    yield data.get("text/plain", "")
    yield output.get("traceback", "")


def _joined(value: Any) -> str:
    return value if isinstance(value, str) else "".join(str(part) for part in value)
