"""What names and attributes hold outside of the function that runs, and from round to round."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.frames import Frame, join_env
from xladoctor.lint.model.values import NOTHING, UNKNOWN, Instance, Kind, Value, join

if TYPE_CHECKING:
    import libcst as cst

    from xladoctor.lint.model.classes import Classes
    from xladoctor.lint.model.frames import Env
    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.running import Running
    from xladoctor.lint.model.runs import Runs
    from xladoctor.lint.model.syntax import Class, Function

#: The mark of an object whose module was moved to the device; no attribute is called so.
PLACED = " placed"
#: What holds for every attribute that has a name nobody has written.
ANY = " any"
#: What a module takes in the place of a buffer.
_OF_BUFFERS = frozenset({Kind.CPU_TENSOR, Kind.DEVICE_TENSOR})


class Memory:
    """Answers and takes in what is shared between runs.

    Args:
        now: What runs just now, and what rounds have found out.
        runs: Records what is asked and told.
        names: What names are bound to.
        classes: Which objects values may be.
    """

    def __init__(
        self, now: Running, runs: Runs, names: Names | LinkedNames, classes: Classes
    ) -> None:
        self._now = now
        self._runs = runs
        self._names = names
        self._classes = classes

    def lookup(self, name: str, frame: Frame) -> Value | None:
        """What a name holds: here, in the functions around, in the module."""
        if name in frame.env:
            return frame.env[name]
        outer = frame.function.outer if frame.function else None
        while outer is not None:
            value = self._runs.ask(self._outer, outer, name)
            if value is not None:
                return value
            outer = outer.outer
        return self._runs.ask(self._outer, self._now.home(), name)

    def _outer(self, home: Function | cst.Module | cst.FunctionDef, name: str) -> Value | None:
        """What a name of a function or module holds at its end, or as far as it ran."""
        env = self._now.known.outer.get(home)
        if env is None:  # in the first round
            frame = self._now.frames.get(home)
            env = frame.env if frame is not None else self._now.found.outer.get(home, {})
        value = env.get(name)
        for facts in (self._now.known, self._now.found):
            shared = facts.shared.get((home, name))  # type: ignore[arg-type]
            if shared is not None:
                return shared if value is None else join(value, shared)
        return value

    def share(self, name: str, value: Value) -> None:
        """A function sets a name of its file: ``global device``."""
        self._runs.ask(self._share, (self._now.module, name), value)

    def _share(self, place: tuple[cst.Module, str], value: Value) -> None:
        self._now.found.shared[place] = join(self._now.found.shared.get(place, NOTHING), value)

    def stored(self, instance: Instance, name: str) -> Value | None:
        """What an attribute of an object of this file holds."""
        return self._runs.ask(self._attribute, instance, name)

    def _attribute(self, instance: Instance, name: str) -> Value | None:
        for facts in (self._now.known, self._now.found):
            if instance.call is None:  # any object of the class
                made = (instance, *facts.instances.get(instance.cls, ()))
                held = [facts.attributes.get((key, name)) for key in made]
                known = [value for value in held if value is not None]
                if known:
                    return functools.reduce(join, known)
                continue
            for key in (instance, Instance(instance.cls, None)):
                value = facts.attributes.get((key, name))
                if value is not None:
                    return value
        return self._of_class_above(instance.cls, name)

    def _of_class_above(self, cls: Class, name: str) -> Value | None:
        """What a base class gives its attribute: ``model_class = Net``, ``kinds = {}``."""
        for base in self._classes.above(cls):
            for facts in (self._now.known, self._now.found):
                value = facts.attributes.get((Instance(base, None), name))
                if value is not None:
                    return value
        return None

    def all_stored(self, instance: Instance) -> Value:
        """What the attributes of an object hold, whichever it is."""
        return self._runs.ask(self._all_attributes, instance)

    def _all_attributes(self, instance: Instance) -> Value:
        held = (
            value
            for facts in (self._now.known, self._now.found)
            for (key, _), value in facts.attributes.items()
            if key == instance
        )
        return functools.reduce(join, held, NOTHING)

    def store(self, instance: Instance, name: str, value: Value, *, anew: bool = False) -> None:
        """An attribute of an object of this file is set; of a class, ``anew``."""
        self._runs.ask(self._store, instance, name, value, anew)

    def _store(self, instance: Instance, name: str, value: Value, anew: bool) -> None:
        place = (instance, name)
        before = None if anew else self._now.found.attributes.get(place)
        if before is not None and before.type_name == know.PARAMETER and value.kind in _OF_BUFFERS:
            return  # a module takes a tensor in the place of its buffer: it moves with it
        self._now.found.attributes[place] = value if before is None else join(before, value)

    def place(self, module: Value) -> None:
        """A model is on the device: so is ``self`` in its methods."""
        if module.kind is Kind.MODEL and module.on_device:
            for instance in self._classes.objects(module):
                self.store(instance, PLACED, Value(Kind.MODEL, on_device=True))

    def imported(self, node: cst.BaseExpression) -> Value | None:
        """What an imported name holds at the end of the linked file it is from; None if it is not.

        A function or class is no such value: see ``names.definition``.
        """
        linked = self._names.linked(node)
        if linked is None:
            return None
        names, name = linked
        return self._runs.ask(self._outer, names.module, name) or UNKNOWN

    def wrap(self, function: Function, wrapper: Function) -> None:
        """A decorator puts another function in the place of one."""
        self._runs.ask(self._wrap, function, wrapper)

    def _wrap(self, function: Function, wrapper: Function) -> None:
        self._now.found.wrappers[function] = wrapper

    def wrapper(self, function: Function) -> Function | None:
        """What a decorator has put in the place of a function; None if none has."""
        return self._runs.ask(self._wrapper, function)

    def _wrapper(self, function: Function) -> Function | None:
        facts = (self._now.found, self._now.known)
        return next((one.wrappers[function] for one in facts if function in one.wrappers), None)

    def wraps_one(self, wrapper: Function) -> bool:
        """Whether a decorator has put a function in the place of one other alone."""
        return self._runs.ask(self._wraps_one, wrapper)

    def _wraps_one(self, wrapper: Function) -> bool:
        found = {**self._now.known.wrappers, **self._now.found.wrappers}
        return sum(one is wrapper for one in found.values()) == 1

    def keep(self, node: cst.FunctionDef) -> None:
        """Where a file calls a function itself, keep what its names hold there."""
        frame = self._now.frames.get(self._now.module) if not self._now.functions else None
        if frame is not None and node in self._now.replaced:
            self._runs.ask(self._keep, node, dict(frame.env))

    def _keep(self, node: cst.FunctionDef, env: Env) -> None:
        """What the file's names hold where it calls a function that it defines anew further on."""
        before = self._now.found.outer.get(node)
        self._now.found.outer[node] = env if before is None else join_env(before, env)
