"""Weights of a model on the device that are copied into one on the host, one by one or at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.syntax import walk
from xladoctor.lint.model.values import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

COPIES = frozenset({"copy_", "load_state_dict"})
#: What gives the tensors of a model.
_TENSORS = frozenset({"parameters", "buffers", "named_parameters", "named_buffers", "state_dict"})
#: What stands between these and a loop.
_HANDED_ON = frozenset({"items", "values"})


def copied_to_host(model: FileModel, call: CallSite) -> cst.BaseExpression | None:
    """What is read where weights come to the host.

    ``host.load_state_dict(net.state_dict())``, and ``p.data.copy_(q.data)`` in a loop over
    ``zip(host.parameters(), net.parameters())``.
    """
    given = call.argument(0)
    if given is None or call.receiver is None:
        return None
    if call.method == "copy_":
        copied = model.value(given).is_device_tensor and _is_host_weight(model, call.receiver)
        return given if copied else None
    taken = _owner(given)
    if taken is None or not _stays_on_host(model, call.receiver):
        return None
    value = model.value(taken)
    return given if value.kind is Kind.MODEL and value.on_device else None


def _stays_on_host(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether a model was made here, and never moved."""
    value = model.value(node)
    made = value.certain and value.instance is not None and not value.roads
    return made and value.kind is Kind.MODEL and not value.on_device


def _is_host_weight(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether a name is bound by a loop over the tensors of a model that stays on the host."""
    if isinstance(node, cst.Attribute) and node.attr.value == "data":
        node = node.value
    if not isinstance(node, cst.Name):
        return False
    around = set(model.tree.ancestors(node))
    sources = [
        source
        for binding in model.bindings(node.value, node)
        for source in _gone_over(model, binding.node, around)
    ]
    owners = [_owner(source) for source in sources]
    return bool(owners) and all(one is not None and _stays_on_host(model, one) for one in owners)


def _gone_over(
    model: FileModel, bound: cst.CSTNode, around: set[cst.CSTNode]
) -> Iterator[cst.BaseExpression]:
    """What one of the loops around gives a name of: of ``zip`` the argument at the name's place."""
    for loop in model.tree.ancestors(bound):
        if not isinstance(loop, cst.For):
            continue
        if loop not in around:
            return  # another loop with such a name
        over = loop.iter
        if isinstance(over, cst.Call) and model.name(over.func) == "builtins.zip":
            parts = loop.target.elements if isinstance(loop.target, cst.Tuple) else ()
            pairs = zip(parts, over.args, strict=False)
            yield from (given.value for part, given in pairs if bound in set(walk(part)))
        else:
            yield over
        return


def _owner(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """``net`` of ``net.parameters()``, ``net.state_dict().values()``."""
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        name = node.func.attr.value
        if name in _TENSORS:
            return node.func.value
        if name not in _HANDED_ON:
            return None
        node = node.func.value
    return None
