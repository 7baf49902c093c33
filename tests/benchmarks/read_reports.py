"""How long a large log takes to read and diagnose, and in how much memory.

Run: ``python tests/benchmarks/read_reports.py [MEGABYTES] [REPORTS]``. The log is invented: a
series of reports of ordinary size between the lines of a training's logger. Limits: 20 s and 1 GiB
for 200 MB with 5,000 reports.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.readings.printer import HEADS, Printed, print_bytes, print_report, print_time
from xladoctor import diagnosis, readings

TIMES = (
    "CompileTime", "DeviceLockWait", "ExecuteTime", "IrValueTensorToXlaData", "LazyTracing",
    "ReleaseDataHandlesTime", "RunCachedGraphInputData", "TensorToData", "TransferFromDeviceTime",
    "TransferToDeviceTime", "TransferToDeviceTransformTime", "UnwrapXlaData", "WrapXlaData",
)  # fmt: skip
SIZES = ("InboundData", "OutboundData")
COUNTERS = (
    "CachedCompile", "CreateDataHandles", "CreateXlaTensor", "MarkStep", "UncachedCompile",
    *(f"xla::operation_{number}" for number in range(150)),
)  # fmt: skip
LOGGED = "2025-03-01 12:00:00,123 INFO trainer: epoch 3 step 1200 loss 0.1234 eta: 0:12:33\n"


def invent(path: Path, size: int, count: int) -> None:
    """Write a log of about ``size`` bytes with ``count`` reports."""
    rng = random.Random(1)
    with path.open("w", encoding="utf-8") as log:
        for number in range(count):
            metrics = [
                Printed(name, number * 3 + 5, print_time(rng.randrange(10**10)),
                        {head: print_time(rng.randrange(10**9)) for head in HEADS})
                for name in TIMES
            ] + [
                Printed(name, number + 1, print_bytes(rng.randrange(10**9)),
                        {head: print_bytes(rng.randrange(10**6)) for head in HEADS})
                for name in SIZES
            ]  # fmt: skip
            counters = {name: number * 10 + i for i, name in enumerate(COUNTERS)}
            text = f"[MetricsData; step={number * 10}]\n"
            text += "\n".join(print_report(metrics, counters)) + "\n"
            log.write(text + LOGGED * max(0, (size // count - len(text)) // len(LOGGED)))


def main(argv: list[str]) -> int:
    """Print the figures; exit code 1 if a limit is passed."""
    megabytes, count = (int(argv[0]) if argv else 200), (int(argv[1]) if argv[1:] else 5000)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.txt"
        invent(path, megabytes * 2**20, count)
        start, busy = time.perf_counter(), time.process_time()
        read = readings.load([path])
        seconds = time.perf_counter() - start
        diagnosis.diagnose(read)
        whole = time.perf_counter() - start
        busy = time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{megabytes} MB with {len(read.reports):,} reports: read in {seconds:.1f} s, "
          f"diagnosed in {whole - seconds:.1f} s, {busy:.1f} s of them on the processor, "
          f"{peak:.2f} GiB at most")  # fmt: skip
    # Other programs on the machine may hold this one up: what counts is its own work.
    return int(len(read.reports) != count or busy > 20 or peak > 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
