"""What watching costs a step: in one process, blocks of steps with the hooks and without, in turn.

``python tests/benchmarks/cost_per_step.py [--blocks 20] [--details low normal high]`` profiles a
program that takes the agent's hooks away and puts them back itself: a block without follows each
block with them, in the same process, on the same graphs, at the same time of a busy machine. For
steps of about 1 ms and 10 ms it prints the median and quartiles over the pairs of blocks of

* wall: how much longer the median step is with the hooks;
* work: the CPU time that the program's thread needs more per step, as a share of the wall step
  without, and in microseconds.

``cost_of_watching.py`` compares whole processes, and shows what starting costs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """\
import json, statistics, sys, time
import torch, torch_xla
import torch.optim.optimizer as optim
from torch.utils.data import dataloader

device = torch_xla.device()
OWNERS = (torch_xla._XLAC, torch.Tensor, dataloader._BaseDataLoaderIter)
WRAPPED = []
for owner in OWNERS:
    for name in dir(owner):
        found = vars(owner).get(name)
        code = getattr(found, "__code__", None)
        if code is not None and "/capture/agent/" in code.co_filename:
            WRAPPED.append((owner, name, found, found.__wrapped__))
assert len(WRAPPED) > 10, WRAPPED
HOOKS = dict(optim._global_optimizer_post_hooks)

def switch(on):
    for owner, name, wrapper, original in WRAPPED:
        setattr(owner, name, wrapper if on else original)
    optim._global_optimizer_post_hooks.clear()
    if on:
        optim._global_optimizer_post_hooks.update(HOOKS)

def blocks(width, depth, pairs, count, read):
    layers = [torch.nn.Linear(width, width) for _ in range(depth)]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    x = torch.ones(64, width).to(device)
    def block(size):
        taken, worked = [], []
        for _ in range(size):
            began, before = time.perf_counter(), time.thread_time()
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            torch_xla.sync(wait=True)
            if read:
                loss.item()
            worked.append(time.thread_time() - before)
            taken.append(time.perf_counter() - began)
        return [statistics.median(taken), statistics.median(worked)]
    block(40)
    found = []
    for pair in range(pairs):
        result = {}
        for on in (True, False) if pair % 2 else (False, True):
            switch(on)
            result["on" if on else "off"] = block(count)
        found.append(result)
    switch(True)
    return found

pairs = int(sys.argv[2])
json.dump({"1 ms": blocks(16, 4, pairs, 60, False), "1 ms, read": blocks(16, 4, pairs, 60, True),
           "10 ms": blocks(320, 12, pairs, 15, False)}, open(sys.argv[1], "w"))
"""


def spread(values: list[float], form: str) -> str:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:{form}} (quartiles {low:{form}} to {high:{form}})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    levels = ("low", "normal", "high")
    parser.add_argument("--blocks", type=int, default=20, help="pairs of blocks")
    parser.add_argument("--details", nargs="+", choices=levels, default=list(levels))
    options = parser.parse_args()
    env = {**os.environ, "PJRT_DEVICE": "CPU", "PYTHONPATH": str(ROOT)}
    for detail in options.details:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "program.py").write_text(PROGRAM)
            out = folder / "out.json"
            words = [sys.executable, "-m", "xladoctor", "profile", "--detail", detail]
            words += ["-o", str(folder / "run"), "--output-file", str(folder / "report.txt"), "--"]
            words += [sys.executable, str(folder / "program.py"), str(out), str(options.blocks)]
            subprocess.run(words, env=env, check=True, capture_output=True)
            found = json.loads(out.read_text())
        print(f"--detail {detail}, {options.blocks} pairs of blocks")
        for kind, pairs in found.items():
            step = 1000 * statistics.median(pair["off"][0] for pair in pairs)
            wall = [pair["on"][0] / pair["off"][0] - 1 for pair in pairs]
            work = [(pair["on"][1] - pair["off"][1]) / pair["off"][0] for pair in pairs]
            more = [1e6 * (pair["on"][1] - pair["off"][1]) for pair in pairs]
            print(f"  step of {kind} ({step:.1f} ms here)")
            print(f"    wall {spread(wall, '+.1%')}")
            print(f"    work {spread(work, '+.1%')}, {spread(more, '.0f')} us")


main()
