"""Evaluates expressions on the CPU and on an XLA device: one JSON line each. Needs torch_xla.

Started as a script by the Python that has torch_xla, with the expressions as a JSON list on
standard input; imports nothing of ours, as ``worker`` does. What the expressions can use is said in
``rules/tables/differences.toml``.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

#: Digits behind the point that are compared: two devices round each in their own way.
_DIGITS = 4


def main() -> int:
    """Evaluate what comes on standard input."""
    import torch
    import torch_xla

    warnings.simplefilter("ignore")
    versions = {"torch": torch.__version__, "torch_xla": torch_xla.__version__}
    _emit({"versions": {name: text.partition("+")[0] for name, text in versions.items()}})
    device = torch_xla.device()
    for code in json.loads(sys.stdin.read()):
        _emit({"name": code, "cpu": _result(code, "cpu"), "xla": _result(code, device)})
    return 0


def _emit(row: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def _result(code: str, device: Any) -> str:
    """What an expression gives on a device, as text."""
    import torch
    from torch.nn import functional

    def tensor(data: Any, **kwargs: Any) -> Any:
        return torch.tensor(data, device=device, **kwargs)

    def gradient(function: Callable[[Any], Any], given: Any) -> Any:
        given = given.clone().requires_grad_()
        function(given).backward()
        return given.grad

    names = {
        "T": tensor, "G": gradient, "F": functional, "torch": torch, "dev": device,
        "nan": math.nan, "inf": math.inf,
    }  # fmt: skip
    try:
        return _shown(eval(code, names))  # noqa: S307  (our own table)
    except Exception as error:  # noqa: BLE001  (whatever it raises is its result)
        return f"raises {type(error).__name__}"


def _shown(value: Any) -> str:
    import torch

    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        if value.is_floating_point():
            scale = 10.0**_DIGITS
            value = value.double().mul(scale).round().div(scale)
        return str(value.tolist())
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_shown, value))})"
    return str(value)


if __name__ == "__main__":
    sys.exit(main())
