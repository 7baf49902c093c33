"""What a call is given through a dictionary in sight: ``Trainer(**settings)``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import string

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Binding, Tree

#: Methods of a dictionary that leave it as it is.
_READS = frozenset({"get", "items", "keys", "values", "copy"})


class Unpacked:
    """Writes out what dictionaries bring that a call unpacks, where nothing changes them.

    Args:
        tree: The file's syntax.
        names: What its names are bound to.
    """

    def __init__(self, tree: Tree, names: Names | LinkedNames) -> None:
        self._tree = tree
        self._names = names
        self._known: dict[cst.Call, Sequence[cst.Arg]] = {}

    def arguments(self, call: cst.Call) -> Sequence[cst.Arg]:
        """The arguments of a call, with ``**settings`` as the keywords that it stands for.

        What is not written out stays as it is: a dictionary that is changed, handed to a function
        or made elsewhere. A keyword's value is the one in the dictionary.
        """
        if not any(argument.star == "**" for argument in call.args):
            return call.args
        if call not in self._known:
            found: list[cst.Arg] = []
            for argument in call.args:
                held = self._held(argument.value) if argument.star == "**" else None
                found += [argument] if held is None else held
            self._known[call] = found
        return self._known[call]

    def _held(self, node: cst.BaseExpression) -> Sequence[cst.Arg] | None:
        if type(node) is cst.Name:
            made = self._tree.bindings(node)
            if len(made) != 1 or made[0].kind != "assign" or node.value not in self._uses:
                return None  # bound in several ways, or in code that never runs
            if self._is_changed(self._uses[node.value], made):
                return None
            return _entries(made[0].node, self._is_dict)
        return _entries(node, self._is_dict)

    def _is_dict(self, call: cst.Call) -> bool:
        return self._names.resolve(call.func) == "builtins.dict"

    def _is_changed(self, uses: Sequence[cst.Name], bindings: Sequence[Binding]) -> bool:
        """Whether a dictionary is put to any use by which it may get other entries."""
        for use in uses:
            if self._tree.bindings(use) is not bindings:
                continue
            parent = self._tree.parents[use]
            if type(parent) is cst.Arg and parent.star == "**" and parent.value is use:
                continue
            if type(parent) is cst.Arg and parent.keyword is use:
                continue
            if type(parent) is cst.AssignTarget or (
                type(parent) is cst.AnnAssign and parent.target is use
            ):
                continue
            if type(parent) is cst.Attribute and parent.attr.value in _READS:
                continue
            if type(parent) is cst.Subscript and not self._is_target(parent):
                continue
            return True
        return False

    @functools.cached_property
    def _uses(self) -> Mapping[str, Sequence[cst.Name]]:
        """Where the names stand that calls unpack."""
        given = (argument for call in self._tree.calls for argument in call.args)
        starred = (argument.value for argument in given if argument.star == "**")
        found: dict[str, list[cst.Name]] = {
            node.value: [] for node in starred if type(node) is cst.Name
        }
        for node in self._tree.nodes(cst.Name) if found else ():
            if type(node) is cst.Name and node.value in found:
                found[node.value].append(node)
        return found

    def _is_target(self, node: cst.Subscript) -> bool:
        parent = self._tree.parents[node]
        return isinstance(parent, cst.AssignTarget | cst.AugAssign | cst.AnnAssign | cst.Del)


def _entries(node: cst.CSTNode, is_dict: Callable[[cst.Call], bool]) -> Sequence[cst.Arg] | None:
    """The entries of ``dict(lr=1)`` and ``{"lr": 1}`` as keywords, if all are written there."""
    if type(node) is cst.Call and is_dict(node):
        return None if any(argument.keyword is None for argument in node.args) else node.args
    if type(node) is not cst.Dict:
        return None
    found: list[cst.Arg] = []
    for element in node.elements:
        key = element.key if isinstance(element, cst.DictElement) else None
        name = string(key) if type(key) is cst.SimpleString else None
        if not isinstance(name, str) or not name.isidentifier():
            return None
        found.append(cst.Arg(element.value, cst.Name(name)))
    return found
