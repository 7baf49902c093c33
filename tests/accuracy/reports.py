"""How well real pasted reports are read and diagnosed.

Run: ``python tests/accuracy/reports.py FOLDER`` (or XLADOCTOR_REPORTS=FOLDER). The folder holds
the texts and ``index.jsonl``: one object a file with ``file``, ``key_numbers`` (true values),
``labels`` (what a person found) and ``diagnosis_basis`` ("thread": the thread itself said so).
The data is not part of the project.
"""

from __future__ import annotations

import collections
import json
import os
import sys
from pathlib import Path

from xladoctor import diagnosis, readings
from xladoctor.errors import XladoctorError
from xladoctor.findings import Severity

#: The label that a code stands for. A fallback brings its inputs to the host, but that alone is
#: not what people call "transfers".
LABELS = {
    "XLA101": "host_device_transfer",
    "XLA601": "host_device_transfer",
    "XLA501": "cpu_fallback",
    "XLA201": "dynamic_shapes",
    "XLA210": "frequent_recompilation",
    "XLA215": "frequent_recompilation",
    "XLA211": "compile_time_too_long",
    "XLA212": "missing_mark_step_or_huge_graph",
    "XLA301": "missing_mark_step_or_huge_graph",
    "XLA410": "divergence_or_hang",
    "XLA602": "host_tracing_bound",
    "XLA610": "host_device_transfer",
    "XLA710": "memory",
    "XLA702": "memory",
}


def main(argv: list[str]) -> int:
    """Print the figures; exit code 1 if a value is wrong."""
    folder = Path(argv[0] if argv else os.environ.get("XLADOCTOR_REPORTS", ""))
    index = folder / "index.jsonl"
    if (not argv and "XLADOCTOR_REPORTS" not in os.environ) or not index.is_file():
        print(f"no index.jsonl in {folder}: give the folder with the reports", file=sys.stderr)
        return 2
    entries = [json.loads(line) for line in index.read_text(encoding="utf-8").splitlines() if line]
    values, wrong = 0, []
    hits: collections.Counter[str] = collections.Counter()
    misses: collections.Counter[str] = collections.Counter()
    extra: collections.Counter[str] = collections.Counter()
    given = given_found = healthy = alarmed = 0
    for entry in entries:
        path = folder / entry["file"]
        try:
            read = readings.load([path])
        except XladoctorError as error:
            wrong.append(f"{entry['file']}: {error}")
            continue
        checked, bad = _values(entry, read)
        values += checked
        wrong += bad
        report = diagnosis.diagnose(read)
        found = {
            LABELS[f.code] for f in report.findings
            if f.code in LABELS and f.severity is not Severity.INFO
        }  # fmt: skip
        true = set(entry["labels"]) - {"healthy"}
        if "healthy" in entry["labels"]:
            healthy += 1
            alarmed += bool(found)
        if entry.get("diagnosis_basis") == "thread":
            given += len(true)
            given_found += len(true & found)
        for label in true | found:
            (hits if label in true & found else misses if label in true else extra)[label] += 1
        if true != found:
            print(
                f"{entry['file']}: missed {sorted(true - found)}, too many {sorted(found - true)}"
            )
    print(f"\nvalues: {values - len(wrong)} of {values} exact")
    for line in wrong:
        print(f"  {line}")
    for label in sorted({*hits, *misses, *extra}):
        print(
            f"  {label:34} found {hits[label]:2}, missed {misses[label]:2}, extra {extra[label]:2}"
        )
    found_labels = sum(hits.values())
    print(
        f"labels: recall {_share(found_labels, sum((hits + misses).values()))}, "
        f"precision {_share(found_labels, sum((hits + extra).values()))}"
    )
    print(f"labels that the thread gave: {_share(given_found, given)}")
    print(f"healthy reports: {healthy}, alarmed: {alarmed}")
    return 1 if wrong else 0


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" + (f" ({part / whole:.0%})" if whole else "")


def _values(entry: dict, read: readings.Readings) -> tuple[int, list[str]]:
    checked, wrong = 0, []
    for name, true in (entry["key_numbers"] or {}).items():
        checked += 1
        if isinstance(true, int):
            got = [report.counters.get(name) for report in read.reports]
            right = true in got
        else:
            got = [report.metrics[name] for report in read.reports if name in report.metrics]
            right = any(
                metric.total_samples == true.get("samples", metric.total_samples)
                and (
                    "seconds" not in true
                    or abs((metric.accumulator or -1) - true["seconds"]) < 1e-6
                )
                for metric in got
            )
        if not right:
            wrong.append(f"{entry['file']}: {name} is {true}, read {got}")
    return checked, wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
