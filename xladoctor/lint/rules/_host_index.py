"""Device tensors that are indexed with places made on the host, anew in each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.rules._exact import made_by
from xladoctor.lint.rules._reads import costly_loop, loop_place, often

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

#: What makes places, of nothing that the host alone knows.
_PLACES = frozenset({"torch.arange", "torch.randperm", "torch.randint"})


def indexed_from_host(model: FileModel) -> Iterator[Problem]:
    """``values[range(n), actions]`` and ``x[torch.randperm(n)]`` of device tensors."""
    for node in model.nodes(cst.Subscript):
        for element in node.slice:
            index = element.slice.value if isinstance(element.slice, cst.Index) else None
            made = None if index is None else _range(model, node, index) or _places(model, index)
            if made is None or not model.value(node.value).is_device_tensor:
                continue
            loop = costly_loop(model, node)
            if loop is None or costly_loop(model, made.node) is None:
                continue
            name = made.last
            what = "tensor of this range" if name == "range" else f"these places (torch.{name})"
            new = "arange" if name == "range" else name
            yield model.problem(
                made.node if name == "range" else node,
                f"torch makes {'a ' if name == 'range' else ''}{what} on the CPU, and "
                f"{'it is' if name == 'range' else 'they are'} uploaded {often(loop)}",
                suggestion=f"torch.{new}(..., device=x.device)",
                related=[
                    loop_place(model, loop),
                    *([] if name == "range" else [model.place(made.node, "made here")]),
                ],
            )
            break


def _range(model: FileModel, node: cst.Subscript, index: cst.BaseExpression) -> CallSite | None:
    """``range(n)`` or ``list(range(n))`` beside other places."""
    made = model.call(index) if isinstance(index, cst.Call) and len(node.slice) > 1 else None
    if made is not None and made.name == "builtins.list" and made.positional:
        inner = made.positional[0]
        made = model.call(inner) if isinstance(inner, cst.Call) else None
    return made if made is not None and made.name == "builtins.range" else None


def _places(model: FileModel, index: cst.BaseExpression) -> CallSite | None:
    """The call that makes places on the host: itself, or by the one name that it has."""
    if model.value(index).kind is not Kind.CPU_TENSOR:
        return None
    made = made_by(model, index)
    if made is None or made.name not in _PLACES or made.has_star:
        return None
    return None if "device" in made.keywords else made
