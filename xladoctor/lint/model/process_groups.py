"""Whether code runs where a process group of PyTorch is joined: with GPUs, unless one is of XLA."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import imported, is_name, last_name, string

if TYPE_CHECKING:
    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree

_JOINS = "torch.distributed.init_process_group"
#: What asks whether one is joined.
_ASKS = frozenset({"torch.distributed.is_initialized"})
#: How programs call the number of a process that torch's launcher starts, -1 if it has not ...
_NUMBER = "local_rank"
#: ... and where processes meet, None if there is one.
_MEETING = "init_method"
_BACKEND = "torch_xla.distributed.xla_backend"


class ProcessGroups:
    """What conditions say of process groups.

    Args:
        tree: The syntax of the file or files.
        names: What their names are bound to.
    """

    def __init__(self, tree: Tree, names: Names | LinkedNames) -> None:
        self._tree = tree
        self._names = names

    @functools.cached_property
    def of_xla(self) -> bool:
        """Whether the program joins one of XLA devices: then a condition says nothing of them."""
        if any(_BACKEND in imported(node) for node in self._tree.imports):
            return True
        calls = (x for x in self._tree.calls if self._names.resolve(x.func) == _JOINS)
        return any(_is_xla(argument.value) for call in calls for argument in call.args)

    def asked(self, test: cst.BaseExpression) -> bool | None:
        """What a condition is where a group is joined; None if it does not ask for one.

        ``args.local_rank != -1``, ``config.init_method is not None``, ``dist.is_initialized()``.
        """
        if isinstance(test, cst.Call):
            return True if self._names.resolve(test.func) in _ASKS else None
        if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
            return None
        operator, right = test.comparisons[0].operator, test.comparisons[0].comparator
        asked = last_name(test.left)
        if asked == _MEETING:
            missing = is_name(right, "None")
        else:
            missing = asked == _NUMBER and _is_minus_one(right)
        if not missing:
            return None
        if isinstance(operator, cst.Equal | cst.Is):
            return False
        return True if isinstance(operator, cst.NotEqual | cst.IsNot) else None


def _is_minus_one(node: cst.BaseExpression) -> bool:
    return (
        isinstance(node, cst.UnaryOperation)
        and isinstance(node.operator, cst.Minus)
        and isinstance(node.expression, cst.Integer)
        and node.expression.value == "1"
    )


def _is_xla(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.SimpleString) and str(string(node)).startswith(("xla", "pjrt"))
