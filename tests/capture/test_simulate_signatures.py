"""Everything that is replaced takes the calls that the original takes: also those by keyword."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import simulated

from xladoctor.capture.simulate import environment

pytestmark = pytest.mark.xla

ROOT = Path(__file__).parents[2]

#: Prints the replaced functions, and for each the links of ours that do not take what it took.
COMPARE = '''
import inspect, json, os, random, sys, threading
import numpy, torch, torch_xla
import torch.distributed, torch.nn.parallel, torch.utils.data
import torch_xla.core.xla_model, torch_xla.core.functions, torch_xla.runtime
import torch_xla.debug.metrics, torch_xla.debug.profiler, torch_xla.experimental.eager
import torch_xla.distributed.xla_backend, torch_xla.distributed.parallel_loader
import torch_xla.distributed.fsdp, torch_xla.distributed.zero_redundancy_optimizer
import torch_xla.distributed.xla_multiprocessing, torch_xla.utils.checkpoint

ROOTS = ("torch", "torch_xla", "random", "numpy.random", "threading", "os")


def found():
    """Path to function, of all modules and of the classes in them."""
    functions = {}
    for name, module in list(sys.modules.items()):
        if not any(name == root or name.startswith(root + ".") for root in ROOTS):
            continue
        for attribute, value in list(vars(module).items()):
            if isinstance(value, type):
                # torch's own Tensor inherits most of its methods from C++
                for method in dir(value) if value is torch.Tensor else list(vars(value)):
                    function = inspect.getattr_static(value, method)
                    if callable(function):
                        functions[f"{value.__module__}.{value.__qualname__}.{method}"] = function
            elif callable(value):
                functions[f"{name}.{attribute}"] = value
    return functions


def signature(function, **how):
    try:
        return list(inspect.signature(function, **how).parameters.values())
    except (ValueError, TypeError):
        return None  # C++ that does not say


P = inspect.Parameter
MANY = (P.VAR_POSITIONAL, P.VAR_KEYWORD)


def refused(ours, theirs):
    """What calls one of our links refuses that the original takes; None if nothing."""
    named = [one for one in ours if one.kind not in MANY]
    rest = {one.kind for one in ours} & set(MANY)
    for at, one in enumerate(named):
        if one.kind is P.POSITIONAL_ONLY and (
            theirs is None or at == 0 or theirs[at].kind is P.POSITIONAL_ONLY
        ):
            continue
        if theirs is None or at >= len(theirs):
            return f"names {one.name}"
        if (one.name, one.default) != (theirs[at].name, theirs[at].default):
            return f"{one} is {theirs[at]} in the original"
    if theirs is None:
        return None if len(rest) == 2 or len(ours) == len(named) else "does not pass on the rest"
    for one in theirs[len(named):]:
        if one.kind is P.POSITIONAL_ONLY:
            needed = {P.VAR_POSITIONAL}
        elif one.kind is P.POSITIONAL_OR_KEYWORD:
            needed = set(MANY)
        else:
            needed = {P.VAR_KEYWORD if one.kind is P.KEYWORD_ONLY else one.kind}
        if not needed <= rest:
            return f"does not take {one}"
    return None


before = found()
signatures = {path: signature(function) for path, function in before.items()}
from xladoctor.capture import simulate
from xladoctor.capture.agent import points, wrapping

chains = points.Points(lambda name, error: sys.exit(f"{name}: {error!r}"))
missing = wrapping.install(chains) + simulate.install(chains, 4)
replaced, wrong = [], []
for path, function in found().items():
    if path not in before or function is before[path] or isinstance(function, type):
        continue
    replaced.append(path)
    theirs = signatures[path]
    if signature(function) is not None and theirs is not None and (
        [(one.name, one.kind, one.default) for one in signature(function)]
        != [(one.name, one.kind, one.default) for one in theirs]
    ):
        wrong.append(f"{path}: shows {inspect.signature(function)}")
    link = function
    while link is not None and link is not before[path]:
        own = signature(link, follow_wrapped=False)
        problem = None if own is None else refused(own, theirs)
        if problem is not None:
            wrong.append(f"{path}: {problem}")
        link = getattr(link, "__wrapped__", None)
print(json.dumps({"replaced": replaced, "wrong": wrong, "missing": missing}))
'''


PROGRAM = """
import json
import torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.core.functions as xf
import torch.distributed as dist
import torch_xla.distributed.xla_backend
from torch_xla.distributed.zero_redundancy_optimizer import ZeroRedundancyOptimizer


def main(index, case):
    device = torch_xla.device()
    found = {}

    def value(*shape, dtype=torch.float32):
        count = torch.Size(shape).numel()
        return ((torch.arange(count) + 1) * (index + 1)).to(dtype).reshape(shape).to(device)

    def keep(name, result):
        many = isinstance(result, (list, tuple))
        found[name] = [one.cpu().tolist() for one in result] if many else result.cpu().tolist()

    keep("all_reduce", xm.all_reduce(reduce_type="sum", inputs=value(4), scale=0.5))
    keep("all_reduce_bits", xm.all_reduce(
        reduce_type="or", inputs=value(4, dtype=torch.int32), groups=None, pin_layout=True))
    keep("all_gather", xm.all_gather(value=value(1), dim=0))
    for name, dtype in {"scatter": torch.float32, "scatter_bfloat16": torch.bfloat16}.items():
        given = dict(reduce_type="sum", scale=1.0, scatter_dim=0, shard_count=2)
        keep(name, xm.reduce_scatter(input=value(4, dtype=dtype), **given))
        keep(name + "_list", xm.reduce_scatter(
            input=[value(2, dtype=dtype)], pin_layout=False, **given))
        out = [torch.zeros(1, dtype=dtype).to(device)]
        xm.reduce_scatter(input=[value(2, dtype=dtype)], output=out, pin_layout=False, **given)
        keep(name + "_out", out)
        keep(name + "_bucketized", xm.reduce_scatter_bucketized(
            input_list=[value(2, dtype=dtype), value(4, dtype=dtype)], **given))
    keep("gather_bucketized", xm.all_gather_bucketized(input_list=[value(1), value(2)]))
    keep("to_all", xm.all_to_all(
        value=value(2), split_dimension=0, concat_dimension=0, split_count=2))
    keep("permute", xm.collective_permute(value=value(2), pairs=[[0, 1], [1, 0]]))
    given = value(2)
    xm.collective_broadcast(tensors=[given], root_ordinal=1)
    keep("broadcast", given)
    found["rendezvous"] = len(xm.xla_rendezvous(payload=b"x", ordinals=None, tag="here"))
    if index == 0:
        xm.send(value=value(2), channel_id=3)
    else:
        keep("received", xm.recv(output=value(2), channel_id=3))
    host = torch.zeros(2)
    host.copy_(src=value(2))
    found["copied"] = host.tolist()
    found["like"] = list(torch.rand_like(input=host).shape)
    dist.init_process_group("xla", init_method="xla://")
    dist.broadcast(tensor=given, src=0)
    keep("distributed", given)
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4).to(device)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.SGD, lr=0.1, bucket_cap_mb_reduce_scatter=1,
        bucket_cap_mb_all_gather=1, pin_layout=False)
    for step in range(3):
        optimizer.zero_grad()
        model(value(2, 8) / 100).square().mean().backward()
        optimizer.step()
        torch_xla.sync()
    keep("zero", list(model.parameters()))
    with open(f"result{index}.json", "w") as file:
        json.dump(found, file)
"""


def test_what_is_replaced_takes_what_the_original_takes(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMPARE],
        cwd=tmp_path,
        env={**os.environ, **environment(4), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["missing"] == []
    # not an empty look: these are some that are known to be replaced
    assert {
        "torch_xla.core.xla_model.reduce_scatter",
        "torch_xla.core.xla_model.all_gather",
        "torch.Tensor.copy_",
        "torch.rand_like",
        "torch_xla.distributed.xla_backend.ProcessGroupXla.broadcast",
    } <= set(found["replaced"])
    assert found["wrong"] == []


def test_calls_by_keyword_reach_their_cores(tmp_path):
    done = simulated.run_cases(tmp_path, 2, PROGRAM, ["keywords"])["keywords"]
    assert done.code == 0, done.stderr
    assert done.events == []
    for core, found in done.results.items():
        assert found["all_reduce"] == [1.5, 3.0, 4.5, 6.0]
        assert found["all_reduce_bits"] == [1 | 2, 2 | 4, 3 | 6, 4 | 8]
        assert found["all_gather"] == [1.0, 2.0]
        for name in ("scatter", "scatter_bfloat16"):
            four, two = [[3.0, 6.0], [9.0, 12.0]][core], [3.0 * (core + 1)]
            assert found[name] == four
            assert found[name + "_list"] == [two]
            assert found[name + "_out"] == [two]
            assert found[name + "_bucketized"] == [two, four]
        assert found["gather_bucketized"] == [[1.0, 2.0], [1.0, 2.0, 2.0, 4.0]]
        assert found["to_all"] == [1.0 + core, 2.0 * (1 + core)]
        assert found["permute"] == [2.0 - core, 4.0 - 2 * core]
        assert found["broadcast"] == found["distributed"] == [2.0, 4.0]
        assert found["rendezvous"] == 2
        assert found["copied"] == [1.0 + core, 2.0 * (1 + core)]
        assert found["like"] == [2]
        assert found["zero"] == done.results[0]["zero"]
    assert done.results[1]["received"] == [1.0, 2.0]
