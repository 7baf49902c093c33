"""FSDPv2 and its mesh: by name alone, with an axis that it shards over."""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks

PROGRAM = """
import numpy as np
import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla.experimental.spmd_fully_sharded_data_parallel import (
    SpmdFullyShardedDataParallel as FSDPv2,
)


def shard(net, policy, keep, args):
    xr.use_spmd()
    count = xr.global_runtime_device_count()
    mesh = xs.Mesh(np.arange(count), (count, 1), {axes})
    {lines}
"""
FITS, OTHER = '("fsdp", "model")', '("data", "model")'


def told(axes, lines, **options):
    text = PROGRAM.replace("{axes}", axes).replace("{lines}", lines)
    return {item for item in found(text, **options) if item[1] in {"XLA803", "XLA444"}}, set(
        marks(text)
    )


@pytest.mark.parametrize(
    "lines",
    [
        "return FSDPv2(net.to(torch_xla.device()), mesh)  # !XLA803",
        "return FSDPv2(net, mesh, auto_wrap_policy=policy)  # !XLA803",
        "model = FSDPv2(net, mesh, keep, policy)  # !XLA803\n    return model",
        "xs.set_global_mesh(mesh)\n    return FSDPv2(net, None, keep)  # !XLA803",
    ],
)
def test_only_the_module_is_given_by_its_place(lines):
    found_here, wanted = told(FITS, lines)
    assert found_here == wanted
    assert told(FITS, lines, target=(2, 3))[0] == set()


@pytest.mark.parametrize(
    "lines",
    [
        "return FSDPv2(net, mesh=mesh, auto_wrap_policy=policy, shard_output=keep)",
        "xs.set_global_mesh(mesh)\n    return FSDPv2(net)",
        "return FSDPv2(*args)",
        "return FSDPv2(net, **args)",
    ],
)
def test_meshes_by_name_are_left_alone(lines):
    assert told(FITS, lines)[0] == set()


@pytest.mark.parametrize(
    "lines",
    [
        "return FSDPv2(net, mesh=mesh)  # !XLA444",
        "xs.set_global_mesh(mesh)\n    return FSDPv2(net, auto_wrap_policy=policy)  # !XLA444",
        "xs.set_global_mesh(mesh)\n    return FSDPv2(net.to(torch_xla.device()))  # !XLA444",
    ],
)
def test_fsdp_asks_for_an_axis_of_that_name(lines):
    found_here, wanted = told(OTHER, lines)
    assert found_here == wanted


def test_another_mesh_may_be_the_one_of_all():
    lines = "xs.set_global_mesh(mesh)\n    xs.set_global_mesh(args.mesh)\n    return FSDPv2(net)"
    assert told(OTHER, lines)[0] == set()


def test_what_has_the_same_name_is_left_alone():
    text = """
    import torch_xla.core.xla_model as xm
    from mine.sharding import SpmdFullyShardedDataParallel as FSDPv2

    def shard(net, mesh):
        return FSDPv2(net.to(xm.xla_device()), mesh)
    """
    assert "XLA803" not in codes(text)


@pytest.mark.parametrize("made", ["FSDPv2(net)", "FSDPv2(net, auto_wrap_policy=policy)"])
def test_fsdp_without_any_mesh_raises(made):
    found_here, wanted = told(FITS, f"return {made}  # !XLA444")
    assert found_here == wanted


@pytest.mark.parametrize(
    "lines",
    [
        "xs.set_global_mesh(mesh)\n    return FSDPv2(net)",
        "setup_mesh(count)\n    return FSDPv2(net)",
        "args.engine.initialize(mesh)\n    return FSDPv2(net)",
        "return FSDPv2(net, **args)",
    ],
)
def test_somebody_may_set_a_mesh_for_all(lines):
    assert told(FITS, lines)[0] == set()
