"""What watching costs: the same training loop with and without `xladoctor profile`, in pairs.

    make bench
    python tests/benchmarks/cost_of_watching.py --pairs 5

Prints the ratio of the seconds of a step, watched to unwatched, as the median over the pairs with
its range, for wall time and (steadier on a busy machine) CPU time; and the same for two unwatched
runs, which is how much of it is the machine's noise. The net is small on purpose: a cost that is
the same for each step shows most on short steps.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

WORKLOAD = """\
import statistics, time
import torch, torch_xla

device = torch_xla.device()
torch.manual_seed(0)
width = {width}
model = torch.nn.Sequential(
    *[torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU()) for _ in range({layers})]
).to(device)
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(64, width).to(device)
wall, cpu = [], []
for step in range({steps}):
    start = time.perf_counter(), time.process_time()
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    torch_xla.sync(wait=True)
    wall.append(time.perf_counter() - start[0])
    cpu.append(time.process_time() - start[1])
print("seconds per step:", *(statistics.median(times[{steps} // 4:]) for times in (wall, cpu)))
"""


def seconds_per_step(script: Path, folder: Path, *, watched: bool) -> tuple[float, float]:
    """Median wall and CPU seconds of a step, without the first quarter, which compiles."""
    command = [sys.executable, str(script)]
    if watched:
        own = [sys.executable, "-m", "xladoctor", "profile", "--force", "--output"]
        command = [*own, str(folder / "run"), "--output-format", "json", "--", *command]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PJRT_DEVICE": "CPU", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    for line in done.stdout.splitlines():
        if line.startswith("seconds per step:"):
            _, wall, cpu = line.rsplit(" ", 2)
            return float(wall), float(cpu)
    sys.exit(f"a run failed with exit code {done.returncode}:\n{done.stderr}")


def say(what: str, ratios: list[tuple[float, float]]) -> None:
    """One line: the medians of the ratios of wall and CPU time, and their ranges."""
    words = [
        f"{name} {statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"
        for name, values in zip(("wall", "CPU"), zip(*ratios, strict=True), strict=True)
    ]
    print(f"  {what:<22} " + "   ".join(words))


def ratio(over: tuple[float, float], under: tuple[float, float]) -> tuple[float, float]:
    """Wall and CPU seconds of one run over those of another."""
    return over[0] / under[0], over[1] / under[1]


def main() -> None:
    """Run the pairs and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=128)
    flags = parser.parse_args()
    watched, noise, plain_seconds = [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "workload.py"
        settings = {"width": flags.width, "layers": flags.layers, "steps": flags.steps}
        script.write_text(WORKLOAD.format(**settings))
        for pair in range(flags.pairs):
            plain, with_us, again = (
                seconds_per_step(script, folder, watched=kind) for kind in (False, True, False)
            )
            watched.append(ratio(with_us, plain))
            noise.append(ratio(again, plain))
            plain_seconds.append(plain[0])
            print(f"  pair {pair + 1} of {flags.pairs}: {watched[-1][0]:.3f}", file=sys.stderr)
    print(f"{flags.steps} steps of {statistics.median(plain_seconds) * 1e3:.2f} ms unwatched")
    say("watched / unwatched:", watched)
    say("unwatched / unwatched:", noise)


if __name__ == "__main__":
    main()
