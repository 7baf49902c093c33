"""The value of a call of one of Python's own functions: ``zip``, ``map``, ``dict``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from xladoctor.lint.library import Returns
from xladoctor.lint.model import contained
from xladoctor.lint.model.contained import container, element_of, without_places
from xladoctor.lint.model.iterators import iterated
from xladoctor.lint.model.values import NUMBER, UNKNOWN, Arguments, Kind, Value, join

if TYPE_CHECKING:
    from collections.abc import Sequence

    import libcst as cst

    from xladoctor.lint.model.callvalue import CallEvaluator
    from xladoctor.lint.model.flow import Flow

#: Keywords of Python's own functions that say how they go over the rest.
_SETTINGS = frozenset({"strict", "key", "start"})
#: What goes over its arguments, of Python's own functions.
_GO_OVER = frozenset({"builtins.enumerate", "builtins.zip", "builtins.iter", "builtins.next"})
_ABOUT_CORES = frozenset({Kind.CORE_NUMBER, Kind.IS_MASTER, Kind.NOT_MASTER})


#: Runs a function over what it goes over, with what the call before gave back.
FOLDS = "functools.reduce"


class PythonFunctions:
    """Evaluates calls of what Python itself has.

    Args:
        calls: Evaluates calls of functions of the program.
        flow: The run that the calls belong to.
    """

    def __init__(self, calls: CallEvaluator, flow: Flow) -> None:
        self._calls = calls
        self._flow = flow

    def evaluate(self, node: cst.Call, name: str, arguments: Arguments) -> Value:
        """What the function of that name gives back."""
        arguments = self._gone_over(name, node, arguments)
        # ``zip(a, b, strict=True)`` and ``max(xs, key=size)`` go over no more than these.
        values = [value for keyword, value in arguments if keyword not in _SETTINGS]
        first = values[0] if values else UNKNOWN
        local = any(value.local or element_of(value).local for value in values)
        if first.kind in _ABOUT_CORES and name in {"builtins.int", "builtins.bool"}:
            return first
        match self._flow.library.returns(name):
            case Returns.ITERATED:
                return without_places(first) if values else container(None)
            case Returns.NUMBER:
                return NUMBER.but(local=local)
            case Returns.FACT:
                return NUMBER
        if name == "builtins.range":
            return container(NUMBER)
        if name == "builtins.enumerate":
            return container(container(None, (NUMBER, element_of(first))))
        if name == "builtins.zip":
            return container(container(None, tuple(element_of(value) for value in values)))
        if name in {"builtins.next", "builtins.sum", "builtins.filter"}:
            inner = element_of(values[-1] if name == "builtins.filter" else first)
            return container(inner) if name == "builtins.filter" else inner
        if name in {"builtins.max", "builtins.min", "builtins.abs"}:
            parts = [element_of(v) if v.kind is Kind.CONTAINER else v for v in values]
            return functools.reduce(join, parts) if parts else UNKNOWN
        if name == "builtins.map" and first.function is not None:
            given = [(None, element_of(value)) for value in values[1:]]
            return container(self._calls.enter(None, first.function, first, given))
        if name == FOLDS:
            return self._folded(values)
        return dictionary(arguments) if name == "builtins.dict" else UNKNOWN

    def _folded(self, values: Sequence[Value]) -> Value:
        """``reduce(lambda done, one: done | (x == one), ids, start)``: one turn, as a loop's."""
        if len(values) < 2 or values[0].function is None:
            return UNKNOWN
        element = element_of(values[1])
        start = values[2] if len(values) > 2 else element
        given = [(None, start), (None, element)]
        return join(start, self._calls.enter(None, values[0].function, values[0], given))

    def _gone_over(self, name: str, node: cst.Call, arguments: Arguments) -> Arguments:
        """What ``enumerate`` and the like are given, where they go over objects of the program."""
        if name not in _GO_OVER:
            return arguments
        return [
            (keyword, iterated(self._flow, given.value, value))
            for (keyword, value), given in zip(arguments, node.args, strict=True)
        ]


def dictionary(arguments: Arguments) -> Value:
    """``dict(loss=loss)``, and ``dict(facts, step=3)`` and ``**facts`` hold what these hold."""
    return contained.dictionary((_as_part(key, value) for key, value in arguments))


def _as_part(key: str | None, value: Value) -> tuple[str | None, Value]:
    if key is not None and key != "**":
        return key, value
    if value.entries is not None or key == "**":
        return None, value
    return None, container(_second_of(element_of(value)))


def _second_of(pair: Value) -> Value:
    """``dict([(name, optimizer) for ...])`` and ``dict(zip(names, optimizers))``: the values."""
    return pair.items[1] if pair.items is not None and len(pair.items) == 2 else pair
