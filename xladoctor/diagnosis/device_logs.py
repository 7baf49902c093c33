"""What TorchTPU's own log lines say: XLA501, XLA210 and XLA863."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from xladoctor import catalogue
from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import finding, plural
from xladoctor.readings.places import location

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xladoctor.diagnosis.case import Case
    from xladoctor.findings import Finding
    from xladoctor.readings.tables import DeviceCacheRow
    from xladoctor.readings.torchtpu_text import DeviceLog

#: Categories that say something of the run. The others are of stages of an interface's life.
_TELLING = ("TorchTpu/Performance/", "TorchTpu/Correctness/", "TorchTpu/DeprecatedApi/")
#: What to do with an operation that has no kernel, where nothing is known that takes its place.
ELSEWHERE = "do it in the Dataset, on the host, or outside of the step loop"


def find(case: Case) -> Iterator[Finding]:
    """One finding an operation, a warning, and a program that is compiled for many sizes."""
    for log in case.pasted.devices if case.pasted is not None else ():
        yield from _fallbacks(log)
        yield from _missing(log)
        yield from _warnings(log)
        yield from _sizes(log)


def cache_text(log: DeviceLog) -> str:
    """What the compilation caches of the processes of a log counted; "" if none has ended."""
    return _counted(list(zip(log.requests, log.hits, log.compilations, strict=False)))


def counts_text(caches: Sequence[DeviceCacheRow]) -> str:
    """What the compilation caches of the processes of a run counted; "" if none was asked."""
    known = [one for one in caches if None not in (one.requests, one.hits, one.compilations)]
    counts = [(one.requests or 0, one.hits or 0, one.compilations or 0) for one in known]
    return _counted(counts)


def _counted(counts: Sequence[tuple[int, int, int]]) -> str:
    if not counts:
        return ""
    asked, hit, compiled = (sum(each) for each in zip(*counts, strict=True))
    processes = f" in {len(counts)} processes" if len(counts) > 1 else ""
    return f"{asked} requests, {hit} hits, {compiled} compilations{processes}"


def _fallbacks(log: DeviceLog) -> Iterator[Finding]:
    for operation, count in log.fallbacks.items():
        yield finding(
            "XLA501",
            f"{operation} ran on the CPU {plural(count, 'time')}: TorchTPU has no kernel for it, "
            "and each call brings its inputs to the host and sends its result back",
            _instead(operation),
            count=count,
            by="report",
        )


def _missing(log: DeviceLog) -> Iterator[Finding]:
    for operation, frame in log.missing.items():
        place = None if frame is None else location(((frame[0], frame[1], frame[2] or ""),))
        yield finding(
            "XLA501",
            f"{operation} raised RuntimeError: TorchTPU has no kernel for it, and CPU fallbacks "
            "are off",
            _instead(operation),
            at=place,
            count=1,
            by="report",
        )


def _warnings(log: DeviceLog) -> Iterator[Finding]:
    for told, count in log.warnings.items():
        if not f"{told.category}/".startswith(_TELLING):
            continue
        known = told.file is not None and told.row is not None
        place = location(((told.file or "", told.row or 0, ""),)) if known else None
        wrong = "Correctness" in told.category
        yield finding(
            "XLA863",
            f"TorchTPU warns{' that results may be wrong' if wrong else ''}: {told.text}",
            "do as it says; PYTHONWARNINGS=error:<TorchTpu/Correctness/ ends a program at the line"
            if wrong
            else "do as it says, or ignore it by its category (PYTHONWARNINGS=ignore:<"
            f"{told.category.rstrip('/')}/)",
            at=place,
            count=count,
            by="report",
        )


def _sizes(log: DeviceLog) -> Iterator[Finding]:
    for name, number in log.sizes.items():
        if number >= limits.FEWEST_SAMPLES:
            yield finding(
                "XLA210",
                f"{name} was compiled for {plural(number, 'size')} of its inputs",
                "pad to a few lengths and give drop_last=True, so that shapes come again",
                count=number,
                by="report",
            )


@functools.cache
def _table() -> Mapping[str, str]:
    """Operations without a kernel to what can be written instead."""
    measured = catalogue.table("ops_torch_tpu")["missing"]
    rows = catalogue.rows("ops_torch_tpu", "call")
    return {_plain(measured[name]): row["instead"] for row in rows for name in row["measured"]}


def _instead(operation: str) -> str:
    return _table().get(_plain(operation), "") or ELSEWHERE


def _plain(operation: str) -> str:
    """Without its overload: ``aten::kthvalue.values`` is ``aten::kthvalue``."""
    return operation.partition(".")[0]
