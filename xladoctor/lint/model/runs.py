"""Runs of functions as they were recorded: what each asked and told, and was answered.

A run of a function (or of a module's body) is decided by its parameters and by the answers to what
it asks outside of its own names: what a global holds, what an attribute holds, what a call gives
back. So it is recorded as the sequence of its questions. In the next round the questions are put
again, in their order, with whatever effect they have; while every answer is the same, the run is
what it was, and nothing of it is evaluated.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from xladoctor.lint.model.values import Value, join

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping

    import libcst as cst

    from xladoctor.lint.model.frames import Env

_Answer = TypeVar("_Answer")


class Run:
    """One run.

    Attributes:
        given: What its parameters were given.
        asked: Its questions in order: (question, its arguments, the answer).
        values: What each expression in it was.
        result: What it returned.
        end: What its names held at its end.
    """

    __slots__ = ("asked", "end", "given", "result", "values")

    def __init__(self, given: Mapping[str, Value]) -> None:
        self.given = given
        self.asked: list[tuple[Callable[..., Any], tuple[Any, ...], Any]] = []
        self.values: dict[cst.CSTNode, Value] = {}
        self.result: Value | None = None
        self.end: Env = {}


class Runs:
    """The runs of this round and of the one before."""

    def __init__(self) -> None:
        self._now: dict[Hashable, list[Run]] = {}
        self._before: dict[Hashable, list[Run]] = {}
        self._running = Run({})

    def begin(self) -> None:
        """A round begins."""
        self._before, self._now = self._now, {}

    def ask(self, question: Callable[..., _Answer], *arguments: Any) -> _Answer:
        """Put a question from the run that is under way, and remember the answer."""
        running = self._running
        answer = question(*arguments)
        running.asked.append((question, arguments, answer))
        return answer

    @contextlib.contextmanager
    def recorded(self, key: Hashable, given: Mapping[str, Value]) -> Iterator[Run]:
        """Record a run from here on."""
        run, around = Run(given), self._running
        self._now.setdefault(key, []).append(run)
        self._running = run
        yield run
        self._running = around

    def again(self, key: Hashable, given: Mapping[str, Value]) -> Run | None:
        """The run of the round before that this one would be; None if it has to be made."""
        for run in self._before.get(key, ()):
            if _same_names(run.given, given) and _holds(run):
                self._now.setdefault(key, []).append(run)
                return run
        return None

    def values(self) -> dict[cst.CSTNode, Value]:
        """What each expression was in the last round; what several runs found is joined."""
        found: dict[cst.CSTNode, Value] = {}
        for runs in self._now.values():
            for run in runs:
                if found.keys().isdisjoint(run.values):
                    found.update(run.values)
                    continue
                for node, value in run.values.items():
                    before = found.get(node)
                    found[node] = value if before is None else join(before, value)
        return found

    def forget(self) -> None:
        """Let go of what was recorded."""
        self._now, self._before, self._running = {}, {}, Run({})


def _holds(run: Run) -> bool:
    """Whether all questions of a run are answered as they were.

    Questions that also tell something (a call, an attribute that is set) may be put twice: what
    they tell is joined, and a value joined with itself is the same.
    """
    # A loop and not all(...): this is where the flow of values spends most of its time.
    for question, arguments, answer in run.asked:
        now = question(*arguments)
        if now is not answer and not identical(now, answer):
            return False
    return True


def _same_names(one: Mapping[str, Value], other: Mapping[str, Value]) -> bool:
    return one.keys() == other.keys() and all(
        identical(value, other[name]) for name, value in one.items()
    )


def identical(one: object, other: object) -> bool:
    """Whether two answers are the same, origins of values included."""
    if one is other:
        return True
    if not isinstance(one, Value) or not isinstance(other, Value):
        return one == other
    return one == other and _same_origins(one, other)


def _same_origins(one: Value, other: Value) -> bool:
    if one.origin is not other.origin:
        return False
    pairs = [
        *zip(one.items or (), other.items or (), strict=True),
        *zip(one.roads, other.roads, strict=True),
        *((a, b) for (_, a), (_, b) in zip(one.bound, other.bound, strict=True)),
    ]
    if one.element is not None and other.element is not None:
        pairs.append((one.element, other.element))
    return all(a is b or _same_origins(a, b) for a, b in pairs)
