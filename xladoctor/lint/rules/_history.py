"""Which tensors carry autograd history: what a loss is made of, back to what a model gave."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, Kind
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.model.parts import index_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from xladoctor.lint.model import FileModel

#: Methods and functions whose result has no history, whatever it is computed of.
_CUTS = frozenset(
    {
        *("detach", "detach_", "item", "tolist", "numpy", "size", "dim", "numel", "data_ptr"),
        *("argmax", "argmin", "argsort", "eq", "ne", "gt", "lt", "ge", "le", "long", "int", "bool"),
        *("sign", "round", "floor", "ceil", "trunc", "nonzero", "isnan", "isinf", "isfinite"),
        *("zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "equal"),
    }
)
_NO_HISTORY = frozenset({"data", "shape", "device", "dtype", "grad"})
#: Names and functions on the way from a loss to what a model gave.
_DEPTH = 6


@dataclasses.dataclass
class History:
    """What a loss is made of, by how it is written in one function.

    Attributes:
        carries: Names, attributes and entries that are device tensors with a history.
        parts: All of them, the containers among them.
    """

    carries: set[str] = dataclasses.field(default_factory=set)
    parts: set[str] = dataclasses.field(default_factory=set)

    def add(self, other: History) -> None:
        """Take over what another loss is made of."""
        self.carries |= other.carries
        self.parts |= other.parts


def history_of(model: FileModel, losses: Iterable[cst.BaseExpression]) -> History:
    """What expressions are made of that ``backward`` is called on, which have a history for sure.

    Args:
        model: The file.
        losses: Of one function.
    """
    found = History()
    for loss in losses:
        _Walk(model, found).has(loss, _DEPTH)
        if _written(loss) and model.value(loss).is_device_tensor:
            found.carries.add(text_of(model, loss))
    return found


def text_of(model: FileModel, node: cst.CSTNode) -> str:
    """How an expression is written, without the spaces around it."""
    return model.tree.text(node).strip()


def _written(node: cst.BaseExpression) -> bool:
    """``loss``, ``out.loss``, ``self.losses["rec"]``."""
    if isinstance(node, cst.Name):
        return True
    if isinstance(node, cst.Subscript):
        key = index_of(node)
        return isinstance(key, cst.SimpleString | cst.Integer) and _written(node.value)
    return isinstance(node, cst.Attribute) and _written(node.value)


class _Walk:
    """Goes from a loss back to what it is made of."""

    def __init__(self, model: FileModel, found: History) -> None:
        self._model = model
        self._found = found
        self._known: dict[tuple[Function | None, str], bool] = {}

    def has(self, node: cst.BaseExpression, depth: int) -> bool:
        """Whether an expression has a history, so far as it can be seen."""
        if depth == 0 or self._model.in_no_grad(node):
            return False
        if isinstance(node, cst.Call):
            return self._of_call(node, depth)
        if _written(node):
            return self._of_written(node, depth)
        if isinstance(node, cst.Comparison | cst.BooleanOperation):
            return False
        return self._any(_operands(node), depth)

    def _any(self, nodes: Iterable[cst.BaseExpression], depth: int) -> bool:
        """Whether one has a history, after a look at each."""
        return True in [self.has(node, depth) for node in nodes]

    def _of_call(self, node: cst.Call, depth: int) -> bool:
        model = self._model
        call = model.call(node)
        if call.last in _CUTS:
            return False
        given = [argument.value for argument in node.args]
        if call.receiver is not None and call.name is None:
            given.append(call.receiver)
        carried = self._any(given, depth)
        if self._is_output(node):
            return True
        if isinstance(call.target, Function):
            inner = _Walk(model, History())
            if inner._any(returned(call.target), depth - 1):
                return True
            return carried and model.value(node).is_device_tensor
        return carried

    def _is_output(self, node: cst.BaseExpression) -> bool:
        """Whether it is what a model gives, whatever that is."""
        return isinstance(node, cst.Call) and self._model.value(node.func).kind is Kind.MODEL

    def _of_written(self, node: cst.BaseExpression, depth: int) -> bool:
        """A name, an attribute or an entry: by all that is bound to it, or to what holds it."""
        model = self._model
        key = (model.function_of(node), text_of(model, node))
        if key in self._known:
            return self._known[key]
        self._known[key] = False  # where it is made of itself
        self._found.parts.add(key[1])
        made = list(_bound(model, node))
        if isinstance(node, cst.Attribute | cst.Subscript) and not made:
            if isinstance(node, cst.Attribute) and node.attr.value in _NO_HISTORY:
                return False
            made = [node.value]
        cut = any(isinstance(one, cst.Call) and model.call(one).last in _CUTS for one in made)
        has = not cut and self._any(made, depth - 1)
        self._known[key] = has
        if has and (model.value(node).is_device_tensor or any(map(self._is_output, made))):
            self._found.carries.add(key[1])
        return has


def _operands(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What an expression is computed of."""
    if isinstance(node, cst.BinaryOperation):
        yield from (node.left, node.right)
    elif isinstance(node, cst.UnaryOperation):
        yield node.expression
    elif isinstance(node, cst.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, cst.Tuple | cst.List | cst.Dict):
        yield from (one.value for one in node.elements)
    elif isinstance(node, cst.Subscript):
        yield node.value
    elif isinstance(node, cst.ListComp | cst.GeneratorExp):
        yield node.elt


def _bound(model: FileModel, node: cst.BaseExpression) -> Sequence[cst.BaseExpression]:
    """What is assigned to a name of a function, or to an attribute of its object.

    Of what is taken apart, the whole where it is not written out.
    """
    if isinstance(node, cst.Name):
        return [made for made in model.made_of(node) if made is not None]
    return model.kept_in(node) if isinstance(node, cst.Attribute) else ()
