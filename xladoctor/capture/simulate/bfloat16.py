"""Reductions of bfloat16, which XLA's CPU client does not have (torch_xla 2.9.0).

It raises on some cores and leaves the others in the collective, often with memory destroyed
("corrupted size vs. prev_size"). So a bfloat16 tensor is reduced as float32 and rounded once: as
exact as a TPU's sum, or better. ``XLA_USE_BF16`` and ``XLA_DOWNCAST_BF16`` make a bfloat16 of every
float32 behind the program's back, where nothing can be widened; they are not obeyed.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from ..agent import xla

if TYPE_CHECKING:
    from collections.abc import Callable

    from .running import Running

#: Variables by which torch_xla keeps float32 as bfloat16.
HIDDEN = ("XLA_USE_BF16", "XLA_DOWNCAST_BF16")

#: Values that leave them off.
_OFF = ("", "0", "false")


def take_hidden(tell: Callable[[str, dict[str, Any]], None]) -> None:
    """Keep the variables from torch_xla, which reads them at its first tensor.

    Also those that are set later: Lightning does it for ``precision="bf16-true"``, when its trainer
    is made. Python still sees them in ``os.environ``; torch_xla asks the process.

    Args:
        tell: Told once, as "not-obeyed", if one of them is set.
    """
    said: list[str] = []

    def say(name: str) -> None:
        if not said:
            said.append(name)
            message = (
                f"{name} is not obeyed on simulated cores, where bfloat16 cannot be reduced "
                "unseen: numbers and memory are those of float32"
            )
            tell("not-obeyed", {"message": message})

    put = os.putenv

    @functools.wraps(put)
    def putenv(name: Any, value: Any) -> None:
        word = os.fsdecode(name)
        if word not in HIDDEN:
            put(name, value)
        elif os.fsdecode(value) not in _OFF:
            say(word)

    # os.environ puts each variable with it, and looks it up at every call.
    os.putenv = putenv
    found = [name for name in HIDDEN if os.environ.pop(name, "0") not in _OFF]
    if found:
        say(" and ".join(found))


def install(running: Running) -> None:
    """Put the wider reduction around torch_xla's functions, inside of the points.

    ``xm.all_reduce`` is what broadcasts, ``xm.reduce_gradients`` and ``torch.distributed`` end in.
    """
    import torch_xla.core.xla_model as xm

    for name in ("all_reduce", "reduce_scatter"):
        setattr(xm, name, _widening(getattr(xm, name), running))
        xla.originals[name] = _widening(xla.originals[name], running)


def _widening(original: Callable[..., Any], running: Running) -> Callable[..., Any]:
    """Around a reduction; its first two parameters are the kind of it and what is reduced."""
    name = original.__name__

    @functools.wraps(original)
    def reduce(*args: Any, **kwargs: Any) -> Any:
        if running.here is None:
            return original(*args, **kwargs)
        given = xla.arguments(name, args, kwargs)
        reduced = list(given)[1]
        inputs = given[reduced]
        if not any(map(_narrow, _each(inputs))):
            return original(*args, **kwargs)
        import torch

        # all_reduce has no output of its own: it changes a list of tensors in place
        output, into = given.get("output"), "output" in given
        if into:
            given["output"] = None
        if isinstance(inputs, torch.Tensor):
            given[reduced] = inputs.float()
            result = original(**given).to(inputs.dtype)
            return result if output is None else output.copy_(result)
        given[reduced] = [one.float() if _narrow(one) else one for one in inputs]
        wide = original(**given)
        results = [new.to(old.dtype) for old, new in zip(inputs, wide, strict=True)]
        if into and output is None:
            return results
        targets: Any = output if into else inputs
        with torch.no_grad():
            for target, result in zip(targets, results, strict=True):
                target.copy_(result)
        return targets

    return reduce


def _each(inputs: Any) -> list[Any]:
    return list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]


def _narrow(value: Any) -> bool:
    import torch

    return getattr(value, "dtype", None) is torch.bfloat16 and bool(value.is_xla)
