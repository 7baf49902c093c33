"""What N simulated cores cost: steps per second and memory, watched by xladoctor and not.

    make bench
    python tests/benchmarks/simulated_cores.py --cores 1 2 4 8 16 32 --pairs 3

The first line is the program in a process of its own, on one device and without xladoctor; all
ratios are to what stands beside or above them in the same table, so they are of one machine and one
run. "Alone" is the simulation without the agent's recording, as the tests run it. Runs alone and
watched take turns; each figure is the median over the pairs. The cores share the machine's CPUs, so
the steps of one core take longer as cores are added: "all cores" is what the machine does.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SITE = ROOT / "tests" / "capture" / "simulated_site"

WORKLOAD = """\
import resource, sys, time
import torch, torch_xla
import torch_xla.core.xla_model as xm
from torch import nn

WARM_UP = 5


def main(index, steps):
    device = torch_xla.device()
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(256, 256), nn.LayerNorm(256), nn.ReLU()) for _ in range(4)]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            began = time.monotonic()
        optimizer.zero_grad()
        model(torch.randn(32, 256).to(device)).square().mean().backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync(wait=True)
    if index == 0:
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print("measured:", steps / (time.monotonic() - began), memory)


if __name__ == "__main__":
    torch_xla.launch(main, args=(int(sys.argv[1]),))
"""


def measure(folder: Path, cores: int | None, steps: int, *, watched: bool) -> tuple[float, float]:
    """Steps per second of one core, and MiB of the process that holds all cores.

    Args:
        folder: Where to run.
        cores: How many simulated cores; None for a process on one device without simulation.
        steps: How many steps are timed.
        watched: Whether xladoctor profiles the run.
    """
    from xladoctor.capture.simulate import environment

    script = folder / "workload.py"
    script.write_text(WORKLOAD)
    command = [sys.executable, "-W", "ignore", str(script), str(steps)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PJRT_DEVICE": "CPU"}
    if watched:
        own = [sys.executable, "-m", "xladoctor", "profile", "--simulate-cores", str(cores)]
        options = ["--force", "--output", str(folder / "run"), "--output-format", "concise"]
        command = [*own, *options, "--", *command]
    elif cores is not None:
        environ |= environment(cores)
        environ |= {"SIMULATED_CORES": str(cores), "SIMULATED_EVENTS": str(folder / "events")}
        environ["PYTHONPATH"] = os.pathsep.join([str(SITE), str(ROOT)])
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    for line in done.stdout.splitlines():
        if line.startswith("measured:"):
            _, speed, memory = line.split()
            return float(speed), float(memory)
    sys.exit(f"the workload failed on {cores} cores:\n{done.stderr[-2000:]}")


def medians(runs: list[tuple[float, float]]) -> tuple[float, float]:
    """Medians of steps per second and of MiB."""
    speeds, memories = zip(*runs, strict=True)
    return statistics.median(speeds), statistics.median(memories)


def main() -> None:
    """Print one line for each number of cores."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--steps", type=int, default=40, help="steps that are timed, after 5")
    parser.add_argument("--pairs", type=int, default=1, help="runs alone and watched, in turn")
    flags = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    print(
        f"{os.cpu_count()} CPUs, {platform.machine()}; torch {version('torch')}, torch_xla "
        f"{version('torch_xla')}; 4 layers of 256, batch 32, Adam; {flags.steps} steps, "
        f"{flags.pairs} pair{'s' if flags.pairs > 1 else ''}"
    )
    print("                steps/s      all cores,  watched:       MiB of the  MiB for each")
    print("cores        of one core   to a process  to alone         process  further core")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = [measure(folder, None, flags.steps, watched=False) for _ in range(flags.pairs)]
        process, least = medians(runs)
        print(f"a process  {process:12.1f}   {1:10.2f} x  {'':8}  {least:13.0f}", flush=True)
        for cores in flags.cores:
            alone, watched = [], []
            for _ in range(flags.pairs):
                alone.append(measure(folder, cores, flags.steps, watched=False))
                watched.append(measure(folder, cores, flags.steps, watched=True))
            speed, _ = medians(alone)
            seen, memory = medians(watched)
            more = f"{(memory - least) / (cores - 1):12.0f}" if cores > 1 else ""
            print(
                f"{cores:9}  {speed:12.1f}   {cores * speed / process:10.2f} x  "
                f"{seen / speed:6.2f} x  {memory:13.0f}  {more}",
                flush=True,
            )


if __name__ == "__main__":
    main()
