"""Runs idioms on XLA tensors and says what they did: one JSON line each. Needs torch_xla.

Started as a script by the Python that has torch_xla, with the idioms as JSON on standard input;
imports nothing of ours, so that this Python needs nothing of ours. Each idiom runs in a forked
child: its compile cache is empty, and a crash is its own. A step puts fresh inputs on the device
and waits for them, runs the code, then uses its result and syncs; counters are read between. Two
rounds: with the same values in each step, and with other values and Python scalars (``i``, ``k``,
``f``) in each step. The first two steps of a round count as warm-up. The table of idioms
(``rules/tables/idioms.toml``) lists the names that the code can use.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

WARM = 2
CONSTANT = 3
VARYING = 5
_LIMIT_SECONDS = 90
_READ = "aten::_local_scalar_dense"


def main() -> int:
    """Measure the idioms that come on standard input."""
    import torch
    import torch_xla

    emit(
        {
            "versions": {
                "torch": _release(torch.__version__),
                "torch_xla": _release(torch_xla.__version__),
            }
        }
    )
    for idiom in json.loads(sys.stdin.read()):
        emit({"name": idiom["name"], "group": idiom["group"], **_in_child(idiom)})
    return 0


def _release(version: str) -> str:
    """Without the local part, which names the build."""
    return version.partition("+")[0]


def emit(row: dict[str, Any]) -> None:
    """Write one line for the parent."""
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def _in_child(idiom: Mapping[str, str]) -> dict[str, Any]:
    """Measure one idiom in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        try:
            row = measure(idiom)
        except BaseException as error:  # noqa: BLE001  (whatever it raises is its result)
            row = {"error": _one_line(error)}
        with os.fdopen(writer, "w") as stream:
            json.dump(row, stream)
        os._exit(0)
    os.close(writer)
    return _wait(child, reader)


def _wait(child: int, reader: int) -> dict[str, Any]:
    deadline = time.monotonic() + _LIMIT_SECONDS
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reader)
            return {"error": f"did not end within {_LIMIT_SECONDS} s"}
        time.sleep(0.01)
    with os.fdopen(reader) as stream:
        text = stream.read()
    if not text:
        number = os.waitstatus_to_exitcode(status)
        return {"error": f"ended its process (code {number})"}
    row = json.loads(text)
    assert isinstance(row, dict)
    return row


def _one_line(error: BaseException) -> str:
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:100].rstrip()


def measure(idiom: Mapping[str, str]) -> dict[str, Any]:
    """Run an idiom and sum up what its steady steps did.

    Returns:
        The keys of a ``measured`` row of ``ops.toml``.
    """
    import torch

    torch.manual_seed(0)
    runner = _Runner(idiom)
    constant = [runner.step(0) for _ in range(WARM + CONSTANT)][WARM:]
    varying = [runner.step(1 + n) for n in range(WARM + VARYING)][WARM:]
    reads = sum(step["reads"] for step in constant) / CONSTANT
    return {
        "sync": any(step["reads"] > 0 for step in constant),
        "cut": any(step["launches"] > 0 for step in constant),
        "reads": round(reads, 2),
        "fallback": sorted({name for step in constant for name in step["fallback"]}),
        "constant": sum(step["compiled"] for step in constant),
        "varying": sum(step["compiled"] for step in varying),
    }


class _Counters:
    """What torch_xla counted so far."""

    def __init__(self) -> None:
        import torch_xla.debug.metrics as met

        names = met.counter_names()
        self.fallback = {
            name: met.counter_value(name)
            for name in names
            if name.startswith("aten::") and name != _READ
        }
        self.scalars = met.counter_value(_READ) or 0
        self.compiled = met.counter_value("UncachedCompile") or 0
        # Not the samples of ExecuteTime: they are counted when the device is done, on a thread of
        # its own, and that can be after a sync that waited has returned.
        self.launched = self.compiled + (met.counter_value("CachedCompile") or 0)
        self.read = _samples(met, "TransferFromDeviceTime")


def _samples(met: Any, name: str) -> int:
    data = met.metric_data(name)
    return int(data[0]) if data else 0


class _Runner:
    """Runs the steps of one idiom."""

    def __init__(self, idiom: Mapping[str, str]) -> None:
        self._idiom = idiom
        self._names = _namespace()
        if idiom["group"] == "loop":
            _training(self._names)
        if idiom["setup"] and idiom["group"] != "module":
            exec(idiom["setup"], self._names)  # noqa: S102  (our own table)
        if idiom["group"] == "module":
            made = eval(idiom["setup"], self._names)  # noqa: S307
            self._names["module"] = made.to(self._names["dev"])
        text = f"({idiom['code']},)" if idiom["group"] == "module" else idiom["code"]
        try:
            self._code, self._is_value = compile(text, "<idiom>", "eval"), True
        except SyntaxError:
            self._code, self._is_value = compile(text, "<idiom>", "exec"), False

    def step(self, number: int) -> dict[str, Any]:
        """One step with the values of a number; what the counters say of it."""
        import torch_xla

        names = self._names
        names.update(_inputs(number, names["dev"]))
        names.update(i=number, k=2 + number % 5, f=0.3 + 0.137 * number, r=None)
        torch_xla.sync(wait=True)
        before = _Counters()
        result = self._run()
        inside = _Counters()
        kept = [tensor.float() * 2.5 + 1.25 for tensor in _tensors((result, names["r"]))]
        kept += [tensor * 1.5 for tensor in _tensors(names["x"])]
        torch_xla.sync(wait=True)
        after = _Counters()
        reads = max(inside.read - before.read, inside.scalars - before.scalars)
        return {
            "reads": reads,
            "launches": inside.launched - before.launched,
            "compiled": after.compiled - before.compiled,
            "fallback": [
                name
                for name, count in after.fallback.items()
                if count > before.fallback.get(name, 0)
            ],
        }

    def _run(self) -> Any:
        if self._idiom["group"] == "module":
            return self._module(eval(self._code, self._names))  # noqa: S307
        if self._is_value:
            return eval(self._code, self._names)  # noqa: S307
        with contextlib.redirect_stdout(io.StringIO()):
            exec(self._code, self._names)  # noqa: S102
        return None

    def _module(self, arguments: tuple[Any, ...]) -> Any:
        """Forward and backward of a module, gradients of inputs and parameters as the result."""
        given = [
            item.detach().requires_grad_()
            if hasattr(item, "is_floating_point") and item.is_floating_point()
            else item
            for item in arguments
        ]
        module = self._names["module"]
        total = sum(t.float().sum() for t in _tensors(module(*given)) if t.requires_grad)
        total.backward()
        leaves = [*module.parameters(), *(t for t in _tensors(given) if t.requires_grad)]
        gradients = [leaf.grad for leaf in leaves if leaf.grad is not None]
        for leaf in leaves:
            leaf.grad = None
        return gradients


def _tensors(value: Any) -> list[Any]:
    """The XLA tensors in a result."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.device.type != "xla" or value.is_sparse:
            return []
        return [value.abs() if value.is_complex() else value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def _namespace() -> dict[str, Any]:
    """The modules that the code can use."""
    import copy
    import gc
    import logging
    import math
    import pickle
    import random
    import warnings

    import numpy as np
    import torch
    import torch.nn.functional as F  # noqa: N812
    import torch_xla
    import torch_xla.amp.syncfree
    import torch_xla.core.xla_model as xm
    import torch_xla.debug.metrics as met
    from torch import nn

    warnings.simplefilter("ignore")
    return {
        "copy": copy, "gc": gc, "io": io, "logging": logging, "math": math, "pickle": pickle,
        "random": random, "time": time, "warnings": warnings, "np": np, "torch": torch, "F": F,
        "nn": nn, "torch_xla": torch_xla, "xm": xm, "met": met, "dev": torch_xla.device(),
    }  # fmt: skip


def _inputs(number: int, device: Any) -> dict[str, Any]:
    """Inputs of a step: other values for another number, the same for the same."""
    import torch

    made = torch.Generator().manual_seed(1000 + number)

    def normal(*shape: int) -> Any:
        return torch.randn(shape, generator=made)

    def whole(low: int, high: int, *shape: int) -> Any:
        return torch.randint(low, high, shape, generator=made)

    square = normal(4, 4)
    tensors = {
        "x": normal(8, 16),
        "y": normal(8, 16),
        "v": normal(32),
        "p": normal(8, 16).abs() + 0.1,
        "b": normal(8, 16) > 0,
        "b1": normal(8) > 0,
        "l": whole(0, 10, 8),
        "li": whole(0, 8, 5),
        "cnt": whole(1, 4, 8),
        "img": normal(2, 3, 16, 16),
        "sig": normal(2, 3, 32),
        "vol": normal(1, 2, 6, 6, 6),
        "logits": normal(8, 10),
        "sq": square,
        "spd": square @ square.T + 4 * torch.eye(4),
        "s": normal(),
        "n": torch.tensor(2 + number % 5),
        "seq": normal(2, 6, 8),
        "c": torch.complex(normal(4, 4), normal(4, 4)),
    }
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def _training(names: dict[str, Any]) -> None:
    """A small model with its optimizer, and functions that make one step."""
    import torch
    from torch import nn

    layers = [nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 10)]
    model = nn.Sequential(*layers).to(names["dev"])
    parameters = list(model.parameters())

    def loss_of(*, backward: bool = False, zero: bool = True) -> Any:
        if zero:
            model.zero_grad()
        loss = nn.functional.cross_entropy(model(names["x"]), names["l"])
        if backward:
            loss.backward()
        return loss

    def train(*, zero: bool = True) -> Any:
        loss = loss_of(backward=True, zero=zero)
        names["opt"].step()
        return loss

    optimizer = torch.optim.SGD(parameters, lr=0.1)
    names.update(model=model, params=parameters, opt=optimizer, loss_of=loss_of, train=train)


if __name__ == "__main__":
    sys.exit(main())
