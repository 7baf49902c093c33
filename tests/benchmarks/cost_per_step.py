"""What watching costs a step: in one process, a few steps with the hooks, a few without, in turn.

``python tests/benchmarks/cost_per_step.py [--pairs 20] [--details low normal high]`` profiles a
program that takes the agent's hooks away and puts them back itself, every four steps: with and
without are measured in the same process, on the same graphs, within milliseconds, so that what else
the machine does meets both. For steps of about 1 ms and 10 ms it prints the median and quartiles
over the pairs (of 30 stretches of four steps each with and without) of

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
    if sys.argv[3] == "high":  # this level keeps it on; the others have turned it off by now
        torch_xla._XLAC._set_ir_debug(on)

def pairs_of(width, depth, pairs, count, read):
    layers = [torch.nn.Linear(width, width) for _ in range(depth)]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    x = torch.ones(64, width).to(device)
    def stretch(taken, worked, size=4):
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
    stretch([], [], 150)  # the graphs are compiled, and the agent has found its places
    found = []
    for pair in range(pairs):
        taken, worked = {True: [], False: []}, {True: [], False: []}
        for turn in range(count):
            for on in (True, False) if (pair + turn) % 2 else (False, True):
                switch(on)
                stretch(taken[on], worked[on])
        middle = statistics.median
        found.append({word: [middle(taken[on]), middle(worked[on])]
                      for word, on in (("on", True), ("off", False))})
    switch(True)
    return found

pairs = int(sys.argv[2])
json.dump({"1 ms": pairs_of(16, 4, pairs, 30, False),
           "1 ms, read": pairs_of(16, 4, pairs, 30, True),
           "10 ms": pairs_of(320, 12, pairs, 30, False)}, open(sys.argv[1], "w"))
"""


def spread(values: list[float], form: str) -> str:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:{form}} (quartiles {low:{form}} to {high:{form}})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    levels = ("low", "normal", "high")
    parser.add_argument("--pairs", type=int, default=20)
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
            words += [
                sys.executable,
                str(folder / "program.py"),
                str(out),
                str(options.pairs),
                detail,
            ]
            subprocess.run(words, env=env, check=True, capture_output=True)
            found = json.loads(out.read_text())
        print(f"--detail {detail}, {options.pairs} pairs")
        for kind, pairs in found.items():
            step = 1000 * statistics.median(pair["off"][0] for pair in pairs)
            wall = [pair["on"][0] / pair["off"][0] - 1 for pair in pairs]
            work = [(pair["on"][1] - pair["off"][1]) / pair["off"][0] for pair in pairs]
            more = [1e6 * (pair["on"][1] - pair["off"][1]) for pair in pairs]
            print(f"  step of {kind} ({step:.1f} ms here)")
            print(f"    wall {spread(wall, '+.1%')}")
            print(f"    work {spread(work, '+.1%')}, {spread(more, '.0f')} us")


main()
