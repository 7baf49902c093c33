"""The same program gives the same report: each one many times, with and without load.

``python -m tests.determinism.repeat [--runs 50] [--jobs 1] [--load N] [--json FILE] [--seconds S]
[NAME ...]`` profiles every program of ``faults.py`` and ``healthy.py`` on four simulated cores and
prints, for each, how many different reports it gave. Exit code 1 if any program gave more than one,
if a fault's report missed the line to change, or if a healthy program failed, was told an error or
printed other losses.

``--jobs`` runs several at the same time, which is load too. With ``--json`` each run is kept as
soon as it ends, and the next call makes only those that are still missing at this load;
``--seconds`` begins no run after that long.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.determinism.faults import FAULTS, line
from tests.determinism.healthy import HEALTHY
from tests.determinism.runs import Kept, busy, repeat

CORES = 4
#: What of a message differs from run to run: how long reads took, how many waited, and the folder
#: in which the program runs.
_VARIES = re.compile(r"; the host waited [^\"]*|/[^\s\"]*/(?=train\.py)")
#: What a process says that ends by itself in the middle of C++.
CRASHES = ("terminate called", "Fatal Python error", "double free", "corrupted", "Check failed")


def main() -> int:
    """Run, compare, tell."""
    given = _options()
    kept = Kept(given.json, f"jobs {given.jobs}, load {given.load}")
    with busy(given.load):
        repeat(given.names, given.runs, _once, kept, jobs=given.jobs, seconds=given.seconds)
    same = [_same(name, kept.of(name), given.runs) for name in given.names]
    return 0 if all(same) else 1


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=50, help="of each program")
    options.add_argument("--jobs", type=int, default=1, help="at the same time")
    options.add_argument("--load", type=int, default=0, help="processes that keep CPUs busy")
    options.add_argument("--json", type=Path, metavar="FILE", help="runs, read and written")
    options.add_argument("--seconds", type=float, default=float("inf"), help="begin none later")
    options.add_argument("names", nargs="*", metavar="NAME", default=[*FAULTS, *HEALTHY])
    return options.parse_args()


def _once(name: str) -> dict[str, Any]:
    """Profile a program once."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text({**FAULTS, **HEALTHY}[name])
        return what(_report(Path(folder), "run"))


def _same(name: str, told: list[dict[str, Any]], wanted: int) -> bool:
    """Print what the runs of a program told; whether nothing is wrong with those that were made."""
    seen = collections.Counter(_VARIES.sub("", json.dumps(one, sort_keys=True)) for one in told)
    if name in HEALTHY:
        right, words = sum(_is_healthy(one) for one in told), "healthy in"
    else:
        right, words = sum(_at_line(name, one) for one in told), "the line to change in"
    ran = f"{len(told)} of {wanted} runs" if len(told) < wanted else f"{wanted} runs"
    print(f"{name}: {len(seen)} different in {ran}; {words} {right}", flush=True)
    wrong = right < len(told)
    for text, count in seen.most_common() if len(seen) > 1 or wrong else ():
        print(f"  {count} x {text}", flush=True)
    return len(seen) < 2 and not wrong


def _at_line(name: str, told: dict[str, Any]) -> bool:
    """Whether an error of the run stands at the line that is to change."""
    return any(
        found["severity"] == "error" and found["places"] and found["places"][0][1] == line(name)
        for found in told["findings"]
    )


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
        "exit_code": report["exit_code"],
        "crashed": report["crashed"],
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
    report["exit_code"] = done.returncode
    report["crashed"] = [
        text for text in done.stderr.splitlines() if any(sign in text for sign in CRASHES)
    ]
    return report


if __name__ == "__main__":
    sys.exit(main())
