"""Numbers that say how a program is set up, and do not count turns: ``dim``, ``self.n_layers``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import calls
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.syntax import Function
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from xladoctor.lint.model.flow import Flow

#: How many functions a number is followed through.
_DEPTH = 2
#: Words of names of shapes, and of what chooses one of several ways.
_SET = frozenset(
    [
        "dim", "dims", "ndim", "ndims", "axis", "mode", "kind", "type", "size", "stride", "kernel",
        "dilation", "padding", "layers", "heads", "blocks", "channels", "classes", "depth",
        "groups", "dimension", "dimensions", "version", "variant", "degree",
    ]
)  # fmt: skip
#: Words of the numbers of what each batch goes to in turn: all of them have it.
_OF_EACH = frozenset({"optimizer", "optim", "dataloader", "task", "stage", "phase"})
#: Words of what counts, whatever else a name says.
_COUNTS = frozenset(
    [
        "step", "steps", "iter", "iters", "iteration", "iterations", "epoch", "epochs", "turn",
        "count", "counter", "update", "updates", "i", "it", "idx", "index", "batch", "seen", "n",
        "current", "cur", "global", "calls", "t", "k",
    ]
)  # fmt: skip


class Settings:
    """Answers for names and attributes.

    Args:
        flow: The program, and the values of its expressions.
    """

    def __init__(self, flow: Flow) -> None:
        self._tree = flow.tree
        self._flow = flow

    def hold(self, node: cst.BaseExpression, depth: int = _DEPTH) -> bool:
        """Whether a name or attribute is the same on all turns of a loop."""
        if isinstance(node, cst.Attribute):
            return _named(node.attr.value) or self._kept(node)
        if not isinstance(node, cst.Name):
            return False
        bindings = self._tree.bindings(node)
        if not bindings or any(item.kind not in {"assign", "param"} for item in bindings):
            return False
        if _named(node.value):
            return True
        given = bindings[0].node if len(bindings) == 1 else None
        if isinstance(given, cst.Param):
            return depth > 0 and self._always_given(node, given, depth)
        return isinstance(given, cst.Attribute) and self.hold(given, depth)

    def _kept(self, node: cst.Attribute) -> bool:
        """``self.levels``, which only the constructor sets."""
        if not is_name(node.value, "self"):
            return False
        return self._set_in.get(node.attr.value) == {"__init__"}

    @functools.cached_property
    def _set_in(self) -> dict[str, set[str]]:
        """Attributes of objects to the functions that set them; "" stands for what changes them."""
        found: dict[str, set[str]] = {}
        for node in self._tree.nodes(cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.For):
            target = node.target
            if not isinstance(target, cst.Attribute):
                continue
            function = self._tree.function_of(node)
            plain = isinstance(node, cst.AssignTarget | cst.AnnAssign)
            own = is_name(target.value, "self") and function is not None and plain
            found.setdefault(target.attr.value, set()).add(
                function.name if own and function is not None else ""
            )
        return found

    def _always_given(self, node: cst.Name, param: cst.Param, depth: int) -> bool:
        """``def pool(x, how): if how == 1``, which all callers give a number that is written."""
        function = self._tree.function_of(node)
        if not isinstance(function, Function) or node.value not in function.parameters:
            return False
        place = function.place(node.value)
        callers = self._flow.callers(function)
        if any(argument.star for call in callers for argument in call.args):
            return False
        given = [calls.given(call, place, node.value) for call in callers]
        written = [param.default if one is None else one for one in given]
        return bool(written) and all(
            one is not None and (_written(one) or self.hold(one, depth - 1)) for one in written
        )


def _named(name: str) -> bool:
    """``kernel_size``, ``num_layers``, ``optimizer_idx``, but not ``batch_index``."""
    said = words(name)
    return bool(said & _OF_EACH) or (bool(said & _SET) and not said & (_COUNTS - {"n"}))


def _written(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.UnaryOperation):
        node = node.expression
    return isinstance(node, cst.Integer | cst.SimpleString | cst.Float)
