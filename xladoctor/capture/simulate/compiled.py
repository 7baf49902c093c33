"""``torch.compile`` with torch_xla's backend on simulated cores.

On a device every core is a process: it knows its world size as a number, and takes a graph out of a
compiled function while nobody else uses torch_xla's counters. Here (all facts: torch_xla 2.9.0):

* Graphs are taken out by one core at a time. To see what falls back to the CPU, torch_xla clears
  the counters of the process and looks which have moved; here they are compared instead. What is
  pending is run before, since for that a core may have to wait for the others.
* ``xm.all_gather`` pads by the core's ordinal, which dynamo cannot ask for where a process has
  several devices: inside of compiled functions it is XLA's all-gather, equal on all cores.
* Reductions of bfloat16 are widened in the graph (see ``bfloat16``).

That the cores meet before they run a compiled graph with a collective is for the launch scheduler.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from typing import TYPE_CHECKING, Any

from .running import acquire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .cores import Core
    from .running import Running

_thread = threading.local()

#: Dynamo's limits to what they have been raised.
_raised: dict[str, int] = {}

#: Reductions as ``torch.compile`` writes them.
_REDUCTIONS = ("all_reduce", "reduce_scatter_tensor")


def install(running: Running) -> None:
    """Let the cores compile in turns; what this torch_xla does not have is left alone."""
    try:
        bridge: Any = importlib.import_module("torch_xla._dynamo.dynamo_bridge")
        whole, one = bridge.extract_compiled_graph_helper, bridge.extract_graph_helper
        counters = _Counters(bridge.metrics)
    except (ImportError, AttributeError):
        return
    turns = threading.RLock()
    bridge.extract_compiled_graph_helper = _in_turn(running, turns, _prepared(whole))
    bridge.extract_graph_helper = _in_turn(running, turns, one)
    bridge.metrics = counters
    bridge.get_fallback_ops = counters.fallbacks
    xm: Any = importlib.import_module("torch_xla.core.xla_model")
    xm.all_gather = _traceable(xm.all_gather)


def begin(size: int, world: int) -> None:
    """The cores of this process begin: let dynamo see what it would see in each one's own process.

    That is the number of cores as a constant; and how often a function may be compiled again, of
    which the cores share one count: each of them needs code for its own device.

    Args:
        size: Cores of this process.
        world: Cores of the run.
    """
    runtime: Any = importlib.import_module("torch_xla.runtime")
    if getattr(runtime, "_WORLD_SIZE", world) is None:
        runtime._WORLD_SIZE = world
    config: Any = importlib.import_module("torch._dynamo.config")
    for name in ("recompile_limit", "accumulated_recompile_limit"):
        limit = getattr(config, name, None)
        if limit is not None and _raised.get(name) != limit:
            _raised[name] = limit * size
            setattr(config, name, limit * size)


def taking_out() -> bool:
    """Whether this thread only traces, to take a graph out: its collectives are not launched."""
    return bool(getattr(_thread, "turns", 0))


def _in_turn(running: Running, turns: Any, original: Callable[..., Any]) -> Any:
    @functools.wraps(original)
    def extract(*args: Any, **kwargs: Any) -> Any:
        core = running.here
        if core is None:
            return original(*args, **kwargs)
        import torch_xla

        # What torch_xla does first; afterwards nothing is left for which this core had to meet.
        if taking_out():
            with _out_of_turn(turns, getattr(args[0], "xla_args", ())):
                torch_xla.sync(reset_scope=False)
        else:
            torch_xla.sync(reset_scope=False)
        with _turn(core, turns):
            return original(*args, **kwargs)

    return extract


def left_over() -> list[Any]:
    """The inputs of the next part of a graph that this thread takes out, to be run first."""
    return list(getattr(_thread, "left", ()))


@contextlib.contextmanager
def _out_of_turn(turns: Any, inputs: Any) -> Iterator[None]:
    """Let the others have their turns while the inputs of the next part are run.

    Where an operation runs on the CPU, a graph comes in parts, and what the parts before have made
    is run before the next one is taken out: by all cores together if it holds a collective.
    """
    depth, _thread.turns = _thread.turns, 0
    _thread.left = [one for one in inputs if getattr(one, "is_xla", False)]
    for _ in range(depth):
        turns.release()
    try:
        yield
    finally:
        _thread.left = []
        for _ in range(depth):
            acquire(turns, None)  # the others end their turns, also when the run is over
        _thread.turns = depth


@contextlib.contextmanager
def _turn(core: Core, turns: Any) -> Iterator[None]:
    acquire(turns, core)
    _thread.turns = getattr(_thread, "turns", 0) + 1
    try:
        yield
    finally:
        _thread.turns -= 1
        turns.release()


class _Counters:
    """torch_xla's metrics for who clears its counters and looks which of them have moved.

    Args:
        original: The module ``torch_xla.debug.metrics``.
    """

    def __init__(self, original: Any) -> None:
        self._original = original
        self._before: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def clear_counters(self) -> None:
        """Remember what has been counted."""
        self._before = self._counted()

    def counter_value(self, name: str) -> int:  # noqa: ARG002
        """What is to be added again after a clearing: nothing."""
        return 0

    def fallbacks(self) -> list[str]:
        """The operations that have run on the CPU since then."""
        before = self._before
        return [name for name, count in self._counted().items() if count > before.get(name, 0)]

    def _counted(self) -> dict[str, int]:
        names = self._original.executed_fallback_ops()
        return {name: self._original.counter_value(name) or 0 for name in names}


def _prepared(original: Callable[..., Any]) -> Any:
    @functools.wraps(original)
    def extract(xla_model: Any, xla_args: Any) -> Any:
        _widen(xla_model)
        return original(xla_model, xla_args)

    return extract


def _widen(module: Any) -> None:
    """Let reductions of bfloat16 be made in float32 and rounded once."""
    import torch

    widened = False
    operations = torch.ops._c10d_functional
    targets = [getattr(operations, name).default for name in _REDUCTIONS]
    for node in list(module.graph.nodes):
        if node.op != "call_function" or node.target not in targets:
            continue
        reduced = node.args[0]
        if getattr(reduced.meta.get("val"), "dtype", None) is not torch.bfloat16:
            continue
        widened = True
        convert = torch.ops.aten._to_copy.default
        with module.graph.inserting_before(node):
            wide = module.graph.call_function(convert, (reduced,), {"dtype": torch.float32})
        with module.graph.inserting_after(node):
            narrow = module.graph.call_function(convert, (node,), {"dtype": torch.bfloat16})
        narrow.meta = dict(node.meta)
        node.replace_all_uses_with(
            narrow, delete_user_cb=lambda user, narrow=narrow: user is not narrow
        )
        node.replace_input_with(reduced, wide)
    if widened:
        module.recompile()


def _traceable(original: Callable[..., Any]) -> Any:
    """Around ``xm.all_gather``: what dynamo sees of it."""
    import torch
    from torch_xla import runtime

    @functools.wraps(original)
    def all_gather(
        value: Any,
        dim: int = 0,
        groups: Any = None,
        output: Any = None,
        pin_layout: bool = True,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        traced = torch.compiler.is_compiling() and isinstance(value, torch.Tensor)
        if not (traced and pin_layout) or groups or output is not None or runtime.world_size() == 1:
            return original(value, dim, groups, output, pin_layout, *args, **kwargs)
        cores = runtime.world_size()
        # Dynamo traces this; torch_xla takes no notice of the group's name.
        gathered = torch.ops._c10d_functional.all_gather_into_tensor(value, cores, "")
        return gathered if dim == 0 else torch.cat(gathered.chunk(cores, 0), dim)

    return all_gather
