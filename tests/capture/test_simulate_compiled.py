"""Collectives inside ``torch.compile``, functional ones, and all-gathers as XLA has them."""

from __future__ import annotations

import pytest
import simulated
import torch

pytestmark = pytest.mark.xla

CORES = 4
CASES = ["compiled", "direct", "counters", "pairs", "traced"]

PROGRAM = """
import json
import threading
import time
import torch, torch_xla
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.distributed.xla_backend
from torch.fx.experimental.proxy_tensor import make_fx
from torch_xla import runtime as xr
from torch_xla._internal import rendezvous


def main(index, case):
    dist.init_process_group("xla", init_method="xla://")
    device = torch_xla.device()
    found = {}

    def value(*shape):
        count = torch.Size(shape).numel()
        return ((torch.arange(count) + 1.0) * (index + 1)).reshape(shape).to(device)

    def zeros(*shape):
        return torch.zeros(shape).to(device)

    def keep(name, result):
        found[name] = result.float().cpu().tolist()

    globals()[case](index, value, zeros, keep, found)
    with open(f"result{index}.json", "w") as file:
        json.dump(found, file)


def compiled(index, value, zeros, keep, found):
    def reduced(x):
        return xm.all_reduce(xm.REDUCE_SUM, x) * 2

    def gathered(x):
        return xm.all_gather(x, dim=1) * 2

    def in_place(x):
        dist.all_reduce(x)
        return x

    def into(call):
        def collective(out, x):
            call(out, x)
            return out

        return collective

    def in_parts(x):
        # Tensors made on the CPU cut the graph in parts, of which a later one takes what was
        # gathered in an earlier one.
        out = [torch.tensor([0.0]).to(x.device) for _ in range(xr.world_size())]
        dist.all_gather(out, x)
        return torch.cat(out)

    def broadcast(x):
        return torch.ops._c10d_functional.broadcast(x, 2, "default") * 2

    def run(name, function, *inputs):
        keep(name, torch.compile(function, backend="openxla")(*inputs))

    if index == 1:
        time.sleep(12)  # XLA ends the process if a core waits for another one for 10 seconds
    run("reduced", reduced, value(2, 2))
    run("bfloat16", reduced, value(2, 2).to(torch.bfloat16))
    run("gathered", gathered, value(2, 2))
    run("in_place", in_place, value(3))
    run("gathered_into", into(dist.all_gather_into_tensor), zeros(8), value(2))
    run("scattered", into(dist.reduce_scatter_tensor), zeros(1), value(4))
    run("all_to_all", into(dist.all_to_all_single), zeros(4), value(4))
    run("broadcast", broadcast, value(2))
    run("in_parts", in_parts, value(1))
    function, x = torch.compile(reduced, backend="openxla", fullgraph=True), value(2)
    for _ in range(3):
        x = function(x)
    keep("again", x)
    # Each core may compile a function as often as in a process of its own, in which it is 8 times.
    def often(x):
        return xm.all_reduce(xm.REDUCE_SUM, x) * 2

    for width in range(1, 9):
        eighth = torch.compile(often, backend="openxla", dynamic=False)(value(width))
    keep("eighth", eighth)
    # What is pending when a compiled function is called is run by all cores together.
    keep("after_pending", function(xm.all_reduce("sum", value(2))))


def direct(index, value, zeros, keep, found):
    world = dist.group.WORLD
    if index == 1:
        time.sleep(12)
    keep("reduced", functional.all_reduce(value(2, 2), "sum", world) * 2)
    torch_xla.sync()
    half = value(2, 2).to(torch.bfloat16)
    keep("bfloat16", functional.all_reduce(half, "sum", world) * 2)
    keep("bfloat16_by_name", functional.all_reduce(self=half, reduceOp="sum", group=world) * 2)
    keep("gathered", functional.all_gather_tensor(value(2, 2), 1, world) * 2)
    keep("scattered", functional.reduce_scatter_tensor(value(4), "sum", 0, world))
    keep("all_to_all", functional.all_to_all_single(value(4), None, None, world))
    keep("broadcast", functional.broadcast(value(2), 2, world) * 2)
    try:
        functional.permute_tensor(value(4), [1, 2, 3, 0], world)
    except RuntimeError as error:
        found["refused"] = str(error)


tracing, seen = threading.Event(), threading.Event()


def traced(index, value, zeros, keep, found):
    # Core 0 is in the middle of tracing a module when the others call a compiled function and a
    # module of theirs; then all of them trace.
    double = torch.compile(lambda x: x * 2, backend="openxla")
    keep("before", double(value(2)))
    twice = torch.nn.Identity()
    dist.barrier()

    class Slow(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.ReLU()

        def forward(self, x):
            if index == 0:
                found["here"] = torch.fx._symbolic_trace.is_fx_symbolic_tracing()
                tracing.set()
                seen.wait(60)
            return self.inner(x) + 1

    if index == 1:
        tracing.wait(60)
        found["here"] = torch.fx._symbolic_trace.is_fx_symbolic_tracing()
        keep("compiled", double(value(2)))
        keep("module", twice(value(2)))
        seen.set()
    slow = torch.fx.symbolic_trace(Slow())
    found["nodes"] = [node.op for node in slow.graph.nodes]
    keep("traced", slow(value(2)))
    dist.barrier()
    # Each waits for the others while it traces, and what it has said of the operation holds.
    parts = {torch.ops.aten.silu.default: lambda x: x * torch.sigmoid(x)}

    def slow_silu(x):
        time.sleep(0.1)
        return torch.nn.functional.silu(x)

    time.sleep(0.03 * index)
    made = make_fx(slow_silu, decomposition_table=parts)(torch.ones(2))
    found["made"] = [str(node.target) for node in made.graph.nodes][1:-1]

    def slow_square(x):
        time.sleep(0.05)
        return x * x

    # Forward-mode derivatives: every core is inside of its function at the same time.
    at, ones = torch.tensor(2.0 + index), torch.ones(())
    found["forwards"] = torch.func.jvp(slow_square, (at,), (ones,))[1].item()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.tensor(2.0), torch.tensor(index + 1.0))
        found["dual"] = torch.autograd.forward_ad.unpack_dual(slow_square(dual)).tangent.item()
    dist.barrier()
    found["clean"] = torch.nn.Module.__call__.__qualname__


def pairs(index, value, zeros, keep, found):
    # Two pairs at once, then a ring, then two messages one behind the other.
    got = zeros(3)
    if index < 2:
        dist.send(value(3), index + 2)
    else:
        dist.recv(got, index - 2)
        keep("halves", got)
    got = zeros(3)
    after, before = (index + 1) % 4, (index - 1) % 4
    if index % 2 == 0:
        dist.send(value(3) * 2, after)
        dist.recv(got, before)
    else:
        dist.recv(got, before)
        dist.send(value(3) * 2, after)
    keep("ring", got)
    if index == 0:
        dist.send(value(2) * 3, 3)
        dist.send(value(2) * 4, 3)
    if index == 3:
        for name in ("first", "second"):
            got = zeros(2)
            dist.recv(got, 0)
            keep(name, got)
    total = value(2)
    dist.all_reduce(total)
    keep("reduced", total)


def counters(index, value, zeros, keep, found):
    keep("unpinned", xm.all_gather(value(2), pin_layout=False))
    found["store"] = type(rendezvous._store).__name__
    found["gather"] = met.counter_value("xla::AllGather")
    keep("into", xm.all_gather(value(2), output=zeros(8)))
    lists = xm.all_gather([value(1), value(2)], pin_layout=False)
    keep("list", torch.cat(lists))
    keep("half", xm.all_gather(value(2).to(torch.bfloat16), pin_layout=False))
    keep("mixed", xm.all_gather(xm.all_reduce("sum", value(2)), pin_layout=False))
"""


def every(*shape):
    count = torch.Size(shape).numel()
    return torch.stack(
        [((torch.arange(count) + 1.0) * (core + 1)).reshape(shape) for core in range(CORES)]
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compiled")
    return simulated.run_cases(folder, CORES, PROGRAM, CASES)


@pytest.mark.parametrize("case", ["compiled", "direct"])
def test_collectives_have_the_values_of_plain_torch(runs, case):
    done = runs[case]
    assert done.error is None, done.stderr
    assert done.kinds == []
    total = every(2, 2).sum(0) * 2
    for core, found in done.results.items():
        assert found["reduced"] == total.tolist()
        assert found["bfloat16"] == total.tolist()  # exact: small whole numbers
        assert found["gathered"] == (torch.cat(list(every(2, 2)), 1) * 2).tolist()
        assert found["scattered"] == [every(4).sum(0)[core].item()]
        assert sorted(found["all_to_all"]) == every(4)[:, core].tolist()
        assert found["broadcast"] == (every(2)[2] * 2).tolist()


def test_compiled_functions_run_again_and_after_pending_collectives(runs):
    for found in runs["compiled"].results.values():
        assert found["in_parts"] == every(1).flatten().tolist()
        assert found["in_place"] == every(3).sum(0).tolist()
        assert found["gathered_into"] == every(2).flatten().tolist()
        total = every(2).sum(0)
        assert found["again"] == (total * 2 * (CORES * 2) ** 2).tolist()
        assert found["eighth"] == (every(8).sum(0) * 2).tolist()
        assert found["after_pending"] == (total * CORES * 2).tolist()


def test_torch_xla_itself_refuses_what_it_cannot_split(runs):
    for found in runs["direct"].results.values():
        assert "does not support arbitrary split sizes" in found["refused"]
        assert found["bfloat16_by_name"] == found["bfloat16"]


def test_a_core_that_traces_leaves_the_others_their_modules_and_compiled_functions(runs):
    done = runs["traced"]
    assert done.error is None, done.stderr
    for core, found in done.results.items():
        mine = every(2)[core]
        assert found["before"] == (mine * 2).tolist()
        assert found["nodes"] == ["placeholder", "call_module", "call_function", "output"]
        assert found["traced"] == (mine + 1).tolist()
        assert (found["forwards"], found["dual"]) == (4.0 + 2 * core, 4.0 * (core + 1))
        assert found["made"] == ["aten.sigmoid.default", "aten.mul.Tensor"]
        assert found["clean"] == "Module._wrapped_call_impl"
    assert runs["traced"].results[0]["here"] is True
    other = runs["traced"].results[1]
    assert other["here"] is False
    assert other["compiled"] == (every(2)[1] * 2).tolist()
    assert other["module"] == every(2)[1].tolist()


def test_several_pairs_of_cores_send_and_receive_at_once(runs):
    assert runs["pairs"].error is None, runs["pairs"].stderr
    assert runs["pairs"].kinds == []
    for core, found in runs["pairs"].results.items():
        assert found.get("halves") == (every(3)[core - 2].tolist() if core > 1 else None)
        assert found["ring"] == (every(3)[(core - 1) % CORES] * 2).tolist()
        assert found["reduced"] == every(2).sum(0).tolist()
    last = runs["pairs"].results[3]
    assert (last["first"], last["second"]) == ([3.0, 6.0], [4.0, 8.0])


def test_cores_meet_in_memory_and_need_no_port(runs):
    assert {found["store"] for found in runs["counters"].results.values()} == {"HashStore"}


def test_an_all_gather_without_a_pinned_layout_is_that_of_a_device(runs):
    done = runs["counters"]
    assert done.error is None, done.stderr
    for found in done.results.values():
        assert found["gather"] >= 1
        gathered = every(2).flatten().tolist()
        assert found["unpinned"] == found["into"] == found["half"] == gathered
        assert found["list"] == every(1).flatten().tolist() + gathered
        assert found["mixed"] == every(2).sum(0).repeat(CORES).tolist()
