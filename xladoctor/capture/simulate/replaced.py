"""What frameworks replace for a while in a module or class, replaced for the core that does so.

``transformers`` loads a model while ``tie_weights`` of all models does nothing; Accelerate makes an
empty one while ``nn.Module.register_parameter`` of all modules moves to "meta"; Lightning looks at
a loader's arguments while ``DataLoader.__init__`` of all loaders writes them down. In a process of
its own no other core notices. Of two cores at once each would take the other's replacement for what
it has to bring back: from then on no model is tied, and every model is empty.

All of these are generators under ``contextlib.contextmanager``. Around their begin and their end,
one core at a time, everything stands as this core has left it; between, what they have replaced is
a function that looks who calls. What is replaced and cannot be called (a flag) is brought back at
once: it only spares work.

Between the replacement and the function that looks who calls are some microseconds, in which
another core that calls the same would find the replacement.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import sys
import threading
from typing import TYPE_CHECKING, Any

from . import threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_INITIALIZERS = (
    "torch.nn.init",
    *(
        f"torch.nn.modules.{name}"
        for name in (
            "activation",
            "transformer",
            "linear",
            "loss",
            "batchnorm",
            "conv",
            "normalization",
            "rnn",
            "sparse",
        )
    ),
)
_MODELS = "transformers.modeling_utils:PreTrainedModel"

#: Module and name of a context manager to the modules and classes ("module:class") in which it
#: replaces something. Sources: transformers 5.23.0, accelerate 1.15.0.
_OWNERS: dict[tuple[str, str], tuple[str, ...]] = {
    ("transformers.initialization", "guard_torch_init_functions"): _INITIALIZERS,
    ("transformers.initialization", "no_init_weights"): (*_INITIALIZERS, _MODELS),
    ("transformers.initialization", "no_tie_weights"): (_MODELS,),
    ("transformers.initialization", "meta_device_safe_creation_ops"): ("torch",),
    # transformers 4, by its source.
    ("transformers.modeling_utils", "no_init_weights"): (
        "torch.nn.init",
        "transformers.modeling_utils",
    ),
    ("accelerate.big_modeling", "init_on_device"): ("torch.nn:Module", "torch"),
}
#: Those that are given a class, and replace in it and in all classes that are made of it.
#: Source: lightning 2.6.6.
_OF_CLASSES = {
    (f"{package}.utilities.data", "_replace_dunder_methods")
    for package in ("lightning.fabric", "lightning_fabric")
}

_MISSING = object()
_lock = threading.RLock()


@dataclasses.dataclass
class _Slot:
    """A name of a module or class in which cores have replaced something."""

    owner: Any
    name: str
    of_process: Any
    #: What a core has put there, the newest last; by what it keeps (see ``threads.own``).
    of_cores: dict[int, list[Any]] = dataclasses.field(default_factory=dict)

    def here(self, core: int | None) -> Any:
        """What stands there for a core."""
        own = self.of_cores.get(core) if core is not None else None
        return own[-1] if own else self.of_process


#: By the owner's ``id`` (the slot keeps the owner) and the name.
_slots: dict[tuple[int, str], _Slot] = {}


def install() -> None:
    """Look after the context managers that are known to replace something."""
    managers: Any = contextlib._GeneratorContextManager
    enter, leave = managers.__enter__, managers.__exit__
    if hasattr(enter, "__wrapped__"):
        return

    @functools.wraps(enter)
    def enter_here(self: Any) -> Any:
        owners = _owners(self) if threads.own() is not None else ()
        return _enter(self, owners, enter) if owners else enter(self)

    @functools.wraps(leave)
    def leave_here(self: Any, typ: Any, value: Any, traceback: Any) -> Any:
        changed = vars(self).pop("_xladoctor_changed", None)
        error = (typ, value, traceback)
        return leave(self, *error) if changed is None else _leave(self, changed, leave, error)

    managers.__enter__, managers.__exit__ = enter_here, leave_here


def _owners(manager: Any) -> Sequence[Any]:
    """Where a context manager replaces something; nothing if it is none of those."""
    made_by = manager.func
    key = (made_by.__module__, made_by.__name__)
    if key in _OF_CLASSES:
        return _with_subclasses(manager.args[0])
    return [one for one in map(_found, _OWNERS.get(key, ())) if one is not None]


def _found(path: str) -> Any:
    module, _, name = path.partition(":")
    if not name:
        return sys.modules.get(module)
    return getattr(importlib.import_module(module), name, None)


def _with_subclasses(kind: type) -> list[type]:
    found = {kind: None}  # a class may be made of several of these
    made_of_it: list[type] = kind.__subclasses__()
    for one in made_of_it:
        found |= dict.fromkeys(_with_subclasses(one))
    return list(found)


def _enter(manager: Any, owners: Sequence[Any], enter: Callable[[Any], Any]) -> Any:
    core = _core()
    with _lock:
        _place(owners, core)
        before = [dict(vars(owner)) for owner in owners]
        try:
            return enter(manager)
        finally:
            changed = [
                _slot(owner, name, old.get(name, _MISSING))
                for owner, old in zip(owners, before, strict=True)
                for name in {*old, *vars(owner)}
                if vars(owner).get(name, _MISSING) is not old.get(name, _MISSING)
            ]
            for slot in changed:
                now = vars(slot.owner).get(slot.name, _MISSING)
                slot.of_cores.setdefault(core, []).append(now)
            manager._xladoctor_changed = (core, owners, changed)
            _share(owners)


def _leave(manager: Any, changed: Any, leave: Callable[..., Any], error: tuple[Any, ...]) -> Any:
    core, owners, slots = changed
    with _lock:
        _place(owners, core)
        try:
            return leave(manager, *error)
        finally:
            for slot in slots:
                slot.of_cores[core].pop()
                if not slot.of_cores[core]:
                    del slot.of_cores[core]
            _share(owners)


def _core() -> int:
    return id(threads.own())


def _slot(owner: Any, name: str, before: Any) -> _Slot:
    return _slots.setdefault((id(owner), name), _Slot(owner, name, before))


def _place(owners: Sequence[Any], core: int) -> None:
    """Put everything where this core has left it. Holds the lock."""
    for slot in _of(owners):
        _put(slot, slot.here(core))


def _share(owners: Sequence[Any]) -> None:
    """Let each core find what it has put there. Holds the lock."""
    for slot in _of(owners):
        callables = all(callable(own[-1]) for own in slot.of_cores.values())
        if not slot.of_cores:
            _put(slot, slot.of_process)
            del _slots[id(slot.owner), slot.name]
        elif callables and (callable(slot.of_process) or isinstance(slot.owner, type)):
            _put(slot, _dispatching(slot))
        else:
            _put(slot, slot.of_process)


def _of(owners: Sequence[Any]) -> list[_Slot]:
    numbers = {id(owner) for owner in owners}
    return [slot for (number, _), slot in _slots.items() if number in numbers]


def _put(slot: _Slot, value: Any) -> None:
    if value is not _MISSING:
        setattr(slot.owner, slot.name, value)
    elif slot.name in vars(slot.owner):
        delattr(slot.owner, slot.name)


def _dispatching(slot: _Slot) -> Any:
    def dispatching(*args: Any, **kwargs: Any) -> Any:
        own = threads.own()
        function = slot.here(None if own is None else id(own))
        if function is _MISSING:  # a class that has only inherited it
            return getattr(super(slot.owner, args[0]), slot.name)(*args[1:], **kwargs)
        return function(*args, **kwargs)

    if slot.of_process is _MISSING:
        return dispatching
    return functools.wraps(slot.of_process)(dispatching)
