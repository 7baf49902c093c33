"""XLA715: the runtime is configured with what it does not know, or when it is too late."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.knowledge import SPAWNERS
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import is_main
from xladoctor.lint.rules._environment import is_environ, key_of
from xladoctor.lint.rules._exact import in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_XM = "torch_xla.core.xla_model."
_XR = "torch_xla.runtime."
#: Devices that PJRT knew once: the first release without each, and what became of it.
_GONE = {
    "GPU": ((2, 9), "XLA:GPU was removed in torch_xla 2.9"),
    "CUDA": ((2, 9), "XLA:GPU was removed in torch_xla 2.9"),
    "ROCM": ((2, 9), "XLA:GPU was removed in torch_xla 2.9"),
    "TPU_LEGACY": ((2, 2), "the StreamExecutor runtime of TPUs was removed in torch_xla 2.2"),
}
#: Calls after which the runtime is up (each was run before the setting, which then did nothing).
_STARTS = (
    "torch_xla.device",
    f"{_XM}xla_device",
    f"{_XR}world_size",
    f"{_XR}global_ordinal",
    f"{_XR}global_runtime_device_count",
    f"{_XM}is_master_ordinal",
    f"{_XM}get_ordinal",
)
#: Variables that are read once, when the runtime starts or the first tensor is made.
_READ_ONCE = ("PJRT_", "XLA_USE_BF16", "XLA_DOWNCAST_BF16", "TPU_", "XLA_FLAGS", "LIBTPU_INIT_ARGS")
_CACHE = f"{_XR}initialize_cache"
_SET_TYPE = f"{_XR}set_device_type"

#: What tells a process of a TPU host which it is, and whether a value is that of the only one
#: (torch_xla/_internal/tpu.py, ``configure_topology``, sets each where it is missing).
_ALONE: dict[str, Callable[[str], bool]] = {
    "CLOUD_TPU_TASK_ID": str.isdecimal,
    "TPU_PROCESS_BOUNDS": lambda value: value == "1,1,1",
    "TPU_CHIPS_PER_PROCESS_BOUNDS": lambda value: value not in {"1,1,1", "1,1,1,1"},
}


@rule("XLA715")
def runtime_configuration(model: FileModel) -> Iterator[Problem]:
    """Find impossible values of ``PJRT_DEVICE``, and settings after the runtime has started."""
    if not model.is_xla:
        return
    for node, value in _device_types(model):
        name = model.literal(value)
        if isinstance(name, str) and name in _GONE and model.target >= _GONE[name][0]:
            yield model.problem(
                node,
                f'the device "{name}" does not exist: {_GONE[name][1]}',
                suggestion='"TPU" or "CPU"; on GPUs use plain PyTorch',
            )
    for node in model.nodes(cst.Assign):
        if _variable(model, node).startswith(_READ_ONCE):
            start = _start_before(model, node)
            if start is not None:
                yield _too_late(model, node, start, "this is read when the runtime starts")
    yield from _inherited(model)
    for call in model.calls(_SET_TYPE):
        start = _start_before(model, call.node)
        if start is not None:
            what = "set_device_type raises once the runtime is up"
            yield _too_late(model, call.node, start, what)
    for call in model.calls(_CACHE):
        start = _before(model, call.node, [c for c in model.calls() if model.effects.ends_graph(c)])
        if start is not None:
            what = "initialize_cache raises once something has been computed"
            yield _too_late(model, call.node, start, what)


def _inherited(model: FileModel) -> Iterator[Problem]:
    """``os.environ["CLOUD_TPU_TASK_ID"] = "0"`` before the processes of the cores are started."""
    starts = [call for call in model.calls(*SPAWNERS) if not _is_one(model, call)]
    found = [node for node in model.nodes(cst.Assign) if _is_alone(model, node)] if starts else []
    for node in found[:1]:
        yield model.problem(
            node,
            "every process inherits this, and torch_xla sets only what is missing: each takes "
            "itself for the one process of the host, and the start fails or hangs",
            suggestion="leave it out: the start of the cores sets it for each process",
            related=[
                *(model.place(other, "this, too") for other in found[1:]),
                model.place(starts[0].node, "the cores are started here"),
            ],
        )


def _is_alone(model: FileModel, node: cst.Assign) -> bool:
    value = model.literal(node.value)
    alone = _ALONE.get(_variable(model, node)) if isinstance(value, str) else None
    return alone is not None and alone(str(value)) and model.on_every_core(node) is None


def _is_one(model: FileModel, call: CallSite) -> bool:
    count = call.keywords.get("nprocs")
    return count is not None and model.literal(count) == 1


def _device_types(model: FileModel) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
    for node in model.nodes(cst.Assign):
        if _variable(model, node) == "PJRT_DEVICE":
            yield node, node.value
    for call in model.calls("os.environ.setdefault"):
        first, value = call.argument(0, "key"), call.argument(1, "value")
        if first is not None and value is not None and model.literal(first) == "PJRT_DEVICE":
            yield call.node, value
    for call in model.calls(_SET_TYPE):
        value = call.argument(0, "pjrt_device")
        if value is not None:
            yield call.node, value


def _variable(model: FileModel, node: cst.Assign) -> str:
    """The variable that ``os.environ["X"] = ...`` sets, or ""."""
    target = node.targets[0].target
    if isinstance(target, cst.Subscript) and is_environ(model, target.value):
        return key_of(model, target) or ""
    return ""


def _start_before(model: FileModel, node: cst.CSTNode) -> CallSite | None:
    """A call that has certainly started the runtime before a node, in the same piece of code."""
    return _before(model, node, model.calls(*_STARTS))


def _before(model: FileModel, node: cst.CSTNode, calls: Iterable[CallSite]) -> CallSite | None:
    function = model.function_of(node)
    conditions = {(guard.node, guard.when) for guard in model.guards(node)}
    for call in calls:
        if call.function is not function or not in_order(model, call.node, node):
            continue
        if all(
            (g.node, g.when) in conditions or is_main(model, g) for g in model.guards(call.node)
        ):
            return call
    return None


def _too_late(model: FileModel, node: cst.CSTNode, start: CallSite, what: str) -> Problem:
    return model.problem(
        node,
        f"too late: {what}, which has happened above",
        suggestion="move it to the beginning of the program, before the first use of the device",
        related=[model.place(start.node, "too late after this")],
    )
