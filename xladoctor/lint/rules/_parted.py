"""Lists that hold the parts of one device tensor: which is taken is a place in that tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.process_groups import ProcessGroups
from xladoctor.lint.rules._exact import in_order

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel

_PARTS = frozenset({"chunk", "split", "tensor_split", "unbind"})
_LISTS = frozenset({"builtins.list", "builtins.tuple", "copy.copy", "copy.deepcopy"})
_GATHERS = "torch.distributed.all_gather"
#: How many names and calls are followed.
_DEPTH = 4


def is_parted(model: FileModel, node: cst.BaseExpression, depth: int = _DEPTH) -> bool:
    """Whether an expression holds parts of a device tensor: ``x.chunk(8)``, a gathered list.

    A slice of the tensor stands in the graph for each part that is used, with its place in it.
    """
    if isinstance(node, cst.Name):
        if _is_gathered(model, node):
            return True
        made = model.assigned_once(node) if depth else None
        return made is not None and is_parted(model, made, depth - 1)
    if not isinstance(node, cst.Call):
        return False
    call = model.call(node)
    if call.name in _LISTS and len(call.positional) == 1:
        return depth > 0 and is_parted(model, call.positional[0], depth - 1)
    if call.name is not None and call.name.startswith("torch.") and call.last in _PARTS:
        whole = call.argument(0, "tensor") or call.argument(0, "input")
    else:
        whole = call.receiver if call.name is None and call.method in _PARTS else None
    return whole is not None and model.value(whole).is_device_tensor


def _is_gathered(model: FileModel, name: cst.Name) -> bool:
    """``dist.all_gather(every, x)`` before it, of a tensor on the device, in a group of XLA's.

    Its backend gathers one tensor and copies the slices of that to the list's.
    """
    function = model.function_of(name)
    for call in model.calls(_GATHERS):
        every = call.argument(0, "tensor_list")
        given = call.argument(1, "tensor")
        if (
            isinstance(every, cst.Name)
            and every.value == name.value
            and call.function is function
            and given is not None
            and model.value(given).is_device_tensor
            and in_order(model, call.node, name)
        ):
            return _groups_xla(model)
    return False


def _groups_xla(model: FileModel) -> bool:
    return any(ProcessGroups(part.tree, part.names).of_xla for part in (model, *model.linked))
