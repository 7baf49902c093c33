"""How often optimizers read values on the host: what ``rules/tables/optimizers.toml`` is made of.

    python -m tests.accuracy.optimizers torch.optim torch_optimizer timm.optim ...

Makes each optimizer of the packages (which have to be installed) for two layers of a weight and a
bias each, with its default settings, takes three steps, and counts reads and compilations of five
more on torch_xla's CPU device. What cannot be made so is said with its error.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from typing import Any

STEPS = 5


def main(packages: list[str]) -> None:
    """Print a line for each optimizer of the packages: reads a step, compilations in five."""
    os.environ.setdefault("PJRT_DEVICE", "CPU")
    import torch

    for package in packages:
        module = importlib.import_module(package)
        for name, made in sorted(vars(module).items()):
            if not inspect.isclass(made) or not issubclass(made, torch.optim.Optimizer):
                continue
            if name != "LBFGS":  # whose closure runs many times: see tables/ops.toml
                try:
                    reads, compilations = measured(made)
                except Exception as error:  # noqa: BLE001 (any package's own)
                    print(f"{package} {name}: {error!r}"[:120], flush=True)
                else:
                    print(f"{package} {name}: {reads:g} {compilations}", flush=True)


def measured(optimizer: Any) -> tuple[float, int]:
    """Reads a step and compilations in all steps of a class of optimizers."""
    import torch
    import torch_xla

    device = torch_xla.device()
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).to(device)
    needed = inspect.signature(optimizer).parameters.get("lr")
    given = {"lr": 1e-3} if needed is not None and needed.default is inspect.Parameter.empty else {}
    made = optimizer(net.parameters(), **given)
    if hasattr(made, "train"):  # those without a schedule have two sets of weights
        made.train()
    batch = torch.randn(4, 8, device=device)
    torch_xla.sync()

    before = (0, 0)
    for step in range(3 + STEPS):
        before = counts() if step == 3 else before
        made.zero_grad()
        net(batch).pow(2).mean().backward()
        made.step()
        torch_xla.sync()
    after = counts()
    return (after[0] - before[0]) / STEPS, after[1] - before[1]


def counts() -> tuple[int, int]:
    """Reads and compilations so far."""
    from torch_xla.debug import metrics

    compiled = metrics.metric_data("CompileTime")
    reads = metrics.counter_value("aten::_local_scalar_dense") or 0
    return reads, compiled[0] if compiled else 0


if __name__ == "__main__":
    main(sys.argv[1:])
