"""What runs without gradients: under ``torch.no_grad()``, behind ``model.eval()``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.iterators import is_manager

if TYPE_CHECKING:
    from xladoctor.lint.model.callgraph import CallGraph
    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree

#: Contexts in which nothing that is computed keeps a history.
_NO_GRAD = frozenset(
    f"torch.{home}{name}"
    for home in ("", "autograd.", "autograd.grad_mode.")
    for name in ("no_grad", "inference_mode")
)


class WithoutGradients:
    """Answers for nodes.

    Args:
        tree: The syntax of the file or files.
        names: What its names are bound to.
        graph: Which function calls which.
    """

    def __init__(self, tree: Tree, names: Names | LinkedNames, graph: CallGraph) -> None:
        self._tree = tree
        self._names = names
        self._graph = graph

    def is_no_grad(self, node: cst.CSTNode) -> bool:
        """Whether a node is ``with torch.no_grad():`` or the like."""
        return isinstance(node, cst.With) and any(self._turns_off(item.item) for item in node.items)

    def unrecorded(self, node: cst.CSTNode) -> bool:
        """Whether a node stands within ``with torch.no_grad():``, in its own function."""
        for around in self._tree.ancestors(node):
            if isinstance(around, cst.FunctionDef):
                return any(self._turns_off(item.decorator) for item in around.decorators)
            if self.is_no_grad(around):
                return True
        return False

    def _turns_off(self, node: cst.BaseExpression) -> bool:
        return self._names.resolve(_called(node)) in _NO_GRAD or self._yields_without(node)

    def _yields_without(self, node: cst.BaseExpression) -> bool:
        """Whether what ``with evaluating(net):`` runs is between the halves of a function.

        ``@contextmanager``, whose ``yield`` stands under ``with torch.no_grad():``.
        """
        functions = self._graph.runs(node) if isinstance(node, cst.Call) else ()
        return any(
            is_manager(self._names, function)
            and any(map(self.unrecorded, self._tree.within(function.node, cst.Yield)))
            for function in functions
        )

    def no_grad(self, node: cst.CSTNode) -> bool:
        """Whether a node runs without gradients, or in a function that has called ``eval()``."""
        for parent in self._tree.ancestors(node):
            if self.is_no_grad(parent):
                return True
            if isinstance(parent, cst.FunctionDef):
                decorators = (_called(item.decorator) for item in parent.decorators)
                if any(self._names.resolve(item) in _NO_GRAD for item in decorators):
                    return True
                return self.eval_before(node, parent)
        return False

    def eval_before(self, node: cst.CSTNode, function: cst.FunctionDef | None) -> bool:
        """Whether the last ``.train()`` or ``.eval()`` before a node is ``.eval()``."""
        order = self._tree.order
        last: str | None = None
        home = self._tree.module_of(node)
        for call in (
            self._graph.calls_in(self._tree.functions[function])
            if function is not None
            else (x for x in self._tree.calls if self._graph.home[x] is None)
        ):
            if function is None and self._tree.module_of(call) is not home:
                continue
            if (
                isinstance(call.func, cst.Attribute)
                and call.func.attr.value in {"train", "eval"}
                and order[call] < order[node]
            ):
                last = call.func.attr.value
        return last == "eval"


def _called(node: cst.BaseExpression) -> cst.BaseExpression:
    return node.func if isinstance(node, cst.Call) else node
