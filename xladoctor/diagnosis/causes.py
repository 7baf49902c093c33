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

from xladoctor.diagnosis.difference import difference, distance, elements, tokens
from xladoctor.readings.hlo import Graph
from xladoctor.readings.run import location
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
#: How far (steps, instructions a step) the line of a number of the backward pass is looked for.
_NEARBY = 8
#: How many differences a cause names.
_SHOWN = 3


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
        history = _History(run, Path(run.manifest.path) / process)
        for row in sorted(rows, key=lambda one: one.hlo or "")[:MOST]:
            cause = history.cause(row)
            if cause is not None:
                found[process, row.hlo or ""] = cause
    return found


class _History:
    """The graphs of one process, in the order in which they were compiled."""

    def __init__(self, run: Run, folder: Path) -> None:
        self._run = run
        self._cwd = run.manifest.cwd
        self._folder = folder
        self._process = folder.name
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
        if not same and found.likeness < ALIKE and row.trigger in _CUTTING:
            return self._first(row)
        grown = len(graph.instructions) > max(len(one.graph.instructions) for one in here)
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
            return Cause("core-divergence", odd + _operations(self, found), place)
        cuts = self._cuts(new.row) - self._cuts(old.row)
        less = self._cuts(old.row) - self._cuts(new.row)
        if cuts or less:
            place = min(cuts or less, key=lambda one: (one.filename, one.row))
            where = f"{place.filename}:{place.row}"
            detail = f"the step's graph was cut at {where}, and not in the one before"
            if not cuts:
                detail = f"the step's graph was not cut at {where}, as it was before"
            return Cause("host-sync-split", detail, place)
        if grown and not found.gone_work and self._repeats(old, found):
            return self._grew(new, found)
        results = self._results(old, new, found)
        if results is not None:
            return results
        if found.likeness < ALIKE:
            common = sum(1 for _ in found.pairs)
            return Cause(
                "op-changed",
                f"a different program: {common} of its {len(new.graph.instructions)} operations "
                "are those of the nearest earlier graph",
            )
        changed = found.added_work or found.gone_work
        graph = new.graph if found.added_work else old.graph
        return Cause("op-changed", _operations(self, found), self._place(changed, graph))

    def _grew(self, new: _Known, found: Difference) -> Cause:
        more = f"it holds all of the earlier graph and {len(found.added_work)} more operations"
        return Cause(
            "graph-grew",
            f"{more} of the same lines ({_names(found.added_work)})",
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
            what = after.operation or after.opcode
            change = f"{before.shape} -> {after.shape}"
            if before.shape == after.shape or after.opcode == "slice":
                change = f"{before.detail} -> {after.detail}"
            detail = f"a Python number in {what}: {change}"
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
        shapes = _shapes(old.graph.outputs, new.graph.outputs)
        tensors = f"{'more' if more > 0 else 'fewer'} tensor{'s' if count > 1 else ''}"
        return Cause(
            "live-tensors-changed",
            f"{count} {tensors} alive when the graph ended ({shapes})",
            self._place(found.added_work, new.graph) or self._place(found.gone_work, old.graph),
        )

    def _constants(self, old: _Known, new: _Known, found: Difference) -> Cause | None:
        literals = found.changed_literals()
        if literals:
            before, after = literals[0]
            more = f"; and {len(literals) - 1} more" if len(literals) > 1 else ""
            kind = f" in {after.operation}" if after.operation.startswith("aten") else ""
            change = f"{before.detail} -> {after.detail}"
            if before.shape != after.shape:
                change = f"{before.shape} -> {after.shape}"
            return Cause(
                "constant-changed",
                f"a Python number{kind}: {change}{more}",
                self._origin(literals[0], old, new),
            )
        taken = [one for one in found.added if one.opcode == "parameter"]
        dropped = [one for one in found.gone if one.opcode == "parameter"]
        fixed = [one for one in found.added if one.opcode == "constant"]
        freed = [one for one in found.gone if one.opcode == "constant"]
        if dropped and fixed and all(elements(one.shape) == 1 for one in dropped):
            return Cause(
                "constant-changed",
                f"a number became exactly {fixed[0].detail} and so is now a part of the graph "
                "instead of an input (0 and 1 always are)",
                self._place([*fixed, *dropped], new.graph, old.graph)
                or self._fed_by(old.graph, dropped[0]),
            )
        if taken and freed and all(elements(one.shape) == 1 for one in taken):
            return Cause(
                "constant-changed",
                f"a number was exactly {freed[0].detail}, and so a part of the graph; now it is "
                "an input (0 and 1 never are)",
                self._place([*taken, *freed], new.graph, old.graph)
                or self._fed_by(new.graph, taken[0]),
            )
        if taken or dropped:
            return self._other_inputs(new, taken, dropped)
        return None

    def _other_inputs(
        self, new: _Known, taken: list[Instruction], dropped: list[Instruction]
    ) -> Cause:
        changed = taken or dropped
        if all(elements(one.shape) == 1 for one in changed):
            had = "share" if dropped else "no longer share"
            return Cause(
                "constant-changed",
                f"two Python numbers {had} one input: torch_xla gives equal numbers one input",
                self._place(taken, new.graph),
            )
        count = len(changed)
        shapes = ", ".join(dict.fromkeys(one.shape for one in changed[:_SHOWN]))
        if taken:
            detail = f"{count} more inputs ({shapes}): the earlier graph made these tensors itself"
        else:
            detail = f"{count} fewer inputs ({shapes}): this graph makes these tensors itself"
        return Cause("live-tensors-changed", detail)

    def _input_shape(self, old: _Known, new: _Known, found: Difference) -> Cause:
        changes = found.changed_inputs()
        texts: dict[str, None] = {}
        for before, after in changes:
            name = _variable(old.row.named, new.row.named, before.shape, after.shape)
            words = f"input {after.number}" + (f" ({name})" if name else "")
            texts.setdefault(f"{words}: {before.shape} -> {after.shape}")
        shown = list(texts)
        detail = "; ".join(shown[:_SHOWN])
        if len(shown) > _SHOWN:
            detail += f"; and {len(shown) - _SHOWN} more"
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
        own = tuple(frame for frame in frames if _is_users(frame[0]))
        return location(own, self._cwd)

    def _cuts(self, row: CompilationRow) -> set[Location]:
        return {
            place
            for frames in row.cuts
            if frames != row.frames and (place := location(frames, self._cwd)) is not None
        }

    # -- kinds --------------------------------------------------------------------------------
    def _repeats(self, old: _Known, found: Difference) -> bool:
        """Whether what was added comes from lines that the earlier graph had as well.

        All of it; or at least half of a lot, as when no step is ended: then the optimizer's work,
        which the first graph did not have, comes with the repetition.
        """
        lines = {(new.operation, self._user_line(found.new.frames(new))) for _, new in found.pairs}
        added = found.added_work
        again = sum(
            (one.operation, self._user_line(found.new.frames(one))) in lines for one in added
        )
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
        return f"core{'s' if len(mine) > 1 else ''} {some} alone, not the other {len(others)}: "

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


def _is_users(file: str) -> bool:
    """Whether a frame may be the user's: not torch's, the standard library's or our own."""
    if "-packages/" in file:
        return not any(
            part in file for part in ("-packages/torch/", "-packages/torch_xla/", "/xladoctor/")
        )
    return not any(
        part in file
        for part in ("/lib/python3", "<frozen", "/capture/agent/", "/capture/simulate/")
    )


def _variable(
    old: dict[str, str] | None, new: dict[str, str] | None, before: str, after: str
) -> str | None:
    """The variable of the user's frames that had the one shape and now has the other."""
    names = [
        name
        for name, shape in (new or {}).items()
        if shape == after and (old or {}).get(name) == before
    ]
    return min(names, key=lambda name: (name.count("."), len(name)), default=None)


def _operations(history: _History, found: Difference) -> str:
    parts = []
    for words, some, graph in (
        ("more", found.added_work, found.new),
        ("fewer", found.gone_work, found.old),
    ):
        if some:
            place = history._place(some, graph)  # noqa: SLF001
            where = f", first at {place.filename}:{place.row}" if place else ""
            count = f"{len(some)} {words} operation{'s' if len(some) > 1 else ''}"
            parts.append(f"{count} ({_names(some)}{where})")
    return "; ".join(parts)


def _names(instructions: Iterable[Instruction]) -> str:
    counts = collections.Counter(one.operation or one.opcode for one in instructions)
    shown = [name for name, _ in counts.most_common(_SHOWN)]
    return ", ".join(shown) + (" ..." if len(counts) > _SHOWN else "")


def _shapes(old: tuple[str, ...], new: tuple[str, ...]) -> str:
    one, other = collections.Counter(old), collections.Counter(new)
    changed = list((other - one).elements()) or list((one - other).elements())
    return ", ".join(changed[:_SHOWN]) + (" ..." if len(changed) > _SHOWN else "")
