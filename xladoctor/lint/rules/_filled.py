"""Tensors of the host that are computed of nothing but constants: masks, grids, windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.rules._cores import SETTINGS
from xladoctor.lint.rules._sources import of_parameter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel

#: Factories whose numbers are the same each time.
_FACTORIES = frozenset(
    f"torch.{name}" for name in ("zeros", "ones", "full", "arange", "eye", "linspace")
)
#: What computes a number of numbers.
_COMPUTES = frozenset(f"builtins.{name}" for name in ("int", "float", "max", "min", "round", "abs"))
#: Names and calls on the way to the factories.
_DEPTH = 8


def computed_of_constants(model: FileModel, node: cst.BaseExpression) -> cst.Call | None:
    """The factory at the bottom of ``torch.exp(-grid ** 2)``, if only such ones are there.

    Args:
        model: The file.
        node: What is moved; a factory's own call is no computation.
    """
    if model.value(node).kind is not Kind.CPU_TENSOR:
        return None
    found: list[cst.Call] = []
    if not _is_constant(model, node, found, _DEPTH) or not found or found[0] is node:
        return None
    return found[0]


def _is_constant(
    model: FileModel, node: cst.BaseExpression, found: list[cst.Call], depth: int
) -> bool:
    if depth == 0:
        return False
    if isinstance(node, cst.Call) and model.call(node).name in _FACTORIES:
        call = model.call(node)
        device = call.keywords.get("device")
        if call.has_star or (device is not None and model.literal(device) != "cpu"):
            return False
        found.append(node)
        return True
    if isinstance(node, cst.BaseNumber | cst.SimpleString):
        return True
    if model.value(node).kind is Kind.NUMBER:
        return not isinstance(node, cst.Call) or _is_of_shape(model.call(node))
    if isinstance(node, cst.Attribute) and _is_setting(node):
        return True
    parts = list(_parts(model, node))
    return bool(parts) and all(_is_constant(model, part, found, depth - 1) for part in parts)


def _is_of_shape(call: CallSite) -> bool:
    """``x.size(0)``, ``len(x)``: the same as long as the batches have one shape."""
    return call.name == "builtins.len" or call.method in {"size", "dim", "numel"}


def _is_setting(node: cst.Attribute) -> bool:
    """``self.hparams.atoms``, ``config.model.width``."""
    text = dotted_text(node)
    return text is not None and not SETTINGS.isdisjoint(text.lower().split(".")[:-1])


def _parts(model: FileModel, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What an expression is computed of; nothing where that is not known."""
    if isinstance(node, cst.UnaryOperation):
        yield node.expression
    elif isinstance(node, cst.BinaryOperation):
        yield from (node.left, node.right)
    elif isinstance(node, cst.Name):
        for binding in model.bindings(node.value, node):
            made = _assigned(model, binding.node) if binding.kind in {"assign", "other"} else None
            yield made if made is not None else node  # a way round that ends at the depth
    elif isinstance(node, cst.Call):
        call = model.call(node)
        if (call.name or "").startswith("torch.") or (call.name is None and call.receiver):
            if call.name is None and call.receiver is not None:
                yield call.receiver
            yield from (item.value for item in node.args)


def _assigned(model: FileModel, node: cst.CSTNode) -> cst.BaseExpression | None:
    """What is assigned: the expression itself, or what a tuple of names takes apart."""
    if not isinstance(node, cst.Name):
        return node if isinstance(node, cst.BaseExpression) else None
    for parent in model.tree.ancestors(node):
        if isinstance(parent, cst.Assign):
            return parent.value
        if not isinstance(parent, cst.Tuple | cst.Element | cst.AssignTarget):
            return None
    return None


def same_numbers(model: FileModel, data: cst.BaseExpression) -> bool:
    """Whether data is a list of the same numbers each time: written, or kept by the constructor.

    ``[0.485, 0.456, 0.406]``, and ``self.mean`` that only ``__init__`` sets, to a list.
    """
    if isinstance(data, cst.List | cst.Tuple):
        return bool(data.elements) and model.literal(data) is not NotImplemented
    if isinstance(data, cst.ListComp):
        return _of_listed(model, data)
    if isinstance(data, cst.Call):
        return _is_range(model, data)
    given = _kept(model, data) if isinstance(data, cst.Attribute) else ()
    functions = {model.function_of(node) for node in given}
    made = [function is not None and function.name == "__init__" for function in functions]
    return bool(made) and all(made) and all(_is_list(model, node) for node in given)


def _of_listed(model: FileModel, data: cst.ListComp) -> bool:
    """``[[w / 8, h / 8] for w, h in self.anchors]``: nothing but what such a list holds."""
    over = data.for_in
    if over.inner_for_in is not None or not same_numbers(model, over.iter):
        return False
    turn = {part.value for part in walk(over.target) if isinstance(part, cst.Name)}
    return all(
        part.value in turn
        for part in (*walk(data.elt), *(part for test in over.ifs for part in walk(test)))
        if isinstance(part, cst.Name)
    )


def _is_range(model: FileModel, data: cst.Call) -> bool:
    """``range(n)``, ``list(range(len(x)))``: counted from nought to a size."""
    call = model.call(data)
    if call.name in {"builtins.list", "numpy.array", "numpy.asarray"} and len(data.args) == 1:
        inner = data.args[0].value
        return isinstance(inner, cst.Call) and _is_range(model, inner)
    ranged = call.name in {"builtins.range", "numpy.arange"} and len(data.args) == 1
    return ranged and is_settled(model, data.args[0].value)


def is_settled(model: FileModel, node: cst.BaseExpression, depth: int = _DEPTH) -> bool:
    """Whether a number is the same in each step: written, or computed of sizes and settings."""
    if model.literal(node) is not NotImplemented:
        return True
    if depth == 0:
        return False
    if isinstance(node, cst.UnaryOperation):
        return is_settled(model, node.expression, depth - 1)
    if isinstance(node, cst.BinaryOperation):
        return all(is_settled(model, one, depth - 1) for one in (node.left, node.right))
    if isinstance(node, cst.Subscript):
        return isinstance(node.value, cst.Attribute) and node.value.attr.value == "shape"
    if isinstance(node, cst.Attribute):
        return node.attr.value == "shape" or _is_setting(node) or _is_kept(model, node)
    if isinstance(node, cst.Call):
        call = model.call(node)
        computes = (call.name or "").startswith("math.") or call.name in _COMPUTES
        given = (one.value for one in node.args)
        return _is_of_shape(call) or (
            computes and all(is_settled(model, one, depth - 1) for one in given)
        )
    return isinstance(node, cst.Name) and _is_bound_to_settled(model, node, depth - 1)


def _is_bound_to_settled(model: FileModel, node: cst.Name, depth: int) -> bool:
    bindings = model.bindings(node.value, node)
    made: list[cst.BaseExpression | None] = []
    for binding in bindings:
        if binding.kind == "param":
            made.extend(of_parameter(model, node) or [None])
        else:
            made.append(_assigned(model, binding.node))
    return bool(made) and all(one is not None and is_settled(model, one, depth) for one in made)


def _is_kept(model: FileModel, node: cst.Attribute) -> bool:
    """``self.size`` that only the constructor sets."""
    given = _kept(model, node)
    functions = {model.function_of(one) for one in given}
    made = [function is not None and function.name == "__init__" for function in functions]
    numbers = {Kind.NUMBER, Kind.UNKNOWN}
    return bool(made) and all(made) and all(model.value(one).kind in numbers for one in given)


def _kept(model: FileModel, node: cst.Attribute) -> Sequence[cst.BaseExpression]:
    """What the methods of its class give to an attribute of ``self``."""
    home = model.function_of(node)
    owner = home.owner if home is not None else None
    if owner is None or home is None or not isinstance(node.value, cst.Name):
        return ()
    if node.value.value != next(iter(home.parameters), None):
        return ()
    return model.kept(owner).get(node.attr.value, ())


def _is_list(model: FileModel, node: cst.BaseExpression) -> bool:
    """A list that is written, or a setting whose name speaks of several: ``token_ids``."""
    if isinstance(node, cst.List | cst.Tuple):
        return model.literal(node) is not NotImplemented
    return (
        isinstance(node, cst.Name)
        and node.value.endswith("s")
        and model.value(node).kind in {Kind.UNKNOWN, Kind.CONTAINER}
        and not model.value(node).holds_device_tensor
        and any(item.kind == "param" for item in model.bindings(node.value, node))
    )
