"""Why a graph was new, as far as the run itself can tell cheaply.

Only what is known is said: the first graph of a program point, a read that cut the step's graph,
a tensor in the user's frames whose shape changed since the nearest earlier graph of the same
point. Everything else is "unknown".
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

#: At most this many tensors (and numbers) are looked at, and this many earlier graphs of a point
#: are kept.
TENSORS, GRAPHS = 64, 32

#: At most this many operations of a tensor's history are counted, at a new graph only.
HISTORY = 2000

#: Larger numbers than this size no tensor.
LARGEST = 1e15

#: Names by which a function can get hold of its own mapping of variables.
_HOLDERS = frozenset({"locals", "vars", "exec", "eval", "_getframe", "currentframe", "f_locals"})

#: torch's types as XLA writes them.
DTYPES = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "s64",
    "int32": "s32", "int16": "s16", "int8": "s8", "uint8": "u8", "bool": "pred",
}  # fmt: skip


class Seen:
    """What the user's frames hold that may explain a new graph.

    Attributes:
        shapes: Name ("x", "batch['ids']"; of the outer frames "train.x") to the shape of a device
            tensor ("f32[16,24]").
        numbers: The same name to a Python number.
        histories: The same name to the numbers of the oldest and the newest operation that autograd
            remembers of a tensor (it counts the operations of a thread).
    """

    __slots__ = ("histories", "numbers", "shapes")

    def __init__(self) -> None:
        self.shapes: dict[str, str] = {}
        self.numbers: dict[str, float] = {}
        self.histories: dict[str, tuple[int, int]] = {}


def look(frames: Iterable[FrameType], device: str = "xla") -> Seen:
    """What the user's frames hold.

    Args:
        frames: The user's frames, innermost first.
        device: Device type of the tensors to look at.
    """
    seen = Seen()
    torch = sys.modules.get("torch")
    if torch is None:
        return seen
    for depth, frame in enumerate(frames):
        prefix = "" if depth == 0 else f"{frame.f_code.co_name}."
        for name, value in _locals(frame):
            if type(value) in (int, float):
                # JSON has no words for those that are not finite.
                if len(seen.numbers) < TENSORS and abs(value) < LARGEST:
                    seen.numbers[prefix + name] = value
                continue
            for path, tensor in _tensors(name, value, torch.Tensor):
                try:
                    if tensor.device.type != device or len(seen.shapes) >= TENSORS:
                        continue
                    shape, history = _shape(tensor), _history(tensor.grad_fn)
                except RuntimeError:
                    continue  # a launch that has failed, or hangs, leaves tensors without a value
                seen.shapes[prefix + path] = shape
                if history is not None:
                    seen.histories[prefix + path] = history
    return seen


def tensors_in(frame: FrameType) -> list[Any]:
    """The tensors in a frame's variables, in the order of their names."""
    torch = sys.modules.get("torch")
    if torch is None:
        return []
    found = [
        (path, tensor)
        for name, value in _locals(frame)
        for path, tensor in _tensors(name, value, torch.Tensor)
    ]
    return [tensor for _, tensor in sorted(found, key=lambda one: one[0])[:TENSORS]]


def _history(newest: Any) -> tuple[int, int] | None:
    """The numbers of the oldest and the newest operation of a history of at most ``HISTORY``."""
    if newest is None or not hasattr(newest, "_sequence_nr"):
        return None
    waiting, known, numbers = [newest], {newest}, []
    while waiting and len(known) < HISTORY:
        node = waiting.pop()
        if node.next_functions:  # a leaf's gradient has no number of its own
            numbers.append(int(node._sequence_nr()))
        for more, _ in node.next_functions:
            if more is not None and more not in known:
                known.add(more)
                waiting.append(more)
    return (min(numbers), max(numbers)) if numbers else None


def _locals(frame: FrameType) -> list[tuple[str, Any]]:
    """A frame's variables, without leaving a trace.

    Up to Python 3.12 the mapping stays attached to the frame and would keep tensors alive that
    the program has dropped, which would change its graphs; so it is emptied. That does not touch
    the variables themselves. A module's mapping is its real namespace and is left alone. A
    function that asks for ``locals()`` gets that very mapping, so it is not looked at.
    """
    function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
    if function and not _HOLDERS.isdisjoint(frame.f_code.co_names):
        return []
    mapping = frame.f_locals
    items = [(name, value) for name, value in list(mapping.items()) if not name.startswith("__")]
    if function and isinstance(mapping, dict):
        mapping.clear()
    return items


def _tensors(name: str, value: Any, tensor_type: type) -> Iterator[tuple[str, Any]]:
    if isinstance(value, tensor_type):
        yield name, value
    elif type(value) in (list, tuple) and len(value) <= 16:
        for at, item in enumerate(value):
            if isinstance(item, tensor_type):
                yield f"{name}[{at}]", item
    elif type(value) is dict and len(value) <= 16:
        for key, item in list(value.items()):
            if isinstance(item, tensor_type):
                yield f"{name}[{key!r}]", item


def _shape(tensor: Any) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{DTYPES.get(dtype, dtype)}[{','.join(str(size) for size in tensor.shape)}]"


class Causes:
    """The graphs of each program point of one core, and why a further one is new."""

    def __init__(self) -> None:
        self._earlier: dict[int, list[dict[str, Any]]] = {}

    def of(
        self, site: int, trigger: str, graph: dict[str, Any], named: dict[str, str]
    ) -> dict[str, Any]:
        """The cause of a new graph at a site, in the form of the run directory.

        Args:
            site: Where the graph ended.
            trigger: What ended it.
            graph: The meter's record of it.
            named: The shapes that :func:`look` found.
        """
        earlier = self._earlier.setdefault(site, [])
        try:
            return self._cause(earlier, site, trigger, graph, named)
        finally:
            earlier.append({"named": named, "inputs": graph["inputs"], "graph": graph["graph"]})
            del earlier[:-GRAPHS]

    def _cause(
        self,
        earlier: list[dict[str, Any]],
        site: int,
        trigger: str,
        graph: dict[str, Any],
        named: dict[str, str],
    ) -> dict[str, Any]:
        if not earlier:
            kind = "host-sync-split" if trigger == "read" else "first-graph"
            return {"kind": kind, "detail": "", "site": site}
        if graph["graph"] is not None and any(e["graph"] == graph["graph"] for e in earlier):
            detail = "the same graph had been compiled before and was no longer in the cache"
            return {"kind": "unknown", "detail": detail, "site": None}
        nearest = min(reversed(earlier), key=lambda entry: len(_differences(entry["named"], named)))
        changed = _differences(nearest["named"], named)
        if changed:
            detail = "; ".join(f"{name}: {old} -> {new}" for name, old, new in changed[:3])
            if len(changed) > 3:
                detail += f"; and {len(changed) - 3} more"
            return {"kind": "input-shape", "detail": detail, "site": None}
        detail = ""
        if (
            None not in (graph["inputs"], nearest["inputs"])
            and graph["inputs"] != nearest["inputs"]
        ):
            detail = f"it takes {graph['inputs']} inputs, the one before {nearest['inputs']}"
        return {"kind": "unknown", "detail": detail, "site": None}


def _differences(old: dict[str, str], new: dict[str, str]) -> list[tuple[str, str, str]]:
    return [
        (name, old[name], shape) for name, shape in new.items() if old.get(name, shape) != shape
    ]
