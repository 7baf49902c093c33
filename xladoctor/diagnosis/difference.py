"""The smallest difference between two graphs, in the words of a cause.

The instructions of both are aligned in their order. An instruction is an *origin* of the change if
it differs (shape, literal, slice bounds) although all that it takes has kept its shape; everything
behind it differs only because of it. Inputs and literals are origins by definition.
"""

from __future__ import annotations

import collections
import dataclasses
import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from xladoctor.readings.hlo import Graph, Instruction

#: Instructions that only bring values into shape: they say nothing about what a program computes.
_PLUMBING = frozenset(
    {"parameter", "constant", "broadcast", "reshape", "tuple", "get-tuple-element", "bitcast",
     "transpose", "convert", "copy"}
)  # fmt: skip

#: Longest stretch (product of both lengths) that is aligned exactly; beyond it by kind only.
_EXACT = 9_000_000

Token = tuple[str, str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """What differs between an earlier graph and a new one.

    Attributes:
        pairs: Instructions that correspond to each other, earlier and new.
        gone: Instructions that only the earlier graph has.
        added: Instructions that only the new graph has.
    """

    old: Graph
    new: Graph
    pairs: tuple[tuple[Instruction, Instruction], ...]
    gone: tuple[Instruction, ...]
    added: tuple[Instruction, ...]

    @property
    def likeness(self) -> float:
        """Share of computing instructions that both have: 1 for the same operations."""
        common = sum(_computes(new) for _, new in self.pairs)
        every = 2 * common + len(self.gone_work) + len(self.added_work)
        return 2 * common / every if every else 1.0

    @property
    def gone_work(self) -> list[Instruction]:
        """Computing instructions that are gone."""
        return [one for one in self.gone if _computes(one)]

    @property
    def added_work(self) -> list[Instruction]:
        """Computing instructions that are new."""
        return [one for one in self.added if _computes(one)]

    def changed_inputs(self) -> list[tuple[Instruction, Instruction]]:
        """Inputs with another shape or type, the largest first."""
        found = [
            (old, new)
            for old, new in self.pairs
            if new.opcode == "parameter" and old.shape != new.shape
        ]
        return sorted(found, key=lambda pair: -elements(pair[0].shape))

    def changed_literals(self) -> list[tuple[Instruction, Instruction]]:
        """Constants with another value, those of another shape first (the others follow them)."""
        found = [
            (old, new)
            for old, new in self.pairs
            if new.opcode == "constant" and (old.detail, old.shape) != (new.detail, new.shape)
        ]
        return sorted(found, key=lambda pair: pair[0].shape == pair[1].shape)

    def origins(self) -> list[tuple[Instruction, Instruction]]:
        """Other instructions that differ although what they take does not.

        Sequences and slices, whose size is a number in the program, come before what only fills a
        shape.
        """
        found = []
        for old, new in self.pairs:
            if new.opcode in ("parameter", "constant", "tuple"):
                continue
            if (old.shape, old.detail) == (new.shape, new.detail):
                continue
            if self._taken(self.old, old) == self._taken(self.new, new):
                found.append((old, new))
        order = {"iota": 0, "slice": 1, "dynamic-slice": 1, "pad": 2, "concatenate": 2}
        return sorted(found, key=lambda pair: order.get(pair[1].opcode, 3))

    @staticmethod
    def _taken(graph: Graph, instruction: Instruction) -> list[str]:
        known = graph.by_name
        shapes = [known[name].shape for name in instruction.operands if name in known]
        return sorted(set(shapes)) if instruction.opcode == "concatenate" else shapes


def elements(shape: str) -> int:
    """Number of elements of a shape such as "f32[16,24]"."""
    count = 1
    for size in shape.partition("[")[2].rstrip("]").split(","):
        count *= int(size) if size.isdigit() else 1
    return count


def tokens(graph: Graph) -> collections.Counter[tuple[str, str]]:
    """How often each computing instruction with its shape occurs, to find graphs that are alike."""
    return collections.Counter((one.opcode, one.shape) for one in graph.instructions)


def distance(
    one: collections.Counter[tuple[str, str]], other: collections.Counter[tuple[str, str]]
) -> int:
    """How unlike two graphs are: an instruction that is missing counts more than one resized."""
    unlike = (one - other).total() + (other - one).total()
    return unlike + 4 * _by_opcode(one, other)


def _by_opcode(
    one: collections.Counter[tuple[str, str]], other: collections.Counter[tuple[str, str]]
) -> int:
    counts: collections.Counter[str] = collections.Counter()
    for (opcode, _), count in one.items():
        counts[opcode] += count
    for (opcode, _), count in other.items():
        counts[opcode] -= count
    return sum(abs(count) for count in counts.values())


def difference(old: Graph, new: Graph) -> Difference:
    """Align two graphs."""
    before, after = old.instructions, new.instructions
    # A graph that was traced while lines were not noted does not name torch's operations.
    named = old.has_operations and new.has_operations
    first, second = [_token(one, named) for one in before], [_token(one, named) for one in after]
    head = _common(first, second)
    tail = _common(first[head:][::-1], second[head:][::-1])
    pairs = list(zip(before[:head], after[:head], strict=True))
    middle, other = before[head : len(before) - tail], after[head : len(after) - tail]
    found, gone, added = _align(middle, other, named)
    pairs += found
    if tail:
        pairs += zip(before[-tail:], after[-tail:], strict=True)
    return Difference(old, new, *_settle_inputs(pairs, gone, added))


_Pairs = list[tuple["Instruction", "Instruction"]]


def _settle_inputs(
    pairs: _Pairs, gone: list[Instruction], added: list[Instruction]
) -> tuple[
    tuple[tuple[Instruction, Instruction], ...], tuple[Instruction, ...], tuple[Instruction, ...]
]:
    """Pair inputs by what they are: one that is new moves all behind it, and none has changed.

    Inputs have no name and no order of the program, so those that were paired in their order and
    differ are paired anew: equal shapes with each other, then those that can be the same tensor in
    another size or type. The others are gone or added.
    """
    odd = [pair for pair in pairs if _is_input(pair[1]) and pair[0].shape != pair[1].shape]
    if not odd:
        return tuple(pairs), tuple(gone), tuple(added)
    left = [one for one, _ in odd] + [one for one in gone if _is_input(one)]
    kept = [pair for pair in pairs if pair not in odd]
    rest = [one for one in added if not _is_input(one)]
    waiting = [one for _, one in odd] + [one for one in added if _is_input(one)]
    for fits in (_same_shape, _resized):
        for new in list(waiting):
            old = next((one for one in left if fits(one.shape, new.shape)), None)
            if old is not None:
                kept.append((old, new))
                left.remove(old)
                waiting.remove(new)
    return (
        tuple(kept),
        tuple([one for one in gone if not _is_input(one)] + left),
        tuple(rest + waiting),
    )


def _is_input(instruction: Instruction) -> bool:
    return instruction.opcode == "parameter"


def _same_shape(one: str, other: str) -> bool:
    return one == other


def _resized(one: str, other: str) -> bool:
    """Whether a tensor may have changed from one shape to the other: a type, or some sizes."""
    kind, _, sizes = one.partition("[")
    other_kind, _, other_sizes = other.partition("[")
    if sizes == other_sizes:
        return True
    first, second = sizes.rstrip("]").split(","), other_sizes.rstrip("]").split(",")
    if kind != other_kind or len(first) != len(second) or "" in (first[0], second[0]):
        return False
    alike = sum(a == b for a, b in zip(first, second, strict=True))
    return 2 * alike >= len(first) - 1 or len(first) < 3


def _align(
    old: Sequence[Instruction], new: Sequence[Instruction], named: bool
) -> tuple[list[tuple[Instruction, Instruction]], list[Instruction], list[Instruction]]:
    """Corresponding instructions, those that only the first has, those that only the second has."""
    if len(old) * len(new) > _EXACT:
        return _by_kind(old, new, named)
    matcher = difflib.SequenceMatcher(
        None, [_token(one, named) for one in old], [_token(one, named) for one in new], False
    )
    pairs: list[tuple[Instruction, Instruction]] = []
    gone: list[Instruction] = []
    added: list[Instruction] = []
    for kind, i, j, k, m in matcher.get_opcodes():
        if kind == "equal":
            pairs += zip(old[i:j], new[k:m], strict=True)
        else:
            gone += old[i:j]
            added += new[k:m]
    # What only moved is neither gone nor added.
    moved, gone, added = _by_kind(gone, added, named)
    # Nor is what puts together another number of parts (repeat(n), cat of a list).
    joined, gone, added = _by_kind(gone, added, named, _joined)
    return pairs + moved + joined, gone, added


def _by_kind(
    old: Iterable[Instruction],
    new: Iterable[Instruction],
    named: bool,
    kind: Callable[[Instruction, bool], Token] | None = None,
) -> tuple[list[tuple[Instruction, Instruction]], list[Instruction], list[Instruction]]:
    """Pair instructions of one kind, those of one shape first."""
    kind = kind or _token
    waiting: dict[Token, list[Instruction]] = collections.defaultdict(list)
    for one in old:
        waiting[kind(one, named)].append(one)
    pairs, added = [], []
    for one in new:
        candidates = waiting[kind(one, named)]
        if not candidates:
            added.append(one)
            continue
        at = next((i for i, other in enumerate(candidates) if other.shape == one.shape), 0)
        pairs.append((candidates.pop(at), one))
    return pairs, [one for rest in waiting.values() for one in rest], added


def _token(instruction: Instruction, named: bool) -> Token:
    if instruction.opcode == "tuple":
        return "tuple", "", 0
    return instruction.opcode, instruction.operation * named, len(instruction.operands)


def _joined(instruction: Instruction, named: bool) -> Token:
    """As :func:`_token`, without the number of parts that are put together."""
    if instruction.opcode == "concatenate":
        return "concatenate", instruction.operation * named, 0
    return _token(instruction, named)


def _common(first: Sequence[Token], second: Sequence[Token]) -> int:
    """How long the common beginning is."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


def _computes(instruction: Instruction) -> bool:
    return instruction.opcode not in _PLUMBING
