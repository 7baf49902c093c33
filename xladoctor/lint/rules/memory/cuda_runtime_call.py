"""XLA707: a question to the CUDA runtime in a file for XLA devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cuda import runs_with_xla

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

_RAISES = "raises RuntimeError"
_PROFILER = "torch_xla.debug.profiler.start_trace and stop_trace"
_MEMORY = "xm.get_memory_info()"
#: Those that raise or answer for a device that is not there (torch 2.9.1 was asked, without a
#: GPU); seeding, emptying caches and ``get_rng_state_all`` do not.
_CALLS = {
    "torch.cuda.synchronize": (_RAISES, "torch_xla.sync(wait=True)"),
    "torch.cuda.set_device": (_RAISES, "leave it out: each process has its device"),
    "torch.cuda.current_device": (_RAISES, "torch_xla.device()"),
    "torch.cuda.ipc_collect": (_RAISES, "leave it out: nothing of an XLA device is shared so"),
    "torch.cuda.max_memory_allocated": ("answers 0", _MEMORY),
    "torch.cuda.memory_allocated": ("answers 0", _MEMORY),
    **{
        f"torch.cuda.{name}": ("answers 0", _MEMORY)
        for name in ("memory_reserved", "max_memory_reserved", "memory_cached", "max_memory_cached")
    },
    **{
        f"torch.cuda.{name}": (_RAISES, _MEMORY)
        for name in ("mem_get_info", "reset_peak_memory_stats", "reset_max_memory_allocated")
    },
    "torch.cuda.memory_summary": ("raises KeyError", _MEMORY),
    **{
        f"torch.cuda.{name}": (_RAISES, "xm.xla_device_hw(device) or xr.device_type()")
        for name in ("get_device_properties", "get_device_name", "get_device_capability")
    },
    **{
        f"torch.cuda.{name}": (_RAISES, "leave it out: XLA has no streams")
        for name in ("current_stream", "default_stream", "Stream")
    },
    **{
        f"torch.cuda.{name}": (_RAISES, _PROFILER)
        for name in ("cudart", "profiler.start", "profiler.stop")
    },
    "torch.autograd.profiler.emit_nvtx": (f"{_RAISES} when it is entered", _PROFILER),
}


@rule("XLA707")
def cuda_runtime_call(model: FileModel) -> Iterator[Problem]:
    """Find calls of ``torch.cuda`` that no condition guards and that say nothing of XLA."""
    if not model.is_xla:
        return
    for call in model.calls(*(_CALLS.keys() - model.patched)):
        if not runs_with_xla(model, call.node) or _is_off(model, call):
            continue
        what, instead = _CALLS[call.name or ""]
        name = (call.name or "").removeprefix("torch.")
        yield model.problem(
            call.node,
            f"{name} knows nothing of XLA devices: without a GPU it {what}",
            suggestion=instead,
            fix=_fix(model, call),
        )


def _is_off(model: FileModel, call: CallSite) -> bool:
    """``emit_nvtx(enabled=args.nvtx)``: only what is certainly on asks for a GPU."""
    enabled = call.argument(0, "enabled") if call.last == "emit_nvtx" else None
    return enabled is not None and model.literal(enabled) is not True


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    """The same question to XLA, where there is one; memory is counted in other units there."""
    name = (call.name or "").rpartition(".")[2]
    if name == "set_device":
        return model.fix("Leave it out", model.remove_statement(call.node), safe=False)
    new = {"synchronize": "torch_xla.sync", "current_device": "torch_xla.device"}.get(name)
    written = spell(model, call.node, new) if new is not None else None
    if written is None or (call.function is None and model.multi_core):
        return None
    content = f"{written[0]}({'wait=True' if name == 'synchronize' else ''})"
    return model.fix("Ask XLA", model.replace(call.node, content), written[1], safe=False)
