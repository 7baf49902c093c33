"""What the checks for silent wrong results cost a step of a simulated run, as a share of the step.

``python tests/benchmarks/cost_of_checks.py [--steps 300] [--check]`` profiles a program on two
simulated cores whose steps do what the checks look at: batches of a loader with a sampler, an
embedding, dropout, BatchNorm, labels, a reduction. Each core adds up the CPU time that its thread
spends inside of the checks, in the same process and the same steps as the rest, so that what else
the machine does meets both (the check of indices takes as much as it may of the time that goes by,
whatever a step takes). It prints the share: of all steps, and of those behind the first ten
(the checks look closely at the first steps and seldom later).
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """\
import contextlib, json, sys, time
import torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

memory = sys.modules["_xladoctor.simulate.checks.memory"]
spent = {}
guarded = memory.Memory.guarded

@contextlib.contextmanager
def timed(self, core, check):
    began = time.thread_time()
    try:
        with guarded(self, core, check):
            yield
    finally:
        of_core = spent.setdefault(core.number, {})
        of_core[check] = of_core.get(check, 0.0) + time.thread_time() - began

memory.Memory.guarded = timed

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 256)
        self.layers = nn.ModuleList([nn.Linear(256, 256) for _ in range(8)])
        self.norm = nn.BatchNorm1d(256)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(256, 10)

    def forward(self, ids):
        h = self.embed(ids).mean(1)
        for layer in self.layers:
            h = self.drop(layer(h).relu())
        return self.head(self.norm(h))

def main(index, out, steps):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch_xla.manual_seed(1 + index)
    rows = 2 * 64 * steps
    data = TensorDataset(torch.randint(0, 100, (rows, 16)), torch.randint(0, 10, (rows,)))
    sampler = DistributedSampler(data, xr.world_size(), xr.global_ordinal(), shuffle=False)
    loader = DataLoader(data, 64, sampler=sampler, drop_last=True)
    taken = []
    began, before = time.perf_counter(), {}
    for ids, labels in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(ids), labels)
        loss.backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync()
        now, inside = time.perf_counter(), dict(spent.get(index, {}))
        taken.append([now - began, {k: v - before.get(k, 0.0) for k, v in inside.items()}])
        began, before = now, inside
    if index == 0:
        json.dump(taken, open(out, "w"))

if __name__ == "__main__":
    torch_xla.launch(main, args=(sys.argv[1], int(sys.argv[2])))
"""

#: Steps of a program that looks at its first batches and compiles: not typical ones.
FIRST = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--check", action="store_true", help="with those that cost more")
    options = parser.parse_args()
    env = {**os.environ, "PJRT_DEVICE": "CPU", "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        out = folder / "out.json"
        words = [sys.executable, "-m", "xladoctor", "profile", "--simulate-cores", "2"]
        words += ["--check"] if options.check else []
        words += ["-o", str(folder / "run"), "--output-file", str(folder / "report.txt"), "--"]
        words += [sys.executable, str(folder / "program.py"), str(out), str(options.steps)]
        subprocess.run(words, env=env, check=True, capture_output=True)
        rows = json.loads(out.read_text())
    for word, part in (("all steps", rows), (f"behind the first {FIRST}", rows[FIRST:])):
        taken = sum(wall for wall, _ in part)
        step = 1000 * statistics.median(wall for wall, _ in part)
        inside: collections.Counter[str] = collections.Counter()
        for _, checks in part:
            inside.update(checks)
        share = inside.total() / taken
        print(f"{word} ({step:.1f} ms each, in the middle): {share:.2%} of the time")
        for name, seconds in inside.most_common(6):
            print(f"    {name}: {seconds / taken:.2%}, {1e6 * seconds / len(part):.0f} us a step")


main()
