"""Calls by which a program is tried out on the host: scripts without XLA, self-tests of a module.

``net(torch.randn(2, 3))`` below ``if __name__ == "__main__":`` of the module that defines the net
says nothing of where a training program for XLA devices runs it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.values import UNKNOWN, Kind, Value

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from xladoctor.lint.model.syntax import Tree

#: Functions that try out what stands beside them.
_TRIES = re.compile(r"^_*(test|demo|smoke|sanity)(_|$)|^main$")


class Trials:
    """Knows the calls of a program that only try something out.

    Args:
        tree: The syntax of the files.
        xla: The modules that are for XLA devices; of a program without, nothing is a trial.
        beside: The modules that neither are imported by those nor import them.
    """

    def __init__(
        self, tree: Tree, xla: Collection[cst.Module], beside: Collection[cst.Module]
    ) -> None:
        self._tree = tree
        self._xla = xla
        self._beside = beside
        self._known: dict[cst.Call, bool] = {}

    def believed(self, call: cst.Call | None, arguments: Mapping[str, Value]) -> dict[str, Value]:
        """What a call says of the parameters of a function: a trial, nothing of the host."""
        if call is None or not self._xla or not self._tries_out(call):
            return dict(arguments)
        return {name: _without_host(value) for name, value in arguments.items()}

    def _tries_out(self, call: cst.Call) -> bool:
        """Whether a call stands where no program for XLA devices comes by."""
        known = self._known.get(call)
        if known is None:
            known = self._known[call] = self._tries(call)
        return known

    def _tries(self, call: cst.Call) -> bool:
        module = self._tree.module_of(call)
        if module in self._xla:
            return False
        if module in self._beside:
            return True
        outermost: cst.CSTNode | None = None
        for parent in self._tree.ancestors(call):
            if isinstance(parent, cst.If) and asks_for_script(parent):
                return True
            if isinstance(parent, cst.FunctionDef | cst.ClassDef):
                outermost = parent
        return isinstance(outermost, cst.FunctionDef) and bool(_TRIES.search(outermost.name.value))


def _without_host(value: Value) -> Value:
    """A value of which is not known any more that its tensors are on the host."""
    if value.kind is Kind.CPU_TENSOR:
        return UNKNOWN
    if value.kind is not Kind.CONTAINER:
        return value
    element = None if value.element is None else _without_host(value.element)
    items = None if value.items is None else tuple(map(_without_host, value.items))
    entries = value.entries and tuple((key, _without_host(part)) for key, part in value.entries)
    return value.but(element=element, items=items, entries=entries)


def asks_for_script(node: cst.If) -> bool:
    """``if __name__ == "__main__":``."""
    test = node.test
    return (
        isinstance(test, cst.Comparison)
        and isinstance(test.left, cst.Name)
        and test.left.value == "__name__"
    )
