"""Specs that a function, a branch or a table chooses, and axes that no mesh of the program has.

All programs are invented. ``# !XLA444`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, told, told_in_files

HEAD = """\
import numpy as np
import torch
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
"""
MESHES = """\
def lay_out(plan):
    count = xr.global_runtime_device_count()
    if plan == "flat":
        grid = xs.Mesh(np.arange(count), (count,), ("batch",))
    else:
        grid = xs.Mesh(np.arange(count), (count // 2, 2), ("batch", "width"))
    return grid
"""
BY_FUNCTION = """\
def spec_of(name, plan):
    if "norm" in name:
        return None
    if plan == "flat":
        return ("batch", {axis})
    return (None, ("batch", {axis}))
def mark(net, grid, plan):
    for name, weight in net.named_parameters():
        spec = spec_of(name, plan)
        if spec is not None:
            xs.mark_sharding(weight, grid, spec)
"""
USED = """\
def run(net, plan):
    mark(net, lay_out(plan), plan)
"""
SPECS = {
    "XLA444: a function of specs": MESHES
    + BY_FUNCTION.format(axis='"rows"').replace('"rows")', '"rows")  # !XLA444', 1)
    + USED,
    "XLA444: a function of specs, healthy": MESHES + BY_FUNCTION.format(axis="'width'") + USED,
    "XLA444: a mesh from elsewhere, healthy": MESHES
    + BY_FUNCTION.format(axis="'rows'")
    + """\
def run(net, plan, given):
    lay_out(plan)
    mark(net, given.grid, plan)
""",
    "XLA444: names that nobody has read, healthy": MESHES.replace('("batch",)', "plan.axes")
    + BY_FUNCTION.format(axis="'rows'")
    + USED,
    "XLA444: a table": MESHES
    + """\
SPECS = {
    "embedding": ("width", None),
    "output": ("rows", "batch"),  # !XLA444
    "bias": None,
}
def run(net, plan):
    grid = lay_out(plan)
    for name, weight in net.named_parameters():
        xs.mark_sharding(weight, grid, SPECS[name])
""",
    "XLA444: a table with a default": MESHES
    + """\
SPECS = {"embedding": ("width", None), "output": (None, "batch")}
def run(net, plan):
    grid = lay_out(plan)
    for name, weight in net.named_parameters():
        xs.mark_sharding(weight, grid, SPECS.get(name, ("rows", None)))  # !XLA444
""",
    "XLA444: by the branch": MESHES
    + """\
def run(net, plan, batch):
    if plan == "flat":
        spec = ("batch", None)
    else:
        spec = ("rows", None)  # !XLA444
    xs.mark_sharding(batch, lay_out(plan), spec)
""",
    "XLA444: told once of one mesh": """\
def run(net, batch, count):
    grid = xs.Mesh(np.arange(count), (count, 1), ("batch", "width"))
    spec = ("rows", None)  # !XLA444
    xs.mark_sharding(batch, grid, spec)
""",
}


@pytest.mark.parametrize("name", SPECS)
def test_specs_that_are_chosen(name):
    program = HEAD + SPECS[name]
    assert told(name, program) == marks(program)


def test_specs_and_meshes_of_other_files(tmp_path):
    files = {
        "layouts.py": HEAD + MESHES,
        "specs.py": HEAD + "def spec_of(name):\n    return ('batch', 'rows')\n",
        "run.py": HEAD
        + "from layouts import lay_out\nfrom specs import spec_of\n"
        + "def run(net, plan):\n"
        + "    for name, weight in net.named_parameters():\n"
        + "        xs.mark_sharding(weight, lay_out(plan), spec_of(name))\n",
    }
    assert told_in_files(tmp_path, files, {"XLA444"}) == {("specs.py", 6, "XLA444")}
