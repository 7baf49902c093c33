"""Every collective on simulated cores gives the values that plain torch computes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import simulated
import torch

from xladoctor.capture import simulate
from xladoctor.capture.agent.xla import COLLECTIVES
from xladoctor.capture.simulate import exchange

pytestmark = pytest.mark.xla

CORES = 4
HALVES = [[0, 1], [2, 3]]

PROGRAM = """
import json
import torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.core.functions as xf

HALVES = [[0, 1], [2, 3]]


def main(index):
    device = torch_xla.device()
    found = {}

    def value(*shape, dtype=torch.float32):
        count = torch.Size(shape).numel()
        return ((torch.arange(count) + 1) * (index + 1)).to(dtype).reshape(shape).to(device)

    def keep(name, result):
        many = isinstance(result, (list, tuple))
        found[name] = [one.cpu().tolist() for one in result] if many else result.cpu().tolist()

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
    with open(f"result{index}.json", "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    torch_xla.launch(main)
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    done = simulated.run(tmp_path_factory.mktemp("collectives"), CORES, PROGRAM)
    assert done.code == 0, done.stderr
    assert "hook off" not in done.stderr
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


def test_exchange_in_memory(results):
    for core, found in results.items():
        assert found["rendezvous"] == [f"core {one}" for one in range(CORES)]
        assert found["mesh_reduce"] == sum(range(CORES))
        assert found["on_ordinals"] == (value(1, 2).tolist() if core == 1 else None)
        assert found["saved"] == value(0, 2).tolist()


def test_the_table_names_what_the_code_does():
    text = (Path(simulate.__file__).parent / "README.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (\w+)", text, re.MULTILINE))
    untried = {"send", "recv"}
    assert set(rows) == (set(COLLECTIVES) - untried) | {"rendezvous"}
    assert "`send` and `recv` are passed on" in text
    replaced = {name for name, how in rows.items() if how == "other"}
    source = Path(exchange.__file__).read_text()
    assert replaced == set(re.findall(r'call\.what == "(\w+)":\n\s+return _\w+', source))
    assert {name for name, how in rows.items() if how == "memory"} == {"rendezvous"}
