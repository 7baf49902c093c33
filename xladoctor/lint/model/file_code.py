"""What is written in a file: its calls, names, literals, functions and classes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeVar, overload

import libcst as cst

from xladoctor.lint import pins
from xladoctor.lint.asked import NEWEST_TORCH_XLA
from xladoctor.lint.library import builtin
from xladoctor.lint.model.call_index import CallIndex
from xladoctor.lint.model.dotted import dotted_text, string
from xladoctor.lint.model.given_alike import given_alike
from xladoctor.lint.model.inherited import is_super
from xladoctor.lint.model.program import Part, Program, Unit
from xladoctor.lint.model.spelling import Spelling
from xladoctor.lint.model.syntax import Class
from xladoctor.lint.model.taken import Taken, taken

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from xladoctor.lint.library import Library
    from xladoctor.lint.model.calls import CallSite
    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.regions import Regions
    from xladoctor.lint.model.syntax import Binding, Function
    from xladoctor.lint.model.values import Value

_Node = TypeVar("_Node", bound="cst.CSTNode")
_CONSTANTS: Mapping[str, object] = {"True": True, "False": False, "None": None}
#: What is never a literal: most of what is asked for one.
_NO_LITERALS = frozenset(
    [
        cst.Attribute, cst.Subscript, cst.Comparison, cst.BooleanOperation, cst.IfExp, cst.Lambda,
        cst.FormattedString, cst.ListComp, cst.GeneratorExp, cst.Await,
    ]
)  # fmt: skip


class FileCode:
    """The code of one file, with what its names and values are known to be.

    Args:
        text: The source (for a notebook: its code cells as one text).
        target: The torch_xla version to lint for, such as ``(2, 9)``.
        shell: Magics and shell lines of a notebook as (row of the text, line as written).
        of: The program and the part of it that is modelled, instead of a text by itself.
        library: What is known of names of libraries; by default what comes with xladoctor.

    Raises:
        libcst.ParserSyntaxError: The text is not Python.
    """

    def __init__(
        self,
        text: str = "",
        target: tuple[int, ...] = NEWEST_TORCH_XLA,
        shell: tuple[tuple[int, str], ...] = (),
        *,
        of: tuple[Program, Part] | None = None,
        library: Library | None = None,
    ) -> None:
        if of is None:
            program = Program([Part(Unit(text, shell=shell))], library)
            of = (program, program.parts[0])
            program.complete()
        self._program, self._part = of
        self.text = self._part.unit.text
        self.shell = self._part.unit.shell
        self.is_notebook = self._part.unit.is_notebook
        self.target = target
        self.library = library or builtin()
        self.tree = self._part.tree
        self.names = self._part.names
        self._spelling = Spelling(self.tree, self.names)

    @functools.cached_property
    def _flow(self) -> Flow:
        return self._program.flow

    @functools.cached_property
    def _regions(self) -> Regions:
        return self._program.regions

    @functools.cached_property
    def _calls(self) -> CallIndex:
        sites = self._program.sites
        return CallIndex({node: sites[node] for node in self.tree.calls}, self.tree.order)

    def keeps_old(self, framework: str, since: str = "") -> bool:
        """Whether the project requires a framework older than a release: see ``lint/pins``."""
        return pins.keeps_old(self._part.unit.pins, framework, since)

    @property
    def patched(self) -> frozenset[str]:
        """Names of libraries that the program sets anew: ``torch.cuda.current_device = mine``."""
        return self._program.patched

    def calls(self, *names: str) -> Iterator[CallSite]:
        """Calls, in source order: all, or those of dotted names (``"torch.cuda.*"``: a prefix)."""
        return self._calls.named(*names) if names else iter(self._calls.all)

    def methods(self, *names: str) -> Iterator[CallSite]:
        """Calls of ``x.name(...)`` for any of the names, whatever ``x`` is (also a module)."""
        return self._calls.methods(*names)

    def giving(self, keyword: str) -> Sequence[CallSite]:
        """Calls with an argument of that name, in source order."""
        return self._calls.giving(keyword)

    def calls_of(self, function: Function | None) -> Sequence[CallSite]:
        """The calls right in a function (None: in no function), in source order."""
        return self._calls.of(function)

    def call(self, node: cst.Call) -> CallSite:
        """The call site of a call node."""
        return self._program.sites[node]

    def reached(self, node: cst.CSTNode) -> Sequence[CallSite]:
        """The calls in a node (a loop, a function), and in the functions they run.

        Also in functions of linked files: ``is_here`` tells whether a node is of this file.
        """
        return [self._program.sites[call] for call in self._regions.graph.reached(node)]

    def calls_in(self, node: cst.CSTNode) -> Sequence[CallSite]:
        """The calls that stand in a node, in source order; none in the functions that they run."""
        dead = self._program.tree.unreached
        return [self.call(one) for one in self.within(node, cst.Call) if one not in dead]

    def calls_between(self, first: cst.CSTNode, last: cst.CSTNode) -> Sequence[CallSite]:
        """The calls between two nodes of a function, in source order; none of functions in it."""
        order, function = self.tree.order, self.function_of(first)
        places = (order[first], order[last])
        return [
            call for call in self.calls_of(function) if places[0] < order[call.node] < places[1]
        ]

    def is_here(self, node: cst.CSTNode) -> bool:
        """Whether a node is of this file (and not of a linked one)."""
        return node in self.tree.scopes

    def name(self, node: cst.BaseExpression) -> str | None:
        """Dotted original of an expression ("torch_xla.sync", "builtins.print"), or None."""
        return self._program.names.resolve(node)

    @functools.cached_property
    def named(self) -> Mapping[str, Sequence[cst.BaseExpression]]:
        """Names and attribute chains of the file by their dotted originals, each in source order.

        Those of builtins are left out.
        """
        found: dict[str, list[cst.BaseExpression]] = {}
        known: dict[object, str | None] = {}  # a name means the same all over its scope
        for node in self.nodes(cst.Attribute, cst.Name):
            key = (self.tree.scopes[node], node.value) if type(node) is cst.Name else node
            if key not in known:
                known[key] = self.names.resolve(node)
            dotted = known[key]
            if dotted is not None and not dotted.startswith("builtins."):
                found.setdefault(dotted, []).append(node)
        return found

    @functools.cached_property
    def assigned(self) -> Mapping[str, Sequence[cst.BaseExpression]]:
        """Values of assignments by the name or attribute chain that gets them, in source order."""
        found: dict[str, list[cst.BaseExpression]] = {}
        for node in self.nodes(cst.Assign):
            for target in node.targets:
                text = dotted_text(target.target)
                if text is not None:
                    found.setdefault(text, []).append(node.value)
        return found

    def spelled(self, dotted: str, node: cst.CSTNode) -> str | None:
        """How a dotted name can be written at a node with the imports the file has, or None."""
        return self._spelling.spelled(dotted, node)

    def value(self, node: cst.BaseExpression) -> Value:
        """What an expression evaluates to, as far as the model knows."""
        return self._flow.value(node)

    def bindings(self, name: str, node: cst.CSTNode) -> Sequence[Binding]:
        """The ways in which a name gets its meaning at a node, in source order."""
        return self._program.tree.scopes[node].lookup(name) or ()

    def assigned_to(self, held: cst.CSTNode | None) -> Sequence[cst.BaseExpression]:
        """What is assigned to a name where it stands, or to ``self.x``; nothing to other nodes."""
        if isinstance(held, cst.Attribute):
            return self.kept_in(held)
        made = (item for item in self._program.tree.bindings(held) if item.kind == "assign")
        return [item.node for item in made if isinstance(item.node, cst.BaseExpression)]

    def taken(self, target: cst.CSTNode) -> Taken | None:
        """The assignment or the loop whose target a node is, or is a part of."""
        return taken(self._program.tree, target)

    def made_of(self, held: cst.CSTNode) -> Sequence[cst.BaseExpression | None]:
        """What each binding of a name assigns: its value, or the whole that is taken apart."""
        if isinstance(held, cst.Attribute):
            return self._program.kept_with(held).made_of(held.attr.value)
        return [self.assigned_by(item) for item in self._program.tree.bindings(held)]

    def assigned_by(self, item: Binding) -> cst.BaseExpression | None:
        """What a binding assigns: its value, or the whole of which it takes a part."""
        if item.kind == "assign" and isinstance(item.node, cst.BaseExpression):
            return item.node
        part = self.taken(item.node) if item.kind == "other" else None
        return part.value if part is not None and isinstance(part.line, cst.Assign) else None

    def is_parameter(self, name: cst.Name) -> bool:
        """Whether a name is a parameter, whatever else it is bound to."""
        return any(item.kind == "param" for item in self.bindings(name.value, name))

    def assigned_once(self, name: cst.Name | cst.Attribute) -> cst.BaseExpression | None:
        """What a name is bound to where it stands, if that is one assignment alone."""
        if isinstance(name, cst.Attribute):
            return self._program.kept_with(name).once(name.attr.value)
        return self._program.tree.assigned_once(name)

    def literal(self, node: cst.BaseExpression) -> object:
        """The Python value of a literal, or ``NotImplemented``.

        Of a name, if it is bound once to one; of a parameter, if all calls give the same one.
        """
        if isinstance(node, cst.Name):
            made = self.assigned_once(node)
            if made is not None and not isinstance(made, cst.Name):
                return self.literal(made)
            return _CONSTANTS[node.value] if node.value in _CONSTANTS else self._given(node)
        if isinstance(node, cst.SimpleString):
            return string(node)
        if type(node) in _NO_LITERALS:
            return NotImplemented
        try:
            return self.tree.literal(node)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return NotImplemented

    @functools.cached_property
    def _given_alike(self) -> dict[tuple[Function, str], object]:
        return {}

    def _given(self, name: cst.Name) -> object:
        """The literal that all calls of a function give for its parameter."""
        function = self.with_parameter(name)
        if function is None or len(self.bindings(name.value, name)) != 1:
            return NotImplemented
        asked = (function, name.value)
        if asked not in self._given_alike:
            self._given_alike[asked] = NotImplemented  # while it is asked for: a call of itself
            self._given_alike[asked] = given_alike(self, *asked)
        return self._given_alike[asked]

    @overload
    def nodes(self) -> Iterable[cst.CSTNode]: ...

    @overload
    def nodes(self, *kinds: type[_Node]) -> Iterable[_Node]: ...

    def nodes(self, *kinds: type[cst.CSTNode]) -> Iterable[cst.CSTNode]:
        """Every node of the file that carries meaning, in source order, without a new walk.

        Args:
            kinds: Only nodes of exactly these types, which is quicker than to ask each node;
                those that never run are left out.
        """
        return self.tree.nodes(*kinds) if kinds else self.tree.scopes

    def within(self, node: cst.CSTNode, kind: type[_Node]) -> Sequence[_Node]:
        """The nodes of a type in a node, also of a linked file, without a new walk."""
        return self._program.tree.within(node, kind)

    def names_in(self, function: Function | None) -> Sequence[cst.Name]:
        """The names written in a function (None: in no function), not in functions within it."""
        return self._names_by_function.get(function, ())

    @functools.cached_property
    def _names_by_function(self) -> dict[Function | None, list[cst.Name]]:
        found: dict[Function | None, list[cst.Name]] = {}
        for name in self.nodes(cst.Name):
            found.setdefault(self.function_of(name), []).append(name)
        return found

    @property
    def functions(self) -> Sequence[Function]:
        """All functions, methods and lambdas."""
        return tuple(self.tree.functions.values())

    @property
    def classes(self) -> Sequence[Class]:
        """All classes."""
        return tuple(self.tree.classes.values())

    def kept(self, owner: Class) -> Mapping[str, Sequence[cst.BaseExpression]]:
        """What the methods of a class assign to the attributes of ``self``, by their names."""
        return self._program.kept(owner).given

    def kept_in(self, node: cst.Attribute) -> Sequence[cst.BaseExpression]:
        """All that the methods of its class give to ``self.x``; nothing of another's attribute."""
        return self._program.kept_with(node).given.get(node.attr.value, ())

    def bases(self, owner: Class) -> set[str]:
        """The last parts of the names of a class's bases ("LightningModule")."""
        return {(self.name(base) or "").rpartition(".")[2] for base in owner.bases}

    def parents(self, owner: Class) -> Sequence[Class]:
        """The classes of the program, also of linked files, that a class inherits from at once."""
        found = (self._program.names.definition(base) for base in owner.bases)
        return [cls for cls in found if isinstance(cls, Class) and cls is not owner]

    def functions_around(self, node: cst.CSTNode) -> Iterator[Function]:
        """The functions around a node, innermost first."""
        function = self.function_of(node)
        return iter(()) if function is None else function.around

    def with_parameter(self, name: cst.Name) -> Function | None:
        """The innermost function around a name that has a parameter of that name."""
        functions = self.functions_around(name)
        return next((x for x in functions if name.value in (*x.parameters, *x.keyword_only)), None)

    def class_around(self, node: cst.CSTNode) -> Class | None:
        """The class in whose methods, or in functions in them, a node stands."""
        return self._program.class_around(node)

    def is_super(self, node: cst.CSTNode | None) -> bool:
        """Whether an expression is ``super()``."""
        return is_super(node, self._program.names)

    def is_module(self, owner: Class) -> bool:
        """Whether the objects of a class are models, by its bases here and in linked files."""
        return self._flow.hooks.is_module(owner)

    def library_bases(self, owner: Class) -> Sequence[str]:
        """The dotted names of the bases that libraries have, through classes of the program."""
        return [base for base in self._flow.hooks.bases(owner) if base]

    def inherits(self, owner: Class, base: str) -> bool:
        """Whether a class has a base of this dotted name, through classes of the program too."""
        return self._flow.hooks.inherits(owner, frozenset({base}))

    def is_trainer(self, owner: Class) -> bool:
        """Whether a class is built on the Trainer of transformers, or is a copy of it."""
        return self._flow.hooks.is_trainer(owner)

    def runs(self, node: cst.BaseExpression) -> Function | None:
        """The function that a call of an expression runs, that of an object's ``__call__`` too."""
        return self._flow.classes.runs(self.value(node)).function

    def method(self, owner: Class, name: str) -> Function | None:
        """A method of a class, its own or that of a base in the program."""
        return self._flow.classes.method(owner, name)

    def is_optimizer(self, owner: Class) -> bool:
        """Whether the objects of a class are optimizers, by its bases here and in linked files."""
        return self._flow.hooks.is_optimizer(owner)

    def function_of(self, node: cst.CSTNode) -> Function | None:
        """The innermost function around a node."""
        return self._program.tree.function_of(node)

    def says_xla(self, node: cst.CSTNode) -> bool:
        """Whether the very file that a node stands in, here or linked, is for XLA devices."""
        return self._program.flow.belief.believes(node)

    def callers(self, function: Function) -> Sequence[CallSite]:
        """The calls, here or in linked files, that are known to call the function."""
        return [self._program.sites[node] for node in self._regions.callers(function)]

    def gives_name(self, call: CallSite) -> bool:
        """Whether a call gives the name of what it runs, and not its arguments."""
        return call.node in self._flow.named

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The node around a node."""
        return self._program.tree.parents.get(node)

    @functools.cached_property
    def unreached_rows(self) -> frozenset[int]:
        """The rows of statements that never run: behind ``return``, in ``if False:`` and so on.

        ``calls``, ``nodes`` and ``loops`` leave such code out, and the engine tells nothing of it.
        """
        dead = (node for node in self.tree.unreached if isinstance(node, cst.BaseStatement))
        places = (self.tree.range(node) for node in dead)
        return frozenset(
            row for place in places for row in range(place.start.line, place.end.line + 1)
        )
