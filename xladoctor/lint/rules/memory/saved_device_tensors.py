"""XLA721: a checkpoint that remembers the XLA device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, OnXla, walk
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import in_order, made_by, same_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

#: What tests for one process are called, in projects that are not seen whole.
_PICKS_CORES = re.compile(
    r"(?i)rank|ordinal|master|(?<!__)main|process|chief|leader|primary|is_zero"
)


@rule("XLA721")
def saved_device_tensors(model: FileModel) -> Iterator[Problem]:
    """Find ``torch.save`` of the state of a model that is on the XLA device."""
    if not model.is_xla or model.frameworks:
        return
    for call in model.calls("torch.save"):
        data = call.argument(0, "obj")
        if data is None or model.on_xla(call.node) is OnXla.NO:
            continue
        holder = next(
            (item for item in _states(model, data) if _on_device(model, call, item)), None
        )
        if holder is None:
            continue
        yield model.problem(
            call.node,
            "torch.save writes down the XLA device of every tensor: the file cannot be loaded "
            "where there is no such device",
            suggestion="xm.save(model.state_dict(), path), on all cores: it copies to the host and "
            "writes on the master",
            fix=_fix(model, call),
        )


def _states(model: FileModel, data: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The models whose ``state_dict()`` is saved, here or in a dictionary bound once."""
    if isinstance(data, cst.Dict):
        for element in data.elements:
            yield from _states(model, element.value)
        return
    made = made_by(model, data)
    if made is not None and made.method == "state_dict" and made.receiver is not None:
        yield made.receiver
    elif isinstance(data, cst.Name) and made is None:
        bindings = model.bindings(data.value, data)
        if len(bindings) == 1 and isinstance(bindings[0].node, cst.Dict):
            yield from _states(model, bindings[0].node)


def _on_device(model: FileModel, save: CallSite, holder: cst.BaseExpression) -> bool:
    value = model.value(holder)
    if value.kind is not Kind.MODEL or not value.on_device:
        return False
    back = [
        call.method == "cpu" or _says_cpu(model, call)
        for call in model.methods("cpu", "to")
        if call.function is save.function
        and same_name(call.receiver, holder)
        and in_order(model, call.node, save.node)
        and (call.method == "cpu" or _says_cpu(model, call) or _says_xla(model, call))
    ]
    return not back or not back[-1]


def _says_cpu(model: FileModel, call: CallSite) -> bool:
    """``net.to("cpu")``, also where a name was bound to the host's device last."""
    device = call.argument(0, "device")
    if isinstance(device, cst.Name):
        order = model.tree.order
        bound = [item.node for item in model.bindings(device.value, device)]
        before = [node for node in bound if order.get(node, 0) < order[call.node]]
        if before and all(node in order for node in bound):
            return _names_cpu(model, before[-1])
    return _names_cpu(model, call.node)


def _says_xla(model: FileModel, call: CallSite) -> bool:
    device = call.argument(0, "device")
    return device is not None and model.value(device).kind is Kind.DEVICE


def _names_cpu(model: FileModel, node: cst.CSTNode) -> bool:
    return any(
        isinstance(part, cst.SimpleString) and model.literal(part) == "cpu" for part in walk(node)
    )


def _perhaps_one_core(model: FileModel, call: CallSite) -> bool:
    """Whether a condition around may pick cores, by what is known of it or by its words alone."""
    if model.effects.some_cores(call.node) is not None:
        return True
    callers = model.callers(call.function) if call.function is not None else ()
    return any(
        _PICKS_CORES.search(model.tree.text(guard.test))
        for node in (call.node, *(caller.node for caller in callers))
        for guard in model.guards(node)
    )


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    """``xm.save``, which takes the same two arguments; all cores have to come to it."""
    if _perhaps_one_core(model, call):
        return None  # under a rank check it would wait for cores that never come: XLA405
    written = spell(model, call.node, "torch_xla.core.xla_model.save")
    if written is None or call.has_star or len(call.positional) != 2 or call.keywords:
        return None
    return model.fix(
        "Save from the host", model.replace(call.node.func, written[0]), written[1], safe=False
    )
