"""The bare facts of a file's syntax, collected in one walk: parents, scopes, functions, calls.

LibCST's own visitor and metadata cost several times more than this walk, since they visit (and
rebuild) every piece of white space. Positions are computed when they are asked for.
"""

from __future__ import annotations

import abc
import ast
import bisect
import dataclasses
import functools
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import libcst as cst

from xladoctor.lint.model.definitions import Binding as Binding
from xladoctor.lint.model.definitions import Class as Class
from xladoctor.lint.model.definitions import Function as Function
from xladoctor.lint.model.definitions import FunctionNode as FunctionNode
from xladoctor.lint.model.definitions import Scope as Scope
from xladoctor.lint.model.parsing import Parsed
from xladoctor.lint.model.parts import LEAVES
from xladoctor.lint.model.parts import children as children
from xladoctor.lint.model.parts import walk as walk
from xladoctor.lint.model.positions import Positions
from xladoctor.lint.model.unreached import unreached

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from libcst.metadata import CodeRange


class _Kind(abc.ABCMeta):
    """What LibCST's kinds of nodes are made of here: ``isinstance`` asks in C, not in Python.

    Nobody registers other classes with them, which is what abstract classes ask for each time.
    """

    __instancecheck__ = type.__instancecheck__
    __subclasscheck__ = type.__subclasscheck__


def _ask_in_c() -> None:
    """Let nodes be hashed by identity, and told apart by type, as LibCST does it but not in Python.

    Nodes are the keys of nearly all that is known of them: a large file asks for millions.
    """
    own = cst.CSTNode.__hash__
    waiting: list[type[cst.CSTNode]] = [cst.CSTNode]  # type: ignore[type-abstract]
    while waiting:
        kind = waiting.pop()
        waiting.extend(kind.__subclasses__())
        if kind.__hash__ is own:
            kind.__hash__ = object.__hash__  # type: ignore[method-assign]
        if type(kind) is abc.ABCMeta:
            kind.__class__ = _Kind  # type: ignore[assignment]


_ask_in_c()

#: What the walk takes note of, beside calls and texts.
_COLLECTED = frozenset(
    [
        cst.FunctionDef, cst.Lambda, cst.ClassDef, cst.GeneratorExp, cst.ListComp, cst.SetComp,
        cst.DictComp, cst.For, cst.While, cst.CompFor, cst.Import, cst.ImportFrom,
    ]
)  # fmt: skip

_Node = TypeVar("_Node", bound=cst.CSTNode)
LoopNode: TypeAlias = cst.For | cst.While | cst.CompFor


@dataclasses.dataclass(eq=False, slots=True)
class Statement:
    """Where a node stands: used for order and for guards that return early."""

    node: cst.CSTNode
    block: cst.CSTNode
    index: int


class Tree:
    """One file's syntax tree with the facts a single walk collects.

    Args:
        text: What the file holds.
        parsed: Its syntax, if it is known.

    Raises:
        libcst.ParserSyntaxError: That is not Python.
    """

    def __init__(self, text: str, parsed: Parsed | None = None) -> None:
        self._parsed = Parsed(text) if parsed is None else parsed
        module = self._parsed.module
        self.module = module
        self.parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self.scopes: dict[cst.CSTNode, Scope] = {}
        self._homes: dict[cst.CSTNode, Function] = {}
        self.calls: list[cst.Call] = []
        self.loops: list[LoopNode] = []
        self.functions: dict[FunctionNode, Function] = {}
        self.classes: dict[cst.ClassDef, Class] = {}
        self.strings: list[cst.SimpleString] = []
        self.imports: list[cst.Import | cst.ImportFrom] = []
        self.top = Scope(module, None)
        self.modules: tuple[cst.Module, ...] = (module,)
        self._nodes: dict[tuple[type[cst.CSTNode], ...], Sequence[cst.CSTNode]] = {}
        self._walk(module, self.top, None, None)
        #: What never runs; ``calls`` and ``nodes`` leave it out.
        self.unreached = unreached(self.by_type)
        #: What is known of conditions that are no literals.
        self.decided: Mapping[cst.CSTNode, bool] = {}
        self.calls = self._of_live(self.calls)
        self._positions = Positions(self._parsed, self.parents)
        self._forest: Tree = self

    def decide(self, tests: Mapping[cst.CSTNode, bool]) -> None:
        """Take conditions of ``if`` for what they are, before anything is asked of the program."""
        self.decided = tests
        self.unreached |= unreached(self.by_type, tests)
        self.calls = self._of_live(self.calls)
        self._nodes.clear()

    @functools.cached_property
    def by_type(self) -> Mapping[type[cst.CSTNode], Sequence[cst.CSTNode]]:
        """The nodes of each type, in the order of the walk."""
        found: dict[type[cst.CSTNode], list[cst.CSTNode]] = {}
        for node in self.scopes:
            kind = type(node)
            if kind in found:
                found[kind].append(node)
            else:
                found[kind] = [node]
        return found

    def nodes(self, *kinds: type[cst.CSTNode]) -> Sequence[Any]:
        """The nodes of some types that may run, in the order of the walk; found once."""
        if len(kinds) == 1 and not self.unreached:
            return self.by_type.get(kinds[0], ())
        if kinds not in self._nodes:
            found = [node for kind in kinds for node in self.by_type.get(kind, ())]
            self._nodes[kinds] = sorted(self._of_live(found), key=self.order.__getitem__)
        return self._nodes[kinds]

    def within(self, node: cst.CSTNode, kind: type[_Node]) -> Sequence[_Node]:
        """The nodes of a type in a node, in the order of the walk: a part of all, and no new walk.

        Also those that never run.
        """
        if kind not in self._places:
            self._places[kind] = [self.order[one] for one in self.by_type.get(kind, ())]
        last = node
        while inner := children(last):
            last = inner[-1]
        places = self._places[kind]
        begin = bisect.bisect_left(places, self.order[node])
        end = bisect.bisect(places, self.order[last])
        return self.by_type.get(kind, ())[begin:end]  # type: ignore[return-value]

    @functools.cached_property
    def _places(self) -> dict[type[cst.CSTNode], list[int]]:
        """Where the nodes of a type come in the walk, of those that were asked for."""
        return {}

    def _of_live(self, nodes: list[_Node]) -> list[_Node]:
        return [node for node in nodes if node not in self.unreached] if self.unreached else nodes

    def range(self, node: cst.CSTNode) -> CodeRange:
        """Where a node stands (rows from 1, columns from 0, in code points)."""
        return self._positions.of(node)

    def row(self, node: cst.CSTNode) -> int:
        """The row on which a node begins."""
        return self._positions.of(node).start.line

    @functools.cached_property
    def order(self) -> dict[cst.CSTNode, int]:
        """Where each node comes in the walk: source order, without the cost of positions."""
        return {node: index for index, node in enumerate(self.scopes)}

    def text(self, node: cst.CSTNode) -> str:
        """The node as it is written; it may be one of a linked file."""
        if node not in self.scopes and self._forest is not self:
            return self._forest.text(node)
        found = self._positions.text(node)
        if found is None:
            self.complete()
            found = self.module.code_for_node(node)
        return found

    def literal(self, node: cst.CSTNode) -> object:
        """The Python value of a literal.

        Raises:
            ValueError: It is none.
            SyntaxError: As well.
        """
        twin = self._positions.literal(node)
        return ast.literal_eval(self.text(node).strip() if twin is None else twin)

    def complete(self) -> None:
        """Let the nodes hold all that LibCST's hold: white space and punctuation too."""
        self._parsed.complete()

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes around a node, innermost first; it may be one of a linked file."""
        parents = self.parents if node in self.parents else self._forest.parents
        current = parents.get(node)
        while current is not None:
            yield current
            current = parents.get(current)

    def bindings(self, name: cst.CSTNode | None) -> Sequence[Binding]:
        """The ways in which a name gets its meaning where it stands, in source order."""
        if not isinstance(name, cst.Name):
            return ()
        return self.scopes[name].lookup(name.value) or ()

    def assigned_once(self, name: cst.Name) -> cst.BaseExpression | None:
        """What a name is bound to where it stands, if that is one assignment alone."""
        bindings = self.bindings(name)
        node = bindings[0].node if len(bindings) == 1 and bindings[0].kind == "assign" else None
        return node if isinstance(node, cst.BaseExpression) else None

    def function_of(self, node: cst.CSTNode) -> Function | None:
        """The innermost function that holds the node (for a definition: the one around it)."""
        return self._homes.get(node)

    def module_of(self, node: cst.CSTNode) -> cst.Module:
        """The module that holds a node."""
        found = self.scopes[node].top.node
        assert isinstance(found, cst.Module)
        return found

    def statement(self, node: cst.CSTNode) -> Statement | None:
        """The innermost statement that holds the node, and its place in its block."""
        current = node
        for parent in (node, *self.ancestors(node)):
            if isinstance(parent, cst.IndentedBlock | cst.Module):
                for index, item in enumerate(parent.body):
                    if item is current:
                        return Statement(current, parent, index)
                return None
            current = parent
        return None

    def _walk(
        self, node: cst.CSTNode, scope: Scope, function: Function | None, owner: Class | None
    ) -> None:
        self.scopes[node] = scope
        if function is not None:
            self._homes[node] = function
        # By type and not by isinstance, which LibCST's abstract classes make slow: most nodes are
        # names and attributes, and nothing of all this.
        kind = type(node)
        if kind is cst.Call:
            self.calls.append(node)  # type: ignore[arg-type]
        elif kind is cst.SimpleString:
            self.strings.append(node)  # type: ignore[arg-type]
        elif kind in _COLLECTED:
            if isinstance(node, cst.FunctionDef | cst.Lambda):
                function = self._function(node, function, owner)
                owner = None
                scope = Scope(node, scope)
            elif isinstance(node, cst.ClassDef):
                owner = Class(node, node.name.value)
                self.classes[node] = owner
                scope = Scope(node, scope)
            elif isinstance(node, cst.GeneratorExp | cst.ListComp | cst.SetComp | cst.DictComp):
                scope = Scope(node, scope)
            else:
                self._collect(node)
            if scope.node is node:
                self.scopes[node] = scope
        for child in children(node):
            self.parents[child] = node
            if type(child) in LEAVES:  # half of all nodes
                self.scopes[child] = scope
                if function is not None:
                    self._homes[child] = function
            else:
                self._walk(child, scope, function, owner)

    def _collect(self, node: cst.CSTNode) -> None:
        if isinstance(node, cst.For | cst.While | cst.CompFor):
            self.loops.append(node)
        elif isinstance(node, cst.Import | cst.ImportFrom):
            self.imports.append(node)

    def _function(
        self, node: FunctionNode, outer: Function | None, owner: Class | None
    ) -> Function:
        params = node.params
        name = node.name.value if isinstance(node, cst.FunctionDef) else "<lambda>"
        decorators = (
            tuple(item.decorator for item in node.decorators)
            if isinstance(node, cst.FunctionDef)
            else ()
        )
        function = Function(
            node,
            name,
            owner,
            outer,
            tuple(p.name.value for p in (*params.posonly_params, *params.params)),
            tuple(p.name.value for p in params.kwonly_params),
            decorators,
        )
        self.functions[node] = function
        if owner is not None and isinstance(node, cst.FunctionDef) and not _sets(node):
            owner.methods[name] = function
        return function


def _sets(node: cst.FunctionDef) -> bool:
    """``@lines.setter def lines(self, value)``: who reads the attribute asks the one before it."""
    decorators = (item.decorator for item in node.decorators)
    return any(
        isinstance(one, cst.Attribute) and one.attr.value in {"setter", "deleter"}
        for one in decorators
    )


class Forest(Tree):
    """The trees of several files, asked as if they were one; positions stay with each tree.

    Args:
        trees: The trees, those of imported files before those that import them.
    """

    def __init__(self, trees: Sequence[Tree]) -> None:
        self.parents = {}
        self.scopes = {}
        self._homes = {}
        self.functions = {}
        self.classes = {}
        for tree in trees:
            self.parents.update(tree.parents)
            self.scopes.update(tree.scopes)
            self._homes.update(tree._homes)  # noqa: SLF001  (its own class)
            self.functions.update(tree.functions)
            self.classes.update(tree.classes)
        self.calls = [call for tree in trees for call in tree.calls]
        self.loops = [loop for tree in trees for loop in tree.loops]
        self.strings = [text for tree in trees for text in tree.strings]
        self.imports = [item for tree in trees for item in tree.imports]
        self.modules = tuple(tree.module for tree in trees)
        self._trees = {tree.module: tree for tree in trees}
        for tree in trees:
            tree._forest = self  # noqa: SLF001  (its own class)
        self.unreached = frozenset().union(*(tree.unreached for tree in trees))
        self._nodes = {}

    def text(self, node: cst.CSTNode) -> str:
        """The node as it is written."""
        return self._trees[self.module_of(node)].text(node)
