"""What N simulated cores cost: steps per second of one core and memory, watched and not.

    make bench
    python tests/benchmarks/simulated_cores.py --cores 1 2 4 8 16

"Not watched" runs the simulation alone, without the recorder, as the tests do. The cores share the
machine's CPUs, so steps per second of one core fall as cores are added; the product of the two is
what the machine does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
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


def measure(folder: Path, cores: int, steps: int, *, watched: bool) -> tuple[float, float]:
    """Steps per second of one core, and MiB of the process that holds all cores."""
    from xladoctor.capture.simulate import environment

    script = folder / "workload.py"
    script.write_text(WORKLOAD)
    command = [sys.executable, "-W", "ignore", str(script), str(steps)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    if watched:
        own = [sys.executable, "-m", "xladoctor", "profile", "--simulate-cores", str(cores)]
        options = ["--force", "--output", str(folder / "run"), "--output-format", "concise"]
        command = [*own, *options, "--", *command]
    else:
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


def main() -> None:
    """Print one line for each number of cores."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--steps", type=int, default=40)
    flags = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    print("cores  steps/s  steps/s watched  MiB  MiB/core  MiB watched")
    with tempfile.TemporaryDirectory() as name:
        for cores in flags.cores:
            plain, memory = measure(Path(name), cores, flags.steps, watched=False)
            seen, more = measure(Path(name), cores, flags.steps, watched=True)
            print(
                f"{cores:5}  {plain:7.1f}  {seen:15.1f}  {memory:3.0f}  {memory / cores:8.0f}  "
                f"{more:11.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
