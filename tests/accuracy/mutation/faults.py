"""The faults that can be planted in a healthy program, and the codes that each should give.

A fault gives one mutated program for each place that it fits. What it plants is what people write:
the names of the program are used, imports that it needs are added. Here are those of the training
itself and the list of all; ``faults_library`` and ``faults_sharding`` have the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from tests.accuracy.mutation.faults_library import FAULTS as LIBRARY
from tests.accuracy.mutation.faults_sharding import FAULTS as SHARDING
from tests.accuracy.mutation.kinds import (
    STARTS,
    TORCH,
    XM,
    XR,
    Fault,
    around_loop,
    before_backward,
    calls,
    environment,
    in_step,
    lines,
    master_only,
    removed,
    renamed,
    setting,
)
from tests.accuracy.mutation.planting import (
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
    without,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.accuracy.mutation.planting import Mutation, Program


def _drop_last(call: cst.Call) -> object:
    """Of what is trained on: shuffled, or shared out."""
    shuffled = keyword(call, "shuffle")
    trained = keyword(call, "sampler") or (shuffled and code(shuffled.value) == "True")
    fits = called(call) == "DataLoader" and keyword(call, "drop_last") and trained
    return without(call, "drop_last") if fits else None


def _no_sampler(call: cst.Call) -> object:
    fits = called(call) == "DataLoader" and keyword(call, "sampler")
    return without(call, "sampler") if fits else None


def _shuffled_twice(call: cst.Call) -> object:
    fits = called(call) == "DataLoader" and keyword(call, "sampler")
    return having(call, shuffle="True") if fits else None


def _sampler_of_one(call: cst.Call) -> object:
    return without(call, "num_replicas", "rank") if called(call) == "DistributedSampler" else None


def _misspelt(call: cst.Call) -> object:
    fits = called(call) == "DataLoader" and keyword(call, "drop_last")
    return having(without(call, "drop_last"), droplast="True") if fits else None


def _shuffled_apart(call: cst.Call) -> object:
    shuffled = keyword(call, "shuffle")
    shares = called(call) == "DistributedSampler" and keyword(call, "rank")
    fits = shares and (shuffled is None or code(shuffled.value) == "True")
    return having(call, seed="xr.global_ordinal()") if fits else None


def _without_guard(node: cst.CSTNode) -> object:
    fits = code(node.test) == '__name__ == "__main__"'  # type: ignore[attr-defined]
    return node.with_changes(test=expression("True")) if fits else None


def _plain_step(call: cst.Call) -> object:
    if called(call) != "xm.optimizer_step":
        return None
    return cst.Call(cst.Attribute(call.args[0].value, cst.Name("step")))


def _barrier(call: cst.Call) -> object:
    return having(call, barrier="True") if called(call) == "xm.optimizer_step" else None


def _eight(call: cst.Call) -> object:
    if called(call) not in STARTS:
        return None
    return having(call.with_changes(func=expression("xmp.spawn")), nprocs="8")


def _seed_by_core(call: cst.Call) -> object:
    if called(call) not in ("torch.manual_seed", "set_seed") or len(call.args) != 1:
        return None
    new = expression(f"{code(call.args[0].value)} + xr.global_ordinal()")
    return call.with_changes(args=[cst.Arg(new)])


def _plain_save(call: cst.Call) -> object:
    fits = called(call) == "xm.save" and len(call.args) == 2
    return call.with_changes(func=expression("torch.save")) if fits else None


def _named_by_master(line: cst.CSTNode) -> object:
    """``loader = DataLoader(...)`` on the master core alone, and no loader that an object keeps."""
    part = line.body[0]  # type: ignore[attr-defined]
    named = isinstance(part, cst.Assign) and isinstance(part.targets[0].target, cst.Name)
    return master_only("DataLoader")(line) if named else None


def _not_asked(node: cst.CSTNode) -> object:
    fits = code(node.test) == "xm.is_master_ordinal()"  # type: ignore[attr-defined]
    return node.with_changes(test=expression("xm.is_master_ordinal")) if fits else None


def _onto_device(call: cst.Call) -> object:
    fits = called(call) == "torch.load" and keyword(call, "map_location")
    return having(call, map_location="torch_xla.device()") if fits else None


def _to_cuda(call: cst.Call) -> object:
    moved = called(call).endswith(".to") and [code(arg.value) for arg in call.args] == ["device"]
    return call.with_changes(args=[cst.Arg(expression('"cuda"'))]) if moved else None


def _cuda_autocast(call: cst.Call) -> object:
    if called(call) != "torch.autocast":
        return None
    return call.with_changes(args=[cst.Arg(expression('"cuda"')), *call.args[1:]])


def _read_before_closure(call: cst.Call) -> object:
    given = keyword(call, "args")
    if called(call) != "xm.add_step_closure" or given is None:
        return None
    values = given.value.elements  # type: ignore[attr-defined]
    last = code(values[-1].value)
    return having(
        call, args=f"({', '.join([*(code(v.value) for v in values[:-1]), last])}.item(),)"
    )


def _torch_checkpoint(line: cst.CSTNode) -> object:
    if code(line) != "from torch_xla.utils.checkpoint import checkpoint":
        return None
    return statements("from torch.utils.checkpoint import checkpoint")[0]


def _local_metric(call: cst.Call) -> object:
    if called(call) != "xm.mesh_reduce" or code(call.args[2].value) == "np.array":
        return None
    # The mean loss of a core's own training says little less than that of all.
    return None if "loss" in code(call.args[0].value) else call.args[1].value


def _clip_first(program: Program) -> Iterator[Mutation]:
    """``reduce_gradients``, clip, ``step()`` become clip, ``xm.optimizer_step``."""

    def edit(block: cst.CSTNode) -> object:
        body = body_of(block)
        reduced = [only_call(line) for line in body]
        names = [called(call) if call else "" for call in reduced]
        if "xm.reduce_gradients" not in names:
            return None
        first = names.index("xm.reduce_gradients")
        optimizer = code(reduced[first].args[0].value)  # type: ignore[union-attr]
        if f"{optimizer}.step" not in names:
            return None
        new = [line for number, line in enumerate(body) if number != first]
        new[names.index(f"{optimizer}.step") - 1] = statements(f"xm.optimizer_step({optimizer})")[0]
        return block.with_changes(body=new)

    yield from places(program, cst.IndentedBlock, edit)


def _optimizer_first(program: Program) -> Iterator[Mutation]:
    """``model = Net().to(device)`` and an optimizer become net, optimizer, move."""

    def edit(block: cst.CSTNode) -> object:
        body = body_of(block)
        for number, line in enumerate(body):
            call = only_call(line)
            moved = code(line).partition(" = ")
            if call is None or not called(call).endswith(".to") or not moved[1]:
                continue
            after = [n for n, later in enumerate(body)
                     if n > number and f"{moved[0]}.parameters()" in code(later)
                     and "torch.optim" in code(later)]  # fmt: skip
            if not after or not isinstance(call.func, cst.Attribute):
                continue
            made = statements(f"{moved[0]} = {code(call.func.value)}")
            argument = code(call.args[0].value)
            put = statements(f"{moved[0]}.to({argument})")
            end = after[0] + 1
            rest = [*body[number + 1 : end], *put, *body[end:]]
            return block.with_changes(body=[*body[:number], *made, *rest])
        return None

    yield from places(program, cst.IndentedBlock, edit)


def _before_start(line: cst.CSTNode) -> object:
    call = only_call(line)
    if call is None or called(call) not in STARTS:
        return None
    return cst.FlattenSentinel([*statements("device = torch_xla.device()"), line])


def _result_of_start(line: cst.CSTNode) -> object:
    """What the started function returns, asked for in the process that started it."""
    call = only_call(line)
    if call is None or called(call) not in STARTS or "nprocs=1" in code(call):
        return None
    return cst.FlattenSentinel(
        statements(f"history = {code(call).strip()}\nprint(history['loss'])")
    )


def _by_hand(program: Program) -> Iterator[Mutation]:
    """No device loader: each batch is moved where it is used."""

    def edit(node: cst.CSTNode) -> object:
        if called(node).split(".")[-1] == "MpDeviceLoader":
            return node.args[0].value  # type: ignore[attr-defined]
        target = getattr(node, "target", None)
        elements = getattr(target, "elements", ())
        names = [code(item.value) for item in elements] or [code(target or cst.Name("_"))]
        if names[1:] and names[1].startswith("("):  # step, (x, y)
            names = names[1].strip("()").split(", ")
        body = body_of(getattr(node, "body", node))
        if not isinstance(node, cst.For) or not all(name.isidentifier() for name in names):
            return None
        lines = [code(line) for line in body if not isinstance(line, cst.For)]
        if not any("model(" in line for line in lines):
            return None
        move = "\n".join(f"{name} = {name}.to(device)" for name in names if name != "_")
        return node.with_changes(body=node.body.with_changes(body=[*statements(move), *body]))

    if "MpDeviceLoader(" in program.text and "model(" in program.text:
        yield lambda: everywhere(program.module, edit)


#: What makes the weights equal, or shares them out: a seed decides nothing.
_EQUAL = ("FSDP(", "DDP(", "from_pretrained(", "broadcast_master_param(")
_DIVERGED = 'raise ValueError("diverged")'
_SPAWN = "import torch_xla.distributed.xla_multiprocessing as xmp"

_TRAINING: Sequence[Fault] = (
    Fault("item in the step", ("XLA101",), in_step("current = LOSS.item()")),
    Fault("float() in the step", ("XLA102",), in_step("current = float(LOSS)")),
    Fault("loss summed as numbers", ("XLA101",),
          around_loop("total_loss = 0.0", "total_loss += LOSS.item()")),
    Fault("loss printed", ("XLA103",), in_step('print(f"loss {LOSS}")')),
    Fault("if on the loss", ("XLA104",), in_step(f"if LOSS > 100.0:\n    {_DIVERGED}")),
    Fault("NaN check", ("XLA104", "XLA106"),
          in_step(f"if torch.isnan(LOSS).any():\n    {_DIVERGED}", TORCH)),
    Fault("NumPy in the step", ("XLA101", "XLA105"),
          in_step("value = LOSS.detach().cpu().numpy()")),
    Fault("gc in the step", ("XLA111",), in_step("gc.collect()", "import gc")),
    Fault("time without waiting", ("XLA112",),
          in_step("elapsed = time.time() - started", "import time",
                   first="started = time.time()")),
    Fault("nonzero", ("XLA201",),
          in_step("kept = torch.nonzero(LOSS.detach().reshape(-1))", TORCH)),
    Fault("boolean mask read", ("XLA202",),
          in_step("values = LOSS.detach().reshape(-1)\nkept = values[values > 0]")),
    Fault("boolean mask written", ("XLA204",),
          in_step("values = LOSS.detach().reshape(-1)\nvalues[values > 1] = 1")),
    Fault("drop_last removed", ("XLA203",), calls(_drop_last), unless=("Accelerator(",)),
    Fault("random branch", ("XLA207",),
          before_backward("if random.random() < 0.5:\n    LOSS = LOSS * 2", "import random")),
    Fault("plain step", ("XLA302",), calls(_plain_step)),
    Fault("clip before the reduction", ("XLA303",), _clip_first),
    Fault("redundant barrier", ("XLA304",), calls(_barrier)),
    Fault("optimizer before the device", ("XLA305",), _optimizer_first,
          unless=("Accelerator(",)),  # its prepare() raises
    Fault("reduction dropped", ("XLA308",), in_step('xm.all_reduce("sum", LOSS.detach())', XM),
          STARTS),
    Fault("torch's checkpoint", ("XLA312",), lines(_torch_checkpoint)),
    Fault("history summed up", ("XLA315",), around_loop("total_loss = 0.0", "total_loss += LOSS")),
    Fault("print on every core", ("XLA401",), calls(renamed("xm.master_print", "print")), STARTS),
    Fault("sampler removed", ("XLA402",), calls(_no_sampler)),
    Fault("set_epoch removed", ("XLA403",), lines(removed(".set_epoch"))),
    Fault("eight processes", ("XLA404",), calls(_eight, _SPAWN)),
    Fault("collective on the master", ("XLA405",),
          in_step('if xm.is_master_ordinal():\n    xm.rendezvous("here")', XM), STARTS),
    Fault("mesh_reduce on the master", ("XLA405",), lines(master_only("xm.mesh_reduce"))),
    Fault("loader of the master alone", ("XLA451",), lines(_named_by_master, XM), STARTS),
    Fault("result of the start", ("XLA452",), lines(_result_of_start)),
    Fault("every core writes", ("XLA406", "XLA721"), calls(_plain_save, TORCH)),
    Fault("device before the start", ("XLA407",), lines(_before_start, "import torch_xla")),
    Fault("shuffle beside a sampler", ("XLA409",), calls(_shuffled_twice)),
    # A process group answers for the sampler.
    Fault("sampler of one", ("XLA409",), calls(_sampler_of_one), unless=("init_process_group(",)),
    Fault("loader's keyword misspelt", ("XLA801",), calls(_misspelt)),
    Fault("shuffled by the core", ("XLA448",), calls(_shuffled_apart, XR)),
    Fault("start without a guard", ("XLA408",),
          lambda program: places(program, cst.If, _without_guard), STARTS),
    Fault("master-only evaluation", ("XLA418", "XLA405"),
          lines(master_only("evaluate", "accuracy"), XM)),
    Fault("metric of one core", ("XLA405", "XLA419", "XLA427"), calls(_local_metric)),
    Fault("meeting in the step", ("XLA423",), in_step('xm.rendezvous("step")', XM), STARTS),
    Fault("seed by the core", ("XLA426",), calls(_seed_by_core, XR), STARTS, _EQUAL),
    Fault("seed removed", ("XLA426",), lines(removed("torch.manual_seed")), STARTS, _EQUAL),
    Fault("device seed removed", ("XLA434",), lines(removed("torch_xla.manual_seed"))),
    Fault("function as condition", ("XLA439",),
          lambda program: places(program, cst.If, _not_asked)),
    Fault("read before the closure", ("XLA107", "XLA113", "XLA101"), calls(_read_before_closure)),
    Fault("batches moved by hand", ("XLA301", "XLA603"), _by_hand, ("DataLoader(",)),
    Fault("tensor made on the host", ("XLA604",),
          before_backward("LOSS = LOSS + torch.zeros(1).to(LOSS.device)", TORCH)),
    Fault("variable that nothing reads", ("XLA701",),
          environment('os.environ["XLA_USE_BF16"] = "1"', "import os")),
    Fault("CUDA's autocast", ("XLA703",), calls(_cuda_autocast)),
    Fault("moved to CUDA", ("XLA706",), calls(_to_cuda)),
    Fault("CUDA's synchronize", ("XLA707",), in_step("torch.cuda.synchronize()", TORCH)),
    Fault("pinned memory", ("XLA718",), calls(setting("DataLoader", "pin_memory", "True")),
          unless=("tpu_dist",)),
    Fault("loaded onto the device", ("XLA720",), calls(_onto_device, "import torch_xla")),
    Fault("removed name: world size", ("XLA801",),
          calls(renamed("xr.world_size", "xm.xrt_world_size"), XM)),
    Fault("removed name: ordinal", ("XLA801",),
          calls(renamed("xr.global_ordinal", "xm.get_ordinal"), XM)),
    Fault("cores of old Lightning", ("XLA901",), calls(setting("Trainer", "tpu_cores", "8")),
          ("lightning",)),
    Fault("Trainer logs each step", ("XLA905",),
          calls(setting("TrainingArguments", "logging_steps", "1"))),
    Fault("Trainer keeps the last batch", ("XLA905",),
          calls(setting("TrainingArguments", "dataloader_drop_last", None))),
    Fault("Trainer checkpoints", ("XLA905",),
          calls(setting("TrainingArguments", "gradient_checkpointing", "True"))),
)  # fmt: skip

FAULTS: Sequence[Fault] = (*_TRAINING, *SHARDING, *LIBRARY)

#: Rules that no fault is planted for, and why.
NOT_PLANTED = {
    "XLA313": "off unless it is selected",
    "XLA316": "newer than the count; no healthy program checkpoints behind frozen layers",
    **{f"XLA86{number}": "newer than the count; TorchTPU's own" for number in (4, 5, 6)},
    **{f"XLA85{number}": "off unless a program is moved to another device" for number in range(10)},
}
