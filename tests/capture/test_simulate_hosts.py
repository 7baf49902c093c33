"""Cores of several hosts that fail, part or do not do the same: every host says which core and why.

Each host is a process that torchrun has started, with a rendezvous of its own; what the collectives
give is held by ``test_simulate_collectives``.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from unittest import mock

import pytest
import simulated
import torch

from xladoctor.capture.simulate import callbacks, hosts, spread, transport
from xladoctor.capture.simulate.sketches import Sketch

HOSTS, CORES = 2, 2
LAST = HOSTS * CORES - 1

PROGRAM = """
import json, os, signal, time
import torch, torch_xla
import torch.distributed._functional_collectives as functional
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr


def refused(what, device):
    x = torch.ones(4).to(device)
    if what == "compiled":
        torch.compile(lambda x: xm.all_reduce("sum", x) * 2, backend="openxla")(x)
    elif what == "functional":
        functional.all_reduce(x, "sum", list(range(xr.world_size())))
    elif what == "eager":
        torch_xla.experimental.eager_mode(True)
        xm.all_reduce("sum", x)
    elif what == "sharded":
        import torch_xla.distributed.spmd as xs
        cores = list(range(xr.world_size()))
        xs.mark_sharding(x, xs.Mesh(cores, (len(cores),), ("x",)), ("x",))
    raise AssertionError("it was not refused")


def start(fault):
    import torch_xla.distributed.xla_multiprocessing as xmp
    if fault == "spmd-variable":
        os.environ["XLA_USE_SPMD"] = "1"
    try:
        xmp.spawn(main, args=(fault,), start_method="fork")
    finally:
        os.environ.pop("XLA_USE_SPMD", None)


def main(index, fault):
    device = torch_xla.device()
    if fault in ("compiled", "functional", "eager", "sharded", "spmd-variable"):
        refused(fault, device)
    last = index == xr.world_size() - 1
    torch.manual_seed(int(last and fault == "seeds"))
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        odd = last and step == 3
        if odd and fault == "raise":
            raise ValueError("no such image")
        if odd and fault == "end":
            return
        if odd and fault == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if odd and fault == "stand-still":
            time.sleep(900)  # line sleep
        images = torch.full((3 + int(fault == "shape" and odd), 4), index + 1.0).to(device)
        loss = model(images).pow(2).mean()
        if odd and fault == "operation":
            loss = loss.sin()  # line operation
        loss.backward()
        factor = torch.tensor([2.0 if odd and fault == "weights" else 1.0]).to(device)
        xm.reduce_gradients(optimizer)
        for parameter in model.parameters():
            parameter.grad *= factor
        optimizer.step()
        torch_xla.sync()
    with open(f"result{index}.json", "w") as file:
        json.dump(
            {
                "world": xr.world_size(),
                "local": xr.local_ordinal(),
                "process": [xr.process_index(), xr.process_count()],
                "devices": [xr.global_device_count(), xr.addressable_device_count()],
                "rank": xr.global_ordinal(),
                "weights": model.weight.detach().cpu().tolist(),
            },
            file,
        )
    if fault == "spmd":
        xr.use_spmd()
"""

FAULTS = ("none", "seeds", "weights", "operation", "shape", "end", "raise", "spmd")
#: What is not possible between processes, and how the refusal begins.
REFUSED = {
    "compiled": "a function of torch.compile that holds a collective cannot run on the simulated "
    "cores of several processes: ",
    "functional": "torch.distributed._functional_collectives.all_reduce cannot run on the "
    "simulated cores of several processes: ",
    "eager": "a collective in eager mode cannot run on the simulated cores of several processes: ",
    "spmd": "SPMD does not run on the simulated cores of several processes, ",
    "sharded": "SPMD does not run on the simulated cores of several processes, ",
    "spmd-variable": "SPMD does not run on the simulated cores of several processes, ",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosts")
    return simulated.run_cases_on_hosts(
        folder, HOSTS, CORES, PROGRAM, dict.fromkeys([*FAULTS, *REFUSED])
    )


def line(mark: str) -> int:
    return PROGRAM[: PROGRAM.index(mark)].count("\n") + 1


@pytest.mark.xla
def test_the_cores_of_all_hosts_are_one_run(runs):
    done = runs["none"]
    assert done.code == 0, done.stderr
    assert done.events == []
    assert sorted(done.results) == list(range(LAST + 1))
    for core, found in done.results.items():
        assert found["world"] == LAST + 1
        assert found["local"] == core % CORES
        assert found["process"] == [core // CORES, HOSTS]
        assert found["devices"] == [LAST + 1, CORES]
        assert found["rank"] == core
        assert found["weights"] == done.results[0]["weights"]


@pytest.mark.xla
def test_models_that_part_between_hosts_are_found_by_the_host_of_the_odd_core(runs):
    [(kind, facts)] = runs["seeds"].events
    assert kind == "cores-part"
    assert (facts["cores"], facts["step"]) == ([LAST], 0)
    assert facts["message"].startswith(f"core {LAST} trains another model than the rest: ")
    [(kind, facts)] = runs["weights"].events
    assert (facts["cores"], facts["step"], facts["equal_at"]) == ([LAST], 4, 3)


@pytest.mark.xla
@pytest.mark.parametrize(("fault", "stops"), [("operation", True), ("shape", False)])
def test_another_graph_on_one_host_is_known_to_both(runs, fault, stops):
    done = runs[fault]
    assert done.code == int(stops)
    said = f"xladoctor: core {LAST} builds another graph than cores 0 to {LAST - 1}"
    assert done.stderr.count(said) == HOSTS  # each host says it
    told = [facts for kind, facts in done.events if kind in ("graphs-differ", "graphs-vary")]
    assert told
    assert all(facts["cores"] == [LAST] for facts in told)
    if fault == "operation":
        assert all(facts["cause_place"][1] == line("# line operation") for facts in told)


@pytest.mark.xla
def test_a_core_that_ends_early_is_known_to_all(runs):
    done = runs["end"]
    assert done.code == 1
    said = f"core {LAST} has already ended, after 3 steps"
    assert done.stderr.count(said) == HOSTS
    assert [kind for kind, _ in done.events] == ["core-left"] * HOSTS  # each for its own cores
    assert all(facts["ended"] == [LAST] for _, facts in done.events)


@pytest.mark.xla
def test_an_exception_ends_the_other_hosts_with_its_words(runs):
    done = runs["raise"]
    assert done.code == 1
    assert f"xladoctor: core {LAST} of {LAST + 1} failed:" in done.stderr
    elsewhere = f"xladoctor: core {LAST} failed in process 1 (cores 2 to 3, on "
    assert elsewhere in done.stderr
    assert "ValueError: no such image" in done.stderr.partition(elsewhere)[2]
    assert sorted(kind for kind, _ in done.events) == ["core-failed", "stopped"]


@pytest.mark.xla
@pytest.mark.slow
def test_a_core_that_stands_still_and_a_process_that_died_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XLADOCTOR_HANG_TIMEOUT", "15")
    cases = ("die", "stand-still")
    runs = simulated.run_cases_on_hosts(tmp_path, HOSTS, CORES, PROGRAM, cases)
    assert runs["die"].code == 1
    said = re.findall(r"^xladoctor: (.*)", runs["die"].stderr, re.MULTILINE)
    assert len(said) == 1
    assert re.fullmatch(
        r"process 1 \(cores 2 to 3, on \S+\) has died, and its cores are needed: .*", said[0]
    )
    done = runs["stand-still"]
    assert done.code == 1
    assert done.stderr.count("no core has made progress for 15 s") == HOSTS
    assert done.stderr.count(f"for core {LAST}; core {LAST} is elsewhere") == HOSTS
    hangs = [facts for kind, facts in done.events if kind == "hang"]
    assert len(hangs) == HOSTS
    assert all(facts["for_cores"]["0"] == [LAST] for facts in hangs)


@pytest.mark.xla
@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_possible_between_processes_is_refused_in_a_sentence(runs, what):
    done = runs[what]
    assert done.code == 1
    assert f"xladoctor: {REFUSED[what]}" in f"{done.error}\n{done.stderr}"
    assert "not refused" not in done.stderr


def test_spmd_by_its_variable_is_refused_before_anything_is_started(monkeypatch):
    monkeypatch.setenv("XLA_USE_SPMD", "True")  # torch_xla takes it for yes
    said = spread.refusal(mock.Mock(), mock.Mock())
    assert said is not None
    assert said.startswith("XLA_USE_SPMD=True: SPMD does not run on the simulated cores of several")


THIRTY_TWO = """
import time
import torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr


def main(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(25):
        if index == 21 and step > 3:
            time.sleep(0.4)
        factor = torch.tensor([1.5 if index == 30 and step > 1 else 1.0]).to(device)
        optimizer.zero_grad()
        loss = model(torch.full((4, 8), index + 1.0).to(device)).tanh().pow(2).mean()
        loss.backward()
        xm.reduce_gradients(optimizer)
        for parameter in model.parameters():
            parameter.grad *= factor
        optimizer.step()
        torch_xla.sync()
    assert xr.world_size() == 32


if __name__ == "__main__":
    torch_xla.launch(main)
"""


@pytest.mark.xla
@pytest.mark.slow
def test_one_report_of_32_cores_on_four_hosts_names_the_odd_ones(tmp_path):
    (tmp_path / "train.py").write_text(THIRTY_TWO)
    python = [sys.executable, "-m"]
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    address = f"file://{tmp_path}/run"
    environ = {**os.environ, "PYTHONPATH": str(simulated.ROOT)}
    started = []
    for number in range(4):
        command = [*python, "torch.distributed.run", "--nnodes=4", f"--node-rank={number}"]
        command += ["--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}"]
        command += ["--no-python", *python, "xladoctor", "profile", "--simulate-cores", "8"]
        command += ["-o", address, "--", sys.executable, "train.py"]
        with (tmp_path / f"log{number}").open("w") as log:
            started.append(
                subprocess.Popen(
                    command, cwd=tmp_path, env=environ, stdout=log, stderr=subprocess.STDOUT
                )
            )
    for number, one in enumerate(started):
        assert one.wait(550) == 0, (tmp_path / f"log{number}").read_text()
    done = subprocess.run(
        [*python, "xladoctor", "report", address, "--output-format", "json"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    result = json.loads(done.stdout)
    assert result["summary"]["cores"] == 32
    found = {one["code"]: one for one in result["findings"]}
    assert found["XLA412"]["cores"] == [30]
    assert found["XLA414"]["cores"] == [21]


# -- without torch_xla ------------------------------------------------------------------------
TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "job-41",
    "TORCHELASTIC_RESTART_COUNT": "1",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1",
    "MASTER_ADDR": "host0",
    "MASTER_PORT": "29400",
}


def test_torchrun_around_xladoctor_makes_hosts_of_a_pod():
    environ = hosts.handed_down({**TORCHRUN, "HOME": "/home"}, 8)
    assert environ["HOME"] == "/home"
    assert not {*TORCHRUN} & {*environ}  # the program sees no torchrun, as on a pod
    share = hosts.share(environ)
    assert share is not None
    assert (share.rank, share.processes, share.cores) == (3, 4, 8)
    assert (share.first, share.world, share.one_each) == (24, 32, False)
    assert (share.address, share.port, share.run) == ("host0", 29400, "job-41/1")
    assert environ["PJRT_LOCAL_PROCESS_RANK"] == "1"
    assert hosts.handed_down({"HOME": "/home"}, 8) == {"HOME": "/home"}


def test_torchrun_inside_makes_each_process_a_core():
    share = hosts.share(TORCHRUN)
    assert share is not None
    assert (share.rank, share.cores, share.world, share.one_each) == (3, 1, 4, True)
    assert hosts.refusal(TORCHRUN, 2) is None
    assert "use --nproc-per-node 8, or --simulate-cores 2" in str(hosts.refusal(TORCHRUN, 8))
    kept = {**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "False"}
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" in str(hosts.refusal(kept, 2))
    assert hosts.share({"WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "one"}) is None


def test_a_build_without_symbols_is_refused(tmp_path):
    library = tmp_path / "stripped.so"
    library.write_bytes(b"\x7fELF\x02\x01" + bytes(58))
    assert callbacks._symbols(str(library), [b"_Z1fv"]) == {}
    library.write_bytes(b"MZ" + bytes(62))
    with pytest.raises(ValueError, match="no 64-bit ELF library"):
        callbacks._symbols(str(library), [b"_Z1fv"])


def test_rounding_is_no_difference_between_sketches():
    values = torch.linspace(-1, 1, 1000)
    one = Sketch.of(values)
    assert one.near(Sketch.of(values.clone()), 1e-6)
    assert one.near(Sketch.of(values * (1 + 1e-7)), 1e-6)
    assert not one.near(Sketch.of(values * 1.001), 1e-6)
    lone = values.clone()
    lone[501] += 5.0  # between the values that are sent: the sum and the norm tell
    assert not one.near(Sketch.of(lone), 1e-6)
    assert one.distance(Sketch.of(values + 0.5)) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("spec", "shape", "result"),
    [
        (transport.Spec("all_gather", (), dim=1, shards=4), (2, 3), (2, 12)),
        (transport.Spec("reduce_scatter", (), dim=0, shards=4), (8, 3), (2, 3)),
        (transport.Spec("all_to_all", (), dim=0, into=1, shards=4), (8, 3), (2, 12)),
        (transport.Spec("all_reduce", ()), (8, 3), (8, 3)),
    ],
)
def test_shapes_of_results(spec, shape, result):
    assert spec.result(shape) == result
