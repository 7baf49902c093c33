"""``FileModel``: everything a rule can ask about a file."""

from __future__ import annotations

import functools
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import libcst as cst

from xladoctor.findings import Applicability, Edit, Fix, Position
from xladoctor.lint.effects import Effects
from xladoctor.lint.model import edits
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.file_code import FileCode
from xladoctor.lint.model.loops import LoopKind, OnXla
from xladoctor.lint.model.problems import Place, Problem
from xladoctor.lint.model.trials import asks_for_script
from xladoctor.lint.model.unit_tests import in_folder_of_tests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from xladoctor.lint.library import Library
    from xladoctor.lint.model.calls import CallSite
    from xladoctor.lint.model.loops import Entry, Guard, Loop
    from xladoctor.lint.model.program import Part, Program
    from xladoctor.lint.model.syntax import Function
    from xladoctor.lint.started import Started

_Answer = TypeVar("_Answer")
#: What a step is taken by, on all cores together.
_STEPS_OF_XLA = (f"{know.XM}.optimizer_step", f"{know.XM}.reduce_gradients")


class FileModel(FileCode):
    """The model of one file: built once, asked by all rules. See ``lint/rules/__init__.py``."""

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
        """The members that it, or a linked file, is for: torch_xla, torch_tpu ... (``members``)."""
        return frozenset().union(*(part.members for part in self._deciding))

    @property
    def copied(self) -> bool:
        """Whether its project is started on GPUs, and its lines for TPUs are transformers'."""
        return self._part.copied

    @functools.cached_property
    def started_by(self) -> Started | None:
        """The settings that start it on TPUs, where no file says that it is for XLA devices."""
        saying = [part for part in self._deciding if part.is_xla]
        if not saying or not all(part.by_settings for part in saying):
            return None
        return saying[0].unit.started

    @property
    def _deciding(self) -> Sequence[Part]:
        """The files that say what it is for: what imports it may get its device of a third."""
        around = {self._part: None} | dict.fromkeys(self._linked)
        for part in self._program.above(self._part):
            around |= dict.fromkeys(part.below)
        return [part for part in around if part is self._part or not part.only_asks]

    @property
    def meant_for_tpus(self) -> bool:
        """Whether the file's name says so (``train_tpu.py``), or the settings of its project."""
        return self._part.unit.meant_for_tpus

    @property
    def started(self) -> Started:
        """What the settings of its project start its programs on."""
        return self._part.unit.started

    @property
    def stem(self) -> str:
        """What the file is called, without its folder and its ending."""
        return PurePath(self._part.unit.filename).stem

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
        return frozenset().union(*map(self._program.frameworks, (self._part, *above)))

    def holds_copy_of(self, *packages: str) -> bool:
        """Whether the project holds one of these packages itself, and the file imports that.

        What newer releases of it have lost is nothing to the file.
        """
        return any(name.partition(".")[0] in packages for name in self._part.unit.imports)

    @functools.cached_property
    def led_by(self) -> frozenset[str]:
        """The frameworks that take the file's steps: not a Trainer that is given a loop of its own.

        Nor one of which a program with its own loop takes the arguments alone, nor one beside which
        the program, in this file or a linked one, takes its steps by torch_xla.
        """
        own = self.frameworks & {"accelerate", "transformers"}
        alone = own == self.frameworks == {"transformers"} and any(
            loop.kind is LoopKind.STEP and not loop.implicit for loop in self.loops
        )
        by_hand = alone or (bool(own) and any(part.steps_by_hand for part in (self, *self.linked)))
        return self.frameworks - own if by_hand else self.frameworks

    @functools.cached_property
    def steps_by_hand(self) -> bool:
        """Whether a loop of the file takes its steps by torch_xla, backward passes included."""
        for call in self.calls(*_STEPS_OF_XLA):
            loop = self.step_loop(call.node)
            if loop is None or loop.implicit:
                continue
            passes = (one.written for one in self.reached(loop.node) if one.method == "backward")
            if not any("accelerator." in written for written in passes):
                return True
        return False

    @functools.cached_property
    def looped_by(self) -> frozenset[str]:
        """The frameworks that run the file's loops: Accelerate leaves them to the program."""
        return self.led_by - {"accelerate"}

    @functools.cached_property
    def _linked(self) -> Sequence[Part]:
        return self._program.linked(self._part)

    @functools.cached_property
    def linked(self) -> Sequence[FileModel]:
        """The models of the linted files that this one imports or that import it, also in turn."""
        return [
            FileModel.view(self._program, part, self.target, self.library) for part in self._linked
        ]

    @functools.cached_property
    def files_of_program(self) -> Sequence[FileModel]:
        """The models of all files that are linted together, this one first.

        A script may hand what it makes of one file to a function of another.
        """
        others = (part for part in self._program.parts if part is not self._part)
        views = [FileModel.view(self._program, x, self.target, self.library) for x in others]
        return [self, *views]

    def file_with(self, node: cst.CSTNode) -> FileModel:
        """The model of the file that a node stands in: this one, or another of the program.

        A linked one first; calls also come to files beside it, which others import.
        """
        if self.is_here(node):
            return self
        parts = (*self._linked, *self._program.parts)
        part = next((one for one in parts if node in one.tree.scopes), self._part)
        return FileModel.view(self._program, part, self.target, self.library)

    def imported_literal(self, node: cst.BaseExpression) -> object:
        """The Python value of a literal that a linked file binds a name to; ``NotImplemented``."""
        made = self._program.names.assigned_elsewhere(node)
        home = next((part for part in self.linked if part.is_here(made)), None) if made else None
        return NotImplemented if home is None or made is None else home.literal(made)

    @functools.cached_property
    def _answers(self) -> dict[object, Any]:
        return {}

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

    # Regions

    @functools.cached_property
    def loops(self) -> Sequence[Loop]:
        """All loops of the file, framework methods included."""
        mine = (loop for loop in self._regions.loops if self.is_here(loop.node))
        return [loop for loop in mine if loop.node not in self.tree.unreached]

    @functools.cached_property
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

    def turns(self, loop: Loop) -> int | str | None:
        """See :meth:`Frequency.turns`."""
        return self._program.frequency.turns(loop)

    def throttled(self, node: cst.CSTNode, *, of_batches: bool = False) -> bool:
        """Whether it runs only every so many steps (also when all calls that reach it do).

        Args:
            node: What runs.
            of_batches: Ask for batches: those of which the gradients are added up count apart.
        """
        return self._regions.throttled(node, of_batches=of_batches)

    def holds_step(self, guard: Guard) -> bool:
        """Whether the optimizer steps under a condition alone: it is true once for each step."""
        return self._regions.holds_step(guard)

    def in_no_grad(self, node: cst.CSTNode) -> bool:
        """Whether a node stands within ``with torch.no_grad():``, in its own function."""
        return self._regions.without_gradients.unrecorded(node)

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
        if mentions and not self.imports_torch_xla:
            # A program of Accelerate's that only mentions XLA runs wherever it is started.
            return devices.asked(node) or OnXla.MAYBE
        return devices.runs(node)

    @property
    def imports_torch_xla(self) -> bool:
        """Whether the file imports torch_xla itself, perhaps only where it is there."""
        return self._regions.devices.imports_torch_xla(self.tree.module)

    def in_unit_test(self, node: cst.CSTNode) -> bool:
        """Whether a node stands in a unit test: what it reads, it reads on purpose.

        Also in a function of a file beside tests that is no script.
        """
        if self._is_beside_tests and self.function_of(node) is not None and self.is_here(node):
            return True
        return self._regions.tests.hold(node)

    @functools.cached_property
    def _is_beside_tests(self) -> bool:
        """Whether it stands in a folder of tests, and neither it nor others run it as a program."""
        parts = (self._part, *self._program.above(self._part))
        return all(in_folder_of_tests(part.unit.filename) for part in parts) and not any(
            map(asks_for_script, self.nodes(cst.If))
        )

    def guards(self, node: cst.CSTNode) -> Sequence[Guard]:
        """The conditions around a node within its function, innermost first, early returns too."""
        return self._regions.guards.around(node)

    def master_only(self, node: cst.CSTNode) -> Guard | None:
        """The condition that lets only the master core through (in a caller too), or None."""
        return self._regions.master_only(node)

    def core_guard(self, node: cst.CSTNode, *, every: bool = False) -> Guard | None:
        """A condition around the node that may be true on one core and false on another.

        It asks for the core's number, or for a value computed from this core's batch that was
        not reduced over the cores.

        Args:
            node: Any node.
            every: Only where each way to the node has such a condition.
        """
        return self._regions.core_guard(node, every=every)

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
        more = max(0, len(dict(self.shell).get(row, "")) - len("pass"))
        return Place(Position(row, 1), Position(row, len(self.lines[row - 1]) + more + 1), note)

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
        aside = self.on_xla(node) is OnXla.NO or self.in_unit_test(node)
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
