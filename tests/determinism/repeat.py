"""The same program gives the same report: each one many times, with and without load.

``python -m tests.determinism.repeat [--runs 50] [--jobs 1] [--load N] [NAME ...]`` profiles every
program of ``faults.py`` and ``healthy.py`` on four simulated cores and prints, for each, how many
different reports it gave, with a mark of each, so that runs can be made in several goes. Exit code
1 if any program gave more than one, if a fault's report missed the line to change, or if a healthy
program failed, was told an error or printed other losses.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import hashlib
import json
import multiprocessing
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.determinism.faults import FAULTS, line
from tests.determinism.healthy import HEALTHY

CORES = 4


def main() -> int:
    """Run, compare, tell."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=50, help="of each program")
    options.add_argument("--jobs", type=int, default=1, help="at the same time")
    options.add_argument("--load", type=int, default=0, help="processes that keep CPUs busy")
    options.add_argument("names", nargs="*", metavar="NAME", default=[*FAULTS, *HEALTHY])
    given = options.parse_args()
    busy = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(given.load)]
    for process in busy:
        process.start()
    try:
        failed = [name for name in given.names if not _same(name, given.runs, given.jobs)]
    finally:
        for process in busy:
            process.terminate()
    return 1 if failed else 0


def _spin() -> None:
    while True:
        sum(range(1000))


def _same(name: str, runs: int, jobs: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text({**FAULTS, **HEALTHY}[name])
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            reports = list(pool.map(lambda at: _report(Path(folder), f"run{at}"), range(runs)))
    seen = collections.Counter(json.dumps(what(report), sort_keys=True) for report in reports)
    if name in HEALTHY:
        return _healthy(name, seen, runs)
    places = [
        place["row"]
        for report in reports
        for found in report["findings"]
        if "runtime" in found["confirmed_by"] and found["severity"] == "error"
        for place in found["locations"][:1]
    ]
    at_line = sum(row == line(name) for row in places)
    print(
        f"{name}: {len(seen)} different of {runs} ({_marks(seen)}); the line to change "
        f"{at_line} times",
        flush=True,
    )
    for text, count in seen.most_common() if len(seen) > 1 else ():
        print(f"  {count} x {text}", flush=True)
    return len(seen) == 1 and at_line >= runs


def _healthy(name: str, seen: collections.Counter[str], runs: int) -> bool:
    """Whether all runs ended, told no error and printed the same losses."""
    wrong = [text for text in seen if not _is_healthy(json.loads(text))]
    print(
        f"{name}: {len(seen)} different of {runs} ({_marks(seen)}); {len(wrong)} with an error",
        flush=True,
    )
    for text, count in seen.most_common() if len(seen) > 1 or wrong else ():
        print(f"  {count} x {text}", flush=True)
    return len(seen) == 1 and not wrong


def _marks(seen: collections.Counter[str]) -> str:
    return ", ".join(hashlib.sha1(text.encode()).hexdigest()[:8] for text in seen)


def _is_healthy(told: dict[str, Any]) -> bool:
    cores = len(told["printed"]) == CORES
    return cores and not any(found["severity"] == "error" for found in told["findings"])


def what(report: dict[str, Any]) -> dict[str, Any]:
    """What of a report must be the same each time: no seconds, nothing of how far cores came."""
    summary = report["summary"]
    return {
        "compilations": summary["compilations"],
        "after_warmup": summary["compilations_after_warmup"],
        "findings": [
            {
                "code": found["code"],
                "places": [(place["filename"], place["row"]) for place in found["locations"]],
                "cores": found["cores"],
                "severity": found["severity"],
                "message": found["message"],
            }
            for found in report["findings"]
            if "runtime" in found["confirmed_by"] and found["severity"] != "info"
        ],
        "printed": report["printed"],
    }


def _report(folder: Path, name: str) -> dict[str, Any]:
    command = [
        sys.executable, "-m", "xladoctor", "profile", "--simulate-cores", str(CORES), "-o", name,
        "--output-format", "json", "--output-file", f"{name}.json", "--",
        sys.executable, "train.py",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    file = folder / f"{name}.json"
    if not file.exists():
        raise SystemExit(f"{name}: no report\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    report: dict[str, Any] = json.loads(file.read_text())
    report["printed"] = sorted(one for one in done.stdout.splitlines() if one.startswith("core "))
    return report


if __name__ == "__main__":
    sys.exit(main())
