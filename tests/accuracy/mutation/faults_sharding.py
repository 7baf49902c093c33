"""Faults of several cores and of sharded programs: launch, collectives, FSDP, SPMD."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from tests.accuracy.mutation.kinds import (
    STARTS,
    TORCH,
    XM,
    XR,
    Fault,
    argument,
    around_loop,
    before_backward,
    calls,
    functions,
    in_step,
    lines,
    removed,
    renamed,
    setting,
)
from tests.accuracy.mutation.planting import (
    backward,
    body_of,
    called,
    code,
    everywhere,
    expression,
    having,
    keyword,
    only_call,
    places,
    statements,
    with_imports,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.accuracy.mutation.planting import Mutation, Program

NP = "import numpy as np"
PL = "import torch_xla.distributed.parallel_loader as pl"
_FSDP = ("XlaFullyShardedDataParallel",)
_SPMD = ("use_spmd()",)
_DEVICE_LOADER = re.compile(
    r"([\w.]+) = (?:pl\.)?MpDeviceLoader\((\w+), (?:device|torch_xla\.device\(\))\)"
)


def _no_arguments(call: cst.Call) -> object:
    return without(call, "args") if called(call) in STARTS and keyword(call, "args") else None


def _called_here(call: cst.Call) -> object:
    """``torch_xla.launch(f, args=(x,))`` becomes ``f(0, x)``."""
    given = keyword(call, "args")
    if called(call) not in STARTS or not (given is None or isinstance(given.value, cst.Tuple)):
        return None
    values = given.value.elements if given is not None else ()  # type: ignore[attr-defined]
    parts = ", ".join(["0", *(code(item.value) for item in values)])
    return expression(f"{code(call.args[0].value)}({parts})")


def _second_device(call: cst.Call) -> object:
    return expression("torch_xla.device(1)") if code(call) == "torch_xla.device()" else None


def _eight_replicas(call: cst.Call) -> object:
    return having(call, num_replicas="8") if called(call) == "DistributedSampler" else None


def _numpy_payload(call: cst.Call) -> object:
    if called(call) != "xm.mesh_reduce":
        return None
    tag, value, reduce = (code(arg.value) for arg in call.args)
    return expression(f"xm.mesh_reduce({tag}, np.mean([{value}]), {reduce})")


def _by_parallel_loader(call: cst.Call) -> object:
    if called(call).split(".")[-1] != "MpDeviceLoader" or len(call.args) != 2:
        return None
    loader, device = (code(arg.value) for arg in call.args)
    return expression(f"pl.ParallelLoader({loader}, [{device}]).per_device_loader({device})")


def _before_epochs(line: cst.CSTNode) -> object:
    """``loader = pl.MpDeviceLoader(...)``; in the head of a loop it is made anew."""
    call = only_call(line)
    made = None if call is None else _by_parallel_loader(call)
    if made is None or " = " not in code(line):
        return None
    return statements(f"{code(line).partition(' = ')[0]} = {code(made)}")[0]  # type: ignore[arg-type]


def _attribute(program: Program) -> Iterator[Mutation]:
    """The device loader is asked for the sampler of the loader in it."""
    found = _DEVICE_LOADER.search(program.text)

    def edit(call: cst.Call) -> object:
        if found is None or not called(call).endswith("sampler.set_epoch") or "." in found[1]:
            return None
        return call.with_changes(func=expression(f"{found[1]}.sampler.set_epoch"))

    yield from calls(edit)(program)


def _abandoned(program: Program) -> Iterator[Mutation]:
    """``per_device_loader`` in the epoch loop, left early."""
    loaders = dict(_DEVICE_LOADER.findall(program.text))

    def edit(loop: cst.CSTNode) -> object:
        text = code(loop.iter)  # type: ignore[attr-defined]
        body = body_of(loop.body)  # type: ignore[attr-defined]
        if text not in loaders or not any(backward(line) for line in body):
            return None
        new = f"enumerate(pl.ParallelLoader({loaders[text]}, [device]).per_device_loader(device))"
        target = expression(f"(turn, {code(loop.target)})")  # type: ignore[attr-defined]
        block = loop.body.with_changes(  # type: ignore[attr-defined]
            body=[*body, *statements("if turn == 100:\n    break")]
        )
        return loop.with_changes(iter=expression(new), target=target, body=block)

    yield from places(program, cst.For, edit, [PL])


def _shared_model(program: Program) -> Iterator[Mutation]:
    """The model is made by the module and moved by every core."""

    def edit(function: cst.FunctionDef) -> object:
        for line in body_of(function.body):
            found = re.fullmatch(r"(\w+) = (\w+\(\))\.to\(device\)", code(line))
            if found is not None and function.params.params:
                moved = statements(f"{found[1]} = NETWORK.to(device)")[0]
                block = function.body.with_changes(
                    body=[moved if other is line else other for other in body_of(function.body)]
                )
                made = statements(f"NETWORK = {found[2]}")
                return cst.FlattenSentinel([*made, function.with_changes(body=block)])
        return None

    yield from functions(edit)(program)


def _aliased(line: cst.CSTNode) -> object:
    call = only_call(line)
    if call is None or called(call) != "xm.optimizer_step":
        return None
    optimizer = code(call.args[0].value)
    text = (
        f"for group in {optimizer}.param_groups:\n"
        '    for p in group["params"]:\n'
        "        p.grad.data.mul_(0.5)"
    )
    return cst.FlattenSentinel([*statements(text), line])


def _reduced_again(call: cst.Call) -> object:
    return expression("xm.optimizer_step(optimizer)") if code(call) == "optimizer.step()" else None


def _own_norm(call: cst.Call) -> object:
    if called(call) != "model.clip_grad_norm_":
        return None
    return expression(
        f"torch.nn.utils.clip_grad_norm_(model.parameters(), {code(call.args[0].value)})"
    )


def _assigned(block: cst.CSTNode) -> object:
    body = body_of(block)
    if "xs.mark_sharding(" not in code(block) or not code(body[-1]).startswith("return model"):
        return None
    new = statements('model.load_state_dict(torch.load("other.pt", mmap=True), assign=True)')
    return block.with_changes(body=[*body[:-1], *new, body[-1]])


def _no_output_sharding(call: cst.Call) -> object:
    if called(call) != "FSDPv2" or not keyword(call, "auto_wrap_policy"):
        return None
    return having(without(call, "shard_output"), extra_data_axis='"data"')


def _scanned(loop: cst.CSTNode) -> object:
    if code(loop.iter) != "self.layers":  # type: ignore[attr-defined]
        return None
    return cst.FlattenSentinel(statements("hidden = scan_layers(self.layers, hidden)"))


def _spmd_by_variable(program: Program) -> Iterator[Mutation]:
    def edit(node: cst.CSTNode) -> object:
        if isinstance(node, cst.SimpleStatementLine) and code(node) == "xr.use_spmd()":
            return statements('os.environ["XLA_USE_SPMD"] = "1"')[0]
        return None

    if "xr.use_spmd()" in program.text:
        yield lambda: with_imports(everywhere(program.module, edit), ["import os"])


FAULTS: Sequence[Fault] = (
    Fault("gradients aliased", ("XLA307",), lines(_aliased)),
    # A process group is joined by whoever else is started.
    Fault("never spawned", ("XLA449",), calls(_called_here),
          ("__main__",),
          ("init_process_group(", "use_spmd", "Accelerator(", "transformers", "_mp_fn(0")),
    Fault("arguments left out", ("XLA408",), calls(_no_arguments)),
    # Made once for all epochs it is empty in the second one, which is told first.
    Fault("ParallelLoader by hand", ("XLA810", "XLA415"), calls(_by_parallel_loader, PL)),
    Fault("one loader for all epochs", ("XLA415",), lines(_before_epochs, PL), ("for epoch in",)),
    Fault("loader left early", ("XLA608",), _abandoned, ("for epoch in",)),
    Fault("second device", ("XLA416",), calls(_second_device)),
    Fault("NumPy in mesh_reduce", ("XLA417",), calls(_numpy_payload, NP)),
    Fault("uneven iterations", ("XLA420",),
          around_loop("", "if LOSS.item() > 1000.0:\n    break"), STARTS),
    Fault("number of the core in the graph", ("XLA421",),
          before_backward("LOSS = LOSS * (1 + xr.global_ordinal())", XR), STARTS),
    Fault("attribute of the device loader", ("XLA422",), _attribute),
    Fault("model of the module", ("XLA424",), _shared_model, STARTS),
    Fault("read by the master", ("XLA425",),
          in_step("if xm.is_master_ordinal():\n    print(LOSS.detach().cpu())", XM), STARTS),
    Fault("eight replicas", ("XLA432",), calls(_eight_replicas), STARTS),
    Fault("gradient cut off", ("XLA433",),
          before_backward('LOSS = xm.all_reduce("sum", LOSS, scale=1.0 / xr.world_size())', XM, XR),
          STARTS),
    Fault("gathered without gradient", ("XLA433",),
          calls(renamed("xf.all_gather", "xm.all_gather"))),
    Fault("integers scaled", ("XLA438",),
          in_step('count = xm.all_reduce("sum", (LOSS.detach() > 0).sum().long(), scale=0.5)', XM),
          STARTS),
    Fault("shards reduced again", ("XLA309",), calls(_reduced_again, XM), _FSDP),
    Fault("clipped by one core's norm", ("XLA436",), calls(_own_norm, TORCH), _FSDP),
    Fault("one core's shards saved", ("XLA437",),
          calls(setting("save", "master_only", None)), _FSDP),
    Fault("one process's view in SPMD", ("XLA428",),
          calls(renamed("xr.process_count", "xr.world_size")), _SPMD),
    Fault("collective in SPMD", ("XLA428",),
          in_step('everyone = xm.all_reduce("sum", LOSS.detach())', XM), _SPMD),
    Fault("SPMD by a variable", ("XLA429",), _spmd_by_variable),
    Fault("batches not sharded", ("XLA429",),
          calls(setting("MpDeviceLoader", "input_sharding", None)), _SPMD),
    Fault("sharding lost", ("XLA443",),
          lambda program: places(program, cst.IndentedBlock, _assigned), _SPMD),
    Fault("axis that the mesh has not", ("XLA444",),
          argument("xs.mark_sharding", '"fsdp"', '"rows"')),
    Fault("axis of batches that the mesh has not", ("XLA444",),
          argument("xs.ShardingSpec", '"fsdp"', '"rows"')),
    Fault("outputs not sharded", ("XLA445",), calls(_no_output_sharding)),
    Fault("kernel not partitioned", ("XLA446",),
          calls(setting("flash_attention", "partition_spec", None)), _SPMD),
    Fault("kernel in a scan", ("XLA325",),
          lambda program: places(program, cst.For, _scanned,
                                 ["from torch_xla.experimental.scan_layers import scan_layers"]),
          ("flash_attention(",)),
    Fault("attention without scale", ("XLA722",),
          calls(setting("flash_attention", "sm_scale", None))),
    Fault("hosts' batches as the whole", ("XLA447",),
          calls(setting("ShardingSpec", "minibatch", None)), ("process_count(",)),
    Fault("process group for GPUs", ("XLA708",),
          argument("dist.init_process_group", '"xla", init_method="xla://"', '"nccl"')),
    Fault("launch environment left out", ("XLA862",),
          lines(removed("torch.tpu.distributed.set_tpu_launch_env"))),
)  # fmt: skip
