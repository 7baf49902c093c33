"""Batch normalization by shares: on N cores each normalizes its own share of the batch.

In the ways on one core a training batch is normalized in as many parts as it has shares, and the
running statistics are those of the first, as they are on the first core. So a program is not told
apart from itself for what every data-parallel training does.

XLA keeps the running variance of the batch as it is, where PyTorch multiplies it by n/(n-1) first
(torch_xla 2.9.0, seen by running): plain PyTorch does here as XLA does.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

_thread = threading.local()

#: What was made equal in this process, by name, for the report.
used: set[str] = set()


def install(shares: int, *, on_host: bool) -> None:
    """Divide batch normalization into that many shares; ``on_host`` in plain PyTorch."""
    from torch.nn import functional

    original = functional.batch_norm

    @functools.wraps(original)
    def batch_norm(
        input: Any,  # noqa: A002  (torch's name)
        running_mean: Any,
        running_var: Any,
        weight: Any = None,
        bias: Any = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Any:
        import torch

        # Under a mode of torch's functions the original comes back here with a part.
        inside = getattr(_thread, "inside", False)
        if not training or inside or input.size(0) % shares:
            return original(input, running_mean, running_var, weight, bias, training, momentum, eps)
        if shares > 1:
            used.add("batch normalization")
        made = []
        before = running_var.clone() if on_host and running_var is not None else None
        _thread.inside = True
        try:
            for at, part in enumerate(input.chunk(shares)):
                means, variances = (running_mean, running_var) if not at else (None, None)
                made.append(original(part, means, variances, weight, bias, True, momentum, eps))
        finally:
            _thread.inside = False
        if before is not None:
            used.add("running variance")
            count = input.numel() // input.size(1) // shares
            kept = before * (1 - momentum)
            # As .data: autograd has kept the tensor, but not for its values.
            running_var.data.copy_(kept + (running_var - kept) * ((count - 1) / count))
        return made[0] if shares == 1 else torch.cat(made)

    functional.batch_norm = batch_norm
