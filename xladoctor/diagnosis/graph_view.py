"""Recorded graphs in the words of the program, and what differs between two of them."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from xladoctor import files
from xladoctor.diagnosis.case import RunFacts
from xladoctor.diagnosis.causes import ALIKE
from xladoctor.diagnosis.difference import difference, distance, tokens
from xladoctor.diagnosis.process_chain import without_earlier_iterations
from xladoctor.errors import SourceError, UsageError
from xladoctor.graphs import Change, Diff, LineChanges, Operation, View
from xladoctor.readings.hlo import Graph
from xladoctor.readings.places import location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from xladoctor.diagnosis.difference import Difference
    from xladoctor.findings import Location
    from xladoctor.readings import Readings
    from xladoctor.readings.hlo import Instruction
    from xladoctor.results import Compilation

#: Instructions that are shown as what they bring, not as operations of their own.
_QUIET = frozenset({"parameter", "constant", "tuple", "get-tuple-element"})
#: In a diff, those that only bring values into shape follow from the others.
_FOLLOWING = _QUIET | {"broadcast", "reshape", "bitcast", "transpose", "convert", "copy"}
#: Longest value of a constant that is shown.
_LONGEST = 40


#: Instruction's name to torch's name of it ("" if not known) and its line.
_Words = dict[str, "tuple[str, Location | None]"]


class _Told(NamedTuple):
    """What is known of a graph's instructions, and the graph that it is known from."""

    words: _Words
    lines_of: int | None


class Graphs:
    """The graphs of one recorded run, by their numbers in the report.

    Args:
        readings: One run directory, or the hosts of one run.

    Raises:
        UsageError: It is text, or several runs.
    """

    def __init__(self, readings: Readings) -> None:
        # Hosts of one run lie in one folder, and so do all their graphs.
        folders = {run.manifest.path for run in readings.runs}
        if len(folders) != 1 or readings.reports or readings.debug:
            raise UsageError("graphs are kept in run directories only: name one run directory")
        run = RunFacts(without_earlier_iterations(readings).runs)
        self._name = readings.sources[0]
        self._folder = Path(*folders)
        self._cwd = run.runs[0].manifest.cwd
        self.compilations: tuple[Compilation, ...] = run.compilations
        self._files: dict[int, Path] = {}
        for number, (_, rows) in enumerate(run.new_graphs, 1):
            files_of = [self._folder / row.process / row.hlo for row in rows if row.hlo is not None]
            if files_of:
                # Of many hosts the graphs of some are here.
                here = (file for file in files_of if _text_of(file).is_file())
                self._files[number] = next(here, files_of[0])
        self._read: dict[int, Graph] = {}
        self._told: dict[int, _Told] = {}

    @property
    def kept(self) -> tuple[int, ...]:
        """Numbers of the graphs that can be shown."""
        return tuple(self._files)

    def graph(self, number: int) -> Graph:
        """A graph as it was recorded.

        Raises:
            UsageError: There is none with this number, or it was not kept.
            SourceError: Its file cannot be read.
        """
        if number not in self._files:
            raise UsageError(self._why_not(number))
        if number not in self._read:
            graph = Graph(self._files[number])
            if not graph.instructions:
                raise SourceError(f"graph {number}: {self._file(number)} is missing or cut")
            self._read[number] = graph
        return self._read[number]

    def _readable(self, number: int) -> bool:
        """Whether torch's operations and lines were noted in a graph, and it can be read."""
        try:
            graph = self.graph(number)
            return any(graph.frames(one) for one in graph.instructions)
        except SourceError:
            return False

    def _file(self, number: int) -> Path:
        return _text_of(self._files[number])

    def hlo(self, number: int) -> str:
        """The text of a graph as XLA was given it.

        Raises:
            UsageError, SourceError: As :meth:`graph`.
        """
        self.graph(number)
        return files.unpacked(self._file(number)).decode("utf-8", "replace")

    def _why_not(self, number: int) -> str:
        count = len(self.compilations)
        if not count:
            return f"{self._name}: this run has no graphs: nothing was compiled in it"
        if not self._files:
            return (
                f"{self._name}: none of the {count} graphs of this run was kept: record it with "
                "'xladoctor profile' (without --detail low)"
            )
        if 1 <= number <= count:
            return f"graph {number} was not kept; those that were: {ranges(self.kept)}"
        return (
            f"there is no graph {number}: this run has {ranges(self.kept)} "
            f"(xladoctor graph {self._name} lists them)"
        )

    # -- one graph ---------------------------------------------------------------------------
    def view(self, number: int) -> View:
        """A graph in the words of the program.

        Raises:
            UsageError, SourceError: As :meth:`graph`.
        """
        graph = self.graph(number)
        told = self._words(number)
        inputs = sorted(
            (one for one in graph.instructions if one.opcode == "parameter"),
            key=lambda one: one.number or 0,
        )
        return View(
            number,
            self.compilations[number - 1],
            tuple(one.shape for one in inputs),
            graph.outputs,
            tuple(self._operations(number)),
            len(graph.instructions),
            told.lines_of,
            any(place for _, place in told.words.values()),
        )

    def _operations(self, number: int) -> Iterator[Operation]:
        graph = self.graph(number)
        users = collections.defaultdict(set)
        for one in graph.instructions:
            for operand in one.operands:
                users[operand].add(one.name)
        for name, place, members in self._runs(number):
            names = {one.name for one in members}
            taken = dict.fromkeys(
                operand for one in members for operand in one.operands if operand not in names
            )
            results = [one for one in members if users[one.name] - names] or members[-1:]
            yield Operation(
                name or members[0].opcode,
                tuple(_input(graph.by_name[name]) for name in taken if name in graph.by_name),
                tuple(one.shape for one in results),
                place,
                len(members),
            )

    def _runs(self, number: int) -> Iterator[tuple[str, Location | None, list[Instruction]]]:
        """Neighbouring instructions of one operation at one line."""
        graph, told = self.graph(number), self._words(number)
        members: list[Instruction] = []
        before: tuple[object, str, Location | None] = (None, "", None)
        for one in graph.instructions:
            if one.opcode in _QUIET:
                continue
            name, place = told.words[one.name]
            # Without torch's name each instruction is told by itself.
            now = (graph.frames(one) if name else one.name, name, place)
            if members and now != before:
                yield *before[1:], members
                members = []
            before = now
            members.append(one)
        if members:
            yield *before[1:], members

    def _words(self, number: int) -> _Told:
        """Torch's name and the line of each instruction.

        In a program that had settled they were no longer noted; then they are those of the graph
        that is most like it.
        """
        if number not in self._told:
            graph = self.graph(number)
            own = {
                one.name: (one.operation, location(graph.frames(one), self._cwd))
                for one in graph.instructions
            }
            self._told[number] = _Told(own, None)
            if not any(place for _, place in own.values()):
                self._told[number] = self._borrowed(number, own)
        return self._told[number]

    def _borrowed(self, number: int, own: _Words) -> _Told:
        graph, place = self.graph(number), self.compilations[number - 1].location
        nearest: tuple[int, int] | None = None
        for other in self.kept:
            same = self.compilations[other - 1].location == place
            if other != number and same and self._readable(other):
                apart = distance(tokens(self.graph(other)), tokens(graph))
                nearest = min(nearest or (apart, other), (apart, other))
        if nearest is None:
            return _Told(own, None)
        found = difference(self.graph(nearest[1]), graph)
        if found.likeness < ALIKE:
            return _Told(own, None)
        words = self._words(nearest[1]).words
        return _Told({**own, **{new.name: words[old.name] for old, new in found.pairs}}, nearest[1])

    # -- two graphs ----------------------------------------------------------------------------
    def diff(self, old: int, new: int) -> Diff:
        """What differs from an earlier graph to a new one.

        Raises:
            UsageError, SourceError: As :meth:`graph`.
        """
        found = difference(self.graph(old), self.graph(new))
        by_line: dict[Location | None, list[Change]] = {}
        for place, change in self._changes(found, self._words(old).words, self._words(new).words):
            by_line.setdefault(place, []).append(change)
        lines = [LineChanges(place, tuple(_counted(changes))) for place, changes in by_line.items()]
        lines.sort(key=lambda one: not any(change.origin for change in one.changes))
        return Diff(old, new, tuple(_inputs(found)), tuple(lines), found.likeness)

    def diffs_to_earlier(self, most: int) -> tuple[Diff, ...]:
        """What differs from the last graph before that the same line ended in the same way.

        Args:
            most: How many are compared; the first ones.
        """
        before: dict[object, int] = {}
        found: list[Diff] = []
        for number in self.kept:
            one = self.compilations[number - 1]
            key = (one.location, one.trigger)
            old = before.get(key)
            if old is not None and len(found) < most and self._readable_both(old, number):
                found.append(self.diff(old, number))
            before[key] = number
        return tuple(found)

    def _readable_both(self, old: int, new: int) -> bool:
        try:
            return bool(self.graph(old).instructions and self.graph(new).instructions)
        except SourceError:
            return False

    @staticmethod
    def _changes(
        found: Difference, before: _Words, after: _Words
    ) -> Iterator[tuple[Location | None, Change]]:
        # Where an input has another shape, sizes that numbers and fills have follow from it.
        resized = bool(found.changed_inputs())
        begins = {
            id(new) for _, new in found.origins() if not (resized and new.opcode in _FOLLOWING)
        }
        for old, new in found.changed_literals():
            change = Change("changed", "constant", _value(old), _value(new), origin=not resized)
            if change.before != change.after:
                yield after[new.name][1] or before[old.name][1], change
        for old, new in found.pairs:
            origin = id(new) in begins
            if new.opcode in _QUIET or (new.opcode in _FOLLOWING and not origin):
                continue
            if (old.shape, old.detail) == (new.shape, new.detail):
                continue
            sides = (old.shape, new.shape)
            if old.shape == new.shape:  # bounds of a slice, a window ...
                sides = (old.detail, new.detail)
            name = after[new.name][0] or before[old.name][0] or new.opcode
            place = after[new.name][1] or before[old.name][1]
            yield place, Change("changed", name, *sides, origin=origin)
        for one in found.gone_work:
            name, place = before[one.name]
            yield place, Change("removed", name or one.opcode, one.shape, None)
        for one in found.added_work:
            name, place = after[one.name]
            yield place, Change("added", name or one.opcode, None, one.shape)


def _inputs(found: Difference) -> Iterator[Change]:
    for old, new in sorted(found.changed_inputs(), key=lambda pair: pair[1].number or 0):
        yield Change("changed", f"input {new.number}", old.shape, new.shape, origin=True)
    # Those that only one graph has move the numbers of all behind them: their shapes tell more.
    gone = collections.Counter(one.shape for one in found.gone if one.opcode == "parameter")
    added = collections.Counter(one.shape for one in found.added if one.opcode == "parameter")
    for shape, count in gone.items():
        yield Change("removed", "input", shape, None, count, origin=True)
    for shape, count in added.items():
        yield Change("added", "input", None, shape, count, origin=True)


def _counted(changes: Iterable[Change]) -> Iterator[Change]:
    """Those that are alike as one; the difference begins there if it does with any of them."""
    alike: dict[tuple[str, str, str | None, str | None], list[bool]] = {}
    for one in changes:
        alike.setdefault((one.kind, one.name, one.before, one.after), []).append(one.origin)
    for key, origins in alike.items():
        yield Change(*key, count=len(origins), origin=any(origins))


def _input(one: Instruction) -> str:
    return _value(one) if one.opcode == "constant" else one.shape


def _value(one: Instruction) -> str:
    value = one.detail if len(one.detail) <= _LONGEST else one.detail[:_LONGEST] + "..."
    return value if one.shape.endswith("[]") else f"{one.shape} {value}"


def _text_of(graph: Path) -> Path:
    """Where the text of a graph is that was kept under a name."""
    return graph.with_name(f"{graph.name}.txt.z")


def ranges(numbers: Iterable[int]) -> str:
    """``1-4, 6``: sorted numbers in short."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in found)
