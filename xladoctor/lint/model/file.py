"""``FileModel``: everything a rule can ask about a file."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, TypeVar, overload

import libcst as cst

from xladoctor.findings import Applicability, Edit, Fix, Position
from xladoctor.lint.asked import NEWEST_TORCH_XLA
from xladoctor.lint.effects import Effects
from xladoctor.lint.library import builtin
from xladoctor.lint.model import edits
from xladoctor.lint.model.dotted import dotted_text, string
from xladoctor.lint.model.loops import LoopKind, OnXla
from xladoctor.lint.model.program import Part, Program, Unit
from xladoctor.lint.model.spelling import Spelling
from xladoctor.lint.model.syntax import Class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from xladoctor.lint.library import Library
    from xladoctor.lint.model.calls import CallSite
    from xladoctor.lint.model.loops import Entry, Guard, Loop
    from xladoctor.lint.model.syntax import Binding, Function
    from xladoctor.lint.model.values import Value

_CONSTANTS: Mapping[str, object] = {"True": True, "False": False, "None": None}
#: What is never a literal: most of what is asked for one.
_NO_LITERALS = frozenset(
    [
        cst.Attribute, cst.Subscript, cst.Comparison, cst.BooleanOperation, cst.IfExp, cst.Lambda,
        cst.FormattedString, cst.ListComp, cst.GeneratorExp, cst.Await,
    ]
)  # fmt: skip
_Node = TypeVar("_Node", bound="cst.CSTNode")
_Answer = TypeVar("_Answer")


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A range of the source text with what it has to do with a problem; ``end`` is exclusive.

    ``filename`` is that of another linked file; None for the file itself. ``loop`` is the loop that
    the place is, if it is one.
    """

    start: Position
    end: Position
    note: str = ""
    function: str | None = None
    filename: str | None = None
    loop: Loop | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """What a rule yields; the engine makes a ``Finding`` of it. See ``FileModel.problem``."""

    place: Place
    message: str
    suggestion: str = ""
    related: tuple[Place, ...] = ()
    fix: Fix | None = None
    #: It stands in code that never runs on XLA devices.
    aside: bool = False
    #: The node at ``place``, if it is one.
    node: cst.CSTNode | None = dataclasses.field(default=None, compare=False)


class FileModel:
    """The model of one file: built once, asked by all rules. See ``lint/rules/__init__.py``.

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
        self.target = target
        self.library = library or builtin()
        self.tree = self._part.tree
        self.names = self._part.names
        self._spelling = Spelling(self.tree, self.names)
        self._flow = self._program.flow
        self._regions = self._program.regions
        self._answers: dict[object, Any] = {}

    @classmethod
    def view(
        cls, program: Program, part: Part, target: tuple[int, ...], library: Library
    ) -> FileModel:
        """The model of one file of a program: the same one whichever file asks for it."""
        key = part, target, library
        if key not in program.views:
            program.views[key] = cls(target=target, of=(program, part), library=library)
        return program.views[key]

    @property
    def program(self) -> Program:
        """The files that it is modelled with."""
        return self._program

    def complete(self) -> None:
        """Let nodes, those of linked files too, hold what LibCST's hold: white space as well.

        A rule of another project may ask for it.
        """
        self._program.complete()

    # What kind of file is this?

    @functools.cached_property
    def is_xla(self) -> bool:
        """It, or a linked file, is for a member of the family of XLA devices (``members``)."""
        return bool(self.members)

    @functools.cached_property
    def members(self) -> frozenset[str]:
        """The members that it, or a linked file, is for: torch_xla, torch_tpu ... (``members``).

        What imports it may get its device of a third file.
        """
        around = {self._part: None} | dict.fromkeys(self._linked)
        for part in self._program.above(self._part):
            around |= dict.fromkeys(part.below)
        return frozenset().union(*(part.members for part in around))

    @functools.cached_property
    def multi_core(self) -> bool:
        """It starts several cores (spawn, launch, torchrun with the xla backend) without SPMD."""
        mine = {part.tree.module for part in (self._part, *self._linked)}
        return not self.spmd and bool(mine & self._regions.entries.modules())

    @functools.cached_property
    def spmd(self) -> bool:
        """It runs as one program over all devices: ``use_spmd``, ``mark_sharding``, ``Mesh``."""
        return any(part.spmd for part in (self._part, *self._linked))

    @functools.cached_property
    def frameworks(self) -> frozenset[str]:
        """Which of "lightning", "accelerate" and "transformers" it, or what imports it, uses."""
        above = self._program.above(self._part)
        return frozenset().union(*(part.frameworks for part in (self._part, *above)))

    @functools.cached_property
    def _linked(self) -> Sequence[Part]:
        return self._program.linked(self._part)

    @functools.cached_property
    def linked(self) -> Sequence[FileModel]:
        """The models of the linted files that this one imports or that import it, also in turn."""
        return [
            FileModel.view(self._program, part, self.target, self.library) for part in self._linked
        ]

    def once(self, question: Callable[[FileModel], _Answer]) -> _Answer:
        """The answer to a question about the whole file, found once however many files ask."""
        if question not in self._answers:
            self._answers[question] = question(self)
        answer: _Answer = self._answers[question]
        return answer

    @property
    def lines(self) -> Sequence[str]:
        """The lines of the text, without what ends them."""
        return edits.lines_of(self.text)

    @functools.cached_property
    def effects(self) -> Effects:
        """What happens in the file: reads, ends of graphs, collectives, steps."""
        return Effects(self)

    # Names and calls

    @functools.cached_property
    def _sites(self) -> dict[cst.Call, CallSite]:
        sites = self._program.sites
        return {node: sites[node] for node in self.tree.calls}

    def calls(self, *names: str) -> Iterator[CallSite]:
        """Calls, in source order: all, or those of dotted names (``"torch.cuda.*"``: a prefix)."""
        if not names:
            return iter(self._sites.values())
        exact = {name for name in names if not name.endswith(".*")}
        prefixes = tuple(name[:-1] for name in names if name.endswith(".*"))
        if prefixes:
            exact |= {name for name in self._by_name if name.startswith(prefixes)}
        return self._in_order(self._by_name, exact)

    def methods(self, *names: str) -> Iterator[CallSite]:
        """Calls of ``x.name(...)`` for any of the names, whatever ``x`` is (also a module)."""
        return self._in_order(self._by_method, set(names))

    @functools.cached_property
    def _by_name(self) -> dict[str, list[CallSite]]:
        found: dict[str, list[CallSite]] = {}
        for site in self._sites.values():
            if site.name is not None:
                found.setdefault(site.name, []).append(site)
        return found

    @functools.cached_property
    def _by_method(self) -> dict[str, list[CallSite]]:
        found: dict[str, list[CallSite]] = {}
        for site in self._sites.values():
            if site.method is not None:
                found.setdefault(site.method, []).append(site)
        return found

    def giving(self, keyword: str) -> Sequence[CallSite]:
        """Calls with an argument of that name, in source order."""
        return self._by_keyword.get(keyword, ())

    @functools.cached_property
    def _by_keyword(self) -> dict[str, list[CallSite]]:
        found: dict[str, list[CallSite]] = {}
        for site in self._sites.values():
            for argument in site.node.args:
                if argument.keyword is not None:
                    found.setdefault(argument.keyword.value, []).append(site)
        return found

    def _in_order(
        self, index: Mapping[str, Sequence[CallSite]], wanted: set[str]
    ) -> Iterator[CallSite]:
        lists = [index[name] for name in wanted if name in index]
        if len(lists) == 1:
            return iter(lists[0])
        order = self.tree.order
        sites = (site for found in lists for site in found)
        return iter(sorted(sites, key=lambda site: order[site.node]))

    def call(self, node: cst.Call) -> CallSite:
        """The call site of a call node."""
        return self._program.sites[node]

    def reached(self, node: cst.CSTNode) -> Sequence[CallSite]:
        """The calls in a node (a loop, a function), and in the functions they run.

        Also in functions of linked files: ``is_here`` tells whether a node is of this file.
        """
        return [self._program.sites[call] for call in self._regions.graph.reached(node)]

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
        scope = self._program.tree.scopes[node]
        return self._program.names.lookup(name, scope) or []

    def literal(self, node: cst.BaseExpression) -> object:
        """The Python value of a literal, of a name bound once to one, or ``NotImplemented``."""
        if isinstance(node, cst.Name):
            bindings = self.bindings(node.value, node)
            if (
                len(bindings) == 1
                and bindings[0].kind == "assign"
                and isinstance(bindings[0].node, cst.BaseExpression)
                and not isinstance(bindings[0].node, cst.Name)
            ):
                return self.literal(bindings[0].node)
        if isinstance(node, cst.SimpleString):
            return string(node)
        if isinstance(node, cst.Name):
            return _CONSTANTS.get(node.value, NotImplemented)
        if type(node) in _NO_LITERALS:
            return NotImplemented
        try:
            return self.tree.literal(node)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return NotImplemented

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
        return self._program.kept(owner)

    def bases(self, owner: Class) -> set[str]:
        """The last parts of the names of a class's bases ("LightningModule")."""
        return {(self.name(base) or "").rpartition(".")[2] for base in owner.bases}

    def library_bases(self, owner: Class) -> Sequence[str]:
        """The dotted names of what a class inherits from, through classes of the program."""
        return self._flow.hooks.bases(owner)

    def parents(self, owner: Class) -> Sequence[Class]:
        """The classes of the program, also of linked files, that a class inherits from at once."""
        found = (self._program.names.definition(base) for base in owner.bases)
        return [cls for cls in found if isinstance(cls, Class) and cls is not owner]

    def functions_around(self, node: cst.CSTNode) -> Iterator[Function]:
        """The functions around a node, innermost first."""
        function = self.function_of(node)
        return iter(()) if function is None else function.around

    def is_module(self, owner: Class) -> bool:
        """Whether the objects of a class are models, by its bases here and in linked files."""
        return self._flow.hooks.is_module(owner)

    def inherits(self, owner: Class, base: str) -> bool:
        """Whether a class has a base of this dotted name, through classes of the program too."""
        return self._flow.hooks.inherits(owner, frozenset({base}))

    def method(self, owner: Class, name: str) -> Function | None:
        """A method of a class, its own or that of a base in the program."""
        return self._flow.method(owner, name)

    def is_optimizer(self, owner: Class) -> bool:
        """Whether the objects of a class are optimizers, by its bases here and in linked files."""
        return self._flow.hooks.is_optimizer(owner)

    def function_of(self, node: cst.CSTNode) -> Function | None:
        """The innermost function around a node."""
        return self._program.tree.function_of(node)

    def says_xla(self, node: cst.CSTNode) -> bool:
        """Whether the very file that a node stands in, here or linked, is for XLA devices."""
        return self._program.flow.believes(node)

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

    # Regions

    @functools.cached_property
    def loops(self) -> Sequence[Loop]:
        """All loops of the file, framework methods included."""
        mine = (loop for loop in self._regions.loops if self.is_here(loop.node))
        return [loop for loop in mine if loop.node not in self.tree.unreached]

    @property
    def loops_of_program(self) -> Sequence[Loop]:
        """All loops of the files that are linted together, also of those that do not import it."""
        dead = self._program.tree.unreached
        return [loop for loop in self._regions.loops if loop.node not in dead]

    def loop(self, node: cst.CSTNode) -> Loop | None:
        """The innermost loop whose body holds the node, in the same function."""
        return self._regions.loop(node)

    def is_loop(self, node: cst.CSTNode) -> bool:
        """Whether a node is a loop, or a method that a framework calls for every batch."""
        return self._regions.loop_at(node) is not None

    def step_loop(self, node: cst.CSTNode) -> Loop | None:
        """The step loop that runs the node in every iteration, here or through calls (depth 3).

        Code under ``if step % 50 == 0`` is still in the step loop: see ``throttled``. Code of a
        step closure is not: it runs after the step.
        """
        return self._regions.hot(node, LoopKind.STEP)

    def eval_loop(self, node: cst.CSTNode) -> Loop | None:
        """The evaluation loop that runs the node in every iteration, here or through calls."""
        return self._regions.hot(node, LoopKind.EVAL)

    def hot_loop(self, node: cst.CSTNode) -> Loop | None:
        """The step, evaluation or rollout loop that runs the node in every iteration."""
        return (
            self.step_loop(node)
            or self.eval_loop(node)
            or self._regions.hot(node, LoopKind.ROLLOUT)
        )

    def times(self, loop: Loop) -> str | None:
        """How often a loop's body runs ("10 x len(loader) times"), None if the code hides it."""
        return self._program.frequency.times(loop)

    def throttled(self, node: cst.CSTNode, *, of_batches: bool = False) -> bool:
        """Whether it runs only every so many steps (also when all calls that reach it do).

        Args:
            node: What runs.
            of_batches: Ask for batches: those of which the gradients are added up count apart.
        """
        return self._regions.throttled(node, of_batches=of_batches)

    def in_step_closure(self, node: cst.CSTNode) -> bool:
        """Whether it is in a function given to ``add_step_closure`` (or only called from one)."""
        return self._regions.closures.hold(node)

    def closure_calls(self, function: Function) -> Sequence[CallSite]:
        """The calls of ``add_step_closure`` that are given a function."""
        return [self._program.sites[node] for node in self._regions.closures.calls(function)]

    def on_every_core(self, node: cst.CSTNode) -> Entry | None:
        """Where the cores start that all run this node, or None if that is not known."""
        return self._regions.cores.entry(node)

    def on_xla(self, node: cst.CSTNode) -> OnXla:
        """Whether a node runs on XLA devices: yes, no, or maybe (it serves other devices too).

        What costs time on XLA devices is told unless the answer is no; what is only right on other
        devices is told where it is yes.
        """
        devices = self._regions.devices
        mentions = "accelerate" in self.frameworks and not self._linked
        if mentions and not devices.imports_torch_xla(self.tree.module):
            # A program of Accelerate's that only mentions XLA runs wherever it is started.
            return devices.asked(node) or OnXla.MAYBE
        return devices.runs(node)

    def guards(self, node: cst.CSTNode) -> Sequence[Guard]:
        """The conditions around a node within its function, innermost first, early returns too."""
        return self._regions.guards.around(node)

    def master_only(self, node: cst.CSTNode) -> Guard | None:
        """The condition that lets only the master core through (in a caller too), or None."""
        return self._regions.master_only(node)

    def core_guard(self, node: cst.CSTNode) -> Guard | None:
        """A condition around the node that may be true on one core and false on another.

        It asks for the core's number, or for a value computed from this core's batch that was
        not reduced over the cores.
        """
        return self._regions.core_guard(node)

    # Problems and fixes

    def place(self, node: cst.CSTNode, note: str = "") -> Place:
        """Where a node stands, for ``related``; a loop or ``def`` is marked by its first line."""
        part = self._part if self.is_here(node) else self._home(node)
        start, end = edits.bounds(part.tree, node)
        function = part.tree.function_of(node)
        filename = None if part is self._part else part.unit.filename
        name = function.name if function else None
        return Place(start, end, note, name, filename, self._regions.loop_at(node))

    def _home(self, node: cst.CSTNode) -> Part:
        return next(part for part in self._program.parts if node in part.tree.scopes)

    def rows_of(self, node: cst.CSTNode) -> str:
        """The rows that a node fills, and the comments above them, for what is said in words."""
        part = self._part if self.is_here(node) else self._home(node)
        lines = edits.lines_of(part.unit.text)
        above = getattr(node, "decorators", ())
        first = part.tree.row(above[0].decorator if above else node) - 1
        while first and lines[first - 1].lstrip()[:1] in {"", "#"}:
            first -= 1
        return "\n".join(lines[first : part.tree.range(node).end.line])

    def place_of_row(self, row: int, note: str = "") -> Place:
        """A whole row of the text, for what is not syntax (``shell`` lines of a notebook)."""
        line = self.lines[row - 1]
        return Place(Position(row, 1), Position(row, len(line) + 1), note)

    def problem(
        self,
        node: cst.CSTNode | Place,
        message: str,
        *,
        suggestion: str = "",
        related: Iterable[Place] = (),
        fix: Fix | None = None,
    ) -> Problem:
        """What a rule yields: a problem at a node."""
        if isinstance(node, Place):
            return Problem(node, message, suggestion, tuple(related), fix)
        aside = self.on_xla(node) is OnXla.NO
        return Problem(self.place(node), message, suggestion, tuple(related), fix, aside, node)

    def row(self, node: cst.CSTNode) -> int:
        """First row of a node in its file's text (for a notebook: use ``place`` in messages)."""
        return (self._part if self.is_here(node) else self._home(node)).tree.row(node)

    def fix(self, message: str, *changes: Edit | Iterable[Edit] | None, safe: bool) -> Fix | None:
        """A fix of one or several edits; None if one of them could not be made.

        Args:
            message: What it does, as an order.
            changes: The edits; None for one that could not be made.
            safe: Whether the program does the same afterwards, in the same numbers.
        """
        flat: list[Edit] = []
        for change in changes:
            if change is None:
                return None
            flat.extend([change] if isinstance(change, Edit) else change)
        kind = Applicability.SAFE if safe else Applicability.UNSAFE
        return Fix(kind, message, tuple(flat))

    def replace(self, node: cst.CSTNode, content: str) -> Edit | None:
        """Write something else in place of an expression."""
        return edits.replace(self.tree, node, content) if self.is_here(node) else None

    def remove_argument(self, call: cst.Call, value: cst.BaseExpression) -> Edit | None:
        """Remove an argument from a call, with its comma."""
        if not self.is_here(call):
            return None
        return edits.remove_argument(self.tree, self.text, call, value)

    def add_argument(self, call: cst.Call, content: str) -> Edit | None:
        """Append an argument such as ``drop_last=True`` to a call."""
        if not self.is_here(call):
            return None
        return edits.add_argument(self.tree, self.text, call, content)

    def remove_statement(self, node: cst.CSTNode) -> Edit | None:
        """Remove the whole statement that a node is; None if it does not fill its lines alone."""
        return edits.remove_statement(self.tree, self.text, node) if self.is_here(node) else None

    def insert_before(self, node: cst.CSTNode, statement: str) -> Edit | None:
        """Put a statement on its own line before the one that holds the node."""
        if not self.is_here(node):
            return None
        return edits.insert_before(self.tree, self.text, node, statement)

    def add_import(self, statement: str) -> Edit | None:
        """Add an import such as ``import torch_xla.runtime as xr`` after the file's last import."""
        return edits.add_import(self.tree, self.text, statement)
