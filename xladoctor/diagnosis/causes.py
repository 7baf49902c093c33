"""Why each graph was new: what differs from the nearest earlier graph of the same process.

The agent gives a first answer from what it can see cheaply. Where the graphs themselves were kept,
this module compares them and gives a better one.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING

from xladoctor.diagnosis import cause_words as words
from xladoctor.diagnosis.difference import difference, distance, elements, tokens
from xladoctor.readings.hlo import Graph
from xladoctor.readings.places import location
from xladoctor.results import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xladoctor.diagnosis.difference import Difference
    from xladoctor.findings import Location
    from xladoctor.readings.hlo import Instruction
    from xladoctor.readings.tables import CompilationRow, Frame, Run

#: At most this many graphs of a process are compared; the rest keep the agent's answer.
MOST = 300
#: Less in common than this, and two graphs are different programs and no variation of one.
ALIKE = 0.6
#: As much in common, and other operations come with the other shapes of inputs: XLA and torch
#: choose some by size.
_RESIZED = 0.9
#: What ends a graph before the step is over, by trigger.
_CUTTING = {"read": "a read", "fallback": "an operation on the CPU"}
#: So many more instructions, at least half of them of lines that the earlier graph had as well, and
#: a graph has grown by a repetition of the step.
_GROWTH, _REPEATED = 0.2, 0.5
#: Less in common than this (share of the operations), and no graph is a piece of the other.
_PIECE = 0.2
#: Why a number can make a graph new by its value alone (torch_xla 2.9.0: 0, 1 and -1).
_SPECIAL = "torch_xla writes 0, 1 and -1 into the graph, where other numbers are inputs"
#: How far (steps, instructions a step) the line of a number of the backward pass is looked for.
_NEARBY = 8


@dataclasses.dataclass(slots=True)
class _Known:
    """A graph that has been compiled, with what was around it."""

    row: CompilationRow
    graph: Graph
    tokens: collections.Counter[tuple[str, str]]


def explain(run: Run) -> dict[tuple[str, str], Cause]:
    """The cause of each graph that was kept.

    Args:
        run: A run directory.

    Returns:
        Process and the graph's kept name to its cause.
    """
    processes: dict[str, list[CompilationRow]] = {}
    for row in run.compilations:
        if row.hlo is not None:
            processes.setdefault(row.process, []).append(row)
    found: dict[tuple[str, str], Cause] = {}
    for process, rows in processes.items():
        history = _History(run, process)
        for row in sorted(rows, key=lambda one: one.hlo or "")[:MOST]:
            cause = history.cause(row)
            if cause is not None:
                found[process, row.hlo or ""] = cause
    return found


class _History:
    """The graphs of one process, in the order in which they were compiled."""

    def __init__(self, run: Run, process: str) -> None:
        self._run = run
        self._cwd = run.manifest.cwd
        self._folder = Path(run.manifest.path) / process
        self._process = process
        self._known: list[_Known] = []

    def cause(self, row: CompilationRow) -> Cause | None:
        """Why this graph was new; None if it cannot be read."""
        graph = Graph(self._folder / (row.hlo or ""))
        if not graph.instructions:
            return None
        new = _Known(row, graph, tokens(graph))
        here = [
            one
            for one in self._known
            if one.row.frames == row.frames and one.row.trigger == row.trigger
        ]
        self._known.append(new)
        if not here:
            return self._first(row)
        # A read in the backward pass may end several graphs of one step: like with like.
        same = [one for one in here if one.row.piece == row.piece]
        old = min(reversed(same or here), key=lambda one: distance(one.tokens, new.tokens))
        found = difference(old.graph, graph)
        other = bool(found.gone_work or found.added_work) and not found.changed_inputs()
        if not same and row.trigger in _CUTTING and (other or found.likeness < ALIKE):
            return self._first(row)
        grown = len(graph.instructions) > max(len(one.graph.instructions) for one in same or here)
        return self._compared(old, new, found, grown=grown)

    def _first(self, row: CompilationRow) -> Cause:
        """The first graph that ends here."""
        place = location(row.frames, self._cwd)
        if row.trigger in _CUTTING:
            what = _CUTTING[row.trigger]
            again = f", number {row.piece} of the step" if row.piece and row.piece > 1 else ""
            return Cause("host-sync-split", f"{what} ends a graph of its own here{again}", place)
        return Cause("first-graph", "", place)

    def _compared(self, old: _Known, new: _Known, found: Difference, *, grown: bool) -> Cause:
        work = found.gone_work or found.added_work
        if not work:
            return self._same_work(old, new, found)
        if found.changed_inputs() and found.likeness > _RESIZED:
            return self._input_shape(old, new, found)
        odd = self._core_divergence(old, new)
        if odd:
            place = self._place(found.added_work, new.graph)
            return Cause("core-divergence", odd + self._operations(found), place)
        if grown and not found.gone_work and self._repeats(old, new, found):
            return self._grew(old, new, found)
        cuts = self._cuts(new.row) - self._cuts(old.row)
        less = self._cuts(old.row) - self._cuts(new.row)
        # A graph that shares next to nothing with the earlier one is no piece of it.
        if (cuts or less) and found.likeness > _PIECE:
            place = min(cuts or less, key=lambda one: (one.filename, one.row))
            where = f"{place.filename}:{place.row}"
            detail = f"the step's graph was cut at {where}, and not in the one before"
            if not cuts:
                detail = f"the step's graph was not cut at {where}, as it was before"
            return Cause("host-sync-split", detail, place)
        results = self._results(old, new, found)
        if results is not None:
            return results
        if found.likeness < ALIKE:
            common = len(found.pairs)
            if not found.gone_work:
                more = f"it holds an earlier graph and {len(found.added_work)} more operations"
                return Cause("op-changed", more, self._place(found.added_work, new.graph))
            return Cause(
                "op-changed",
                f"another program: it shares {common} of its {len(new.graph.instructions)} "
                "operations with the one most like it that had ended here",
            )
        changed = found.added_work or found.gone_work
        graph = new.graph if found.added_work else old.graph
        return Cause("op-changed", self._operations(found), self._place(changed, graph))

    def _operations(self, found: Difference) -> str:
        return words.operations(
            found.added_work,
            found.gone_work,
            self._place(found.added_work, found.new),
            self._place(found.gone_work, found.old),
        )

    def _grew(self, old: _Known, new: _Known, found: Difference) -> Cause:
        more = f"it holds all of the earlier graph and {len(found.added_work)} more operations"
        kept = words.keeps_history(old.row, new.row)
        return Cause(
            "graph-grew",
            f"{more} of the same lines ({words.operation_names(found.added_work)})"
            + (f"; {kept} keeps the history of the steps before" if kept else ""),
            self._place(found.added_work, new.graph),
        )

    def _same_work(self, old: _Known, new: _Known, found: Difference) -> Cause:
        """The same operations: inputs, numbers or results differ."""
        if found.changed_inputs():
            return self._input_shape(old, new, found)
        origins = found.origins()
        sized = [pair for pair in origins if pair[1].opcode != "broadcast"] or origins
        if sized:
            before, after = sized[0]
            what = words.operation(after) or words.MAKERS.get(after.opcode, after.opcode)
            change = words.change(before, after)
            named = words.changed_number(old.row, new.row, *change.split(" -> ", 1))
            detail = f"in {what}: {change}{named}"
            return Cause("constant-changed", detail, self._origin(sized[0], old, new))
        cause = self._constants(old, new, found)
        if cause is not None:
            return cause
        return self._results(old, new, found) or Cause(
            "unknown", "the operations and their shapes are those of an earlier graph"
        )

    def _results(self, old: _Known, new: _Known, found: Difference) -> Cause | None:
        """More or fewer tensors alive at the end of the graph, and what only they need."""
        more = len(new.graph.outputs) - len(old.graph.outputs)
        if not more or (found.gone_work if more > 0 else found.added_work):
            return None
        count = abs(more)
        shapes = words.other_shapes(old.graph.outputs, new.graph.outputs)
        rows = (old.row, new.row) if more > 0 else (new.row, old.row)
        change = "more" if more > 0 else "fewer"
        return Cause(
            "live-tensors-changed",
            f"{count} {change} when the graph ended ({words.kept(*rows, shapes)})",
            self._place(found.added_work, new.graph) or self._place(found.gone_work, old.graph),
        )

    def _constants(self, old: _Known, new: _Known, found: Difference) -> Cause | None:
        literals = found.changed_literals()
        if literals:
            before, after = literals[0]
            more = f"; and {len(literals) - 1} more" if len(literals) > 1 else ""
            what = words.operation(after, new.graph.users(after))
            made = "the size of a tensor of numbers, " if before.shape != after.shape else ""
            change = words.change(before, after)
            named = words.changed_number(old.row, new.row, *change.split(" -> ", 1))
            return Cause(
                "constant-changed",
                f"{f'in {what}: ' if what else ''}{made}{change}{named}{more}",
                self._origin(literals[0], old, new),
            )
        taken = [one for one in found.added if one.opcode == "parameter"]
        dropped = [one for one in found.gone if one.opcode == "parameter"]
        fixed = [one for one in found.added if one.opcode == "constant"]
        freed = [one for one in found.gone if one.opcode == "constant"]
        if dropped and fixed and all(elements(one.shape) == 1 for one in dropped):
            named = words.became(old.row, new.row, fixed[0].detail)
            named = named or self._optimizers(old, dropped)
            return Cause(
                "constant-changed",
                f"it became exactly {fixed[0].detail}{named}, and {_SPECIAL}",
                self._place([*fixed, *dropped], new.graph, old.graph)
                or self._fed_by(old.graph, dropped[0]),
            )
        if taken and freed and all(elements(one.shape) == 1 for one in taken):
            named = words.became(old.row, new.row, freed[0].detail, was=True)
            named = named or self._optimizers(new, taken)
            return Cause(
                "constant-changed",
                f"it was exactly {freed[0].detail}{named}, and {_SPECIAL}",
                self._place([*taken, *freed], new.graph, old.graph)
                or self._fed_by(new.graph, taken[0]),
            )
        if taken or dropped:
            return self._other_inputs(new, taken, dropped)
        return None

    @staticmethod
    def _optimizers(known: _Known, numbers: list[Instruction]) -> str:
        """Says so if torch's optimizer has put a number into the graph."""
        users = [user for one in numbers for user in known.graph.users(one)]
        files = [known.graph.frames(one)[:1] for one in (*numbers, *users)]
        if any("/torch/optim/" in frame[0] for frames in files for frame in frames):
            return " (a number of the optimizer: its learning rate, for example)"
        return ""

    def _other_inputs(
        self, new: _Known, taken: list[Instruction], dropped: list[Instruction]
    ) -> Cause:
        changed = taken or dropped
        if all(elements(one.shape) == 1 for one in changed):
            equal = "are equal now" if dropped else "are no longer equal"
            return Cause(
                "constant-changed",
                f"two numbers {equal}, and torch_xla gives equal numbers one input of the graph",
                self._place(taken, new.graph),
            )
        count = len(changed)
        shapes = ", ".join(dict.fromkeys(one.shape for one in changed[: words.SHOWN]))
        tensors = f"tensor{'s' if count > 1 else ''} ({shapes})"
        if taken:
            detail = f"it takes {count} more {tensors}, which the graph before made itself"
        else:
            detail = f"it takes {count} fewer {tensors} and makes them itself"
        return Cause("live-tensors-changed", detail)

    def _input_shape(self, old: _Known, new: _Known, found: Difference) -> Cause:
        changes = found.changed_inputs()
        texts: dict[str, None] = {}
        for before, after in changes:
            name = words.variable(old.row.named, new.row.named, before.shape, after.shape)
            which = f"input {after.number}" + (f" ({name})" if name else "")
            texts.setdefault(f"{which}: {before.shape} -> {after.shape}")
        shown = list(texts)
        detail = "; ".join(shown[: words.SHOWN])
        if len(shown) > words.SHOWN:
            detail += f"; and {len(shown) - words.SHOWN} more"
        return Cause("input-shape", detail, self._origin(changes[0], old, new))

    # -- places -------------------------------------------------------------------------------
    def _origin(
        self, pair: tuple[Instruction, Instruction], old: _Known, new: _Known
    ) -> Location | None:
        return (
            self._user_line(new.graph.frames(pair[1]))
            or self._user_line(old.graph.frames(pair[0]))
            or self._fed_by(new.graph, pair[1])
            or self._fed_by(old.graph, pair[0])
        )

    def _fed_by(self, graph: Graph, number: Instruction) -> Location | None:
        """The line whose backward pass uses a number that no line of the forward pass does.

        Operations of the backward pass have no line; but with the number they take what the
        forward pass has computed, and that has one.
        """
        if number.opcode not in ("constant", "parameter") or elements(number.shape) != 1:
            return None
        nearby = [number]
        for _ in range(_NEARBY):  # the number is brought into shape, then used
            users = [user for one in nearby for user in graph.users(one)][:_NEARBY]
            taken = (graph.by_name.get(name) for user in users for name in user.operands)
            place = self._place([one for one in taken if one is not None], graph)
            if place is not None or not users:
                return place
            nearby = users
        return None

    def _place(self, instructions: Iterable[Instruction], *graphs: Graph) -> Location | None:
        places = (self._user_line(g.frames(one)) for one in instructions for g in graphs)
        return next((place for place in places if place is not None), None)

    def _user_line(self, frames: tuple[Frame, ...]) -> Location | None:
        own = tuple(frame for frame in frames if words.is_users(frame[0]))
        return location(own, self._cwd)

    def _cuts(self, row: CompilationRow) -> set[Location]:
        return {
            place
            for frames in row.cuts
            if frames != row.frames and (place := location(frames, self._cwd)) is not None
        }

    # -- kinds --------------------------------------------------------------------------------
    def _repeats(self, old: _Known, new: _Known, found: Difference) -> bool:
        """Whether what was added comes from lines that the earlier graph had as well.

        All of it; or at least half of a lot, as when no step is ended: then the optimizer's work,
        which the first graph did not have, comes with the repetition.
        """
        lines = {(one.operation, self._user_line(found.new.frames(one))) for _, one in found.pairs}
        added = found.added_work
        keys = [(one.operation, self._user_line(found.new.frames(one))) for one in added]
        if all(key == ("", None) for key in keys):
            # Traced while nobody noted lines: only what the program keeps tells a repetition.
            return words.keeps_history(old.row, new.row) is not None
        again = sum(key in lines for key in keys)
        grown = len(added) >= _GROWTH * len(old.graph.instructions)
        return again == len(added) or (grown and again >= _REPEATED * len(added))

    def _core_divergence(self, old: _Known, new: _Known) -> str:
        """Whether other cores ran an earlier graph where some ran the new one; who, in words.

        A read on one core alone cuts that core's graph only; that is harmless and not meant.
        """
        row = new.row
        if row.graph is None or row.executions is None or row.cuts != old.row.cuts:
            return ""
        mine = {
            one.core
            for one in self._run.compilations
            if one.process == row.process and one.graph == row.graph
        }
        others = {
            core
            for core, count in self._launches[row.frames].items()
            if count > row.executions and core not in mine
        }
        if not others:
            return ""
        some = ", ".join(str(core) for core in sorted(mine))
        return f"core{'s' if len(mine) > 1 else ''} {some} alone: "

    @functools.cached_property
    def _launches(self) -> dict[tuple[Frame, ...], collections.Counter[int]]:
        """Program point to core to the number of graphs that ended there."""
        found: dict[tuple[Frame, ...], collections.Counter[int]] = collections.defaultdict(
            collections.Counter
        )
        for row in self._run.launches:
            if row.process == self._process:
                found[row.frames][row.core] += row.count
        return found
