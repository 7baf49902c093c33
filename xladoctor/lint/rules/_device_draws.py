"""What draws random numbers on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.rules._sources import the_call

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel

#: Functions of torch that draw on ``device=``, or on the device of their first tensor.
_ON_DEVICE = frozenset({"torch.rand", "torch.randn", "torch.randint"})
_LIKE = frozenset({"torch.rand_like", "torch.randn_like", "torch.randint_like", "torch.bernoulli"})
#: What draws into a tensor, and what makes one to draw into.
_IN_PLACE = frozenset({"normal_", "uniform_", "random_", "bernoulli_", "exponential_"})
_EMPTY = frozenset(
    f"torch.{name}" for name in ("empty", "zeros", "ones", "empty_like", "zeros_like", "ones_like")
)
_CASTS = frozenset({"float", "double", "half", "bfloat16"})
#: What draws by the numbers of its first tensor (measured on torch_xla 2.9, as those above).
_BY_WEIGHT = frozenset({"torch.multinomial", "torch.normal"})
_BY_WEIGHT_METHODS = frozenset({"multinomial", "bernoulli"})
_DISTRIBUTIONS = "torch.distributions."
_SAMPLES = frozenset({"sample", "rsample"})


def draws_anew(model: FileModel, call: CallSite) -> bool:
    """Whether a call draws a new tensor on the device (``torch.empty(...).normal_()`` too).

    What is drawn into a parameter makes weights.
    """
    if call.name in _ON_DEVICE or call.name in _LIKE:
        return _on_device(model, call)
    if call.method not in _IN_PLACE:
        return False
    made = model.call(call.receiver) if isinstance(call.receiver, cst.Call) else None
    if made is not None and made.method in _CASTS and isinstance(made.receiver, cst.Call):
        made = model.call(made.receiver)  # ``torch.zeros_like(x).float().uniform_()``
    if made is None:
        return False
    return made.name in _EMPTY and model.value(made.node).is_device_tensor


def draws(model: FileModel, call: CallSite) -> bool:
    """Whether a call draws on the device: ``torch.multinomial(probs, 1)`` does it too."""
    if draws_anew(model, call) or _samples(model, call):
        return True
    drawn = call.name in _BY_WEIGHT or (
        call.name is None and call.method in (_BY_WEIGHT_METHODS | _IN_PLACE)
    )
    given = call.argument(0) if call.name in _BY_WEIGHT else call.receiver
    return drawn and given is not None and model.value(given).is_device_tensor


def _samples(model: FileModel, call: CallSite) -> bool:
    """``Categorical(logits=logits).sample()``, also of a name, with numbers of the device."""
    if call.method not in _SAMPLES or call.receiver is None:
        return False
    made = the_call(model, call.receiver)
    if made is None or not (made.name or "").startswith(_DISTRIBUTIONS):
        return False
    given = (*made.positional, *made.keywords.values())
    return any(model.value(one).is_device_tensor for one in given)


def _on_device(model: FileModel, call: CallSite) -> bool:
    if call.name in _LIKE and "device" not in call.keywords:
        tensor = call.argument(0, "input")
        return tensor is not None and model.value(tensor).is_device_tensor
    device = call.keywords.get("device")
    return device is not None and model.value(device).kind is Kind.DEVICE
