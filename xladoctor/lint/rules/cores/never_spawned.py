"""XLA449: what is written for all cores is run by one process, as one core."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Effect, Returns
from xladoctor.lint.model import Function, walk
from xladoctor.lint.model.dotted import imported, is_name
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._constants import constant
from xladoctor.lint.rules._fabric_launch import unlaunched
from xladoctor.lint.rules._given import given
from xladoctor.lint.rules._protocol import OPTIMIZER_STEP
from xladoctor.lint.rules._reads import snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_SPAWNS = "torch_xla.distributed.xla_multiprocessing"
_SAMPLER = ".DistributedSampler"
_LOADERS = ("MpDeviceLoader", "ParallelLoader")
#: Calls that may start processes or join them, by the last part of their names.
_STARTS = re.compile(
    r"spawn|launch|start_process|popen|(?-i:Process$)|init_process_group|^system$|^run$|"
    r"^(check_)?call$|^(check_|get)output$|^exec|^fork$|submit|^fire$",
    re.IGNORECASE,
)
#: What a file says of whoever starts it: in its code, its texts, its comments.
_STARTED = re.compile(
    r"torchrun|LOCAL_RANK|WORLD_SIZE|\bRANK\b|xla_dist|xla_spawn|torch\.distributed\.(launch|run)|"
    r"accelerate\s+launch|mpirun|\bsrun\b|neuron_parallel"
)
#: What programs call the number of a core that the launch gives.
_INDEX = frozenset(
    {
        *("index", "idx", "i", "rank", "local_rank", "ordinal", "local_ordinal", "core", "worker"),
        *("core_index", "core_id", "process_index", "proc_id", "worker_id", "device_index"),
        *("_", "_index", "_rank", "unused_index"),
    }
)
#: Where a name defines, imports or is another's.
_NO_USE = cst.FunctionDef | cst.ImportAlias | cst.Param
_DEPTH = 2


@rule("XLA449")
def never_spawned(model: FileModel) -> Iterator[Problem]:
    """Find training functions of one core of many that the program calls by itself."""
    if not model.is_xla or model.spmd:
        return
    if "transformers" in model.frameworks:
        yield from _trainer_on_one_core(model)
    if "lightning" in model.frameworks:
        yield from unlaunched(model)
    if model.led_by or _may_be_started(model):
        return
    for call in model.calls():
        function = call.target
        if not isinstance(function, Function) or not _is_for_a_core(function):
            continue
        callers = model.callers(function)
        if not all(_is_by_hand(model, one) for one in callers):
            continue
        signs = _signs(model, function)
        if len(signs) > 1 and not _is_handed_on(model, function):
            yield model.problem(
                call.node,
                f"called once, in this process: {function.name} is written for one core of many, "
                "and nothing here starts the others. xr.world_size() is 1, and all cores but one "
                "stay idle",
                suggestion=f"torch_xla.launch({function.name}, args=(...)) without the core's "
                "number, which the launch gives",
                related=[model.place(node, note) for node, note in signs[:2]],
            )
    yield from _imported_for_nothing(model)


def _trainer_on_one_core(model: FileModel) -> Iterator[Problem]:
    """``TrainingArguments(tpu_num_cores=8)`` in a script that is one process."""
    for call in model.calls():
        if not (call.name or "").endswith("TrainingArguments"):
            continue
        cores = given(model, call).get("tpu_num_cores")
        number = constant(model, cores) if cores is not None else None
        if not isinstance(number, int) or number < 2 or isinstance(number, bool):
            continue
        if _may_be_started(model) or "_mp_fn" in {one.name for one in model.functions}:
            return
        assert cores is not None
        yield model.problem(
            cores,
            f"the script is one process, which trains on one core: tpu_num_cores={number} starts "
            "no others, and all cores but one stay idle",
            suggestion="start the script's main function on every core: torch_xla.launch(main), "
            "or accelerate launch --tpu",
        )


def _may_be_started(model: FileModel) -> bool:
    """Whether something in the program, or whoever starts it, may start other processes."""
    return any(part.once(_starts_processes) for part in (model, *model.linked))


def _starts_processes(model: FileModel) -> bool:
    if any(_STARTS.search(name) for name in {_last(call) for call in model.calls()}):
        return True
    return _STARTED.search(model.text) is not None


def _last(call: CallSite) -> str:
    """The last part of what a call names; '' for ``trainer.run()`` of an object."""
    if call.target is not None or (call.name is None and call.method in {"run", "call", "submit"}):
        return ""
    return (call.name or "").rpartition(".")[2] or call.method or ""


def _is_for_a_core(function: Function) -> bool:
    """A plain function that is given the core's number first: by its name, or used for nothing."""
    if function.outer is not None or function.owner is not None or function.decorators:
        return False
    if not function.parameters:
        return False
    first = function.parameters[0]
    return first in _INDEX or not any(is_name(node, first) for node in walk(function.node.body))


def _signs(model: FileModel, function: Function) -> list[tuple[cst.CSTNode, str]]:
    """What only a function for one core of many does: two kinds are needed, one of them a must."""
    found: dict[str, cst.CSTNode] = {}
    for call in model.reached(function.node):
        name = call.name or ""
        if name.endswith(_SAMPLER) and _asks_for_cores(model, call.node):
            found.setdefault("shares the data out over the cores", call.node)
        elif name.endswith(_LOADERS):
            found.setdefault("the device loader of this core", call.node)
        elif name.endswith((".master_print", ".is_master_ordinal")):
            found.setdefault("done by one core of many", call.node)
        elif _joins(model, call):
            found.setdefault("joins the cores", call.node)
    must = {"shares the data out over the cores", "joins the cores"} & found.keys()
    ordered = sorted(found.items(), key=lambda item: item[0] not in must)
    return [(node, note) for note, node in ordered] if must else []


def _joins(model: FileModel, call: CallSite) -> bool:
    """A collective; ``barrier=True`` of a step is how programs for a single core write it."""
    if call.name == OPTIMIZER_STEP and "barrier" in call.keywords:
        return False
    return any(event.effect is Effect.COLLECTIVE for event in model.effects.by_call(call))


def _asks_for_cores(model: FileModel, node: cst.CSTNode) -> bool:
    tells = model.library.returning(Returns.CORE_NUMBER)
    names = (call.name or "" for call in model.calls_in(node))
    return any(name in tells or name.endswith(".world_size") for name in names)


def _is_by_hand(model: FileModel, call: CallSite) -> bool:
    """``_mp_fn(0, flags)`` in what the file runs as a script, whatever is the case."""
    index = call.argument(0)
    number = model.literal(index) if index is not None else NotImplemented
    if number is not None and (number != 0 or isinstance(number, bool)):
        return False
    return not _depends(model, call) and _runs(model, call, _DEPTH)


def _depends(model: FileModel, call: CallSite) -> bool:
    guards = model.guards(call.node)
    return any("__name__" not in model.tree.text(guard.test) for guard in guards)


def _runs(model: FileModel, call: CallSite, depth: int) -> bool:
    """Whether a call is made when the file is run."""
    if call.function is None:
        return True
    callers = model.callers(call.function)
    if depth == 0 or not callers or _is_handed_on(model, call.function):
        return False
    return all(_runs(model, one, depth - 1) for one in callers)


def _is_handed_on(model: FileModel, function: Function) -> bool:
    """Whether the program names a function other than to define, to import and to call it."""
    called = {call.node.func for call in model.callers(function)}
    for part in (model, *model.linked):
        for name in part.nodes(cst.Name):
            if name.value != function.name:
                continue
            parent = part.parent(name)
            if name in called or parent in called or isinstance(parent, _NO_USE):
                continue
            if isinstance(parent, cst.Arg) and parent.keyword is name:
                continue
            member = isinstance(parent, cst.Attribute) and parent.attr is name
            if member and part.name(cst.ensure_type(parent, cst.Attribute)) is None:
                continue  # a method of that name
            return True
    return False


def _imported_for_nothing(model: FileModel) -> Iterator[Problem]:
    """A script that imports what starts the cores, uses none of it, and reduces by itself."""
    line = next((node for node in model.tree.imports if _SPAWNS in imported(node)), None)
    if line is None or any(_is_used(model, name) for name in model.named):
        return
    for call in model.calls(OPTIMIZER_STEP):
        if not _joins(model, call) or model.on_every_core(call.node) is not None:
            continue
        if model.step_loop(call.node) is not None and _runs(model, call, _DEPTH):
            started = _begins(model, call, _DEPTH)
            yield model.problem(
                line if started is None else started.node,
                "no core is started: the script runs on one, where "
                f"{snippet(model, call.node.func)} has nothing to reduce",
                suggestion="start a function on every core: torch_xla.launch(train, args=(...))",
                related=[
                    model.place(line, "imported for it, and not used"),
                    model.place(call.node, "would reduce over the cores"),
                ],
            )
            return


def _begins(model: FileModel, call: CallSite, depth: int) -> CallSite | None:
    """The module's own call that leads to a call; None where the module makes it itself."""
    if call.function is None or depth == 0:
        return None
    for one in model.callers(call.function):
        if one.function is None:
            return one if model.is_here(one.node) else None
        found = _begins(model, one, depth - 1)
        if found is not None:
            return found
    return None


def _is_used(model: FileModel, name: str) -> bool:
    return name.startswith(_SPAWNS) and any(
        not any(isinstance(node, cst.Import | cst.ImportFrom) for node in model.tree.ancestors(use))
        for use in model.named[name]
    )
