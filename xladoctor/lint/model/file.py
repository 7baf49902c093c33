"""``FileModel``: everything a rule can ask about a file."""

from __future__ import annotations

import ast
import dataclasses
import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.findings import Applicability, Edit, Fix, Position
from xladoctor.lint.model import edits
from xladoctor.lint.model.calls import CallSite
from xladoctor.lint.model.flow import Flow
from xladoctor.lint.model.loops import LoopKind
from xladoctor.lint.model.names import Names
from xladoctor.lint.model.regions import Regions, is_xla
from xladoctor.lint.model.syntax import Tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from xladoctor.lint.model.loops import Entry, Guard, Loop
    from xladoctor.lint.model.syntax import Class, Function
    from xladoctor.lint.model.values import Value

#: The newest torch_xla whose names and behaviour the rules know.
NEWEST_TORCH_XLA = (2, 9)


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A range of the source text with what it has to do with a problem; ``end`` is exclusive."""

    start: Position
    end: Position
    note: str = ""
    function: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """What a rule yields; the engine makes a ``Finding`` of it. See ``FileModel.problem``."""

    place: Place
    message: str
    suggestion: str = ""
    related: tuple[Place, ...] = ()
    fix: Fix | None = None


class FileModel:
    """The model of one file: built once, asked by all rules. See ``lint/rules/__init__.py``.

    Args:
        text: The source (for a notebook: its code cells as one text).
        target: The torch_xla version to lint for, such as ``(2, 9)``.
        shell: Magics and shell lines of a notebook as (row of the text, line as written).

    Raises:
        libcst.ParserSyntaxError: The text is not Python.
    """

    def __init__(
        self,
        text: str,
        target: tuple[int, ...] = NEWEST_TORCH_XLA,
        shell: tuple[tuple[int, str], ...] = (),
    ) -> None:
        self.text = text
        self.shell = shell
        self.target = target
        self.tree = Tree(cst.parse_module(text))
        self.names = Names(self.tree)
        self._flow = Flow(self.tree, self.names, is_xla=is_xla(self.tree, self.names))
        self._regions = Regions(self.tree, self.names, self._flow)

    # What kind of file is this?

    @property
    def is_xla(self) -> bool:
        """It imports torch_xla, or a framework and asks for TPU cores."""
        return self._regions.is_xla

    @property
    def multi_core(self) -> bool:
        """It starts several cores (spawn, launch, torchrun with the xla backend) without SPMD."""
        return not self.spmd and bool(self._regions.entries)

    @property
    def spmd(self) -> bool:
        """It runs as one program over all devices: ``use_spmd``, ``mark_sharding``, ``Mesh``."""
        return self._regions.spmd

    @property
    def frameworks(self) -> frozenset[str]:
        """Which of "lightning", "accelerate" and "transformers" it uses."""
        return self._regions.frameworks

    # Names and calls

    @functools.cached_property
    def _sites(self) -> dict[cst.Call, CallSite]:
        return {node: self._call_site(node) for node in self.tree.calls}

    def calls(self, *names: str) -> Iterator[CallSite]:
        """Calls, in source order: all, or those of dotted names (``"torch.cuda.*"``: a prefix)."""
        exact = {name for name in names if not name.endswith(".*")}
        prefixes = tuple(name[:-1] for name in names if name.endswith(".*"))
        for site in self._sites.values():
            if not names or (
                site.name is not None
                and (site.name in exact or bool(prefixes and site.name.startswith(prefixes)))
            ):
                yield site

    def methods(self, *names: str) -> Iterator[CallSite]:
        """Calls of ``x.name(...)`` for any of the names, whatever ``x`` is (also a module)."""
        return (site for site in self._sites.values() if site.method in names)

    def call(self, node: cst.Call) -> CallSite:
        """The call site of a call node."""
        return self._sites[node]

    def reached(self, node: cst.CSTNode) -> Sequence[CallSite]:
        """The calls in a node (a loop, a function), and in the functions of the file they run."""
        return [self._sites[call] for call in self._regions.reached(node)]

    def name(self, node: cst.BaseExpression) -> str | None:
        """Dotted original of an expression ("torch_xla.sync", "builtins.print"), or None."""
        return self.names.resolve(node)

    def spelled(self, dotted: str, node: cst.CSTNode) -> str | None:
        """How a dotted name can be written at a node with the imports the file has, or None."""
        return self.names.spelled(dotted, self.tree.scopes[node])

    def value(self, node: cst.BaseExpression) -> Value:
        """What an expression evaluates to, as far as the model knows."""
        return self._flow.value(node)

    def literal(self, node: cst.BaseExpression) -> object:
        """The Python value of a literal, of a name bound once to one, or ``NotImplemented``."""
        if isinstance(node, cst.Name):
            bindings = self.names.lookup(node.value, self.tree.scopes[node]) or []
            if (
                len(bindings) == 1
                and bindings[0].kind == "assign"
                and isinstance(bindings[0].node, cst.BaseExpression)
                and not isinstance(bindings[0].node, cst.Name)
            ):
                return self.literal(bindings[0].node)
        try:
            return ast.literal_eval(self.tree.text(node).strip())
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return NotImplemented

    @property
    def functions(self) -> Sequence[Function]:
        """All functions, methods and lambdas."""
        return tuple(self.tree.functions.values())

    @property
    def classes(self) -> Sequence[Class]:
        """All classes."""
        return tuple(self.tree.classes.values())

    def function_of(self, node: cst.CSTNode) -> Function | None:
        """The innermost function around a node."""
        return self.tree.function_of(node)

    def callers(self, function: Function) -> Sequence[CallSite]:
        """The calls of this file that are known to call the function."""
        return [self._sites[node] for node in self._flow.callers(function)]

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The node around a node."""
        return self.tree.parents.get(node)

    # Regions

    @property
    def loops(self) -> Sequence[Loop]:
        """All loops, framework methods included."""
        return self._regions.loops

    def loop(self, node: cst.CSTNode) -> Loop | None:
        """The innermost loop whose body holds the node, in the same function."""
        return self._regions.loop(node)

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
        """The step loop or else the evaluation loop that runs the node in every iteration."""
        return self.step_loop(node) or self.eval_loop(node)

    def throttled(self, node: cst.CSTNode) -> bool:
        """Whether it runs only every so many iterations (also when all calls that reach it do)."""
        return self._regions.throttled(node)

    def in_step_closure(self, node: cst.CSTNode) -> bool:
        """Whether it is in a function given to ``add_step_closure`` (or only called from one)."""
        return self._regions.in_step_closure(node)

    def on_every_core(self, node: cst.CSTNode) -> Entry | None:
        """Where the cores start that all run this node, or None if that is not known."""
        return self._regions.on_every_core(node)

    def guards(self, node: cst.CSTNode) -> Sequence[Guard]:
        """The conditions around a node within its function, innermost first, early returns too."""
        return self._regions.guards(node)

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
        start, end = edits.bounds(self.tree, node)
        function = self.tree.function_of(node)
        return Place(start, end, note, function.name if function else None)

    def place_of_row(self, row: int, note: str = "") -> Place:
        """A whole row of the text, for what is not syntax (``shell`` lines of a notebook)."""
        line = self.text.splitlines()[row - 1]
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
        place = node if isinstance(node, Place) else self.place(node)
        return Problem(place, message, suggestion, tuple(related), fix)

    def row(self, node: cst.CSTNode) -> int:
        """First row of a node in the model's text (for a notebook: use ``place`` in messages)."""
        return self.tree.row(node)

    def fix(
        self, message: str, *changes: Edit | Iterable[Edit] | None, safe: bool = True
    ) -> Fix | None:
        """A fix of one or several edits; None if one of them could not be made."""
        flat: list[Edit] = []
        for change in changes:
            if change is None:
                return None
            flat.extend([change] if isinstance(change, Edit) else change)
        kind = Applicability.SAFE if safe else Applicability.UNSAFE
        return Fix(kind, message, tuple(flat))

    def replace(self, node: cst.CSTNode, content: str) -> Edit:
        """Write something else in place of an expression."""
        return edits.replace(self.tree, node, content)

    def remove_argument(self, call: cst.Call, value: cst.BaseExpression) -> Edit | None:
        """Remove an argument from a call, with its comma."""
        return edits.remove_argument(self.tree, self.text, call, value)

    def add_argument(self, call: cst.Call, content: str) -> Edit | None:
        """Append an argument such as ``drop_last=True`` to a call."""
        return edits.add_argument(self.tree, self.text, call, content)

    def remove_statement(self, node: cst.CSTNode) -> Edit | None:
        """Remove the whole statement that a node is; None if it does not fill its lines alone."""
        return edits.remove_statement(self.tree, self.text, node)

    def insert_before(self, node: cst.CSTNode, statement: str) -> Edit | None:
        """Put a statement on its own line before the one that holds the node."""
        return edits.insert_before(self.tree, self.text, node, statement)

    def add_import(self, statement: str) -> Edit | None:
        """Add an import such as ``import torch_xla.runtime as xr`` after the file's last import."""
        return edits.add_import(self.tree, self.text, statement)

    def _call_site(self, node: cst.Call) -> CallSite:
        func = node.func
        return CallSite(
            node,
            self.names.resolve(func),
            func.attr.value if isinstance(func, cst.Attribute) else None,
            func.value if isinstance(func, cst.Attribute) else None,
            self.tree.function_of(node),
            self._flow.target(node),
        )
