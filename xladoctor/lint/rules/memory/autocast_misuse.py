"""XLA713: autocast for XLA around too much, of the wrong kind, or that crashes off TPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import OnXla, walk
from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Edit
    from xladoctor.lint.model import CallSite, FileModel, Problem

_OWN = ("torch_xla.amp.autocast", "torch_xla.amp.autocast_mode.autocast")
_TORCH = ("torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast")
_HALF = frozenset({"torch.float16", "torch.half"})


@rule("XLA713")
def autocast_misuse(model: FileModel) -> Iterator[Problem]:
    """Find ``torch_xla.amp.autocast``, float16 autocast for XLA, and backward under autocast."""
    if not model.is_xla:
        return
    for call in model.calls(*_OWN):
        if model.on_xla(call.node) is not OnXla.YES:
            continue
        if _without_device(model, call):
            yield model.problem(
                call.node,
                "torch_xla.amp.autocast takes the device first, since 2.1: this raises",
                suggestion='torch.autocast("xla", dtype=torch.bfloat16)',
            )
            continue
        yield model.problem(
            call.node,
            "torch_xla.amp.autocast works on TPU alone: on any other XLA device, a run on the CPU "
            "included, it ends in AttributeError",
            suggestion='torch.autocast("xla", dtype=torch.bfloat16), which works on all of them',
        )
        break  # once a file says it
    for call in model.calls(*_TORCH):
        if not _for_xla(model, call):
            continue
        dtype = call.argument(1, "dtype")
        if dtype is not None and model.name(dtype) in _HALF:
            yield model.problem(
                dtype,
                "TPUs compute in bfloat16, not in float16: this loses range and gains nothing",
                suggestion="dtype=torch.bfloat16",
                fix=model.fix("Write torch.bfloat16", _bfloat16(model, dtype), safe=False),
            )
    for call in (*model.calls(*_OWN), *model.calls(*_TORCH)):
        yield from _backward_inside(model, call)


def _without_device(model: FileModel, call: CallSite) -> bool:
    """``autocast()``, ``autocast(True)``, ``autocast(enabled=use_amp)``, as torch.cuda's."""
    given = call.argument(0, "device")
    return not call.has_star and (given is None or isinstance(model.literal(given), bool))


def _for_xla(model: FileModel, call: CallSite) -> bool:
    kind = call.argument(0, "device_type")
    return kind is not None and model.literal(kind) == "xla"


def _bfloat16(model: FileModel, dtype: cst.BaseExpression) -> Edit | None:
    """``torch.bfloat16`` in the place of ``torch.float16``, whatever torch is called."""
    if not isinstance(dtype, cst.Attribute):
        return None
    return model.replace(dtype, f"{model.tree.text(dtype.value).strip()}.bfloat16")


def _backward_inside(model: FileModel, call: CallSite) -> Iterator[Problem]:
    item = model.parent(call.node)
    block = model.parent(item) if isinstance(item, cst.WithItem) else None
    if not isinstance(block, cst.With) or (call.name in _TORCH and not _for_xla(model, call)):
        return
    for node in walk(block.body, into_functions=False):
        if isinstance(node, cst.Call) and model.call(node).method == "backward":
            yield model.problem(
                node,
                "backward under autocast: its operations take the dtypes of the forward pass by "
                "themselves, and casting them again is not recommended",
                suggestion="end the with block after the loss",
                related=[model.place(call.node, "autocast begins here")],
            )
