"""Weights that are sharded over meshes without an axis for batches: whole batches are right."""

from __future__ import annotations

import pytest
from rule_helpers import found

HEAD = """\
import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
xr.use_spmd()
device = torch_xla.device()
cores = xr.global_runtime_device_count()
net = torch.nn.Linear(8, 8).to(device)
"""
MESH = 'mesh = xs.Mesh(np.arange(cores), (1, cores), ("x", "model"))\n'
WEIGHTS = 'xs.mark_sharding(net.weight, mesh, ("model", None))\n'
EVALUATION = """\
with torch.no_grad():
    for batch in ROWS:
        net(batch.to(device))
        torch_xla.sync()
"""
TRAINING = """\
adam = torch.optim.Adam(net.parameters())
for batch in pl.MpDeviceLoader(ROWS, device):
    adam.zero_grad()
    net(batch).mean().backward()
    adam.step()
"""
MESHES = {
    MESH: False,
    MESH.replace('"x"', '"batch"'): False,
    MESH.replace('("x", "model")', "NAMES").replace("mesh =", 'NAMES = "mp", "sp"\nmesh ='): False,
    MESH.replace('(1, cores), ("x", "model")', '(cores,), ("tensor",)'): False,
    MESH.replace("(1, cores)", "(cores // 4, 4)").replace('"x"', '"data"'): True,
    MESH.replace("(1, cores)", "(2, 4)").replace('"x"', '"dp"'): True,
    MESH.replace('("x", "model")', "read_names()"): True,
}


@pytest.mark.parametrize("loop", [EVALUATION, TRAINING])
@pytest.mark.parametrize("mesh", MESHES)
def test_whole_batches_are_told_where_a_mesh_has_an_axis_for_them(mesh, loop):
    told = {code for _, code in found(HEAD + mesh + WEIGHTS + loop)}
    assert ("XLA429" in told) is MESHES[mesh]


@pytest.mark.parametrize("loop", [EVALUATION, TRAINING])
def test_whole_batches_are_told_where_no_weights_are_sharded(loop):
    assert "XLA429" in {code for _, code in found(HEAD + MESH + loop)}


SHAPE = MESH.replace("(1, cores)", "SHAPES[cores]").replace('"x"', '"batch"')
SHAPE = f"SHAPES = {{4: (1, 4), 8: (2, 4)}}\n{SHAPE}"


def test_an_axis_that_may_have_one_place_is_none_for_evaluations():
    assert "XLA429" not in {code for _, code in found(HEAD + SHAPE + WEIGHTS + EVALUATION)}
    assert "XLA429" in {code for _, code in found(HEAD + SHAPE + WEIGHTS + TRAINING)}
