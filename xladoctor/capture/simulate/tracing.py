"""``torch.fx`` on simulated cores: each core traces as in a process of its own.

While ``torch.fx`` traces a function (``torch.fx.symbolic_trace``, and ``torch.compile`` for every
graph), it says so in a variable of the process, and replaces ``torch.nn.Module.__call__`` and
``__getattr__`` for everybody. In one process with several cores

* a compiled function that another core calls meanwhile is refused ("Detected that you are using FX
  to symbolically trace a dynamo-optimized function"),
* modules that another core calls meanwhile are taken for parts of what is traced, and
* of two traces at once the one that ends first takes away what the other one has replaced, and
  with it the table of decompositions (``make_fx``, and so AOTAutograd and torch_xla's ``scan``).

Forward-mode derivatives (``torch.func.jvp``, ``forward_ad.dual_level``) have one level for a
process too, in Python and in C++: of two cores at once one raises.

So one core traces, or derives forwards, at a time, and what is said and replaced holds for its
thread only. The lock is the one under which dynamo compiles, since compiling traces, and tracing
may compile (``cond``).
Source: torch 2.9, ``torch/fx/_symbolic_trace.py``, ``torch/fx/experimental/proxy_tensor.py``,
``torch/_dynamo/eval_frame.py``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from typing import TYPE_CHECKING, Any

from .running import acquire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .running import Running

#: What asks whether a function is being traced.
_QUESTIONS = ("is_fx_tracing", "is_fx_symbolic_tracing")

#: Modules, and what begins and ends a level of forward-mode derivatives in them.
_LEVELS = (
    ("torch._functorch.eager_transforms", "enter_jvp_nesting", "exit_jvp_nesting"),
    ("torch.autograd.forward_ad", "enter_dual_level", "exit_dual_level"),
)

_thread = threading.local()


def install(running: Running) -> None:
    """Let the cores trace in turns; what this torch does not have is left alone."""
    try:
        fx: Any = importlib.import_module("torch.fx._symbolic_trace")
        trace, patch = fx.Tracer.trace, fx._Patcher.patch_method
    except (ImportError, AttributeError):
        return
    fx.Tracer.trace = _in_turn(running, trace)
    with contextlib.suppress(ImportError, AttributeError):
        made: Any = importlib.import_module("torch.fx.experimental.proxy_tensor")._MakefxTracer
        made._trace_inner = _in_turn(running, made._trace_inner)
    fx._Patcher.patch_method = _for_this_thread(patch)
    for module, begin, end in _LEVELS:
        with contextlib.suppress(ImportError, AttributeError):
            _level_in_turn(running, importlib.import_module(module), begin, end)
    for name in _QUESTIONS:
        question = getattr(fx, name, None)
        if question is not None:
            setattr(fx, name, _asked_here(question))


def _in_turn(running: Running, original: Callable[..., Any]) -> Any:
    @functools.wraps(original)
    def trace(*args: Any, **kwargs: Any) -> Any:
        with _turn(running):
            return original(*args, **kwargs)

    return trace


def _level_in_turn(running: Running, module: Any, begin: str, end: str) -> None:
    """From a level's begin to its end, let no other core begin one."""
    enter, leave = getattr(module, begin), getattr(module, end)

    @functools.wraps(enter)
    def enter_in_turn(*args: Any, **kwargs: Any) -> Any:
        lock = _taken(running)
        try:
            return enter(*args, **kwargs)
        except BaseException:
            lock.release()
            raise

    @functools.wraps(leave)
    def leave_in_turn(*args: Any, **kwargs: Any) -> Any:
        try:
            return leave(*args, **kwargs)
        finally:
            with contextlib.suppress(RuntimeError):  # an end without a begin: torch says so
                _lock().release()

    setattr(module, begin, enter_in_turn)
    setattr(module, end, leave_in_turn)


def _lock() -> Any:
    """Under which dynamo compiles; a thread may take it several times."""
    return importlib.import_module("torch._dynamo.convert_frame").compile_lock


def _taken(running: Running) -> Any:
    """The lock, held by this thread; raises if the run ends meanwhile."""
    lock = _lock()
    acquire(lock, running.here)
    return lock


@contextlib.contextmanager
def _turn(running: Running) -> Iterator[None]:
    lock = _taken(running)
    _thread.depth = _depth() + 1
    try:
        yield
    finally:
        _thread.depth -= 1
        lock.release()


def _depth() -> int:
    """How many traces this thread is in."""
    return int(getattr(_thread, "depth", 0))


def _asked_here(original: Callable[[], bool]) -> Any:
    @functools.wraps(original)
    def question() -> bool:
        return _depth() > 0 and original()

    return question


def _for_this_thread(original: Callable[..., Any]) -> Any:
    """Around what replaces a method while a function is traced: for the thread that traces."""

    @functools.wraps(original)
    def patch_method(
        self: Any, cls: type, name: str, new_fn: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        here, before = threading.get_ident(), getattr(cls, name)

        @functools.wraps(new_fn)
        def replacement(*called: Any, **named: Any) -> Any:
            method = new_fn if threading.get_ident() == here else before
            return method(*called, **named)

        return original(self, cls, name, replacement, *args, **kwargs)

    return patch_method
