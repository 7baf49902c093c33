"""Schedulers of diffusers that look for their time steps on the host (``tables/readers.toml``)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.model import Kind
from xladoctor.lint.rules._exact import same_name
from xladoctor.lint.rules._pretrained import library_class, takes_from
from xladoctor.lint.rules._reads import costly_loop, loop_place, often
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_PACKAGE = "diffusers."


class Looked(NamedTuple):
    """A call of a scheduler that reads on the host.

    Attributes:
        call: The call.
        name: The scheduler's class.
        row: Its row of the table.
    """

    call: CallSite
    name: str
    row: dict[str, Any]


@functools.cache
def _rows() -> dict[str, dict[str, Any]]:
    rows = catalogue.rows("readers", "scheduler")
    return {name: row for row in rows for name in row["classes"]}


def steps_that_are_looked_up(model: FileModel) -> Iterator[Problem]:
    """Schedulers of diffusers that look time steps up on the host."""
    for found in _noisy(model):
        loop = costly_loop(model, found.call.node)
        if loop is not None:
            yield model.problem(
                found.call.node,
                f"{found.name} looks each time step up on the host: one read for each sample of "
                f"the batch, {often(loop)}",
                suggestion="take the noise levels from a table on the device (sigmas[indices]), or "
                f"DDPMScheduler.{found.call.method}, which reads nothing",
                related=[loop_place(model, loop)],
            )
    for found, asks in _placed_steps(model):
        reads = "1 read" if found.row["step"] == 1 else f"{found.row['step']} reads"
        yield model.problem(
            found.call.node,
            f"the time steps are put on the device, and {found.name}.step asks for them on the "
            f"host: {reads} in each step of the denoising, each a wait for the device",
            suggestion="leave device out: the time steps stay on the host, and nothing is read",
            related=[model.place(asks.node, "asks for them")],
        )


def _noisy(model: FileModel) -> Iterator[Looked]:
    """``scheduler.add_noise(latents, noise, timesteps)`` that looks each time step up."""
    methods = {name for row in _rows().values() for name in row.get("noise", ())}
    for found in _called(model, methods):
        given = (model.value(argument.value) for argument in found.call.node.args)
        if found.call.method in found.row.get("noise", ()) and any(
            one.holds_device_tensor for one in given
        ):
            yield found


def _placed_steps(model: FileModel) -> Iterator[tuple[Looked, CallSite]]:
    """``scheduler.set_timesteps(50, device=device)``, and the ``step`` that asks for them."""
    steps = [*_called(model, {"step"})]
    for found in _called(model, {"set_timesteps"}) if steps else ():
        device = found.call.argument(1, "device")
        if device is None or model.value(device).kind is not Kind.DEVICE:
            continue
        asks = next(
            (x.call for x in steps if same_name(x.call.receiver, found.call.receiver)), None
        )
        if asks is not None and "step" in found.row:
            yield found, asks


def _called(model: FileModel, methods: set[str]) -> Iterator[Looked]:
    if not takes_from(model, _PACKAGE):
        return
    for call in model.methods(*methods):
        name = _class(model, call.receiver) if call.receiver is not None else None
        row = _rows().get(name) if name is not None else None
        if name is not None and row is not None:
            yield Looked(call, name, row)


def _class(model: FileModel, held: cst.BaseExpression) -> str | None:
    """The class of diffusers that an object is of, if all that it may be is of one."""
    names = {
        library_class(model, one, _PACKAGE) if isinstance(one, cst.Call) else None
        for one in sources(model, held) or ()
    }
    return names.pop() if len(names) == 1 else None
