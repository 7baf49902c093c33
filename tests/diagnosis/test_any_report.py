"""Whatever a report says, it is diagnosed and shown: values may be absurd, an answer is not."""

from __future__ import annotations

import json
import random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.readings.printer import Printed, print_report, print_time
from xladoctor.diagnosis import diagnose
from xladoctor.readings import load
from xladoctor.report import FORMATS, render

METRICS = (
    "CompileTime", "DeviceLockWait", "DynamoExtractCompiledGraph", "ExecuteReplicatedTime",
    "ExecuteTime", "InboundData", "InputOutputAliasCount", "IrValueTensorToXlaData", "LazyTracing",
    "OutboundData", "RunCachedGraphOutputData",
    "TensorsGraphSize", "TransferFromDeviceTime", "TransferFromServerTime", "TransferToServerTime",
    "XrtCompaction", "XrtExecute", "XrtTryFreeMemory",
)  # fmt: skip
COUNTERS = (
    "CachedCompile", "CreateDataHandles", "CreateXlaTensor", "DestroyDataHandles",
    "DestroyXlaTensor", "DynamoSyncInputExecuteTime", "MarkStep",
    "PersistentCacheDeserializeFailure", "PersistentCacheHit", "PersistentCacheMiss",
    "UncachedCompile", "aten::_local_scalar_dense",
    "aten::nonzero", "aten::silu", "torchvision::nms", "xla::add", "xla::addcdiv",
)  # fmt: skip


def text_of(rng: random.Random) -> str:
    """One or several random reports; any metric may have any unit and any size, 0 included."""
    lines = []
    for step in range(rng.randint(1, 3)):
        metrics = []
        for name in sorted(rng.sample(METRICS, rng.randint(0, len(METRICS)))):
            values = ["0.00", "4.00B", "1.50GB", "000.000us", print_time(10 ** rng.randint(0, 16))]
            some = rng.choice(values)
            heads = {head: rng.choice([some, *values]) for head in ("50", "90", "99")}
            metrics.append(
                Printed(name, rng.choice([0, 1, 12, 900, 10**9]), some, heads, rng.random() < 0.8)
            )
        counters = {
            name: rng.choice([0, 1, 7, 30, 1000, 2**63 - 1])
            for name in sorted(rng.sample(COUNTERS, rng.randint(1, len(COUNTERS))))
        }
        lines += [f"[MetricsData; step={step * 50}]", *print_report(metrics, counters)]
    return "\n".join(lines)


@settings(max_examples=150, deadline=None)
@example(1249)  # a counter that is smaller in the later report
@given(st.integers(0, 2**32))
def test_any_report_is_diagnosed_and_shown_in_every_format(seed: int) -> None:
    report = diagnose(load(["-"], text_of(random.Random(seed))))
    assert all((report.summary.verdict, report.summary.why, report.summary.next))
    for output in FORMATS:
        assert render(report, output)
    data = json.loads(render(report, "json"))
    for found in data["findings"]:
        assert found["count"] is None or found["count"] >= 0
        assert found["seconds"] is None or found["seconds"] >= 0
