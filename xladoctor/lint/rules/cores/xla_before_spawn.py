"""XLA407: the XLA runtime is started before the cores are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor import patterns
from xladoctor.lint.model import Function, OnXla, walk
from xladoctor.lint.model.conditions import asked_for_none
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.knowledge import WITHOUT_NUMBER
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import is_main, runs_here
from xladoctor.lint.rules._exact import in_order, made_by
from xladoctor.lint.rules._given import given
from xladoctor.lint.rules._lightning import TRAINERS, for_xla, several_cores
from xladoctor.lint.rules._reads import always_given
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Guard, Problem

_XM = "torch_xla.core.xla_model."
_XR = "torch_xla.runtime."
#: Calls that start the runtime (each was run before ``xmp.spawn``, which then raised).
_STARTS = (
    *("torch_xla.device", "torch_xla.sync", "torch_xla.manual_seed"),
    *(f"{_XM}{name}" for name in ("xla_device", "is_master_ordinal", "master_print")),
    *(f"{_XM}{name}" for name in ("set_rng_state", "rendezvous", "wait_device_ops", "mark_step")),
    *(f"{_XM}{name}" for name in ("get_memory_info", "get_xla_supported_devices")),
    # Until torch_xla 2.6; they were the runtime's since 2.1.
    *(f"{_XM}{name}" for name in ("xrt_world_size", "get_ordinal", "get_local_ordinal")),
    *(f"{_XR}{name}" for name in ("world_size", "global_ordinal", "global_device_count")),
    f"{_XR}global_runtime_device_count",
    "torch_xla.debug.metrics.metrics_report",
    "torch_xla.debug.profiler.start_server",
)
#: Classes whose objects ask for the device when they are made (run before ``xmp.spawn``, too).
_ASK_FOR_DEVICE = (
    *("accelerate.Accelerator", "accelerate.accelerator.Accelerator", "accelerate.PartialState"),
    *(f"accelerate.state.{name}" for name in ("PartialState", "AcceleratorState")),
    *("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments"),
)
#: What makes JAX take the devices of a machine.
_JAX = tuple(
    f"jax.{name}"
    for name in (
        *("devices", "local_devices", "device_count", "local_device_count", "default_backend"),
        *("device_put", "make_mesh", "random.key", "random.PRNGKey", "random.normal"),
    )
)
#: What keeps it to the CPU.
_JAX_PLATFORM = patterns.lazy(r"JAX_PLATFORM|jax_platform")
#: Arguments with which they leave the device alone.
_ON_HOST = frozenset({"cpu", "use_cpu", "no_cuda"})
#: What the parent got before the cores were there, when each was a process of its own (XRT).
_IN_PARENT = {
    f"{_XR}world_size": "1",
    f"{_XR}global_ordinal": "0",
    f"{_XM}is_master_ordinal": "True",
}
_SPAWN = ("torch_xla.distributed.xla_multiprocessing.spawn", "torch_xla.launch")
_TORCH_SPAWN = "torch.multiprocessing.spawn"
#: Processes that are started by hand: where their function stands among the arguments.
_PROCESSES = {
    **dict.fromkeys(("multiprocessing.Process", "torch.multiprocessing.Process"), (1, "target")),
    _TORCH_SPAWN: (0, "fn"),
}
#: Variables that share chips and cores out among processes.
_SHARED_OUT = patterns.lazy(r"TPU_VISIBLE|TPU_PROCESS|TPU_CHIPS|NEURON_RT_(VISIBLE|NUM)_CORES")
_CONTEXTS = ("multiprocessing.get_context", "torch.multiprocessing.get_context")
#: How many functions of the program lie between a call and what starts the runtime.
_DEPTH = 2
#: The first release whose spawn refuses.
_SINCE = (2, 3)


@rule("XLA407")
def xla_before_spawn(model: FileModel) -> Iterator[Problem]:
    """Find calls that start the runtime before ``spawn`` or ``launch`` in the same process."""
    if model.target < _SINCE or model.spmd:
        return
    yield from _started_twice(model)
    yield from _before_processes(model)
    fits = _fits(model)
    launches = model.calls(*WITHOUT_NUMBER) if model.is_xla else ()
    told: set[cst.CSTNode | None] = set()  # one that comes before several starts
    for spawn in (*model.calls(*_SPAWN), *launches, *fits):
        if spawn not in fits and runs_here(model, spawn):
            continue
        ways = list(_ways_to(model, spawn))
        for find in (_by_itself, _by_helpers, _held_by_jax):
            for problem in find(model, spawn, ways):
                if problem.node not in told:
                    told.add(problem.node)
                    yield problem


def _by_itself(model: FileModel, spawn: CallSite, ways: Sequence[CallSite]) -> Iterator[Problem]:
    """``device = torch_xla.device()`` before the cores are started."""
    for call in model.calls(*_STARTS, *_ASK_FOR_DEVICE):
        if _starts(call) and any(_runs_before(model, call, way) for way in ways):
            yield model.problem(
                call.node,
                _message(spawn),
                suggestion="move it into the function that is spawned"
                + ("; use print here" if call.name == f"{_XM}master_print" else ""),
                related=[model.place(spawn.node, "the cores are started here")],
                fix=_fix(model, call),
            )


def _held_by_jax(model: FileModel, spawn: CallSite, ways: Sequence[CallSite]) -> Iterator[Problem]:
    """``jax.devices()`` before ``xmp.spawn``: libtpu gives the chips to one process alone."""
    if spawn.name not in _SPAWN or _JAX_PLATFORM.search(model.text):
        return
    taken = (call for call in model.calls(*_JAX) if any(_runs_before(model, call, x) for x in ways))
    first = next(taken, None)
    if first is not None:
        yield model.problem(
            first.node,
            "JAX takes the TPU for this process here, and keeps it: the processes of the cores "
            "that are started afterwards cannot have it",
            suggestion="leave JAX out of this program, or keep it to the CPU "
            '(os.environ["JAX_PLATFORMS"] = "cpu" before it is imported)',
            related=[model.place(spawn.node, "the cores are started here")],
        )


def _message(spawn: CallSite) -> str:
    raised = '"Runtime is already initialized"'
    if spawn.name in WITHOUT_NUMBER:
        raised = "an error, because the cores cannot start it again"
    return f"this starts the XLA runtime in the parent process: the spawn after it raises {raised}"


def _before_processes(model: FileModel) -> Iterator[Problem]:
    """``mp.Process(target=train, args=(device,))`` of a process that has the device already."""
    processes = [*model.calls(*_PROCESSES), *_of_contexts(model)] if model.is_xla else []
    texts = (node.value for node in model.nodes(cst.SimpleString))
    if not processes or any(_SHARED_OUT.search(text) for text in texts):
        return  # the program may say which process gets which chip
    for process in processes:
        if _one_core_each(model, process) is None:
            continue
        for call in model.calls():
            if not _runs_before(model, call, process):
                continue
            target = call.target if isinstance(call.target, Function) else None
            start = call if _starts(call) else None
            if target is not None:
                start = _start_in(model, target, _DEPTH)
            if start is not None:
                yield _of_process(model, call, process)
                return


def _of_contexts(model: FileModel) -> Iterator[CallSite]:
    """``ctx.Process(...)`` of ``ctx = mp.get_context("spawn")``."""
    for call in model.methods("Process"):
        made = made_by(model, call.receiver) if call.receiver is not None else None
        if call.name is None and made is not None and made.name in _CONTEXTS:
            yield call


def _of_process(model: FileModel, call: CallSite, process: CallSite) -> Problem:
    return model.problem(
        call.node,
        "this starts the XLA runtime in the parent process: a process forked afterwards hangs as "
        "soon as it uses the device, and a second process cannot open a TPU",
        suggestion="ask for the device in the function that the processes run, and leave their "
        "start to torch_xla.launch",
        related=[model.place(process.node, "the process is made here")],
    )


def _one_core_each(model: FileModel, process: CallSite) -> Function | None:
    """What a process runs, if that uses the device."""
    given = process.argument(*_PROCESSES.get(process.name or "", (1, "target")))
    function = model.value(given).function if given is not None else None
    if function is None:
        return None
    handed = process.argument(1 if process.name == _TORCH_SPAWN else 3, "args")
    parts = handed.elements if isinstance(handed, cst.Tuple | cst.List) else ()
    devices = [model.value(one.value) for one in parts]
    if any((one.type_name or "").startswith("torch_xla.") for one in devices):
        return function
    return function if any(_starts(call) for call in model.reached(function.node)) else None


def _ways_to(model: FileModel, call: CallSite, depth: int = _DEPTH) -> Iterator[CallSite]:
    """A call, and the calls of this file that lead to it: ``fit(options)``, which spawns."""
    yield call
    if call.function is None or depth == 0:
        return
    for caller in model.callers(call.function):
        if model.is_here(caller.node) and caller.function is not call.function:
            yield from _ways_to(model, caller, depth - 1)


def _by_helpers(model: FileModel, spawn: CallSite, ways: Sequence[CallSite]) -> Iterator[Problem]:
    """``device = get_device()`` of a function of the program, before the cores are started."""
    for call in model.calls():
        if not isinstance(call.target, Function) or call in ways:
            continue
        if not any(_runs_before(model, call, way) for way in ways):
            continue
        start = _start_in(model, call.target, _DEPTH)
        if start is not None:
            yield model.problem(
                call.node,
                _message(spawn),
                suggestion="call it in the function that is spawned",
                related=[
                    model.place(start.node, "the runtime is started here"),
                    model.place(spawn.node, "the cores are started here"),
                ],
            )


def _start_in(model: FileModel, function: Function, depth: int) -> CallSite | None:
    """What certainly starts the runtime in a function, also one of a linked file."""
    home = next((one for one in (model, *model.linked) if one.is_here(function.node)), None)
    if home is None or any(isinstance(part, cst.Yield) for part in walk(function.node)):
        return None
    for call in home.calls():
        if call.function is not function or not _surely_runs(home, call):
            continue
        if _starts(call):
            return call
        inner = call.target if depth and isinstance(call.target, Function) else None
        start = _start_in(home, inner, depth - 1) if inner is not None else None
        if start is not None:
            return start
    return None


def _starts(call: CallSite) -> bool:
    """Whether a call starts the runtime, also by making what asks for the device."""
    return call.name in _STARTS or (
        call.name in _ASK_FOR_DEVICE and _ON_HOST.isdisjoint(call.keywords) and not call.has_star
    )


def _surely_runs(model: FileModel, call: CallSite) -> bool:
    """Whether a call runs whenever its function does, on XLA devices."""
    if model.loop(call.node) is not None:
        return False
    return _is_reached(model, call) and all(
        guard.runs is OnXla.YES or _unless_given(model, guard) for guard in model.guards(call.node)
    )


def _fits(model: FileModel) -> list[CallSite]:
    """``trainer.fit(net)`` of a Lightning Trainer for several TPU cores, which starts them."""
    found = []
    for call in model.methods("fit"):
        if call.receiver is None or model.on_every_core(call.node) is not None:
            continue
        calls = (x for x in sources(model, call.receiver) or () if isinstance(x, cst.Call))
        made = [model.call(one) for one in calls]
        if any(
            one.name in TRAINERS and for_xla(model, one) and several_cores(model, one)
            for one in made
        ):
            found.append(call)
    return found


def _started_twice(model: FileModel) -> Iterator[Problem]:
    """A Lightning Trainer for several TPU cores, made on a core that ``xmp.spawn`` has started."""
    for made in model.calls(*TRAINERS):
        entry = model.on_every_core(made.node)
        if entry is None or not isinstance(entry.call, cst.Call) or not for_xla(model, made):
            continue
        start = model.call(entry.call)
        devices = given(model, made).get("devices")
        one = devices is not None and model.literal(devices) == 1
        if start.name not in _SPAWN or one or runs_here(model, start):
            continue
        yield model.problem(
            start.node,
            "Lightning's Trainer starts the cores by itself: on a core that is already running, "
            'its own spawn raises "Runtime is already initialized"',
            suggestion="call the function once, without spawn",
            related=[model.place(made.node, "the Trainer, made on every core")],
        )


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    """Write what the call gave in the parent before it started anything."""
    if call.name == f"{_XM}master_print" and call.keywords.keys() <= {"flush"}:
        edit = model.replace(call.node.func, "print")
        return model.fix("Print without asking for the core", edit, safe=False)
    if call.name in _IN_PARENT:
        value = _IN_PARENT[call.name]
        edit = model.replace(call.node, value)
        return model.fix(f"Write {value}, which it is in the parent", edit, safe=False)
    return None


def _runs_before(model: FileModel, call: CallSite, spawn: CallSite) -> bool:
    """Whether the call certainly runs before the spawn: same function or module, no condition."""
    if call.function not in {spawn.function, None} or not in_order(model, call.node, spawn.node):
        return False
    shared = set()
    if call.function is spawn.function:
        shared = {(guard.node, guard.when) for guard in model.guards(spawn.node)}
    for guard in model.guards(call.node):
        if (guard.node, guard.when) in shared or is_main(model, guard):
            continue
        if guard.runs is not OnXla.YES and not _unless_given(model, guard):
            return False
    return _is_reached(model, call)


def _unless_given(model: FileModel, guard: Guard) -> bool:
    """``count() if cores is None else cores``, ``cores or count()``: if nobody says how many."""
    asked = asked_for_none(guard.test)
    name, when = asked if asked is not None else (guard.test, False)
    if when is not guard.when or not isinstance(name, cst.Name):
        return False
    function = model.with_parameter(name)
    default = function.default(name.value) if function is not None else None
    return is_name(default, "None") and not always_given(model, name)


def _is_reached(model: FileModel, call: CallSite) -> bool:
    """Not in a lambda, nor in what handles an exception."""
    inner: cst.CSTNode = call.node
    for node in model.tree.ancestors(call.node):
        # What is tried has run, unless it failed; the handlers have not.
        if isinstance(node, cst.Lambda) or (isinstance(node, cst.Try) and inner is not node.body):
            return False
        inner = node
    return True
