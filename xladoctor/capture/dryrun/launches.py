"""What stands in the place of a launch: the graph is taken, its results become placeholders."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from ..agent import xla
from ..agent.points import LAUNCH, LOADER, SIMULATE, STEP, Call
from . import lazy

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..agent.points import Points
    from .steps import Steps


class Launches:
    """Around every launch of one process.

    Args:
        points: The process's points.
        steps: Takes the graphs.
        note: Takes a sentence for the report.
    """

    def __init__(self, points: Points, steps: Steps, note: Callable[[str], None]) -> None:
        self._points = points
        self._steps = steps
        self._note = note
        self._shapes: dict[bytes, list[tuple[Any, tuple[int, ...]]]] = {}

    def install(self) -> None:
        """Put it around the points."""
        self._points.around(LAUNCH, SIMULATE, self.launch, "dryrun")
        self._points.around(STEP, SIMULATE, self._stepped, "dryrun")
        self._points.around(LOADER, SIMULATE, self._batch, "dryrun")
        self._count_backward()

    def _count_backward(self) -> None:
        """Tell of each backward pass; ``Tensor.backward`` ends in this function (torch 2.9.0).

        Not of those of torch_xla itself: ``scan`` makes one to learn what it is.
        """
        import torch

        original = torch.autograd.backward

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1).f_globals.get("__name__", "")
            if not caller.startswith("torch_xla."):
                self._steps.backward()
            return original(*args, **kwargs)

        torch.autograd.backward = backward

    def launch(self, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around LAUNCH."""
        if xla.eager():
            self._steps.fail("it runs its operations one by one (eager mode)")
        if xla.spmd():
            self._steps.fail("it is one program for all cores (SPMD), which plan does not compile")
        if call.what == "_xla_step_marker":
            return self._step_marker(call, proceed)
        if call.what == "_run_cached_graph":
            return self._run_cached(*call.args)
        if call.what == "_xla_warm_up_cache":
            return self._warm_up(*call.args)
        tensors = lazy.waiting(list(call.args[0] if call.args else call.kwargs["tensors"]))
        if tensors:
            self._steps.graph(lazy.name_of(tensors), lambda: lazy.graph_of(tensors, donate=False))
        return None

    def _step_marker(self, call: Call, proceed: Callable[[], Any]) -> Any:
        device = str(call.args[0] if call.args else call.kwargs.get("device") or "")
        device = device or str(xla.binding("_xla_get_default_device")())
        tensors, missing = lazy.pending(device)
        if tensors:
            if missing:
                self._note(
                    f"{missing} of the {len(tensors) + missing} results of a graph could not be "
                    "reached: its memory may be more"
                )
            name = lazy.name_of(tensors)
            self._steps.graph(name, functools.partial(lazy.graph_of, tensors, donate=True))
        lazy.clear(device)
        if lazy.left(device):
            self._steps.fail("a graph could not be taken out of the program unexecuted")
        del tensors
        result = proceed()  # nothing is left to run: it begins the next step
        self._steps.launched()
        return result

    def _warm_up(self, tensors: Any, devices: Any = ()) -> None:  # noqa: ARG002
        """``torch.compile`` prepares a graph; what it gives is remembered by its hash."""
        key = xla.binding("_get_graph_hash")(list(tensors))
        results = lazy.waiting(tensors)
        self._shapes[key] = [(one.dtype, tuple(one.shape)) for one in results]
        self._steps.prepare(key.hex(), lambda: lazy.graph_of(results, donate=False))

    def _run_cached(self, key: bytes, inputs: Any) -> list[Any]:  # noqa: ARG002
        self._steps.again(key.hex())
        return [lazy.placeholder(*shape) for shape in self._shapes[key]]

    def _stepped(self, call: Call, proceed: Callable[[], Any]) -> Any:  # noqa: ARG002
        result = proceed()
        self._steps.stepped()
        return result

    def _batch(self, call: Call, proceed: Callable[[], Any]) -> Any:  # noqa: ARG002
        batch = proceed()
        self._steps.batch(batch)
        return batch
