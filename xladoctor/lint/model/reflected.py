"""Calls that hang on a name or a class that they are given: ``getattr``, ``defaultdict``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from xladoctor.lint.model.by_name import GETATTR, VARS
from xladoctor.lint.model.contained import container, element_of
from xladoctor.lint.model.memory import ANY
from xladoctor.lint.model.python_functions import dictionary
from xladoctor.lint.model.records import HOLDERS
from xladoctor.lint.model.values import NUMBER, UNKNOWN, Arguments, Kind, Value, join

if TYPE_CHECKING:
    import libcst as cst

    from xladoctor.lint.model.callvalue import CallEvaluator
    from xladoctor.lint.model.evaluate import Evaluator
    from xladoctor.lint.model.frames import Frame


class Reflected:
    """Evaluates such calls.

    Args:
        calls: Evaluates calls of functions and classes of the program.
        evaluator: Evaluates everything else.
    """

    def __init__(self, calls: CallEvaluator, evaluator: Evaluator) -> None:
        self._calls = calls
        self._evaluator = evaluator
        self._flow = evaluator.flow
        self._by_name = evaluator.by_name

    def evaluate(
        self, node: cst.Call, name: str, arguments: Arguments, frame: Frame
    ) -> Value | None:
        """What a call asks of an object, or makes of a class, that it is given."""
        if name == GETATTR and len(node.args) > 1:
            return self._asked(node, frame)
        if name == "builtins.setattr" and len(arguments) > 2:
            for text, _ in self._by_name.spellings(node) or [(ANY, None)]:
                for instance in self._flow.classes.objects(arguments[0][1]):
                    self._flow.memory.store(instance, text, arguments[2][1])
            return NUMBER
        if name == "collections.OrderedDict":
            return dictionary(arguments)
        if name == "collections.deque":  # (maxlen=100), or of what it goes over
            first = next((value for key, value in arguments if key in {None, "iterable"}), None)
            return container(None if first is None else element_of(first))
        if name in HOLDERS:
            given = [element_of(value) if key == "**" else value for key, value in arguments]
            inner = functools.reduce(join, given) if given else None
            return container(inner).but(type_name=name)
        if name == VARS and arguments:
            return self._evaluator.attributes.all_of(arguments[0][1])
        if name == "collections.defaultdict" and arguments:
            made = self._flow.names.resolve(node.args[0].value)
            holds = made in {"builtins.list", "builtins.dict", "builtins.set", "collections.deque"}
            inner = container(None) if holds else self._made_with(node, arguments[0][1])
            return container(inner)
        return None

    def _made_with(self, node: cst.Call, called: Value) -> Value | None:
        """What a library makes with what it is given: ``defaultdict(Meter)``."""
        if called.kind is not Kind.FUNCTION:
            return None
        if called.function is not None:
            return self._calls.enter(None, called.function, called, ())
        return self._calls.one_of(node, called, ())

    def _asked(self, node: cst.Call, frame: Frame) -> Value | None:
        """``getattr(callback, event)``: a method or function that is called here or further on.

        None where nothing of the program is known to be meant.
        """
        functions, classes = self._by_name.of_module(node)
        if functions or classes:
            return Value(Kind.FUNCTION, origin=node, functions=functions, makes=classes)
        objects = self._flow.classes.objects(self._evaluator.evaluate(node.args[0].value, frame))
        meant = any(
            self._flow.classes.method(instance.cls, name) is not None
            for name, _ in self._by_name.spellings(node)
            for instance in objects
        )
        return Value(Kind.FUNCTION, origin=node, type_name=GETATTR) if meant else None

    def by_names(self, node: cst.Call, asked: cst.Call, given: Arguments, frame: Frame) -> Value:
        """``getattr(callback, event)(self)``: the methods of those names that its objects have.

        The call that writes the name runs them, wherever it stands.
        """
        objects = self._flow.classes.objects(self._evaluator.evaluate(asked.args[0].value, frame))
        results = []
        for name, site in self._by_name.spellings(asked):
            for instance in objects:
                method = self._flow.classes.method(instance.cls, name)
                if method is not None:
                    bound = Value(Kind.FUNCTION, function=method, instance=instance)
                    run = self._calls.enter(
                        site or node, method, bound, given, by_name=site is not None
                    )
                    results.append(run)
        return functools.reduce(join, results) if results else UNKNOWN
