"""What became of the gradients' reduction before an optimizer's step: made, missing or lost.

In torch_xla 2.9 an in-place change through ``p.grad.data`` or ``p.grad.detach()`` leaves an alias
behind that is out of date: ``xm.reduce_gradients`` then reduces the alias and the optimizer uses
the gradient as it was. ``torch.nn.utils.clip_grad_norm_`` is replaced by torch_xla with a version
that does just that. So do the buckets of ``DistributedDataParallel(gradient_as_bucket_view=True)``:
they are reduced in place, and the gradients, which are views of them, do not see it
(``tests/capture/test_bucket_views_xla.py``: on one device, without simulation). Nothing fails, the
reduction is simply not part of the gradient's graph; and that is how it is seen here.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import TYPE_CHECKING, Any

from ..agent import xla
from . import parallel
from .places import Place, place_named, user_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .cores import Core

#: How the text of a graph names collectives (torch_xla 2.9).
COLLECTIVE_NODE = re.compile(
    r"xla::(cross_replica_sum|all_reduce|all_gather|all_to_all|collective_permute"
    r"|reduce_scatter|send|recv)"
)
#: The same between processes (see ``crossing``), where they are operations that call back.
_CROSSING = "xla::custom_call("
_crossings: list[bool] = []
_NODE = re.compile(r"%\d+ = [^ ]+ (?P<operation>[\w:]+)\(")
_LOCATION = re.compile(r"location=[^ ]*?@(?P<file>[^ :@]+):(?P<row>\d+)")
#: Operations that only look at a tensor in another way.
_VIEWS = ("aten::permute", "aten::view", "xla::as_strided", "aten::as_strided", "xla::device_data")
_REDUCING = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")

#: Gradients that are looked at whether they are views that did not see their bucket's reduction.
#: Only the one that was ready last in its bucket does not, since what is written into a bucket
#: brings the views that are there up to date; and of the last bucket that is one of the first.
_LOOKED_AT = 8

#: Those with a counterpart in ``torch_xla.core.functions`` that passes gradients back.
_WITH_GRADIENT = ("all_reduce", "all_gather")

START = (
    "start with equal weights: set one seed before the model is made, or call "
    "xm.broadcast_master_param(model) after it was moved"
)
_MISSING = (
    "no collective reduces the gradients before the step: step with xm.optimizer_step, or call "
    "xm.reduce_gradients first"
)
_LOST = (
    "the reduction of the gradients is lost, because {what} before it: call "
    "xm.reduce_gradients(optimizer) first, then change the gradients, then optimizer.step()"
)
_VIEWED = (
    "the reduction of the gradients is lost, because they are views of a larger tensor, which was "
    "reduced in place, and in torch_xla 2.9 no view sees that, on any device: leave out "
    "DistributedDataParallel's gradient_as_bucket_view=True"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Reduction:
    """What became of the reduction.

    Attributes:
        kind: "reduced", "missing", "lost" or "unknown".
        words: Why the cores part because of it and what to do; empty if it is not the reason.
        place: The line that is to blame, if it is known.
    """

    kind: str = "unknown"
    words: str = ""
    place: Place | None = None


def see_crossings() -> None:
    """From now on operations that call back are collectives."""
    _crossings.append(True)


def count_collectives(text: str) -> int:
    """How many collectives the text of a graph holds."""
    crossings = text.count(_CROSSING) if _crossings else 0
    return len(COLLECTIVE_NODE.findall(text)) + crossings


def seen(core: Core, collective: str) -> None:
    """The core has put a collective into its graph."""
    if collective in _REDUCING:
        core.reductions += 1


def note_lost_gradient(core: Core, collective: str, values: Sequence[Any]) -> None:
    """Note an exchange whose result has no way back to what it was made of (torch_xla 2.9.0).

    ``torch_xla.core.functions`` and ``torch.distributed.nn`` have such ways; what they call runs
    without gradients.
    """
    import torch

    if collective in _REDUCING and torch.is_grad_enabled():
        for value in values:
            for one in value if isinstance(value, (list, tuple)) else (value,):
                if getattr(one, "requires_grad", False):
                    core.lost_gradient = collective, user_frame(core.thread)


def refuse_nothing(core: Core, collective: str, given: Mapping[str, Any]) -> None:
    """Stop a core that reduces an empty list: torch_xla would crash, whatever the device.

    Args:
        core: The core.
        collective: What it calls.
        given: The arguments, by torch_xla's names.

    Raises:
        RuntimeError: There is nothing to reduce.
    """
    tensors = given.get("inputs", given.get("tensors"))
    if not isinstance(tensors, (list, tuple)) or tensors:
        return
    if collective != "all_reduce":
        words = f"xm.{collective} was given no tensors"
    else:
        words = "xm.all_reduce was given no tensors: no parameter of the optimizer has a gradient"
        if core.lost_gradient is not None:
            name, place = core.lost_gradient
            where = f" at {place[0]}:{place[1]}" if place else ""
            words += f", and xm.{name}{where} passes none back, on any device: call "
            words += (
                f"torch_xla.core.functions.{name}"
                if name in _WITH_GRADIENT
                else "its counterpart of torch.distributed.nn.functional"
            )
    raise RuntimeError(f"xladoctor: {words} (torch_xla itself ends in a segmentation fault here)")


def forget(core: Core) -> None:
    """An optimizer steps: what was seen belongs to that step."""
    core.reductions, core.clipped = 0, None


def watch_clipping(current: Callable[[], Core | None]) -> None:
    """Note where the program calls torch_xla's version of ``clip_grad_norm_``.

    Args:
        current: Gives the core of this thread; None when no cores run.
    """
    from torch import nn

    original = nn.utils.clip_grad_norm_
    if getattr(original, "__module__", "") == "torch.nn.utils.clip_grad":
        return  # torch's own, which leaves no alias behind

    @functools.wraps(original)
    def clip(*args: Any, **kwargs: Any) -> Any:
        core = current()
        if core is not None:
            core.clipped = user_frame(core.thread)
        return original(*args, **kwargs)

    nn.utils.clip_grad_norm_ = clip


def computed(tensors: Sequence[Any]) -> bool:
    """Whether all tensors have a value, so that to read them compiles nothing.

    Waits for what was launched: until then a tensor of eager mode has no buffer, and torch_xla
    ends the process if it is to share one (2.9.0, ``toDLPack``).
    """
    wait = xla.binding("_xla_wait_device_ops")
    wait(sorted({f"CPU:{tensor.device.index}" for tensor in tensors}))
    text = xla.binding("_get_xla_tensors_text")(list(tensors))
    return all(found["operation"] == "xla::device_data" for found in _NODE.finditer(text))


def before(core: Core, parameters: Sequence[Any]) -> Reduction:
    """Look at the gradients just before the step.

    Args:
        core: The core that steps.
        parameters: Those with a gradient. The first, which the optimizer will look at first too,
            speaks for all whose gradients are no views.
    """
    if not parameters:
        return Reduction()
    # An alias: a gradient that was changed in place is brought up to date when it is looked at,
    # which gives it another place in the step's graph.
    text = xla.binding("_get_xla_tensors_text")([parameters[0].grad.detach()])
    if count_collectives(text):
        if any(_sees_less(parameter.grad) for parameter in parameters[:_LOOKED_AT]):
            return Reduction("lost", _VIEWED, parallel.bucket_views())
        return Reduction("reduced")
    if not core.reductions:
        return Reduction("missing", _MISSING)
    lines = [line for line in text.splitlines() if _NODE.search(line)]
    if not any("xla::device_data" not in line for line in lines):
        return Reduction()  # launched between the reduction and the step: nothing left to see
    place = core.clipped
    if place is not None:
        what = "torch_xla's clip_grad_norm_ changed them in place"
    else:
        place = _changed_at(lines)
        what = "they were changed in place through .data or .detach()"
    return Reduction("lost", _LOST.format(what=what), place)


def _sees_less(gradient: Any) -> bool:
    """Whether it is a view whose own graph holds fewer collectives than that of an alias.

    Some may be there in both: the weights may still be waiting for a broadcast.
    """
    if not gradient._is_view():
        return False
    text = xla.binding("_get_xla_tensors_text")
    alias = count_collectives(text([gradient.detach()]))
    return count_collectives(text([gradient])) < alias


def _changed_at(lines: Sequence[str]) -> Place | None:
    """The line of the program that made the last real operation of a graph."""
    for line in reversed(lines):
        node, location = _NODE.search(line), _LOCATION.search(line)
        if node is None or node["operation"] in _VIEWS or location is None:
            continue
        return place_named(location["file"], int(location["row"]))
    return None
