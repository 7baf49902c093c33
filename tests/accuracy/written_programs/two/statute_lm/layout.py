"""Where the weights of a Llama-like decoder go on a 2D mesh of TPU cores."""
import re

import numpy as np
import torch
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr

COLUMN = ("tensor", "data")
ROW = ("data", "tensor")

PLACES = (
    (r"embed_tokens\.weight$", ("vocab", "data")),
    (r"(q|k|v)_proj\.weight$", COLUMN),
    (r"(gate|up)_proj\.weight$", COLUMN),
    (r"(o|down)_proj\.weight$", ROW),
    (r"lm_head\.weight$", COLUMN),
)


def build_mesh(tensor_parallel=2):
    count = xr.global_runtime_device_count()
    return xs.Mesh(np.arange(count), (count // tensor_parallel, tensor_parallel), ("data", "tensor"))


def place_for(name):
    return next((spec for pattern, spec in PLACES if re.search(pattern, name)), None)


def spread(model, mesh):
    """Returns the names that were sharded and those that every device keeps whole."""
    cut, whole = [], []
    for name, weight in model.named_parameters():
        spec = place_for(name)
        if spec is None:
            whole.append(name)
            continue
        xs.mark_sharding(weight, mesh, spec, use_dynamo_custom_op=True)
        cut.append(name)
    return cut, whole


def rows_of(mesh):
    return xs.ShardingSpec(mesh, ("data", None), minibatch=True)


def on_host(model):
    return {name: value.cpu() for name, value in model.state_dict().items()}


def parameters_in(model):
    return sum(p.numel() for p in model.parameters()), sum(p.numel() for p in model.parameters() if p.requires_grad)
