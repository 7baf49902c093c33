"""Calls by which a program is tried out on the host: scripts without XLA, self-tests of a module.

``net(torch.randn(2, 3))`` below ``if __name__ == "__main__":`` of the module that defines the net
says nothing of where a training program for XLA devices runs it.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.values import UNKNOWN, Kind, Value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

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
        return isinstance(outermost, cst.FunctionDef) and (
            bool(_TRIES.search(outermost.name.value)) or self._is_script(outermost, module)
        )

    def _is_script(self, function: cst.FunctionDef, module: cst.Module) -> bool:
        """``if __name__ == "__main__": train()``: a whole program, beside the one for XLA devices.

        Nothing else names the function, in no file.
        """
        uses = [name for name in self._uses(function.name.value) if name is not function.name]
        return bool(uses) and all(
            self._tree.module_of(name) is module
            and any(
                isinstance(parent, cst.If) and asks_for_script(parent)
                for parent in self._tree.ancestors(name)
            )
            for name in uses
        )

    def _uses(self, text: str) -> Iterator[cst.Name]:
        """Where a name may mean a function of the files: not ``model.train()``, ``f(train=True)``.

        Nor the module in ``from train import run``.
        """
        for name in self._names.get(text, ()):
            parent = self._tree.parents[name]
            if isinstance(parent, cst.Attribute) and name is parent.attr:
                holder = parent.value
                if not isinstance(holder, cst.Name) or holder.value not in self._modules:
                    continue
            elif isinstance(parent, cst.ImportFrom) or (
                isinstance(parent, cst.Arg) and name is parent.keyword
            ):
                continue
            yield name

    @functools.cached_property
    def _names(self) -> dict[str, list[cst.Name]]:
        """Where each name stands, in all files."""
        found: dict[str, list[cst.Name]] = {}
        for name in self._tree.nodes(cst.Name):
            found.setdefault(name.value, []).append(name)
        return found

    @functools.cached_property
    def _modules(self) -> frozenset[str]:
        """What imports bind, in any file."""
        found: set[str] = set()
        for node in self._tree.imports:
            for alias in () if isinstance(node.names, cst.ImportStar) else node.names:
                bound = alias.asname.name if alias.asname is not None else alias.name
                while isinstance(bound, cst.Attribute):
                    bound = bound.value  # type: ignore[assignment]
                found.add(bound.value)  # type: ignore[union-attr]
        return frozenset(found)


def _without_host(value: Value) -> Value:
    """A value of which is not known any more that its tensors, or batches, are on the host."""
    if value.kind in {Kind.CPU_TENSOR, Kind.LOADER}:
        return UNKNOWN
    if value.kind is not Kind.CONTAINER:
        return value
    element = None if value.element is None else _without_host(value.element)
    items = None if value.items is None else tuple(map(_without_host, value.items))
    entries = value.entries and tuple((key, _without_host(part)) for key, part in value.entries)
    return value.but(element=element, items=items, entries=entries)


def in_script(tree: Tree, node: cst.CSTNode) -> bool:
    """Whether a node stands below ``if __name__ == "__main__":``."""
    return any(isinstance(one, cst.If) and asks_for_script(one) for one in tree.ancestors(node))


def asks_for_script(node: cst.If) -> bool:
    """``if __name__ == "__main__":``."""
    test = node.test
    return (
        isinstance(test, cst.Comparison)
        and isinstance(test.left, cst.Name)
        and test.left.value == "__name__"
    )
