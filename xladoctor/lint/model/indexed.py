"""Objects of the program that are indexed: ``REGISTRY[name] = cls``, ``self[kind](**options)``.

A class that inherits from ``dict`` or ``list`` (or from nothing that is known) keeps what is put
into its places; one with ``__setitem__`` and ``__getitem__`` of its own is asked for them.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from xladoctor.lint.model.contained import container
from xladoctor.lint.model.values import UNKNOWN, Kind, Value, join

if TYPE_CHECKING:
    import libcst as cst

    from xladoctor.lint.model.evaluate import Evaluator
    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.syntax import Class

#: The name under which an object keeps what its places hold.
_PLACES = "[]"
#: Methods of dictionaries and lists that a class inherits.
_GIVEN_BACK = frozenset({"get", "pop", "setdefault", "values", "items", "copy"})
_KEPT = frozenset({"append", "add", "appendleft", "extend", "insert", "update"})
_BUILT_ON = frozenset(
    {"builtins.dict", "builtins.list", "collections.OrderedDict", "collections.UserDict"}
)


def put(evaluator: Evaluator, holder: Value, value: Value) -> None:
    """``holder[...] = value`` of objects of the program.

    Args:
        evaluator: Runs the methods that are called.
        holder: The object, or one of several.
        value: What is put into it.
    """
    flow = evaluator.flow
    for instance in flow.classes.objects(holder) if holder.kind is Kind.OBJECT else ():
        method = flow.classes.method(instance.cls, "__setitem__")
        if method is None:
            flow.memory.store(instance, _PLACES, value)
        elif not _is_dataset(flow, instance.cls):
            bound = Value(Kind.FUNCTION, certain=True, function=method, instance=instance)
            evaluator.calls.enter(None, method, bound, ((None, UNKNOWN), (None, value)))


def taken(evaluator: Evaluator, holder: Value, around: cst.Call | None) -> Value:
    """``holder[...]`` of objects of the program; unknown if they are none, or hold nothing known.

    Args:
        evaluator: Runs the methods that are called.
        holder: The object, or one of several.
        around: The call that the expression is given to: it runs ``__getitem__``.
    """
    found = []
    flow = evaluator.flow
    for instance in flow.classes.objects(holder) if holder.kind is Kind.OBJECT else ():
        method = flow.classes.method(instance.cls, "__getitem__")
        if method is None:
            found.append(flow.memory.stored(instance, _PLACES) or UNKNOWN)
        elif not _is_dataset(flow, instance.cls):
            bound = Value(Kind.FUNCTION, certain=True, function=method, instance=instance)
            given = ((None, UNKNOWN),)
            found.append(evaluator.calls.enter(around, method, bound, given, by_name=True))
    return functools.reduce(join, found) if found else UNKNOWN


def as_container(flow: Flow, holder: Value, method: str) -> Value | None:
    """What an object holds, where a method that it has from ``dict`` or ``list`` is called."""
    if holder.instance is None or holder.kind is not Kind.OBJECT:
        return None
    if method not in _GIVEN_BACK | _KEPT:
        return None  # of most methods, without a look at what is kept
    held = flow.memory.stored(holder.instance, _PLACES)
    if method in _GIVEN_BACK:
        return container(held) if held is not None else None
    return container(held) if flow.hooks.inherits(holder.instance.cls, _BUILT_ON) else None


def _is_dataset(flow: Flow, cls: Class) -> bool:
    """Whether a loader indexes its objects, in processes of their own."""
    return any(base.endswith("Dataset") for base in flow.hooks.bases(cls))
