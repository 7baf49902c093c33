"""Tensors of the host that are computed of nothing but constants: masks, grids, windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.model.conditions import compared
from xladoctor.lint.model.dotted import is_name, text_of
from xladoctor.lint.model.parts import index_of, names_bound
from xladoctor.lint.rules._exact import given_last, same_name
from xladoctor.lint.rules._fixed import (
    by_constructor,
    is_fixed,
    is_item_of_settings,
    is_of_shape,
    is_setting,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

#: Factories whose numbers are the same each time.
_FACTORIES = frozenset(
    f"torch.{name}" for name in ("zeros", "ones", "full", "arange", "eye", "linspace")
)
#: Functions of NumPy that make a number of one.
_OF_NUMBERS = frozenset(
    f"numpy.{name}" for name in ("log", "log2", "log10", "exp", "sqrt", "power")
)
#: What makes an array of a list.
_ARRAYS = frozenset({"numpy.array", "numpy.asarray"})
#: Names and calls on the way to the factories.
_DEPTH = 8


def computed_of_constants(model: FileModel, node: cst.BaseExpression) -> cst.Call | None:
    """The factory at the bottom of ``torch.exp(-grid ** 2)``, if only such ones are there.

    Args:
        model: The file.
        node: What is moved; a factory's own call is no computation.
    """
    if model.value(node).kind not in {Kind.CPU_TENSOR, Kind.UNKNOWN}:
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
    if isinstance(node, cst.BaseNumber | cst.SimpleString) or is_name(node, "None"):
        return True
    made = model.call(node) if isinstance(node, cst.Call) else None
    if model.value(node).kind is Kind.NUMBER and (made is None or not _is_of_numbers(made)):
        return made is None or is_of_shape(made)
    if isinstance(node, cst.Attribute) and is_setting(node):
        return True
    if isinstance(node, cst.Subscript) and is_item_of_settings(node):
        return True
    if isinstance(node, cst.Name) and _is_size(model, node):
        return True
    parts = list(_parts(model, node))
    return bool(parts) and all(_is_constant(model, part, found, depth - 1) for part in parts)


def _parts(model: FileModel, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What an expression is computed of; nothing where that is not known."""
    if isinstance(node, cst.UnaryOperation):
        yield node.expression
    elif isinstance(node, cst.BinaryOperation):
        yield from (node.left, node.right)
    elif isinstance(node, cst.Comparison):
        yield from compared(node)
    elif isinstance(node, cst.Subscript):  # ``torch.arange(n)[None, :]``
        yield node.value
        for element in node.slice:
            if isinstance(element.slice, cst.Index):
                yield element.slice.value
    elif isinstance(node, cst.List | cst.Tuple):  # ``torch.cat([torch.zeros(n), torch.ones(n)])``
        yield from (element.value for element in node.elements)
    elif isinstance(node, cst.ListComp):  # ``[torch.arange(n) for _ in range(2)]``
        over = node.for_in
        turn = names_bound(over.target)
        same = isinstance(over.iter, cst.Call) and _is_range(model, over.iter)
        uses = {part.value for part in walk(node.elt) if isinstance(part, cst.Name)}
        if same and over.inner_for_in is None and uses.isdisjoint(turn):
            yield node.elt
    elif isinstance(node, cst.Name):
        last = given_last(model, node)
        # What is not known is a way round that ends at the depth.
        made = model.made_of(node) if last is None else [last]
        yield from (node if one is None else one for one in made)
    elif isinstance(node, cst.Call):
        yield from _given(model.call(node))


def _given(call: CallSite) -> Iterator[cst.BaseExpression]:
    """What a function of torch or of numbers, or a method, computes with."""
    handed = _is_of_numbers(call) or (call.name or "").startswith("torch.")
    if handed or (call.name is None and call.receiver):
        if call.name is None and call.receiver is not None:
            yield call.receiver
        yield from (item.value for item in call.node.args)


def _is_of_numbers(call: CallSite) -> bool:
    """``math.log(10000)``."""
    return call.name in _OF_NUMBERS or (call.name or "").startswith("math.")


def _is_size(model: FileModel, node: cst.Name) -> bool:
    """``half`` of ``torch.arange(half)`` in the same function: a number, wherever it is from."""
    if model.value(node).kind is not Kind.UNKNOWN:
        return False
    function = model.function_of(node)
    return any(
        call.function is function and any(same_name(one, node) for one in call.positional)
        for call in model.calls(*_FACTORIES)
    )


def gets_data(model: FileModel, node: cst.BaseExpression, made: CallSite) -> bool:
    """``ids[0, :n] = torch.tensor(tokens)`` after ``ids = torch.zeros(1, 128)``: what is not known.

    Numbers are what the device could write itself: ``mask[:, n:] = 0``.

    Args:
        model: The file that asks.
        node: What is moved.
        made: The factory's call, perhaps in a function or file that has another name for it.
    """
    home = model.file_with(made.node)
    line = home.parent(made.node)
    targets = line.targets if isinstance(line, cst.Assign) else ()
    return _gets_data(model, node) or any(_gets_data(home, one.target) for one in targets)


def _gets_data(model: FileModel, node: cst.BaseExpression) -> bool:
    if not isinstance(node, cst.Name):
        return False
    function = model.function_of(node)
    for line in model.nodes(cst.Assign):
        target = line.targets[0].target
        if not isinstance(target, cst.Subscript) or not same_name(_whole(target), node):
            continue
        if model.function_of(line) is not function:
            continue
        if _is_placed(model, line):
            return True
        if model.value(line.value).kind is not Kind.NUMBER and not is_fixed(model, line.value):
            return not is_constant(model, line.value)
    return False


def _is_placed(model: FileModel, line: cst.CSTNode) -> bool:
    """``for square, piece in board.pieces(): planes[piece, square] = 1``: where is data."""
    around = (one for one in model.tree.ancestors(line) if isinstance(one, cst.For))
    loop = next(around, None)
    gone_over = loop.iter if loop is not None else None
    if isinstance(gone_over, cst.Call):
        gone_over = gone_over.func
    return isinstance(gone_over, cst.Attribute)


def _whole(target: cst.BaseExpression) -> cst.BaseExpression:
    """``ids`` of ``ids[0][:n]``."""
    while isinstance(target, cst.Subscript):
        target = target.value
    return target


def is_constant(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether a tensor of the host is the same each time."""
    return computed_of_constants(model, node) is not None or _of_same_numbers(model, node)


def _of_same_numbers(model: FileModel, node: cst.BaseExpression) -> bool:
    """``torch.from_numpy(self.mean).float()``."""
    while isinstance(node, cst.Call):
        call = model.call(node)
        if call.name is not None:
            made = call.name.startswith("torch.") and call.positional
            data = call.positional[0] if made else None
            return data is not None and (same_numbers(model, data) or _is_number(model, data))
        if call.receiver is None:
            return False
        node = call.receiver
    return False


def _is_number(model: FileModel, data: cst.BaseExpression) -> bool:
    """``torch.tensor(0)``: one number, the same each time."""
    return isinstance(model.literal(data), int | float)


def same_numbers(model: FileModel, data: cst.BaseExpression) -> bool:
    """Whether data is a list of the same numbers each time: written, or kept by the constructor.

    ``[0.485, 0.456, 0.406]``, ``[0] * len(x)``, a name of such a list, an array of it, and
    ``self.mean`` that only ``__init__`` sets, to a list.
    """
    if isinstance(data, cst.Call) and model.name(data.func) in _ARRAYS and data.args:
        data = data.args[0].value
    if isinstance(data, cst.List | cst.Tuple):
        return bool(data.elements) and model.literal(data) is not NotImplemented
    if isinstance(data, cst.ListComp):
        return _of_listed(model, data)
    if isinstance(data, cst.BinaryOperation):
        return _repeated(model, data)
    if isinstance(data, cst.Call):
        return _is_range(model, data)
    if isinstance(data, cst.Name):
        written, made = model.literal(data), model.assigned_once(data)
        array = isinstance(made, cst.Call) and model.name(made.func) in _ARRAYS
        return (isinstance(written, list | tuple) and bool(written)) or (
            made is not None and array and same_numbers(model, made)
        )
    if isinstance(data, cst.Subscript):
        return _under_text(model, data)
    given = by_constructor(model, data) if isinstance(data, cst.Attribute) else ()
    return bool(given) and all(_is_list(model, node) for node in given)


def _under_text(model: FileModel, data: cst.Subscript) -> bool:
    """``self.prompt["input_ids"]`` of what ``__init__`` was given, and nobody changes."""
    held = data.value
    if not isinstance(held, cst.Attribute) or text_of(index_of(data)) is None:
        return False
    if not by_constructor(model, held):
        return False
    changed = (
        node.target
        for node in model.nodes(cst.AssignTarget, cst.AugAssign)
        if isinstance(node, cst.AssignTarget | cst.AugAssign)
    )
    return not any(isinstance(one, cst.Subscript) and same_name(one.value, held) for one in changed)


def _repeated(model: FileModel, data: cst.BinaryOperation) -> bool:
    """``[self.start] * len(x)``: one number, as often as a size says."""
    if not isinstance(data.operator, cst.Multiply):
        return False
    listed, times = data.left, data.right
    if not isinstance(listed, cst.List):
        listed, times = times, listed
    if not isinstance(listed, cst.List) or not listed.elements or not is_fixed(model, times):
        return False
    return all(is_fixed(model, element.value) for element in listed.elements)


def _of_listed(model: FileModel, data: cst.ListComp) -> bool:
    """``[[w / 8, h / 8] for w, h in self.anchors]``: nothing but what such a list holds."""
    over = data.for_in
    if over.inner_for_in is not None or not same_numbers(model, over.iter):
        return False
    turn = set(names_bound(over.target))
    return all(
        part.value in turn
        for part in (*walk(data.elt), *(part for test in over.ifs for part in walk(test)))
        if isinstance(part, cst.Name)
    )


def _is_range(model: FileModel, data: cst.Call) -> bool:
    """``range(n)``, ``list(range(len(x)))``: counted from nought to a size."""
    call = model.call(data)
    if call.name in {"builtins.list", *_ARRAYS} and len(data.args) == 1:
        inner = data.args[0].value
        return isinstance(inner, cst.Call) and _is_range(model, inner)
    ranged = call.name in {"builtins.range", "numpy.arange"} and len(data.args) == 1
    return ranged and is_fixed(model, data.args[0].value)


def _is_list(model: FileModel, node: cst.BaseExpression) -> bool:
    """A list that is written, or a setting whose name speaks of several: ``token_ids``.

    Or an array of such a list.
    """
    if isinstance(node, cst.Call) and model.name(node.func) in _ARRAYS and node.args:
        return _is_list(model, node.args[0].value)
    if isinstance(node, cst.List | cst.Tuple):
        return model.literal(node) is not NotImplemented
    return (
        isinstance(node, cst.Name)
        and node.value.endswith("s")
        and model.value(node).kind in {Kind.UNKNOWN, Kind.CONTAINER}
        and not model.value(node).holds_device_tensor
        and model.is_parameter(node)
    )
