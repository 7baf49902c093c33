"""Exchanges between cores that the CPU cannot run as torch_xla builds them.

``xm.xla_rendezvous`` (so also ``rendezvous``, ``mesh_reduce`` and ``do_on_ordinals``) and
``xm.all_gather`` with a pinned layout pad by the core's ordinal, so that on the CPU every core
compiles a graph of its own, and collectives of different graphs never meet. The first becomes an
exchange in memory; the second a graph that is equal on all cores: the ordinal comes in as data.
``xm.send`` and ``xm.recv`` are an exchange in memory too.

Backwards ``torch_xla.core.functions.all_gather`` takes the core's own part of the gradient; that
gets the ordinal as data as well, since the gradients are reduced in the same graph as a rule.

What the exchange in memory leaves out is counted all the same (torch_xla 2.9.0, seen by running
it on one core): torch_xla runs one graph that gathers the sizes of the payloads and, unless all are
empty, one that gathers the payloads, which is another for other sizes.
"""

from __future__ import annotations

import functools
import importlib
import operator
from typing import TYPE_CHECKING, Any

from ..agent import tensors, xla
from ..agent.points import COLLECTIVE, RENDEZVOUS, Call
from . import reductions
from .calls import padded
from .deadlock import Rendezvous
from .places import user_frame
from .scheduler import one_at_a_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .cores import Core
    from .crossing import Crossing
    from .running import Running


def install(running: Running) -> None:
    """Replace rendezvous and all-gather while several cores run."""
    running.around(RENDEZVOUS, rendezvous, "exchange")

    def around(core: Core, call: Call, proceed: Callable[[], Any]) -> Any:
        return collective(core, call, proceed, running.crossing)

    running.around(COLLECTIVE, around, "exchange")
    _part_by_data()


def rendezvous(core: Core, call: Call, proceed: Callable[[], Any]) -> Any:  # noqa: ARG001
    """Around RENDEZVOUS: bytes go from core to core in memory."""
    group = core.group
    given = xla.arguments("xla_rendezvous", call.args, call.kwargs)
    payload, ordinals, tag = given["payload"], given["ordinals"], given["tag"]
    # The same refusals as torch_xla's own.
    if ordinals and len(ordinals) != group.size:
        raise ValueError("Only global rendezvous is supported")
    if not isinstance(payload, bytes):
        raise TypeError(f"`payload` must be bytes, not {type(payload)}")
    import torch_xla

    torch_xla.sync()
    words = f"rendezvous {tag!r}" if tag else "a rendezvous"
    brings = Rendezvous(payload, tag, user_frame(core.thread))
    meeting = group.meet(core, "rendezvous", words, brings)
    payloads = [meeting.brought[number].payload for number in sorted(meeting.brought)]
    call.facts["graphs"] = _graphs(core, [len(one) for one in payloads])
    return payloads


def _graphs(core: Core, sizes: list[int]) -> list[dict[str, Any]]:
    """The graphs that torch_xla would have run, in the form of the meter's records."""
    graphs = [_modelled("sizes", "first-graph", "the sizes of what the cores exchange")]
    if any(sizes):
        kind, detail = "first-graph", "what the cores exchange"
        if core.exchanged is not None:
            kind = "input-shape"
            detail = f"bytes that the cores exchange: {_bytes(core.exchanged)} -> {_bytes(sizes)}"
        core.exchanged = sizes
        graphs.append(_modelled(repr(sizes), kind, detail))
    return graphs


def _given(call: Call) -> dict[str, Any]:
    return xla.arguments(call.what, call.args, call.kwargs)


def collective(
    core: Core, call: Call, proceed: Callable[[], Any], crossing: Crossing | None = None
) -> Any:
    """Around COLLECTIVE: what XLA cannot run on the CPU, as a graph equal on every core."""
    reductions.note_lost_gradient(core, call.what, (*call.args, *call.kwargs.values()))
    if crossing is not None and call.what not in ("send", "recv"):
        crossing.refuse(call.what)
        given = _given(call)
        if call.what == "all_reduce":
            reductions.refuse_nothing(core, call.what, given)
        return crossing.collective(call.what, given, proceed)
    if call.what not in _LOOKED_INTO:
        return proceed()
    number, size = core.number, core.group.size
    given = xla.arguments(call.what, call.args, call.kwargs)
    if call.what == "send":
        return _send(core, **given)
    if call.what == "recv":
        return _recv(core, **given)
    reductions.refuse_nothing(core, call.what, given)
    if call.what == "collective_broadcast":
        return proceed()
    if call.what == "all_gather":
        return _all_gather(core, proceed, given)
    core.pinned = given["pin_layout"]
    if given["reduce_type"] in _BITWISE:
        return _all_reduce_bits(number, size, proceed, given)
    return proceed()


def _send(core: Core, value: Any, channel_id: int) -> Any:
    """``xm.send``, of which XLA's CPU client knows nothing: bytes, as in a rendezvous."""
    import torch_xla

    torch_xla._XLAC._xla_sync_multi([value], [], wait=True, sync_xla_data=True)
    core.group.send(channel_id, xla.binding("_xla_get_cpu_tensors")([value])[0])
    return value


def _recv(core: Core, output: Any, channel_id: int) -> Any:
    """``xm.recv``: waits for the value and gives it; ``output`` only says where it is to be."""
    return core.group.receive(core, channel_id).to(output.device)


#: Collectives that are carried out otherwise or refused, always or for some of their arguments.
_LOOKED_INTO = ("send", "recv", "all_gather", "all_reduce", "collective_broadcast")

#: Reductions that XLA runs on the CPU for booleans only, and the operator for whole numbers.
_BITWISE = {"and": operator.and_, "or": operator.or_}


def _all_reduce_bits(
    core: int, cores: int, proceed: Callable[[], Any], given: Mapping[str, Any]
) -> Any:
    """``xm.all_reduce`` with "and" or "or": gather, then reduce."""
    import torch

    reduce_type, inputs, scale = given["reduce_type"], given["inputs"], given["scale"]
    groups, pin_layout = given["groups"], given["pin_layout"]
    values = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
    if all(value.dtype == torch.bool for value in values):
        return proceed()
    results = []
    for value in values:
        parts = _gather(core, cores, value.unsqueeze(0), 0, groups, pin_layout).unbind(0)
        reduced = functools.reduce(_BITWISE[reduce_type], parts)
        results.append(reduced if scale == 1.0 else reduced * scale)
    if isinstance(inputs, torch.Tensor):
        return results[0]
    for value, result in zip(values, results, strict=True):
        value.copy_(result)
    return inputs


def _all_gather(core: Core, proceed: Callable[[], Any], given: Mapping[str, Any]) -> Any:
    """``xm.all_gather`` as it is, unless torch_xla pads by the core's ordinal."""
    if not padded(given):
        return proceed()
    # Without a reduction in this graph yet: its own will be alike as a rule.
    pinned = True if core.pinned is None else core.pinned
    size = core.group.size
    return _gather(core.number, size, given["value"], given["dim"], given["groups"], pinned)


def _part_by_data() -> None:
    """Backwards through ``torch_xla.core.functions.all_gather``, as a graph equal on every core."""
    try:
        function: Any = importlib.import_module("torch_xla.core.functions").AllGather
        original = function.backward
    except (ImportError, AttributeError):
        return

    @functools.wraps(original)
    def backward(ctx: Any, grad_output: Any) -> Any:
        import torch

        if not grad_output.is_xla or ctx.world_size == 1:
            return original(ctx, grad_output)
        size = grad_output.size(ctx.dim) // ctx.world_size
        with tensors.unseen():
            own = (torch.arange(size) + ctx.ordinal * size).to(grad_output.device)
        return grad_output.index_select(ctx.dim, own), None

    function.backward = staticmethod(backward)


def _modelled(name: str, kind: str, detail: str) -> dict[str, Any]:
    return {
        "graph": f"rendezvous {name}",
        "inputs": None,
        "outputs": None,
        "compiled": False,
        "seconds": None,
        "took": None,
        "hlo": None,
        "modelled": {"kind": kind, "detail": detail},
    }


def _bytes(sizes: list[int]) -> str:
    """Sizes in words: "5", or "5 to 7" if the cores bring different ones."""
    low, high = min(sizes), max(sizes)
    return str(low) if low == high else f"{low} to {high}"


def _gather(
    core: int,
    cores: int,
    value: Any,
    dim: int,
    groups: list[list[int]] | None,
    pinned: bool,
) -> Any:
    """A sum of the cores' values, each in its own place.

    ``pinned`` as in the program's own reductions: XLA refuses a graph that mixes both.
    """
    import torch

    if dim < 0:
        dim += value.dim()
    group = next((one for one in groups if core in one), None) if groups else list(range(cores))
    if group is None:
        raise ValueError(f"core {core} is in none of the groups {groups}")
    mine = torch.zeros([len(group)] + [1] * value.dim(), dtype=torch.bool)
    mine[group.index(core)] = True
    boolean = value.dtype == torch.bool
    payload = (value.to(torch.uint8) if boolean else value).unsqueeze(0)
    with tensors.unseen():
        mine = mine.to(value.device)
    # where() and not a product: 0 * inf would spread nan to all cores.
    spread = torch.where(mine, payload, torch.zeros_like(payload))
    with one_at_a_time():
        summed = xla.originals["all_reduce"]("sum", spread, groups=groups, pin_layout=pinned)
    gathered = torch.cat(list(summed.unbind(0)), dim)
    return gathered.to(torch.bool) if boolean else gathered
