"""The report of a real run of 32 simulated cores over four processes that torchrun starts.

    PYTHONPATH=. python tests/benchmarks/thirty_two_cores.py [FOLDER]

Core 8 sleeps in each step, and core 17 computes another loss in step 19: docs/guides/pods.md shows
what this prints.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """\
import time

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr


def main(index):
    device = torch_xla.device()
    core = xr.global_ordinal()
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    model = model.to(device)
    xm.broadcast_master_param(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batch = torch.full((4, 8), core + 1.0).to(device)
    for step in range(1, 31):
        if core == 8:
            time.sleep(0.3)
        optimizer.zero_grad()
        loss = model(batch).pow(2).mean()
        if core == 17 and step == 19:
            loss = loss + loss.exp()
        loss.backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync()


if __name__ == "__main__":
    torch_xla.launch(main)
"""


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="cores-32-"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train32.py").write_text(PROGRAM)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environ = os.environ | {"PYTHONPATH": str(Path.cwd())}
    python = [sys.executable, "-m"]
    started = []
    for number in range(4):
        command = [
            *python, "torch.distributed.run", "--nnodes=4", f"--node-rank={number}",
            "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}", "--no-python",
            *python, "xladoctor", "profile", "--simulate-cores", "8", "-o", f"file://{folder}/run",
            "--", sys.executable, "train32.py",
        ]  # fmt: skip
        with (folder / f"log{number}").open("w") as log:
            started.append(
                subprocess.Popen(
                    command, cwd=folder, env=environ, stdout=log, stderr=subprocess.STDOUT
                )
            )
    for one in started:
        one.wait()  # core 17 ends the run with an error: that is what the report is about
    report = [*python, "xladoctor", "report", f"file://{folder}/run"]
    subprocess.run(report, cwd=folder, env=environ, check=True)


if __name__ == "__main__":
    main()
