"""Metrics as JSON: what ``torch_xla.debug.metrics.metric_data`` returns, dumped by the user.

``metric_data(name)`` gives ``(total samples, accumulator, ((time, value), ...))`` with times in
nanoseconds, sizes in bytes and only the last 1,024 samples. People dump it as
``{"CompileTime": [4, 8.1e9, [[1763.2, 2.0e9], ...]], "MarkStep": 120}``, also with the metrics and
the counters under ``metrics`` and ``counters``; a list of such objects, or one a line, is a series.
"""

from __future__ import annotations

import json
import math
from typing import Any

from xladoctor.readings.metric_block import BYTE_METRICS
from xladoctor.results import Metric, MetricsReport

#: Metrics that count things. U (metrics.cpp, computation_client.cpp).
_COUNT_METRICS = frozenset(
    {"TensorsGraphSize", "SyncTensorsGraphSize", "InputOutputAliasCount", "OpByOpGraphSize"}
)
#: Time metrics whose names do not say so.
_TIME_METRICS = frozenset(
    {
        "DeviceLockWait", "LazyTracing", "IrValueTensorToXlaData", "TensorToData", "UnwrapXlaData",
        "WrapXlaData", "RunCachedGraphInputData", "RunCachedGraphOutputData", "SyncTensorsToData",
        "HandleBarrierWait",
    }
)  # fmt: skip
#: The heads that torch_xla prints by default.
_HEADS = (1, 5, 10, 20, 50, 80, 90, 95, 99)
_LARGEST = 2**63


def parse_json(text: str, source: str, core: int | None = None) -> list[MetricsReport]:
    """The reports in a JSON text; none if it is no JSON or holds no metrics of this form."""
    documents = _documents(text) or [
        doc for line in text.splitlines() if line.strip() for doc in _documents(line) or [None]
    ]
    items = [item for doc in documents for item in (doc if isinstance(doc, list) else [doc])]
    found = [_report(item, source, core) for item in items if isinstance(item, dict)]
    return [report for report in found if report is not None]


def _documents(text: str) -> list[Any]:
    """The JSON document that a text is, in a list; an empty one if it is none."""
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        return []


def _report(data: dict[str, Any], source: str, core: int | None) -> MetricsReport | None:
    metrics: dict[str, Metric] = {}
    counters: dict[str, int] = {}
    places = [data, data.get("metrics"), data.get("counters")]
    for place in places:
        if not isinstance(place, dict):
            continue
        for name, value in place.items():
            metric = _metric(name, value)
            if metric is not None:
                metrics[name] = metric
            elif _is_count(value) and (place is not data or _looks_like_a_counter(name)):
                counters[name] = value
    if not metrics and (not counters or data.get("counters") is None):
        return None
    step = data.get("step")
    return MetricsReport(source, core, step if _is_count(step) else None, metrics, counters)


def _metric(name: str, value: Any) -> Metric | None:
    if not isinstance(value, list) or len(value) != 3 or not isinstance(value[2], list):
        return None
    count, total, samples = value
    if not _is_count(count) or not _is_number(total):
        return None
    unit, scale = _unit(name)
    pairs = [s for s in samples if isinstance(s, list) and len(s) == 2 and all(map(_is_number, s))]
    if len(pairs) != len(samples):
        return None
    values = sorted(pair[1] / scale for pair in pairs)
    kept = len(values)
    span = max(pair[0] for pair in pairs) - min(pair[0] for pair in pairs) if kept > 1 else 0.0
    return Metric(
        total_samples=count,
        accumulator=total / scale,
        unit=unit,
        percentiles={
            str(head): values[min(head * kept // 100, kept - 1)] for head in _HEADS if kept
        },
        value_rate=sum(values) / span if span > 0 else None,
        rate=kept / span if span > 0 else None,
    )


def _unit(name: str) -> tuple[str, float]:
    """The unit of a metric and by what its raw values are to be divided."""
    if name in BYTE_METRICS:
        return "B", 1.0
    if name in _TIME_METRICS or (name.endswith("Time") and name not in _COUNT_METRICS):
        return "s", 1e9
    return "", 1.0


def _looks_like_a_counter(name: str) -> bool:
    return "::" in name or (name[:1].isupper() and name.isalnum())


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and 0 <= value < _LARGEST
