"""XLA322: operations whose results on XLA are not those of PyTorch."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.model import Kind
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._before_start import before_the_start
from xladoctor.lint.rules._windowed_models import windowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from xladoctor.lint.model import CallSite, FileModel, Problem

#: Longer ranges are not counted.
_MOST = 100_000


@rule("XLA322")
def different_result(model: FileModel) -> Iterator[Problem]:
    """Find calls of which the text tells that XLA gives something else (``differences.toml``)."""
    if not model.is_xla:
        return
    yield from _slices(model)
    yield from _windows(model)
    known = _by_call()
    for call in model.calls():
        name = (call.name or "").removeprefix("torch.") if call.name else call.method or ""
        for row in known.get(name, ()):
            if _TELLS[row["when"]](model, call):
                yield model.problem(
                    call.node,
                    f"{row['why']} (measured on torch_xla {_version()})",
                    suggestion=row["write"],
                )
                break


def _slices(model: FileModel) -> Iterator[Problem]:
    """``ids[:, -block_size:]`` of a text that is still shorter."""
    for node, grows in before_the_start(model):
        row = _before()
        yield model.problem(
            node,
            f"while `{model.tree.text(node.value).strip()}` is shorter than that, {row['why']} "
            f"(measured on torch_xla {_version()})",
            suggestion=row["write"],
            related=[model.place(grows, "it grows here")],
        )


def _windows(model: FileModel) -> Iterator[Problem]:
    """``model(ids)`` of Mistral or Gemma, whose cache keeps a window of the keys."""
    for call, maker, row in windowed(model):
        yield model.problem(
            call.node,
            f"{row['type']} keeps a cache of its window ({row['window']} tokens by default) and "
            "slices it from behind: a text that is shorter raises RuntimeError (Value out of "
            f"range) on XLA (measured on torch_xla {_version()})",
            suggestion="use_cache=False in the call, or model.config.use_cache = False",
            related=[model.place(maker, "made here")],
        )


def _before() -> dict[str, Any]:
    rows = catalogue.table("differences")["difference"]
    return next(row for row in rows if row.get("when") == "before the start")


@functools.cache
def _by_call() -> Mapping[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in catalogue.table("differences")["difference"]:
        for name in row.get("calls", ()):
            found.setdefault(name, []).append(row)
    return found


def _version() -> str:
    return str(catalogue.table("differences")["torch_xla"]).rpartition(".")[0]


def _tensor(model: FileModel, call: CallSite) -> cst.BaseExpression | None:
    """The device tensor that a call works on, as a function or as a method."""
    tensor = call.argument(0, "input") if call.name is not None else call.receiver
    return tensor if tensor is not None and model.value(tensor).is_device_tensor else None


def _all_dimensions(model: FileModel, call: CallSite) -> bool:
    """``x.amax()``, and any reduction over ``()``."""
    if _tensor(model, call) is None or call.has_star:
        return False
    dims = call.argument(1 if call.name is not None else 0, "dim")
    if dims is None:
        dims = call.keywords.get("axis")
    if dims is not None:
        return isinstance(dims, cst.Tuple | cst.List) and not dims.elements
    short = (call.name or call.method or "").rpartition(".")[2]
    return short in ("amax", "amin") and "axis" not in call.keywords


def _fraction(model: FileModel, call: CallSite) -> bool:
    """``torch.arange(0, 1, 0.1, device=...)`` with one value more than it should have."""
    device = call.keywords.get("device")
    if device is None or model.value(device).kind is not Kind.DEVICE or call.has_star:
        return False
    given = [model.literal(one) for one in call.positional]
    if len(given) != 3 or not all(isinstance(one, int | float) for one in given):
        return False
    start, end, step = (float(one) for one in given)  # type: ignore[arg-type]
    if not step or arange_length(start, end, step) >= _MOST:
        return False
    return arange_length(start, end, step) != added_length(start, end, step)


def arange_length(start: float, end: float, step: float) -> int:
    """How many values PyTorch gives: it divides."""
    return max(0, math.ceil((end - start) / step))


def added_length(start: float, end: float, step: float) -> int:
    """How many values XLA gives: it adds the step up, with a rounding error each time.

    Fact used: ``XlaHelpers::Range`` (torch_xla 2.9, seen by running).
    """
    value, count = start, 0
    while (value < end if step > 0 else value > end) and count < _MOST:
        value, count = value + step, count + 1
    return count


def _indices(model: FileModel, call: CallSite) -> bool:
    """``values, indices = x.cummax(0)``, ``x.cummax(0).indices`` and ``[1]``."""
    if _tensor(model, call) is None:
        return False
    parent = model.parent(call.node)
    if isinstance(parent, cst.Attribute):
        return parent.attr.value == "indices"
    if isinstance(parent, cst.Subscript):
        return model.tree.text(parent).strip().endswith("[1]")
    if isinstance(parent, cst.Assign) and len(parent.targets) == 1:
        target = parent.targets[0].target
        if isinstance(target, cst.Tuple) and len(target.elements) == 2:
            second = target.elements[1].value
            return isinstance(second, cst.Name) and not second.value.startswith("_")
    return False


_TELLS: dict[str, Callable[[FileModel, CallSite], bool]] = {
    "all dimensions": _all_dimensions,
    "fraction": _fraction,
    "indices": _indices,
}
