"""Every collective on simulated cores gives the values that plain torch computes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import simulated
import torch

from xladoctor.capture import simulate
from xladoctor.capture.agent.wrapping import COLLECTIVES
from xladoctor.capture.simulate import exchange

pytestmark = pytest.mark.xla

CORES = 4
HALVES = [[0, 1], [2, 3]]

PROGRAM = """
import json
import torch, torch_xla
import torch.distributed as dist
import torch_xla.core.xla_model as xm
import torch_xla.core.functions as xf
import torch_xla.distributed.xla_backend

HALVES = [[0, 1], [2, 3]]


def main(index, case):
    device = torch_xla.device()
    found = {}

    def value(*shape, dtype=torch.float32):
        count = torch.Size(shape).numel()
        return ((torch.arange(count) + 1) * (index + 1)).to(dtype).reshape(shape).to(device)

    def keep(name, result):
        many = isinstance(result, (list, tuple))
        found[name] = [one.cpu().tolist() for one in result] if many else result.cpu().tolist()

    def gradient(collective, *shape):
        # Of a sum in which each core has a weight of its own; 2 and more, for 1 is a constant.
        leaf = value(*shape).requires_grad_()
        weight = torch.tensor([index + 2.0]).to(device)
        (collective(leaf * 3) * weight).sum().backward()
        return leaf.grad

    def save():
        with open(f"result{index}.json", "w") as file:
            json.dump(found, file)

    if case != "xm":
        dist.init_process_group("xla", init_method="xla://")
        if case == "distributed":
            distributed(index, device, value, keep, gradient)
        parallel(index, device, keep, as_views=case == "views")
        if case == "distributed":
            buffers(index, device, keep)
        save()
        return
    for kind in ("sum", "mul", "min", "max"):
        keep(kind, xm.all_reduce(kind, value(3)))
    for kind in ("and", "or"):
        keep(kind, xm.all_reduce(kind, value(3, dtype=torch.int32)))
    keep("scaled", xm.all_reduce("sum", value(3), scale=0.25))
    keep("groups", xm.all_reduce("sum", value(3), groups=HALVES))
    keep("list", xm.all_reduce("sum", [value(3), value(2, 2)], scale=0.5))
    keep("all_gather", xm.all_gather(value(2, 1), dim=1))
    keep("all_gather_unpinned", xm.all_gather(value(2), dim=0, pin_layout=False))
    keep("all_gather_groups", xm.all_gather(value(2), groups=HALVES))
    infinite = torch.tensor([float("inf") if index == 1 else index + 1.0]).to(device)
    keep("all_gather_inf", xm.all_gather(infinite))
    keep("all_gather_bool", xm.all_gather(value(1) > 2))
    keep("all_gather_list", xm.all_gather([value(1), value(2)], pin_layout=False))
    keep("reduce_scatter", xm.reduce_scatter("sum", value(4), 0.5, 0, 4))
    keep("reduce_scatter_list",
         xm.reduce_scatter("sum", [value(4), value(4, 2)], 1.0, 0, 4, pin_layout=False))
    keep("all_to_all", xm.all_to_all(value(4, 2), 0, 1, 4))
    keep("permute", xm.collective_permute(value(2), [[0, 1], [1, 2], [2, 3], [3, 0]]))
    broadcast = value(3)
    xm.collective_broadcast([broadcast], root_ordinal=2)
    keep("broadcast", broadcast)
    torch.manual_seed(index)
    layer = torch.nn.Linear(2, 2).to(device)
    found["own_weights"] = layer.weight.detach().cpu().tolist()
    xm.broadcast_master_param(layer)
    keep("master_weights", layer.weight.detach())

    leaf = value(2).requires_grad_()
    xf.all_reduce(xm.REDUCE_SUM, leaf * 3).sum().backward()
    keep("all_reduce_backward", leaf.grad)
    leaf = value(2).requires_grad_()
    (xf.all_gather(leaf) * torch.arange(8.0).to(device)).sum().backward()
    keep("all_gather_backward", leaf.grad)

    found["rendezvous"] = [one.decode() for one in xm.rendezvous("here", f"core {index}".encode())]
    found["mesh_reduce"] = xm.mesh_reduce("sum", float(index), sum)
    found["on_ordinals"] = xm.do_on_ordinals(
        lambda one: one.tolist(), (value(2),), ordinals=(1,))
    xm.save({"a": value(2)}, "saved.pt")
    xm.rendezvous("saved")
    found["saved"] = torch.load("saved.pt")["a"].tolist()
    half = value(4, dtype=torch.bfloat16)
    keep("bfloat16_sum", xm.all_reduce("sum", half))
    keep("bfloat16_list", xm.all_reduce("sum", [half + 0, value(3)], scale=0.5))
    keep("bfloat16_scatter", xm.reduce_scatter("sum", half, 1.0, 0, 4))
    keep("bfloat16_gather", xm.all_gather(half))
    for name, collective in {
        "reduce_scatter": lambda one: xm.reduce_scatter("sum", one, 1.0, 0, 4),
        "all_to_all": lambda one: xm.all_to_all(one, 0, 0, 4),
        "permute": lambda one: xm.collective_permute(one, [[0, 1], [1, 2], [2, 3], [3, 0]]),
    }.items():
        torch_xla.sync()
        found[f"{name}_without_gradient"] = gradient(collective, 4) is None
    if index == 1:
        xm.send(value(3) * 2, 7)
    if index == 3:
        keep("received", xm.recv(torch.zeros(3).to(device), 7))
    save()


def distributed(index, device, value, keep, gradient):
    import torch.distributed.nn.functional as functional

    def zeros(*shapes):
        return [torch.zeros(shape).to(device) for shape in shapes]

    def inputs(count):
        return [value(count) * (part + 1) for part in range(4)]

    def into(name, call, *outputs):
        call(*outputs)
        keep(name, outputs[0])
        torch_xla.sync()

    into("d_all_reduce", dist.all_reduce, value(3))
    into("d_maximum", lambda one: dist.all_reduce(one, op=dist.ReduceOp.MAX), value(3))
    into("d_all_gather", lambda out: dist.all_gather(out, value(2)), zeros(2, 2, 2, 2))
    into("d_gather_into", lambda out: dist.all_gather_into_tensor(out, value(2)), *zeros(8))
    into("d_broadcast", lambda one: dist.broadcast(one, src=2), value(3))
    into("d_scatter_tensor", lambda out: dist.reduce_scatter_tensor(out, value(4)), *zeros(1))
    into("d_reduce_scatter", lambda out: dist.reduce_scatter(out, inputs(2)), *zeros(2))
    into("d_all_to_all", lambda out: dist.all_to_all(out, inputs(1)), zeros(1, 1, 1, 1))
    into("d_all_to_all_single", lambda out: dist.all_to_all_single(out, value(4)), *zeros(4))
    into("d_reduce", lambda one: dist.reduce(one, dst=1), value(3))
    out = zeros(2, 2, 2, 2) if index == 0 else None
    dist.gather(value(2), out, dst=0)
    keep("d_gather", out or [])
    for source in (0, 3):
        parts = [value(2) * (part + 1) for part in range(4)] if index == source else None
        into(f"d_scatter_{source}", lambda out: dist.scatter(out, parts, src=source), *zeros(2))
    torch_xla.sync()
    dist.barrier()
    keep("d_all_reduce_backward", gradient(functional.all_reduce, 4))
    torch_xla.sync()
    keep("d_all_to_all_backward", gradient(
        lambda one: functional.all_to_all_single(zeros(4)[0], one), 4))
    torch_xla.sync()
    keep("d_reduce_scatter_backward", gradient(
        lambda one: functional.reduce_scatter(zeros(1)[0], list(one.split(1))), 4))
    torch_xla.sync()


def parallel(index, device, keep, as_views):
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(index)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    if as_views:  # the gradient of the first parameter sees its reduction, that of the second not
        first = torch.nn.Unflatten(1, (1, 4)), torch.nn.Conv1d(1, 4, 3), torch.nn.Flatten()
        model = torch.nn.Sequential(*first, torch.nn.Linear(8, 2))
    model = DistributedDataParallel(model.to(device), gradient_as_bucket_view=as_views)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        data = torch.randn(3, 4, generator=torch.Generator().manual_seed(10 * step + index))
        model(data.to(device)).pow(2).sum().backward()
        optimizer.step()
        torch_xla.sync()
    keep("parallel", [one.detach() for one in model.parameters()])


def buffers(index, device, keep):
    import torch_xla.debug.metrics as met
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8))
    model = DistributedDataParallel(model.to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    executed = []
    for step in range(5):
        optimizer.zero_grad()
        data = torch.randn(3, 4, generator=torch.Generator().manual_seed(10 * step + index))
        model(data.to(device)).pow(2).sum().backward()
        optimizer.step()
        torch_xla.sync(wait=True)
        executed.append(met.metric_data("ExecuteTime")[0])  # of this core
    grown = [b - a for a, b in zip(executed, executed[1:])]
    keep("executed", torch.tensor(grown))
"""


CASES = ("xm", "distributed", "views")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("collectives")


@pytest.fixture(
    scope="module",
    params=[CORES, pytest.param(CORES // 2, marks=pytest.mark.slow)],
    ids=["one process", "two hosts"],
)
def cores_of_a_host(request):
    return request.param


@pytest.fixture(scope="module")
def runs(folder, cores_of_a_host):
    with pytest.MonkeyPatch.context() as patch:
        # Were it obeyed, the first reduction of float32 would end the process.
        patch.setenv("XLA_USE_BF16", "1")
        if cores_of_a_host == CORES:
            return simulated.run_cases(folder / "one", CORES, PROGRAM, CASES)
        hosts = CORES // cores_of_a_host
        return simulated.run_cases_on_hosts(folder / "pod", hosts, cores_of_a_host, PROGRAM, CASES)


@pytest.fixture(scope="module")
def results(runs):
    return checked(runs["xm"])


@pytest.fixture(scope="module")
def distributed(runs):
    return checked(runs["distributed"])


def checked(done):
    assert done.code == 0, done.stderr
    assert "hook off" not in done.stderr
    assert done.events == []
    assert sorted(done.results) == list(range(CORES))
    return done.results


def value(core, *shape, dtype=torch.float32):
    """What core number ``core`` puts in."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) + 1) * (core + 1)).to(dtype).reshape(shape)


def every(*shape, dtype=torch.float32):
    return torch.stack([value(core, *shape, dtype=dtype) for core in range(CORES)])


def test_all_reduce_of_every_kind(results):
    whole = every(3, dtype=torch.int32)
    expected = {
        "sum": every(3).sum(0),
        "mul": every(3).prod(0),
        "min": every(3).amin(0),
        "max": every(3).amax(0),
        "and": whole[0] & whole[1] & whole[2] & whole[3],
        "or": whole[0] | whole[1] | whole[2] | whole[3],
        "scaled": every(3).sum(0) / 4,
    }
    for found in results.values():
        assert {name: found[name] for name in expected} == {
            name: reduced.tolist() for name, reduced in expected.items()
        }
        assert found["list"] == [(every(3).sum(0) / 2).tolist(), (every(2, 2).sum(0) / 2).tolist()]


def test_all_reduce_within_groups(results):
    for core, found in results.items():
        assert found["groups"] == every(3)[HALVES[core // 2]].sum(0).tolist()


def test_all_gather(results):
    gathered = torch.cat(list(every(2, 1)), dim=1).tolist()
    for core, found in results.items():
        assert found["all_gather"] == gathered
        assert found["all_gather_unpinned"] == every(2).flatten().tolist()
        assert found["all_gather_groups"] == every(2)[HALVES[core // 2]].flatten().tolist()
        assert found["all_gather_inf"] == [1.0, float("inf"), 3.0, 4.0]
        assert found["all_gather_bool"] == [False, False, True, True]
        assert found["all_gather_list"] == [
            every(1).flatten().tolist(),
            every(2).flatten().tolist(),
        ]


def test_reduce_scatter_all_to_all_permute_and_broadcast(results):
    for core, found in results.items():
        assert found["reduce_scatter"] == [every(4).sum(0)[core].item() / 2]
        assert found["reduce_scatter_list"] == [
            [every(4).sum(0)[core].item()],
            [every(4, 2).sum(0)[core].tolist()],
        ]
        assert found["all_to_all"] == [every(4, 2)[:, core].flatten().tolist()]
        assert found["permute"] == value((core - 1) % CORES, 2).tolist()
        assert found["broadcast"] == value(2, 3).tolist()


def test_master_parameters_reach_all_cores(results):
    own = [results[core]["own_weights"] for core in range(CORES)]
    assert all(own[0] != other for other in own[1:])
    assert all(found["master_weights"] == own[0] for found in results.values())


def test_gradients_through_collectives(results):
    for core, found in results.items():
        # torch_xla's AllReduce passes the gradient of a sum on as it is.
        assert found["all_reduce_backward"] == [3.0, 3.0]
        assert found["all_gather_backward"] == [2.0 * core, 2.0 * core + 1]


def test_exchange_in_memory(results, cores_of_a_host):
    for core, found in results.items():
        assert found["rendezvous"] == [f"core {one}" for one in range(CORES)]
        assert found["mesh_reduce"] == sum(range(CORES))
        assert found["on_ordinals"] == (value(1, 2).tolist() if core == 1 else None)
        first = core - core % cores_of_a_host  # each host saves what its first core has
        assert found["saved"] == value(first, 2).tolist()


def test_bfloat16_is_summed_in_float32(results):
    whole = every(4).sum(0)
    assert whole.to(torch.bfloat16).tolist() == whole.tolist()  # small whole numbers are exact
    for core, found in results.items():
        assert found["bfloat16_sum"] == whole.tolist()
        assert found["bfloat16_list"] == [(whole / 2).tolist(), (every(3).sum(0) / 2).tolist()]
        assert found["bfloat16_scatter"] == [whole[core].item()]
        assert found["bfloat16_gather"] == every(4).flatten().tolist()


def test_hidden_bfloat16_is_taken_away_and_that_is_said(folder, results):
    assert results[0]["sum"] == every(3).sum(0).tolist()
    told = [*folder.glob("one/events"), *folder.glob("pod/*/events")]
    assert told
    for events in told:
        [(kind, facts)] = [json.loads(line) for line in events.read_text().splitlines()]
        assert kind == "not-obeyed"
        assert facts["message"].startswith("XLA_USE_BF16 is not obeyed on simulated cores")


def emulated(collective, count):
    """The gradients of all cores' leaves, by plain torch, of the sum that ``gradient`` makes.

    Args:
        collective: All cores' values to all cores' results, each stacked.
        count: Numbers of one core.
    """
    leaves = every(count).requires_grad_()
    weights = torch.arange(CORES).add(2.0).reshape(CORES, 1)
    (collective(leaves * 3) * weights).sum().backward()
    return leaves.grad


def test_torch_xla_has_no_gradient_through_its_exchanges(results):
    """Their results are leaves (torch_xla 2.9); ``torch.distributed.nn`` has them, see below."""
    for found in results.values():
        for name in ("reduce_scatter", "all_to_all", "permute"):
            assert found[f"{name}_without_gradient"]


def test_what_one_core_sends_another_receives(results):
    assert results[3]["received"] == (value(1, 3) * 2).tolist()
    assert all("received" not in results[core] for core in (0, 1, 2))


def test_torch_distributed(distributed):
    scaled = torch.stack([every(2).sum(0) * (part + 1) for part in range(CORES)])
    for core, found in distributed.items():
        assert found["d_all_reduce"] == every(3).sum(0).tolist()
        assert found["d_maximum"] == every(3).amax(0).tolist()
        assert found["d_all_gather"] == every(2).tolist()
        assert found["d_gather_into"] == every(2).flatten().tolist()
        assert found["d_broadcast"] == value(2, 3).tolist()
        assert found["d_scatter_tensor"] == [every(4).sum(0)[core].item()]
        assert found["d_reduce_scatter"] == scaled[core].tolist()
        assert found["d_all_to_all"] == [[(one + 1.0) * (core + 1)] for one in range(CORES)]
        assert found["d_all_to_all_single"] == every(4)[:, core].tolist()
        assert found["d_reduce"] == (every(3).sum(0) if core == 1 else value(core, 3)).tolist()
        for source in (0, 3):
            assert found[f"d_scatter_{source}"] == (value(source, 2) * (core + 1)).tolist()
        assert found["d_gather"] == (every(2).tolist() if core == 0 else [])


def test_gradients_through_torch_distributed(distributed):
    summed = emulated(lambda all_: all_.sum(0).expand(CORES, 4), 4)
    turned = emulated(lambda all_: all_.T, 4)
    scattered = emulated(lambda all_: all_.sum(0).reshape(CORES, 1), 4)
    for core, found in distributed.items():
        assert found["d_all_reduce_backward"] == summed[core].tolist()
        assert found["d_all_to_all_backward"] == turned[core].tolist()
        assert found["d_reduce_scatter_backward"] == scattered[core].tolist()


def test_distributed_data_parallel_trains_one_model(distributed):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        for core in range(CORES):
            data = torch.randn(3, 4, generator=torch.Generator().manual_seed(10 * step + core))
            (model(data).pow(2).sum() / CORES).backward()
        optimizer.step()
    for found in distributed.values():
        assert found["parallel"] == distributed[0]["parallel"]
        for own, expected in zip(found["parallel"], model.parameters(), strict=True):
            torch.testing.assert_close(torch.tensor(own), expected.detach(), rtol=1e-3, atol=1e-4)


def test_buffers_that_a_forward_pass_broadcasts_are_part_of_the_step(distributed):
    """Nothing reads them: as on a device, one graph is a step, once the buckets are made anew."""
    for found in distributed.values():
        assert found["executed"][-2:] == [1, 1]


def test_gradients_that_are_views_of_a_bucket_lose_their_reduction_and_that_is_said(runs):
    """In torch_xla 2.9 a view does not see that what it is a view of was reduced in place."""
    done = runs["views"]
    assert done.code == 0, done.stderr
    [(kind, facts)] = done.events
    assert (kind, facts["step"]) == ("cores-part", 1)
    assert facts["cores"] == [0, 1, 2, 3]
    assert facts["cause"] == "lost"
    assert "leave out DistributedDataParallel's gradient_as_bucket_view=True" in facts["suggestion"]
    made = PROGRAM[: PROGRAM.index("gradient_as_bucket_view=as_views")].count("\n") + 1
    assert facts["cause_place"][1] == made


def test_the_table_names_what_the_code_does():
    text = (Path(simulate.__file__).parent / "README.md").read_text()
    text = text.partition("## Collectives\n")[2].partition("\n## ")[0]
    rows = {}
    for names, how in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (\w+)", text, re.MULTILINE):
        rows |= dict.fromkeys(re.findall(r"\w+", names), how)
    assert set(rows) == {*COLLECTIVES, "rendezvous"}
    source = Path(exchange.__file__).read_text()
    made_here = set(re.findall(r'call\.what == "(\w+)":\n\s+return _\w+', source))
    by_how = {how: {name for name, one in rows.items() if one == how} for how in rows.values()}
    assert by_how["memory"] == {"rendezvous", "send", "recv"}
    assert by_how["other"] | by_how["memory"] == made_here | {"rendezvous"}
