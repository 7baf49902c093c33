"""What watching costs: the same program with and without xladoctor, in turn, as a ratio.

``python tests/benchmarks/cost_of_watching.py [--pairs 10] [--detail normal]`` runs pairs of
processes on one CPU device, first without or first with xladoctor in turn, and prints for steps of
about 1 ms and 10 ms the median over the pairs of the ratio of their median steps. What a pair shows
on a busy machine scatters by several percent: the spread of the pairs is printed beside it.

Absolute times are not comparable between machines; ratios of one machine are.
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

PROGRAM = """\
import json, statistics, sys, time
began = time.perf_counter()
import torch, torch_xla
imported = time.perf_counter() - began
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

json.dump({"import": imported, "short": steps(16, 4, 600), "long": steps(448, 12, 150)},
          open(sys.argv[1], "w"))
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
    subprocess.run(words, env=env, check=True, capture_output=True)
    return json.loads(out.read_text())


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--detail", choices=("low", "normal", "high"), default="normal")
    parser.add_argument("--limits", action="store_true", help="fail where the limits are broken")
    options = parser.parse_args()
    ratios: dict[str, list[float]] = {"short": [], "long": [], "first": []}
    imports: list[float] = []
    work: dict[str, list[float]] = {"short": [], "long": []}
    plain_steps: dict[str, list[float]] = {"short": [], "long": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        delays = starts(options.pairs, folder)
        for pair in range(options.pairs):
            order = [None, options.detail] if pair % 2 else [options.detail, None]
            results = {detail: run(folder, detail) for detail in order}
            plain, watched = results[None], results[options.detail]
            for kind in ("short", "long"):
                ratios[kind].append(watched[kind]["step"] / plain[kind]["step"])
                work[kind].append(watched[kind]["work"] - plain[kind]["work"])
                plain_steps[kind].append(plain[kind]["step"])
            ratios["first"].append(watched["long"]["first"] / plain["long"]["first"])
            imports.append(watched["import"] - plain["import"])
    print(f"--detail {options.detail}; ratio of medians, with xladoctor to without")
    for kind in ("short", "long"):
        step = 1000 * statistics.median(plain_steps[kind])
        print(f"  steps of {step:5.1f} ms    {spread(ratios[kind])}")
        print(f"    more work of the host, ms {spread([1000 * more for more in work[kind]])}")
    print(f"  first step (compiles) {spread(ratios['first'])}")
    print("seconds later")
    print(f"  Python without torch_xla {spread(delays)}")
    print(f"  import of torch_xla      {spread(imports)}")
    if options.limits:
        broken = [
            statistics.median(ratios["long"]) > 1.03,
            statistics.median(ratios["short"]) > 1.10,
            statistics.median(imports) + statistics.median(delays) > 0.2,
        ]
        sys.exit(any(broken))


main()
