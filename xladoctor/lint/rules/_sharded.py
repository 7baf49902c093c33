"""Which models FSDP shares out over the cores, and whose gradients DDP reduces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.knowledge import FSDP_CLASS, GIVE_ITSELF
from xladoctor.lint.rules._exact import same_name
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel

_DDP = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
)


def sharded_at(model: FileModel, node: cst.BaseExpression) -> cst.CSTNode | None:
    """Where a model was sharded.

    Args:
        model: The file.
        node: An expression: the call of the wrapper, or a name or attribute that is given one.

    Returns:
        The call of the wrapper; None for what is not sharded, or not known to be.
    """
    if isinstance(node, cst.Call):
        name = model.name(node.func) or ""
        if name.endswith(FSDP_CLASS):
            return node
        if not isinstance(node.func, cst.Attribute) or node.func.attr.value not in GIVE_ITSELF:
            return None
        return sharded_at(model, node.func.value) if isinstance(node.func.value, cst.Call) else None
    if isinstance(node, cst.Name):
        given = [*model.assigned_to(node)]
        if model.is_parameter(node):
            given += sources(model, node) or []
    elif isinstance(node, cst.Attribute):
        given = [*model.assigned.get(dotted_text(node) or "", ())]
    else:
        return None
    calls = (sharded_at(model, one) for one in given if isinstance(one, cst.Call))
    return next((call for call in calls if call is not None), None)


def owners_of(
    model: FileModel, optimizer: cst.BaseExpression | None
) -> list[cst.BaseExpression | None]:
    """The models whose parameters an optimizer was made of; None for one that is not in sight."""
    if optimizer is None:
        return []
    return [
        asked(one.args[0].value, "parameters") if isinstance(one, cst.Call) and one.args else None
        for one in model.made_of(optimizer)
    ]


def reduced_by_ddp(model: FileModel, step: CallSite, *, surely: bool = False) -> CallSite | None:
    """The ``DistributedDataParallel`` whose backward pass reduces what an optimizer applies.

    With ``gradient_as_bucket_view=True`` it reduces nothing on XLA devices (measured on 2.9,
    ``rules/XLA412-cores-train-different-models.md``).

    Args:
        model: The file.
        step: A call of ``xm.optimizer_step``.
        surely: Whether the wrapped model must be seen to be the optimizer's.
    """
    given = step.argument(0, "optimizer")
    owners = [one for one in owners_of(model, given) if one is not None]
    for call in model.calls(*_DDP):
        views = call.keywords.get("gradient_as_bucket_view")
        if model.guards(call.node) or (views is not None and model.literal(views) is not False):
            continue
        names = (call.argument(0, "module"), bound(model, call))
        if any(same_name(owner, name) for owner in owners for name in names):
            return call
        if not surely and not owners:
            return call
    return None


def bound(model: FileModel, call: CallSite) -> cst.BaseExpression | None:
    """What the result of a call is assigned to, as a whole."""
    parent = model.parent(call.node)
    return parent.targets[0].target if isinstance(parent, cst.Assign) else None


def asked(node: cst.CSTNode, method: str) -> cst.BaseExpression | None:
    """``model`` of ``model.parameters()``, None for anything else.

    Args:
        node: The expression.
        method: Name of the method, called without arguments.
    """
    if (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value == method
    ):
        return node.func.value
    return None
