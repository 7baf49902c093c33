"""XLA114: the host waits for the device in every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint import family
from xladoctor.lint.model import LoopKind
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import costly_loop, loop_place, often

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem

_XM = "torch_xla.core.xla_model"
_SYNCHRONIZE = tuple(sorted(name for name in family.waits() if name.endswith(".synchronize")))
_CLOCKS = ("time.time", "time.perf_counter", "time.monotonic", "timeit.default_timer")


@rule("XLA114")
def device_wait_in_step(model: FileModel) -> Iterator[Problem]:
    """Find waits for the device in step and evaluation loops."""
    for call in model.calls(
        f"{_XM}.wait_device_ops",
        f"{_XM}.mark_step",
        "torch_xla.sync",
        "torch_xla.core.xla_model.sync",
        *_SYNCHRONIZE,
    ):
        if not _waits(model, call):
            continue
        loop = costly_loop(model, call.node)
        if loop is None or _is_timed(model, call, loop):
            continue
        spelled = (call.name or "").rpartition(".")[2]
        if spelled in {"wait_device_ops", "synchronize"}:
            how, advice = f"{model.tree.text(call.node.func).strip()}()", "delete it"
        else:
            how, advice = f"{spelled}(wait=True)", "leave out wait=True"
        yield model.problem(
            call.node,
            f"{how} blocks the host {often(loop)} until the device is idle, so the next step is "
            "traced while the device has nothing to do",
            suggestion=f"{advice}: the device keeps the order of its work by itself; wait once "
            "after the loop where a clock is read",
            related=[loop_place(model, loop)],
        )


def _waits(model: FileModel, call: CallSite) -> bool:
    if call.name is not None and call.name.endswith(("wait_device_ops", *_SYNCHRONIZE)):
        return True
    given = call.argument(0, "wait") if call.name == "torch_xla.sync" else call.keywords.get("wait")
    return given is not None and model.literal(given) is True


def _is_timed(model: FileModel, call: CallSite, loop: Loop) -> bool:
    """A program that measures each step has to wait for it."""
    if loop.kind is LoopKind.EVAL and not isinstance(loop.node, cst.For | cst.While):
        return False
    inside = {other.node for other in model.reached(loop.node)}
    return any(
        clock.node in inside and clock.function is call.function for clock in model.calls(*_CLOCKS)
    )
