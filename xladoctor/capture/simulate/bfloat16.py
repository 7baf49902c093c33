"""Reductions of bfloat16, which XLA's CPU client does not have (torch_xla 2.9.0).

It raises on some cores and leaves the others in the collective, often with memory destroyed
("corrupted size vs. prev_size"). So a bfloat16 tensor is reduced as float32 and rounded once: as
exact as a TPU's sum, or better. What makes a bfloat16 of every float32 behind the program's back
is not obeyed (see ``variables``).
"""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import TYPE_CHECKING, Any

from ..agent import xla

if TYPE_CHECKING:
    from collections.abc import Callable

    from .running import Running

#: Reductions of ``torch.distributed._functional_collectives``.
_FUNCTIONAL = (
    "all_reduce",
    "all_reduce_coalesced",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_autograd",
    "reduce_scatter_tensor_coalesced",
)


def install(running: Running) -> None:
    """Put the wider reduction around torch_xla's functions, inside of the points.

    ``xm.all_reduce`` is what broadcasts, ``xm.reduce_gradients`` and ``torch.distributed`` end in.
    """
    import torch_xla.core.xla_model as xm

    for name in ("all_reduce", "reduce_scatter"):
        setattr(xm, name, _widening(getattr(xm, name), running))
        xla.originals[name] = _widening(xla.originals[name], running)
    functional: Any = importlib.import_module("torch.distributed._functional_collectives")
    for name in _FUNCTIONAL:
        if hasattr(functional, name):
            setattr(functional, name, _widening_first(getattr(functional, name)))


def _widening_first(original: Callable[..., Any]) -> Callable[..., Any]:
    """Around a functional reduction, whose first parameter is a tensor or a list of tensors."""
    first = next(iter(inspect.signature(original).parameters))

    @functools.wraps(original)
    def reduce(*args: Any, **kwargs: Any) -> Any:
        reduced: Any = args[0] if args else kwargs.get(first)
        if _compiling() or not any(map(_narrow, _each(reduced))):
            return original(*args, **kwargs)
        args = args[1:]
        kwargs.pop(first, None)
        if not isinstance(reduced, (list, tuple)):
            return original(reduced.float(), *args, **kwargs).to(reduced.dtype)
        wide = original([one.float() if _narrow(one) else one for one in reduced], *args, **kwargs)
        return [new.to(old.dtype) for old, new in zip(reduced, wide, strict=True)]

    return reduce


def _widening(original: Callable[..., Any], running: Running) -> Callable[..., Any]:
    """Around a reduction; its first two parameters are the kind of it and what is reduced."""
    name = original.__name__

    @functools.wraps(original)
    def reduce(*args: Any, **kwargs: Any) -> Any:
        if _compiling() or running.here is None:
            return original(*args, **kwargs)  # ``compiled`` widens what dynamo traces
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


def _compiling() -> bool:
    import torch

    return bool(torch.compiler.is_compiling())


def _each(inputs: Any) -> list[Any]:
    return list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]


def _narrow(value: Any) -> bool:
    import torch

    return getattr(value, "dtype", None) is torch.bfloat16 and bool(value.is_xla)
