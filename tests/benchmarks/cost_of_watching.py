"""What watching costs: the same program with and without xladoctor, in turn, as a ratio.

``python tests/benchmarks/cost_of_watching.py [--pairs 10] [--details low normal high]`` runs rounds
of processes on one CPU device: one without xladoctor and one at each level of detail, another one
first in each round. For steps of about 1 ms and 10 ms it prints the median and the quartiles over
the rounds of

* the ratio of the median steps (wall clock), with xladoctor to without;
* the same from what the program's thread worked (CPU time): the wall step of the run without, plus
  what the thread worked more, by the wall step. Other programs of the machine do not get into it.

and what a command starts later: until its first line, in ``import torch_xla`` (seconds of work: the
least of all runs, since nothing makes an import faster), and in a Python that never imports it.
Ratios of one machine can be compared; absolute times of two can not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("short", "long")

PROGRAM = """\
import time
started = time.time()
import json, statistics, sys
worked = time.process_time()
began = time.perf_counter()
import torch, torch_xla
imported = [time.perf_counter() - began, time.process_time() - worked]
device = torch_xla.device()

def steps(width, depth, count):
    layers = [torch.nn.Linear(width, width) for _ in range(depth)]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    x = torch.ones(64, width).to(device)
    taken, worked = [], []
    for step in range(count):
        began, worked_before = time.perf_counter(), time.thread_time()
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        torch_xla.sync(wait=True)
        taken.append(time.perf_counter() - began)
        worked.append(time.thread_time() - worked_before)
    settled = count // 4
    return {"step": statistics.median(taken[settled:]), "first": taken[0],
            "work": statistics.median(worked[settled:])}

json.dump({"started": started, "import": imported, "short": steps(16, 4, 600),
           "long": steps(320, 12, 150)}, open(sys.argv[1], "w"))
"""


def run(folder: Path, detail: str | None) -> dict:
    """One run of the program; ``detail`` None is without xladoctor."""
    out = folder / "out.json"
    words = [sys.executable, str(folder / "program.py"), str(out)]
    if detail is not None:
        options = ["--force", "-o", str(folder / "run"), "--detail", detail]
        files = ["--output-file", str(folder / "report.txt")]
        words = [sys.executable, "-m", "xladoctor", "profile", *options, *files, "--", *words]
    env = {**os.environ, "PJRT_DEVICE": "CPU", "PYTHONPATH": str(ROOT)}
    began = time.time()
    subprocess.run(words, env=env, check=True, capture_output=True)
    found = json.loads(out.read_text())
    found["later"] = found["started"] - began
    return found


def starts(pairs: int, folder: Path) -> list[float]:
    """Seconds that a Python which never imports torch_xla starts later, by pair."""
    bootstrap = ROOT / "xladoctor" / "capture" / "agent" / "bootstrap"
    plain = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    watched = {**plain, "PYTHONPATH": str(bootstrap), "XLADOCTOR_RUN_DIR": str(folder)}

    def once(env: dict[str, str]) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", ""], env=env, check=True)
        return time.perf_counter() - began

    return [once(watched) - once(plain) for _ in range(4 * pairs)]


def spread(values: list[float]) -> str:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:7.3f}   (quartiles {low:.3f} to {high:.3f}, {len(values)} pairs)"


def show(detail: str, plain: list[dict], watched: list[dict]) -> dict[str, float]:
    """Print what a level of detail costs; returns the medians that have a limit."""
    pairs = list(zip(plain, watched, strict=True))
    print(f"--detail {detail}, with xladoctor to without")
    found = {}
    for kind in KINDS:
        step = statistics.median(one[kind]["step"] for one in plain)
        walls = [b[kind]["step"] / a[kind]["step"] for a, b in pairs]
        works = [1 + (b[kind]["work"] - a[kind]["work"]) / a[kind]["step"] for a, b in pairs]
        more = statistics.median(b[kind]["work"] - a[kind]["work"] for a, b in pairs)
        found[kind] = statistics.median(works)
        print(f"  steps of {1000 * step:5.1f} ms  wall  {spread(walls)}")
        print(f"                     work  {spread(works)}   {1e6 * more:.0f} us a step")
    first = [b["long"]["first"] / a["long"]["first"] for a, b in pairs]
    print(f"  first step (compiles)    {spread(first)}")
    later = [b["later"] - a["later"] for a, b in pairs]
    least = [min(one["import"][1] for one in runs) for runs in (watched, plain)]
    print(f"  s until the first line   {spread(later)}   least {min(later):.3f}")
    print(f"  s of work in the import  {least[0] - least[1]:7.3f}   (least of each)")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    levels = ("low", "normal", "high")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--details", nargs="+", choices=levels, default=list(levels))
    parser.add_argument("--limits", action="store_true", help="fail where the limits are broken")
    options = parser.parse_args()
    variants = [None, *options.details]
    results: dict[str | None, list[dict]] = {variant: [] for variant in variants}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        delays = starts(options.pairs, folder)
        for pair in range(options.pairs):
            at = pair % len(variants)
            for variant in variants[at:] + variants[:at]:
                results[variant].append(run(folder, variant))
    found = {detail: show(detail, results[None], results[detail]) for detail in options.details}
    print(f"seconds that a Python without torch_xla starts later\n  {spread(delays)}")
    if options.limits:
        usual = found.get("normal", {})
        sys.exit(usual.get("long", 0) > 1.03 or usual.get("short", 0) > 1.10)


main()
