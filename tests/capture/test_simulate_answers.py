"""No public call of torch_xla that is harmless on a TPU ends a run on simulated cores."""

from __future__ import annotations

import pytest
import simulated

pytestmark = pytest.mark.xla

CORES = 2

PROGRAM = """
import copy, io, json, os, pickle
import torch, torch_xla
import torch_xla.amp.syncfree, torch_xla.backends
import torch_xla.utils.checkpoint, torch_xla.utils.dlpack
import torch_xla.core.xla_model as xm
import torch_xla.debug.graph_saver, torch_xla.debug.metrics_saver
import torch_xla.debug.metrics as met
import torch_xla.debug.profiler as xp
import torch_xla.runtime as xr
import torch_xla.test.test_utils as test_utils
import torch_xla.utils.serialization as xser


def calls(index, device):
    value = torch.arange(4.0).to(device)
    model = torch.nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    name = str(device)

    def step():
        optimizer.zero_grad()
        model(value).sum().backward()
        xm.optimizer_step(optimizer, barrier=True)

    def traced():
        @xp.trace_me("work")
        def work():
            with xp.Trace("inside"):
                return value + 1
        with xp.StepTrace("step", step_num=1):
            work()

    def profiled():
        xp.start_trace(os.path.abspath(f"trace{index}"))
        torch_xla.sync(wait=True)
        xp.stop_trace()

    def checkpointed():
        leaf = torch.ones(4, device=device, requires_grad=True)
        torch_xla.utils.checkpoint.checkpoint(model, leaf).sum().backward()

    def forked():
        with xm.fork_rng():
            torch.rand(2, device=device)

    def closed():
        xm.add_step_closure(lambda one: None, args=(value,))
        xm.add_step_closure(lambda one: None, args=(value,), run_async=True)
        torch_xla.sync()

    def saved():
        xm.save(model.state_dict(), "model.pt")
        xm.save(model.state_dict(), f"model{index}.pt", master_only=False)
        xser.save({"model": model.state_dict()}, "serialized.pt", master_only=True)
        torch.save(model.state_dict(), f"own{index}.pt")
        torch.load(f"own{index}.pt")

    os.makedirs(f"graphs{index}")
    for module, names in {
        xm: "get_local_ordinal is_master_ordinal xla_device xla_device_kind mark_step "
            "get_xla_supported_devices xla_real_devices wait_device_ops get_rng_state "
            "get_memory_info",
        xr: "device_type is_bf16_supported local_process_count global_device_count world_size "
            "local_device_count addressable_device_count global_ordinal local_ordinal "
            "process_index process_count host_index global_runtime_device_attributes "
            "global_runtime_device_count addressable_runtime_device_count is_spmd get_master_ip "
            "get_num_cached_compilation_graph",
        torch_xla: "devices real_devices device_count device sync",
        met: "metrics_report short_metrics_report metric_names counter_names "
             "executed_fallback_ops clear_counters clear_metrics clear_all",
    }.items():
        for one in names.split():
            yield f"{module.__name__}.{one}", getattr(module, one)
    yield from {
        "memory of a device": lambda: xm.get_memory_info(device),
        "memory by name": lambda: xm.get_memory_info(name),
        "hardware": lambda: xm.xla_device_hw(device),
        "attributes": lambda: xr.runtime_device_attributes(name),
        "replication": lambda: xm.xla_replication_devices([device]),
        "set_replication": lambda: xm.set_replication(device, [device]),
        "set_replication off": lambda: xm.set_replication(device, xm.get_xla_supported_devices()),
        "wait": lambda: xm.wait_device_ops([name]),
        "unlazy": lambda: xm.unlazy([value + 1]),
        "stablehlo": lambda: (xm.get_stablehlo([value + 1]), xm.get_stablehlo()),
        "bytecode": lambda: xm.get_stablehlo_bytecode([value + 1]),
        "closures": closed,
        "step": step,
        "save": saved,
        "send": lambda: xm.send_cpu_data_to_device([torch.ones(2)], device),
        "seed": lambda: (xm.set_rng_state(3, name), torch_xla.manual_seed(4)),
        "fork": forked,
        "barrier": lambda: xm.optimization_barrier_([value]),
        "print": lambda: xm.master_print("one line"),
        "checkpoint": checkpointed,
        "traces": traced,
        "profile": profiled if index == 0 else step_over,
        "graph": lambda: torch_xla.debug.graph_saver.save_tensors_graph(
            f"graphs{index}", "one", [value + 1]),
        "metrics": lambda: torch_xla.debug.metrics_saver.save_metrics(f"metrics{index}"),
        "precision": lambda: torch_xla.backends.set_mat_mul_precision("default"),
        "update": lambda: test_utils.print_training_update(device, 1, 0.5, 3.0, 3.0),
        "clip": lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0),
        "copies": lambda: (copy.deepcopy(model), pickle.dumps(value)),
        "syncfree": lambda: torch_xla.amp.syncfree.AdamW(model.parameters()),
    }.items()
    torch_xla.sync(wait=True)
    yield "dlpack", lambda: torch_xla.utils.dlpack.from_dlpack(
        torch_xla.utils.dlpack.to_dlpack(value))


def step_over():
    torch_xla.sync(wait=True)


def walk(index):
    raised, asked = {}, []
    for name, call in calls(index, torch_xla.device()):
        asked.append(name)
        try:
            call()
        except Exception as error:
            raised[name] = f"{type(error).__name__}: {error}"
    return raised, len(asked)


def memory(index):
    kept = torch.ones(4_000_000).to(torch_xla.device())
    torch_xla.sync(wait=True)
    try:
        xm.get_memory_info("nothing")
    except RuntimeError as error:
        wrong = type(error).__name__
    return xm.get_memory_info(), wrong, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def mixed(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = set()
    for step in range(3):
        optimizer.zero_grad()
        with torch_xla.amp.autocast(device):
            out = model(torch.ones(2, 4).to(device))
            seen.add(str(out.dtype))
        out.float().square().mean().backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync()
    return sorted(seen), str(model.weight.dtype)


def main(index, case):
    found = globals()[case](index)
    with open(f"result{index}.json", "w") as file:
        json.dump(found, file)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    return simulated.run_cases(folder, CORES, PROGRAM, ("walk", "memory", "mixed"))


def test_no_harmless_call_raises(runs):
    done = runs["walk"]
    assert done.code == 0, done.stderr
    for raised, asked in done.results.values():
        assert raised == {}
        assert asked > 60
    assert done.kinds == ["not-obeyed"]


def test_memory_is_that_of_the_process_and_that_is_said(runs):
    done = runs["memory"]
    assert done.code == 0, done.stderr
    for info, wrong, limit in done.results.values():
        assert wrong == "RuntimeError"
        assert 16_000_000 < info["bytes_used"] <= info["peak_bytes_used"] <= info["bytes_limit"]
        assert info["bytes_limit"] == limit
    [(kind, facts)] = done.events
    assert kind == "not-obeyed"
    assert "the memory of a device is not simulated" in facts["message"]


def test_autocast_is_that_of_a_tpu(runs):
    done = runs["mixed"]
    assert done.code == 0, done.stderr
    assert done.events == []
    assert "AMP only supported" not in done.stdout
    for found in done.results.values():
        assert found == [["torch.bfloat16"], "torch.float32"]
