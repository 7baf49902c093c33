"""Collectives between cores of several processes.

On one process XLA's CPU client lets its devices meet in a collective; between processes torch_xla's
client knows of none (2.9.0, ``pjrt_registry.cpp``: ``GetPjRtCpuClient`` with a number of devices
and nothing else). So a collective is an operation of the graph that calls back
(``callbacks``): the cores of this process bring their values, the last to come exchanges with the
other processes (``link``), and each gets its result. The graph of a step stays whole, and so do its
counts; what differs is the operation's name.

The operation keeps a thread of XLA while it waits. So that never all of them wait, collective n of
a graph takes the result of collective n - 16 as one more operand, which it does not look at: no
more than those wait at once.

Sums go over the cores of a process in the order of their numbers, then over the processes in
theirs: the result is the same to the last bit on all cores.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import importlib
import threading
import time
import zlib
from typing import TYPE_CHECKING, Any

from ..agent import tensors as device_tensors
from ..agent import xla
from . import callbacks, transport
from .transport import Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .cores import Core
    from .hosts import Share
    from .pod import Pod
    from .running import Running

#: Threads of XLA that may wait in collectives; its pool has more (see ``hosts.POOL``).
_WAITING = 128
#: Seconds between two looks whether the run is over, and for calls to end then.
_POLL, _PATIENCE = 0.1, 3.0

#: What cannot be carried out between processes.
_REFUSED = (
    "{what} cannot run on the simulated cores of several processes: call xm.all_reduce and its "
    "like or torch.distributed, or simulate all cores in one process"
)


@dataclasses.dataclass(slots=True)
class _Slot:
    """One collective in one execution, on the cores of this process."""

    inputs: dict[int, list[Any]] = dataclasses.field(default_factory=dict)
    outputs: dict[int, list[Any]] = dataclasses.field(default_factory=dict)
    done: threading.Event = dataclasses.field(default_factory=threading.Event)
    abandoned: bool = False


class Crossing:
    """Carries collectives out between the cores of all processes.

    Args:
        running: The cores that run.
        share: Which of all cores those of this process are.

    Raises:
        callbacks.NotPossibleError: This build of torch_xla takes no functions.
    """

    def __init__(self, running: Running, share: Share) -> None:
        self._running = running
        self._share = share
        self._callbacks = callbacks.Callbacks()
        self._window = max(1, min(16, _WAITING // share.cores))
        self._lock = threading.Lock()
        self._slots: dict[tuple[str, int], _Slot] = {}
        self._counts: dict[tuple[str, int], int] = {}
        self._specs: dict[str, Spec] = {}
        self._inside = 0  # calls that run now

    def install(self) -> None:
        """Put it in the place of torch_xla's bindings."""
        xlac = importlib.import_module("torch_xla")._XLAC
        for name, make in _BINDINGS.items():
            original = getattr(xlac, name, None)
            if original is not None:
                setattr(xlac, name, make(self, original))

    def refuse(self, call: str) -> None:
        """Stop what cannot run here.

        Args:
            call: "functional.all_reduce".

        Raises:
            RuntimeError: It is a functional collective.
        """
        if call.startswith("functional."):
            name = call.removeprefix("functional.")
            what = f"torch.distributed._functional_collectives.{name}"
            raise RuntimeError("xladoctor: " + _REFUSED.format(what=what))

    def collective(self, call: str, given: dict[str, Any], proceed: Callable[[], Any]) -> Any:
        """Around COLLECTIVE: what would not come to the bindings.

        Args:
            call: "all_gather".
            given: The arguments, by torch_xla's names.
            proceed: torch_xla's own.
        """
        import torch

        xlac = importlib.import_module("torch_xla")._XLAC
        if call == "all_reduce" and isinstance(given["inputs"], torch.Tensor):
            groups = given["groups"] or []
            return xlac._xla_all_reduce(
                given["reduce_type"], given["inputs"], given["scale"], groups, True
            )
        if call == "all_gather" and isinstance(given["value"], torch.Tensor):
            value, dim, groups = given["value"], given["dim"], given["groups"] or []
            gathered = xlac._xla_all_gather(value, dim, 0, groups, True)
            output = given["output"]
            return gathered if output is None else output.copy_(gathered)
        return proceed()

    def core_of(self, tensor: Any) -> Core | None:
        """The core whose graph a tensor belongs to."""
        return self._running.core(xla.core_of_device(tensor.device))

    def put(self, core: Core, spec: Spec, values: Sequence[Any]) -> list[Any]:
        """Put a collective into a core's pending graph.

        Returns:
            Its results, as many as values.
        """
        with device_tensors.unseen():
            if core.mark is None:
                import torch

                # Of one element: of a scalar 0 or 1 torch_xla makes a constant of the graph.
                number = torch.tensor([core.number], dtype=torch.int32)
                core.mark = number.to(values[0].device)
        at = len(core.crossed)
        before = [core.crossed[at - self._window]] if at >= self._window else []
        name = self._name(spec, at, len(before))
        with self._lock:
            if name not in self._callbacks:
                self._specs[name] = spec

                def called(inputs: list[int], outputs: list[int]) -> None:
                    self._called(name, inputs, outputs)

                self._callbacks.add(name, 1 + len(values), len(values), called)
        shapes = [spec.result(value.shape) for value in values]
        dtypes = [value.dtype for value in values]
        results = callbacks.put([core.mark, *values, *before], name, shapes, dtypes)
        core.crossed.append(results[0])
        return results

    def _name(self, spec: Spec, at: int, chained: int) -> str:
        words = hashlib.sha256(repr((spec, chained)).encode()).hexdigest()[:16]
        return f"xladoctor.{spec.kind}.{at}.{words}"

    # -- while a graph runs, in threads of XLA --------------------------------------------
    def drain(self) -> None:
        """Wait for the calls that still run, for a short time.

        The cores have ended. A thread of XLA that wants Python when that ends would end the
        process with SIGABRT.
        """
        began = time.monotonic()
        while self._inside and time.monotonic() - began < _PATIENCE:
            time.sleep(_POLL)

    def _called(self, name: str, inputs: list[int], outputs: list[int]) -> None:
        group: Pod | None = None
        with self._lock:
            self._inside += 1
        try:
            spec = self._specs[name]
            number = ctypes.c_int32.from_address(inputs[0]).value
            group = self._running.pod
            given = [
                _view(address, shape, dtype)
                for address, (shape, dtype) in zip(inputs[1:], spec.inputs, strict=False)
            ]
            taken = [
                _view(address, spec.result(shape), dtype)
                for address, (shape, dtype) in zip(outputs, spec.inputs, strict=True)
            ]
            for one in taken:
                one.zero_()  # what the core gets if the run ends here
            if group is not None:
                self._meet(group, name, spec, number, given, taken)
        except BaseException as error:
            if group is not None:
                group.give_up(error)
        finally:
            with self._lock:
                self._inside -= 1

    def _meet(
        self,
        group: Pod,
        name: str,
        spec: Spec,
        number: int,
        given: list[Any],
        taken: list[Any],
    ) -> None:
        with self._lock:
            turn = self._counts.get((name, number), 0)
            self._counts[name, number] = turn + 1
            slot = self._slots.setdefault((name, turn), _Slot())
            slot.inputs[number], slot.outputs[number] = given, taken
            last = len(slot.inputs) == self._share.cores
            if last:
                del self._slots[name, turn]
        if last:
            self._carry_out(group, f"{name}/{turn}", spec, slot)
        while not slot.done.wait(_POLL):
            if group.failure is not None:
                with self._lock:
                    slot.abandoned = True
                return

    def _carry_out(self, group: Pod, key: str, spec: Spec, slot: _Slot) -> None:
        """Exchange with the other processes, and give each core of this one its result."""
        try:
            tag = zlib.crc32(key.encode()) & 0x7FFFFFFF
            results = transport.carry_out(spec, slot.inputs, self._share, group.link, tag)
            with self._lock:
                if not slot.abandoned:  # else their memory may be gone
                    for number, taken in slot.outputs.items():
                        for into, result in zip(taken, results[number], strict=True):
                            into.copy_(result)
        finally:
            slot.done.set()


def _view(address: int, shape: Sequence[int], dtype: Any) -> Any:
    """Memory of XLA as a tensor."""
    import torch

    size = torch.Size(shape).numel() * dtype.itemsize
    if not size:
        return torch.empty(tuple(shape), dtype=dtype)
    memory = (ctypes.c_char * size).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).reshape(tuple(shape))


# -- torch_xla's bindings ---------------------------------------------------------------------
def _inputs(values: Sequence[Any]) -> tuple[tuple[tuple[int, ...], Any], ...]:
    return tuple((tuple(value.shape), value.dtype) for value in values)


def _results(given: Sequence[Any], results: Sequence[Any], scale: float = 1.0) -> list[Any]:
    """Results as torch_xla's bindings give them: leaves, which ask for gradients as the values did.

    Args:
        given: The values.
        results: Of the collective.
        scale: What they are multiplied with.
    """
    scaled = [one if scale == 1.0 else one * scale for one in results]
    for value, result in zip(given, scaled, strict=True):
        if value.requires_grad:
            result.requires_grad_()
    return scaled


def _all_reduced(
    crossing: Crossing, core: Core, given: Sequence[Any], what: Sequence[Any]
) -> list[Any]:
    kind, scale, groups = what
    spec = Spec("all_reduce", _inputs(given), groups=_groups(crossing, groups), reduce=kind)
    return _results(given, crossing.put(core, spec, given), scale)


def _groups(crossing: Crossing, groups: Any) -> tuple[tuple[int, ...], ...]:
    if groups:
        return tuple(tuple(int(one) for one in group) for group in groups)
    return (tuple(range(crossing._share.world)),)


def _all_reduce(crossing: Crossing, original: Any) -> Any:
    def all_reduce(kind: str, value: Any, scale: float, groups: Any, pinned: bool) -> Any:
        core = crossing.core_of(value)
        if core is None:
            return original(kind, value, scale, groups, pinned)
        return _all_reduced(crossing, core, [value], (kind, scale, groups))[0]

    return all_reduce


def _all_reduce_inplace(crossing: Crossing, original: Any) -> Any:
    def all_reduce(kind: str, values: Any, scale: float, groups: Any, pinned: bool) -> Any:
        core = crossing.core_of(values[0])
        if core is None:
            return original(kind, values, scale, groups, pinned)
        results = _all_reduced(crossing, core, list(values), (kind, scale, groups))
        _replace(values, results)
        return None

    return all_reduce


def _replace(values: Sequence[Any], results: Sequence[Any]) -> None:
    """Change tensors in place as torch_xla's collectives do: all that share one, and no views.

    ``copy_`` would reach views too (torch_xla 2.9.0, seen by running).
    """
    import torch

    with torch.no_grad():
        for value, result in zip(values, results, strict=True):
            torch._copy_from(result, value)


def _all_gather(crossing: Crossing, original: Any) -> Any:
    def all_gather(value: Any, dim: int, shards: int, groups: Any, *rest: Any) -> Any:
        core = crossing.core_of(value)
        if core is None:
            return original(value, dim, shards, groups, *rest)
        return _gathered(crossing, core, [value], dim, groups)[0]

    return all_gather


def _gathered(
    crossing: Crossing, core: Core, values: Sequence[Any], dim: int, groups: Any
) -> list[Any]:
    found = _groups(crossing, groups)
    if not any(core.number in group for group in found):
        raise ValueError(f"core {core.number} is in none of the groups {groups}")
    spec = Spec("all_gather", _inputs(values), groups=found, dim=dim, shards=len(found[0]))
    return _results(values, crossing.put(core, spec, values))


def _all_gather_out(crossing: Crossing, original: Any) -> Any:
    def all_gather(output: Any, value: Any, token: Any, dim: int, shards: int, *rest: Any) -> Any:
        core = crossing.core_of(value)
        if core is None:
            return original(output, value, token, dim, shards, *rest)
        _replace([output], _gathered(crossing, core, [value], dim, rest[0]))
        return token

    return all_gather


def _all_gather_coalesced(crossing: Crossing, original: Any) -> Any:
    def all_gather(values: Any, token: Any, dim: int, shards: int, *rest: Any) -> Any:
        core = crossing.core_of(values[0])
        if core is None:
            return original(values, token, dim, shards, *rest)
        return [*_gathered(crossing, core, list(values), dim, rest[0]), token]

    return all_gather


def _all_gather_coalesced_out(crossing: Crossing, original: Any) -> Any:
    def all_gather(outputs: Any, values: Any, token: Any, dim: int, *rest: Any) -> Any:
        core = crossing.core_of(values[0])
        if core is None:
            return original(outputs, values, token, dim, *rest)
        _replace(outputs, _gathered(crossing, core, list(values), dim, rest[1]))
        return token

    return all_gather


def _scattered(
    crossing: Crossing, core: Core, values: Sequence[Any], what: Sequence[Any]
) -> list[Any]:
    kind, scale, dim, shards, groups = what
    found = _groups(crossing, groups)
    spec = Spec(
        "reduce_scatter", _inputs(values), groups=found, reduce=kind, dim=dim, shards=shards
    )
    return _results(values, crossing.put(core, spec, values), scale)


def _reduce_scatter(crossing: Crossing, original: Any) -> Any:
    def reduce_scatter(kind: str, value: Any, token: Any, *rest: Any) -> Any:
        core = crossing.core_of(value)
        if core is None:
            return original(kind, value, token, *rest)
        return _scattered(crossing, core, [value], (kind, *rest[:4]))[0], token

    return reduce_scatter


def _reduce_scatter_out(crossing: Crossing, original: Any) -> Any:
    def reduce_scatter(kind: str, output: Any, value: Any, token: Any, *rest: Any) -> Any:
        core = crossing.core_of(value)
        if core is None:
            return original(kind, output, value, token, *rest)
        _replace([output], _scattered(crossing, core, [value], (kind, *rest[:4])))
        return token

    return reduce_scatter


def _reduce_scatter_coalesced(crossing: Crossing, original: Any) -> Any:
    def reduce_scatter(kind: str, values: Any, token: Any, *rest: Any) -> Any:
        core = crossing.core_of(values[0])
        if core is None:
            return original(kind, values, token, *rest)
        return [*_scattered(crossing, core, list(values), (kind, *rest[:4])), token]

    return reduce_scatter


def _reduce_scatter_coalesced_out(crossing: Crossing, original: Any) -> Any:
    def reduce_scatter(kind: str, outputs: Any, values: Any, token: Any, *rest: Any) -> Any:
        core = crossing.core_of(values[0])
        if core is None:
            return original(kind, outputs, values, token, *rest)
        _replace(outputs, _scattered(crossing, core, list(values), (kind, *rest[:4])))
        return token

    return reduce_scatter


def _all_to_all(crossing: Crossing, original: Any) -> Any:
    def all_to_all(
        value: Any, token: Any, split: int, concat: int, count: int, groups: Any, pinned: bool
    ) -> Any:
        core = crossing.core_of(value)
        if core is None:
            return original(value, token, split, concat, count, groups, pinned)
        spec = Spec(
            "all_to_all",
            _inputs([value]),
            groups=_groups(crossing, groups),
            dim=split,
            into=concat,
            shards=count,
        )
        return _results([value], crossing.put(core, spec, [value]))[0], token

    return all_to_all


def _collective_permute(crossing: Crossing, original: Any) -> Any:
    def collective_permute(value: Any, token: Any, pairs: Any) -> Any:
        core = crossing.core_of(value)
        if core is None:
            return original(value, token, pairs)
        routes = tuple((int(source), int(target)) for source, target in pairs)
        spec = Spec("collective_permute", _inputs([value]), pairs=routes)
        return _results([value], crossing.put(core, spec, [value]))[0], token

    return collective_permute


_BINDINGS: dict[str, Callable[[Crossing, Any], Any]] = {
    "_xla_all_reduce": _all_reduce,
    "_xla_all_reduce_inplace": _all_reduce_inplace,
    "_xla_all_gather": _all_gather,
    "_xla_all_gather_out": _all_gather_out,
    "_xla_all_gather_coalesced": _all_gather_coalesced,
    "_xla_all_gather_coalesced_out": _all_gather_coalesced_out,
    "_xla_reduce_scatter": _reduce_scatter,
    "_xla_reduce_scatter_out": _reduce_scatter_out,
    "_xla_reduce_scatter_coalesced": _reduce_scatter_coalesced,
    "_xla_reduce_scatter_coalesced_out": _reduce_scatter_coalesced_out,
    "_xla_all_to_all": _all_to_all,
    "_xla_collective_permute": _collective_permute,
}
