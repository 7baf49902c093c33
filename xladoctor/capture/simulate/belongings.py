"""What a program keeps in its process, kept for each core: output, variables, loggers.

In a process of its own a core may close its mouth (``sys.stdout = open(os.devnull, "w")``,
``builtins.print = quiet``, as most programs do for all cores but the first), say who it is
(``os.environ["RANK"]``) and log into a file of its own. Cores that are threads would do that to one
another: whoever comes last decides for all.

So what a core's thread assigns to ``sys.stdout``, ``sys.stderr`` and ``builtins.print``, the
variables in ``os.environ``, and level, handlers and the like of each logger belong to the core and
to the threads that it starts (see ``threads``). It begins with what the process has.

C++ reads the variables of the process, where the last core that sets one decides; so do programs
that a core starts without naming their variables.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import logging
import os
import sys
import types
from typing import TYPE_CHECKING, Any

from . import threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Attributes of a logger, and how a core's own begins: with the process's, or a copy of it.
_OF_LOGGERS: dict[str, Callable[[Any], Any] | None] = {
    "level": None,
    "disabled": None,
    "propagate": None,
    "handlers": list,
    "_cache": lambda _cache: {},
}


def install() -> None:
    """Let each core have its own variables and loggers, from its begin to its end."""
    environ: Any = os._Environ
    if not isinstance(vars(environ).get("_data"), _Own):
        environ._data = _Own("_data", dict)
        for name, copied in _OF_LOGGERS.items():
            setattr(logging.Logger, name, _Own(name, copied))
        manager: Any = logging.Manager
        manager._disable = _Own("_disable")  # logging.disable(level)


class _Own:
    """An attribute of objects of the process, of which each core has its own.

    Args:
        name: Of the attribute; the process's value stays where it was, in the object's dictionary.
        copied: Makes a core's own of the process's when the core first asks; None: the core has the
            process's until it sets another.
    """

    def __init__(self, name: str, copied: Callable[[Any], Any] | None = None) -> None:
        self._name = name
        self._copied = copied

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        own = threads.own()
        if own is None:
            return self._of_process(instance)
        key = (id(instance), self._name)
        if key in own:
            return own[key][1]
        value = self._of_process(instance)
        if self._copied is not None:
            value = self._copied(value)
            own[key] = (instance, value)  # that the object stays, and its number with it
        return value

    def __set__(self, instance: Any, value: Any) -> None:
        own = threads.own()
        if own is None or self._name not in vars(instance):  # also one that a core has just made
            self._give_process(instance, value)
        else:
            own[id(instance), self._name] = (instance, value)

    def __delete__(self, instance: Any) -> None:
        own = threads.own()
        if own is None or (id(instance), self._name) not in own:
            raise AttributeError(self._name)
        del own[id(instance), self._name]

    def _of_process(self, instance: Any) -> Any:
        try:
            return vars(instance)[self._name]
        except KeyError:
            raise AttributeError(self._name) from None

    def _give_process(self, instance: Any, value: Any) -> None:
        vars(instance)[self._name] = value


class _OwnOfModule(_Own):
    """The same for a name of a module that C looks up in its dictionary: a stand-in is there."""

    def _of_process(self, instance: Any) -> Any:
        there = vars(instance)[self._name]
        return getattr(there, "_of_process", there)

    def _give_process(self, instance: Any, value: Any) -> None:
        there = vars(instance)[self._name]
        if hasattr(there, "_of_process"):
            there._of_process = value
        else:
            vars(instance)[self._name] = value


class _Sys(types.ModuleType):
    stdout = _OwnOfModule("stdout")
    stderr = _OwnOfModule("stderr")


class _Builtins(types.ModuleType):
    print = _OwnOfModule("print")


class _Stream:
    """The stream of the core that uses it, where C writes: ``print`` does."""

    def __init__(self, name: str, of_process: Any) -> None:
        self._name = name
        self._of_process = of_process

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(sys, self._name), name)


class _Print:
    """The ``print`` of the core that calls it; a function would become a method in a class."""

    def __init__(self, of_process: Any) -> None:
        functools.update_wrapper(self, of_process, updated=())
        self._of_process = of_process

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return builtins.print(*args, **kwargs)  # noqa: T201 - the program's

    def __reduce__(self) -> tuple[Any, ...]:
        """As ``print``, wherever it is loaded."""
        return eval, ("print",)

    __call__._torchdynamo_disable = True  # type: ignore[attr-defined]


@contextlib.contextmanager
def own_output() -> Iterator[None]:
    """Let each core have its own standard output and error, and ``print``, until the end."""
    before = [(module, module.__class__) for module in (sys, builtins)]
    placed: list[tuple[Any, str]] = []
    for module, name in ((sys, "stdout"), (sys, "stderr"), (builtins, "print")):
        value = vars(module)[name]
        if value is not None and not hasattr(value, "_of_process"):
            stand_in = _Print(value) if name == "print" else _Stream(name, value)
            vars(module)[name] = stand_in
            placed.append((module, name))
    kinds: dict[Any, type] = {sys: _Sys, builtins: _Builtins}
    for module in {id(module): module for module, _ in placed}.values():
        module.__class__ = kinds[module]
    try:
        yield
    finally:
        for module, kind in before:
            module.__class__ = kind
        for module, name in placed:
            vars(module)[name] = vars(module)[name]._of_process


def standard(name: str) -> Any:
    """The process's own stream, "stdout" or "stderr", whatever a core has put in its place."""
    value = vars(sys)[name]
    return getattr(value, "_of_process", value)
