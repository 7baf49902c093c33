"""What collectives cannot take: Python numbers, tensors on the host, texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, Value
from xladoctor.lint.rules._reads import snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_XM = "torch_xla.core.xla_model."
#: Collectives of torch_xla that take tensors on the device: which argument that is.
_TENSORS = {f"{_XM}all_reduce": (1, "inputs"), f"{_XM}all_gather": (0, "value")}
_RENDEZVOUS = f"{_XM}rendezvous"
#: Those of torch.distributed, where the process group is torch_xla's.
_OF_GROUP = {
    f"torch.distributed.{name}": (0, "tensor") for name in ("all_reduce", "broadcast", "reduce")
}
_GROUP = "torch.distributed.init_process_group"
#: Functions that give texts.
_TEXTS = frozenset({"builtins.str", "builtins.repr", "json.dumps"})


def refused(model: FileModel) -> Iterator[Problem]:
    """Collectives on several cores that raise for what they are given (measured on 2.9)."""
    for call in model.calls(*_TENSORS):
        given = call.argument(*_TENSORS[call.name or ""])
        value = model.value(given) if given is not None else None
        if given is None or value is None or model.on_every_core(call.node) is None:
            continue
        what = _what(value)
        if what is not None:
            yield model.problem(
                call.node,
                f"{snippet(model, given)} is {what}: on several cores "
                f"xm.{call.last} takes tensors on the device only, and raises an error",
                suggestion='xm.mesh_reduce("total", value, sum) takes numbers; or '
                "torch.tensor(value, device=torch_xla.device())",
            )
    yield from _of_group(model)
    for call in model.calls(_RENDEZVOUS):
        payload = call.argument(1, "payload")
        if payload is not None and _is_text(model, payload):
            yield model.problem(
                payload,
                "the payload of xm.rendezvous is bytes: a text raises TypeError",
                suggestion="payload=text.encode(), and decode() what comes back",
            )


def _what(value: Value) -> str | None:
    """What is no tensor on the device, if that is certain."""
    if not value.certain:
        return None
    if value.kind is Kind.NUMBER:
        return "a Python number"
    return "a tensor on the host" if value.kind is Kind.CPU_TENSOR else None


def _of_group(model: FileModel) -> Iterator[Problem]:
    """``dist.broadcast(torch.ones(2), src=0)`` in the process group of torch_xla."""
    backends = {
        part.literal(backend)
        for part in (model, *model.linked)
        for call in part.calls(_GROUP)
        if (backend := call.argument(0, "backend")) is not None
    }
    if backends != {"xla"}:
        return
    for call in model.calls(*_OF_GROUP):
        given = call.argument(*_OF_GROUP[call.name or ""])
        if given is not None and _stays_on_host(model.value(given)):
            yield model.problem(
                call.node,
                f"{snippet(model, given)} is on the host: the process group of torch_xla takes "
                "tensors on the device only, and raises RuntimeError",
                suggestion="move it first: tensor.to(torch_xla.device())",
            )


def _stays_on_host(value: Value) -> bool:
    """Whether it is a tensor on the host, on some road at least (that of the other cores)."""
    return any(road.kind is Kind.CPU_TENSOR and road.certain for road in (value.roads or (value,)))


def _is_text(model: FileModel, node: cst.BaseExpression) -> bool:
    """``str(loss)``, ``f"{loss}"``, ``json.dumps(results)``."""
    if isinstance(node, cst.Call):
        return model.call(node).name in _TEXTS
    return isinstance(node, cst.FormattedString) or isinstance(model.literal(node), str)
