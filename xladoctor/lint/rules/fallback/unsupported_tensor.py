"""XLA502: kinds of tensor that XLA does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import Kind, OnXla
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import given_true

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_METHODS = {
    "to_sparse": ("there are no sparse tensors on XLA devices", "keep it dense"),
    "to_sparse_csr": ("there are no sparse tensors on XLA devices", "keep it dense"),
    "pin_memory": ("only CPU tensors can be pinned", "leave it out"),
    "share_memory_": ("only CPU tensors can be shared", "share the CPU tensor before it is moved"),
}


@rule("XLA502")
def unsupported_tensor(model: FileModel) -> Iterator[Problem]:
    """Find sparse, pinned and shared device tensors, and generators on the device."""
    if not model.is_xla:
        return
    for call in model.calls():
        found = _method(model, call) or _maker(model, call)
        if found is not None and model.on_xla(call.node) is OnXla.YES:
            why, instead = found
            yield model.problem(call.node, f"{why}: this raises an error", suggestion=instead)


def _method(model: FileModel, call: CallSite) -> tuple[str, str] | None:
    if call.name is not None or call.receiver is None or call.method not in _METHODS:
        return None
    value = model.value(call.receiver)
    return _METHODS[call.method] if value.is_device_tensor and value.certain else None


def _maker(model: FileModel, call: CallSite) -> tuple[str, str] | None:
    if call.name == "torch.Generator":
        device = call.argument(0, "device")
        value = model.value(device) if device is not None else None
        if value is not None and value.kind is Kind.DEVICE and value.certain:
            return "there is no torch.Generator for XLA devices", "torch_xla.manual_seed(seed)"
    if call.name == "torch.nn.Embedding" and given_true(model, call, "sparse") is not None:
        return (
            "on an XLA device the backward pass of nn.Embedding(sparse=True) has no kernel",
            "leave sparse out: the gradient is dense then",
        )
    return None
