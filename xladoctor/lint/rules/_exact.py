"""What rules about single calls share: is this line meant for XLA at all?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

#: Words in a condition, a function's or a variable's name that say "not for XLA".
_ELSEWHERE = re.compile(
    r"cuda|gpu|nvidia|nccl|mps|backend|platform|device_type|xla|tpu", re.IGNORECASE
)


_TORCH_XLA = re.compile(r"^\s*(import|from)\s+torch_xla\b")
_PRECISION = re.compile(r"amp|fp16|half|mixed|precision|scaler", re.IGNORECASE)


def for_another_device(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a condition around a node may keep it from XLA devices: silence is right then.

    So may a file that takes torch_xla only where it is there: it serves other devices too.
    """
    if optional_torch_xla(model):
        return True
    if any(_ELSEWHERE.search(model.tree.text(guard.test)) for guard in model.guards(node)):
        return True
    parent = model.parent(node)
    while parent is not None:
        if isinstance(parent, cst.Try):
            return True
        parent = model.parent(parent)
    function = model.function_of(node)
    while function is not None:
        if re.search(r"cuda|gpu|nccl|mps", function.name, re.IGNORECASE):
            return True
        function = function.outer
    return False


def chosen_precision(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a setting turns on mixed precision here (``if args.fp16:``): it may be off on XLA."""
    return any(_PRECISION.search(model.tree.text(guard.test)) for guard in model.guards(node))


def optional_torch_xla(model: FileModel) -> bool:
    """Whether the file imports torch_xla, and only under a condition, in ``try`` or a function."""
    found = False
    for node in model.tree.imports:
        if not _TORCH_XLA.search(model.tree.text(node)):
            continue
        tried = any(isinstance(parent, cst.Try) for parent in around(model, node))
        if not tried and model.function_of(node) is None and not model.guards(node):
            return False
        found = True
    # A program of Accelerate's that only mentions XLA runs wherever it is started.
    return found or ("accelerate" in model.frameworks and not model.linked)


def given_true(model: FileModel, call: CallSite, keyword: str) -> cst.BaseExpression | None:
    """The argument of that name if it is the literal ``True``."""
    value = call.keywords.get(keyword)
    return value if value is not None and model.literal(value) is True else None


def called(model: FileModel, node: cst.CSTNode) -> CallSite | None:
    """The call site that an expression or an expression statement is, or None."""
    if isinstance(node, cst.Expr):
        node = node.value
    return model.call(node) if isinstance(node, cst.Call) else None


def made_by(model: FileModel, node: cst.BaseExpression) -> CallSite | None:
    """The call whose result a name holds, if it is bound exactly once; the call itself."""
    if isinstance(node, cst.Call):
        return model.call(node)
    if not isinstance(node, cst.Name):
        return None
    bindings = model.bindings(node.value, node)
    if len(bindings) != 1 or bindings[0].kind != "assign":
        return None
    made = bindings[0].node
    return model.call(made) if isinstance(made, cst.Call) else None


def assigned(model: FileModel, name: cst.Name) -> list[cst.BaseExpression]:
    """What is assigned to a name, all of it; empty if it is bound in any other way too."""
    bindings = model.bindings(name.value, name)
    values = [
        item.node
        for item in bindings
        if item.kind == "assign" and isinstance(item.node, cst.BaseExpression)
    ]
    return values if len(values) == len(bindings) else []


def has_one_name(model: FileModel, made: cst.CSTNode) -> bool:
    """Whether a value is assigned to one target alone: ``a = b = []`` gives a list two names."""
    parent = model.parent(made)
    return isinstance(parent, cst.Assign) and len(parent.targets) == 1


def same_name(one: cst.BaseExpression | None, other: cst.BaseExpression | None) -> bool:
    """Whether both are the same plain name or chain of attributes."""
    if isinstance(one, cst.Name) and isinstance(other, cst.Name):
        return one.value == other.value
    if isinstance(one, cst.Attribute) and isinstance(other, cst.Attribute):
        return one.attr.value == other.attr.value and same_name(one.value, other.value)
    return False


def in_order(model: FileModel, *nodes: cst.CSTNode) -> bool:
    """Whether the nodes stand one after the other in the file."""
    places = [model.tree.order[node] for node in nodes]
    return places == sorted(places)


def around(model: FileModel, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The nodes around a node, innermost first."""
    parent = model.parent(node)
    while parent is not None:
        yield parent
        parent = model.parent(parent)


def reads(model: FileModel, name: cst.Name) -> Iterator[cst.Name]:
    """Where a name of the file is read, whatever it is bound to then."""
    bindings = model.bindings(name.value, name)
    for use in model.nodes(cst.Name):
        if use.value != name.value:
            continue
        parent = model.parent(use)
        if isinstance(parent, cst.AssignTarget | cst.Param | cst.NameItem):
            continue
        if isinstance(parent, cst.Arg) and parent.keyword is use:
            continue
        if isinstance(parent, cst.Attribute) and parent.attr is use:
            continue
        if model.bindings(use.value, use) is bindings:
            yield use
