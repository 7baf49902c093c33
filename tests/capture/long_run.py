"""Run by a test: 100,000 steps through the real points, recorder and writer, without torch.

``python long_run.py FOLDER`` prints a JSON object: how many blocks of memory are allocated after
some steps, and how many steps and new graphs it has put through. The calls are those that the
adapter makes for a step: a batch, an upload, an optimizer, a launch, a read, a fallback; their
originals do nothing.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import sys
from pathlib import Path

CAPTURE = Path(__file__).resolve().parents[2] / "xladoctor" / "capture"
STEPS, GRAPHS = 100_000, 20_000


def load(name):
    if "_xladoctor" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "_xladoctor", CAPTURE / "__init__.py", submodule_search_locations=[str(CAPTURE)]
        )
        sys.modules["_xladoctor"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["_xladoctor"])
    return importlib.import_module(f"_xladoctor.agent.{name}")


points, recorder, writer, xla = (load(name) for name in ("points", "recorder", "writer", "xla"))


def nothing(*args):
    """The original of every call."""


def graph(number):
    """What the meter says of a launch: the graph it ran, new if it has a number."""
    name = "steady" if number is None else f"new{number}"
    return {"graph": name, "inputs": 3, "outputs": 2, "compiled": number is not None,
            "seconds": None if number is None else 0.01, "hlo": None}  # fmt: skip


def step(chains, number):
    call = points.Call
    chains.run(call(points.LOADER, "DataLoader", 0), nothing)
    chains.run(call(points.UPLOAD, "to", 0), nothing)
    chains.run(call(points.FALLBACK, "aten::nonzero", 0), nothing)
    chains.run(call(points.STEP, "SGD", 0), nothing)
    facts = {"kind": "sync", "graphs": [graph(number)], "compile_seconds": 0.0}
    chains.run(call(points.LAUNCH, "_xla_step_marker", 0, facts=facts), nothing)
    chains.run(call(points.READ, "item", 0), nothing)


def blocks():
    gc.collect()
    return sys.getallocatedblocks()


def main(folder):
    xla.originals.update({name: lambda *args: None for name in xla.CALLED})
    xla.originals["_xla_metrics_report"] = str
    xla.originals["_get_executed_fallback_ops"] = list
    one = recorder.Recorder(writer.Writer(folder), simulated_cores=None)
    chains = points.Points(on_failure=one.process.hook_off)
    one.install(chains)
    found = {}
    for count in range(1, STEPS + 1):
        step(chains, None)
        if count in (5_000, STEPS):
            found[f"after {count} steps"] = blocks()
    for count in range(GRAPHS):
        step(chains, count)
    one.close()
    json.dump(found, sys.stdout)


main(sys.argv[1])
