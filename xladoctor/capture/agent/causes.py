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

#: At most this many tensors are looked at, and this many earlier graphs of a point are kept.
TENSORS, GRAPHS = 64, 32

#: Names by which a function can get hold of its own mapping of variables.
_HOLDERS = frozenset({"locals", "vars", "exec", "eval", "_getframe", "currentframe", "f_locals"})

_DTYPES = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "s64",
    "int32": "s32", "int16": "s16", "int8": "s8", "uint8": "u8", "bool": "pred",
}  # fmt: skip


def shapes(frames: Iterable[FrameType], device: str = "xla") -> dict[str, str]:
    """The shapes of the device tensors that the user's frames hold, by name.

    Args:
        frames: The user's frames, innermost first.
        device: Device type of the tensors to look at.

    Returns:
        Name ("x", "batch['ids']"; of the outer frames "train.x") to shape ("f32[16,24]").
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    found: dict[str, str] = {}
    for depth, frame in enumerate(frames):
        prefix = "" if depth == 0 else f"{frame.f_code.co_name}."
        for name, value in _locals(frame):
            for path, tensor in _tensors(name, value, torch.Tensor):
                if tensor.device.type == device:
                    found[prefix + path] = _shape(tensor)
                    if len(found) >= TENSORS:
                        return found
    return found


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
    return f"{_DTYPES.get(dtype, dtype)}[{','.join(str(size) for size in tensor.shape)}]"


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
            named: What :func:`shapes` found.
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
