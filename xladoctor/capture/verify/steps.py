"""What each optimizer step has made of the model, written as sketches; and the end of the program.

Nothing here ends a graph: gradients and losses are kept as copies that are computed with the
step's own graph, and all is read when that has been launched. A program under the simulation builds
the graphs that it would build anyway.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from ..agent import optimizers, xla
from ..agent.points import CORE, LAUNCH, SIMULATE
from ..simulate.places import user_frame
from . import norms, parts, state
from .sketches import hashed, packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..agent.points import Call, Points
    from ..simulate.running import Running
    from .settings import Settings

#: How long (seconds) a core that has made its steps waits for the others.
PATIENCE = 120.0
#: Settings of an optimizer that are carried over from the cores' way.
_HYPER = (int, float)


class Steps:
    """The steps of all cores of this process.

    Args:
        settings: Of this way.
        close: Called before the process is ended.

    Attributes:
        running: The simulated cores; None where there are none.
    """

    def __init__(self, settings: Settings, close: Callable[[], None]) -> None:
        self._settings = settings
        self._close = close
        self.running: Running | None = None
        self._lock = threading.Condition()
        self._done: set[int] = set()
        self._names: dict[int, str] = {}
        self._hyper: dict[int, list[dict[str, Any]]] | None = None

    def install(self, points: Points) -> None:
        """Begin."""
        import torch
        from torch.nn.modules.module import (
            register_module_forward_hook,
            register_module_forward_pre_hook,
        )

        optimizers.before_step(self._before)
        optimizers.after_step(self._after)
        register_module_forward_pre_hook(self._enter_module)
        register_module_forward_hook(self._leave_module, always_call=True)
        # After the program's own work, before torch_xla takes its runtime down.
        atexit.register(self._at_exit)
        points.around(LAUNCH, SIMULATE, self._launch, "verify")
        points.around(CORE, SIMULATE, self._core, "verify")
        _wrap(torch.Tensor, "backward", self._backward)
        _wrap(torch.optim.Optimizer, "__init__", _trains)

    # -- what the program does -------------------------------------------------------------------
    def _core(self, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around CORE."""
        import torch

        core = state.main.begun(call.core or 0)
        state.enter(core)
        # Checkpointed blocks run again in the core's own thread, where their draws are known.
        torch.autograd.set_multithreading_enabled(False)
        if self._settings.on_host:
            from . import host

            host.enter()
        try:
            result = proceed()
            self._read(core)
            return result
        finally:
            self._write(core, self._last_row(core, "end"))
            state.enter(None)

    def _at_exit(self) -> None:
        """A program without cores of its own has ended; what it left pending is computed now."""
        self._read(state.main)
        if state.main.notes:
            self._write(state.main, self._last_row(state.main, "end"))

    def _backward(self, original: Any) -> Any:
        def backward(loss: Any, *args: Any, **kwargs: Any) -> Any:
            core = state.current()
            if core.notes.get("in backward"):  # torch comes back here under a mode of its own
                return original(loss, *args, **kwargs)
            core.depth = 0
            kept = core.notes.setdefault("losses", [])
            core.notes["backward"] = user_frame(threading.get_ident())
            if loss.numel() == 1 and len(kept) < 64:
                kept.append(_copy(loss))
            core.notes["in backward"] = True
            try:
                return original(loss, *args, **kwargs)
            finally:
                core.notes["in backward"] = False

        return backward

    def _enter_module(self, module: Any, args: Any) -> None:  # noqa: ARG002
        import torch

        core = state.current()
        core.depth += 1
        again = core.notes.get("in backward")  # a checkpointed block
        if core.depth == 1 and torch.is_grad_enabled() and not again:
            # Where a framework makes the backward pass and the step, this is the user's line.
            core.notes["forward"] = user_frame(threading.get_ident())
            roots = core.notes.setdefault("roots", {})
            if id(module) not in roots:
                roots[id(module)] = module
                if self._settings.rounding:
                    self._round(core, list(module.parameters()))

    def _leave_module(self, module: Any, args: Any, output: Any) -> None:  # noqa: ARG002
        core = state.current()
        core.depth = max(0, core.depth - 1)
        dtype = getattr(output, "dtype", None)
        if dtype is None or not dtype.is_floating_point:
            return
        core.notes["addends"] = max(core.notes.get("addends", 0), output.numel())
        if dtype.itemsize < 4:
            core.notes["narrow"] = str(dtype).removeprefix("torch.")

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        core = state.current()
        parameters = parts.compared(core, optimizer)
        if not core.trains or not any(group["params"] for group in optimizer.param_groups):
            return
        with _never_raising(core):
            number = core.notes.setdefault("steps", 0) + 1
            forward = core.notes.get("forward")
            pending = {
                "optimizer": optimizer,
                "number": number,
                "place": user_frame(threading.get_ident()) or forward,
                "backward": core.notes.get("backward") or forward,
                "losses": core.notes.pop("losses", []),
                "gradients": [_copy(one.grad) for one in parameters],
            }
            self._carry_over(optimizer, number)
            pending["hyper"] = _hyper(optimizer)
            if xla.spmd():
                norms.used.add("SPMD")
            core.notes.setdefault("pending", []).append(pending)

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        core = state.current()
        if not core.notes.get("pending"):
            return
        core.notes["steps"] = core.steps = core.notes["pending"][-1]["number"]
        core.drawn = 0
        core.notes.pop("losses", None)  # of a closure that ran more than once
        if self._settings.on_host:
            self._read(core)
        if self._settings.rounding:
            self._round(core, parts.parameters(optimizer))

    def _launch(self, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around LAUNCH: what was pending can be read."""
        result = proceed()
        core = state.current()
        pending = core.notes.get("pending")
        if call.what == "_xla_step_marker" and pending and pending[-1]["number"] == core.steps:
            if call.core is not None and call.core != core.number:
                return result
            if self._launched(core.number):
                self._read(core)
        return result

    def _launched(self, number: int) -> bool:
        """Wait until what a core has launched may be waited for; False if the run is over."""
        core = self.running.core(number) if self.running is not None else None
        return core is None or core.group.all_have_launched(core)

    def _cores(self) -> int:
        group = self.running.group if self.running is not None else None
        return 1 if group is None else group.size

    # -- rounding, hyperparameters ---------------------------------------------------------------
    def _round(self, core: state.Core, parameters: Sequence[Any]) -> None:
        """Change each weight by a relative amount that stands for rounding."""
        import torch

        size, turn = self._settings.rounding, core.steps + 104_729 * self._settings.signs
        for at, parameter in enumerate(parameters):
            if not parameter.is_floating_point():
                continue
            places = torch.arange(parameter.numel()) + 7919 * (turn + 31 * at)
            signs = (hashed(places) % 2 * 2 - 1).reshape(parameter.shape).to(parameter.dtype)
            with torch.no_grad():
                parameter.data.mul_(1 + size * signs.to(parameter.device))

    def _carry_over(self, optimizer: Any, number: int) -> None:
        """Give the optimizer the hyperparameters that it had on the cores at this step."""
        if self._settings.source is None:
            return
        if self._hyper is None:
            self._hyper = _hyper_of(self._settings.source)
        groups = self._hyper.get(number, [])
        if len(groups) != len(optimizer.param_groups):
            return
        for mine, theirs in zip(optimizer.param_groups, groups, strict=True):
            for name, value in theirs.items():
                if isinstance(mine.get(name), _HYPER) and mine[name] != value:
                    norms.used.add(f"{name} of the optimizer")
                    mine[name] = value

    # -- reading and writing ---------------------------------------------------------------------
    def _read(self, core: state.Core) -> None:
        """Write down what is pending; end the program after its last step."""
        pending = core.notes.pop("pending", [])
        if not pending:
            return
        with _never_raising(core):
            if not self._settings.on_host:
                # This core's device alone: another may wait for what this core launches next.
                devices = [] if xla.spmd() else [f"CPU:{core.number}"]
                xla.binding("_xla_wait_device_ops")(devices)
            for at, one in enumerate(pending):
                self._write(core, self._row(core, one, later=pending[at + 1 :]))
        if core.steps >= self._settings.steps:
            self._end(core)

    def _row(
        self, core: state.Core, one: dict[str, Any], *, later: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        """One step.

        ``later``: the steps behind it in the same graph, whose results buffers would be, and what
        the optimizer trains if one of them is its own.
        """
        optimizer = one["optimizer"]
        parameters = parts.compared(core, optimizer)
        names = self._named(core, parameters)
        row = {
            "e": "step",
            "number": one["number"],
            "optimizer": self._index(core, optimizer),
            "place": one["place"],
            "backward": one["backward"],
            "losses": [float(_host(loss)) for loss in one["losses"]],
            "hyper": one["hyper"],
            "names": {"gradient": names, "parameter": names},
            "dtypes": [str(part.dtype).removeprefix("torch.") for part in parameters],
            "sizes": [part.numel() for part in parameters],
            "narrow": core.notes.get("narrow"),
            "addends": core.notes.get("addends", 0),
            "gradient": packed([_host(part) for part in one["gradients"]]),
        }
        if all(other["optimizer"] is not optimizer for other in later):
            states = parts.states(optimizer, parameters, names)
            row["parameter"] = packed([_host(part) for part in parameters])
            row["state"] = packed([_host(part) for part in states.values()])
            row["names"]["state"] = list(states)
        if not later:
            buffers = parts.buffers(core)
            row["buffer"] = packed([_host(part) for part in buffers.values()])
            row["names"]["buffer"] = list(buffers)
        return row

    def _index(self, core: state.Core, optimizer: Any) -> int:
        seen: list[Any] = core.notes.setdefault("optimizers", [])
        for at, one in enumerate(seen):
            if one is optimizer:
                return at
        seen.append(optimizer)
        return len(seen) - 1

    def _named(self, core: state.Core, parameters: Sequence[Any]) -> list[str]:
        known: dict[int, str] = core.notes.setdefault("names", {})
        if any(id(one) not in known for one in parameters):
            known.update(parts.names())
        return [
            known.setdefault(id(one), f"parameter {at} of shape {list(one.shape)}")
            for at, one in enumerate(parameters)
        ]

    def _write(self, core: state.Core, row: dict[str, Any]) -> None:
        path = os.path.join(self._settings.folder, f"core-{core.number}.jsonl")
        with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def _last_row(self, core: state.Core, kind: str) -> dict[str, Any]:
        errors = core.notes.get("errors", [])
        return {"e": kind, "carried": sorted(norms.used), "errors": list(dict.fromkeys(errors))[:5]}

    def _end(self, core: state.Core) -> None:
        """End the process when all cores have made their steps."""
        self._write(core, self._last_row(core, "enough"))
        with self._lock:
            self._done.add(core.number)
            self._lock.notify_all()
            late = time.monotonic() + PATIENCE
            while len(self._done) < self._cores() and time.monotonic() < late:
                self._lock.wait(1.0)
        with contextlib.suppress(Exception):
            self._close()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(0)

    def fail(self, why: str) -> None:
        """This way cannot be run: say so and end the process."""
        self._write(state.current(), {"e": "cannot", "why": why})
        os._exit(1)


@contextlib.contextmanager
def _never_raising(core: state.Core) -> Iterator[None]:
    """What is only looked at must not end the program; what went wrong is kept for the report."""
    try:
        yield
    except Exception as error:
        core.notes.setdefault("errors", []).append(f"{type(error).__name__}: {error}")


def _wrap(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(make(original)))


def _trains(original: Any) -> Any:
    def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
        original(optimizer, *args, **kwargs)
        core = state.current()
        if not core.trains:
            core.trains, core.drawn = True, 0

    return init


def _copy(tensor: Any) -> Any:
    """A copy that a later change in place does not reach, computed with the rest of the graph.

    Of the tensor itself, as an optimizer reads it: in torch_xla 2.9.0 an alias (``detach()``) of a
    gradient that was reduced in place may still show it as it was.
    """
    import torch

    if tensor is None:
        return None
    with torch.no_grad():
        return tensor.clone()


def _host(tensor: Any) -> Any:
    """A tensor's values on the host; of a device of this machine without copying."""
    if tensor is None or not getattr(tensor, "is_xla", False):
        return tensor
    import torch

    tensor = tensor.detach()
    share = xla.binding("_to_dlpack")
    if share is not None and tensor.dtype != torch.bool and not xla.spmd():
        with contextlib.suppress(Exception):
            if "xla::device_data" in xla.binding("_get_xla_tensors_text")([tensor]):
                return torch.from_dlpack(share(tensor))
    return xla.binding("_xla_get_cpu_tensors")([tensor])[0]


def _hyper(optimizer: Any) -> list[dict[str, Any]]:
    return [
        {
            name: value
            for name, value in group.items()
            if type(value) in _HYPER and name != "initial_lr"
        }
        for group in optimizer.param_groups
    ]


def _hyper_of(folder: str) -> dict[int, list[dict[str, Any]]]:
    """The hyperparameters of the first core's steps in another way."""
    found = {}
    with contextlib.suppress(OSError, ValueError), open(f"{folder}/core-0.jsonl") as file:
        for line in file:
            row = json.loads(line)
            if row.get("e") == "step":
                found[row["number"]] = row["hyper"]
    return found
