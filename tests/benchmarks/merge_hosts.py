"""What reports over many hosts take: seconds and memory from 8 to 2,048 cores, on generated runs.

    PYTHONPATH=. python tests/benchmarks/merge_hosts.py [--steps 1000] [--hosts 1 4 16 64 256]

Each host has 8 cores. Runs are generated from a recorded one (tests/store/generate.py); one host in
them lags and one builds a graph of its own. Compaction and report are processes of their own, as a
user starts them; memory is the most that the process and its workers had resident, each. On a
machine that does other work the CPU's seconds tell more than those of the clock.

With --distinct N only N hosts are generated and compacted, and the others are links to them: for
runs whose generation would take longer than what is measured.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.store.generate import Large, write

QUERY = """SELECT host, core, sum(seconds - execute_seconds - host_sync_seconds - core_wait_seconds)
/ sum(steps) AS own_seconds FROM steps WHERE first_step > 3 GROUP BY host, core
ORDER BY own_seconds DESC LIMIT 3"""


class Cost(NamedTuple):
    """What one command took: seconds, seconds of the CPU, MiB."""

    seconds: float
    cpu: float
    memory: float

    def __str__(self) -> str:
        return f"{self.seconds:.1f} / {self.cpu:.1f} ({self.memory:.0f})"


def measured(arguments: list[str]) -> Cost:
    """What one command of xladoctor takes."""
    program = (
        "import resource, subprocess, sys, time\n"
        "began = time.perf_counter()\n"
        "code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "cpu = used.ru_utime + used.ru_stime\n"
        "print(code, time.perf_counter() - began, cpu, used.ru_maxrss / 1024)\n"
    )
    command = [sys.executable, "-m", "xladoctor", *arguments]
    out = subprocess.run(
        [sys.executable, "-c", program, *command], capture_output=True, text=True, check=True
    )
    code, *cost = out.stdout.split()
    assert code == "0", out.stderr
    return Cost(*map(float, cost))


def size(folder: Path, pattern: str = "*") -> float:
    """MB of the files of a folder."""
    return sum(file.stat().st_size for file in folder.rglob(pattern) if file.is_file()) / 1e6


def linked(run: Path, distinct: int, hosts: int) -> None:
    """Let hosts that are not generated have what others have, under their own names."""
    for host in range(distinct, hosts):
        like = host % distinct
        if like in (1, 2):
            like = 0  # those that lag and differ are few
        for part in (run / "hosts" / str(like)).iterdir():
            shutil.copytree(part, run / "hosts" / str(host) / part.name, copy_function=os.link)
            facts = run / "hosts" / str(host) / part.name / "part.json"
            text = facts.read_text().replace(f'"host": "{like}"', f'"host": "{host}"')
            facts.unlink()
            facts.write_text(text)
        for file in [*run.glob(f"digests/{like}@*"), *run.glob(f"columns/*/{like}@*")]:
            os.link(file, file.with_name(file.name.replace(f"{like}@", f"{host}@", 1)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 4, 16, 64, 256])
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--distinct", type=int, default=None)
    chosen = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print("cores | steps | record, MB | compaction | report | page, MB | query", end="")
    print("  (seconds / of the CPU (MiB))")
    for hosts in chosen.hosts:
        with tempfile.TemporaryDirectory(prefix="merge-hosts-") as name:
            run = Path(name) / "run"
            distinct = min(hosts, chosen.distinct or hosts)
            odd = {1: 0.2} if hosts > 1 else {}
            write(Large(distinct, chosen.steps, odd, (2,) if hosts > 2 else ()), run)
            compaction = measured(["compact", str(run)])
            linked(run, distinct, hosts)
            report = measured(["report", str(run)])
            page = Path(name) / "page.html"
            measured(["report", str(run), "--output-format", "html", "-o", str(page)])
            query = measured(["query", str(run), QUERY])
            print(
                f"{hosts * 8:,} | {chosen.steps:,} | {size(run / 'hosts'):,.0f} | "
                f"{compaction} | {report} | {page.stat().st_size / 1e6:.1f} | {query}",
                flush=True,
            )


if __name__ == "__main__":
    began = time.perf_counter()
    main()
    print(f"{time.perf_counter() - began:.0f} s in all", file=sys.stderr)
