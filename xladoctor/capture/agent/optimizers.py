"""Hooks around an optimizer's step, called once for each step that the program makes.

torch calls its hooks wherever a ``step`` of a class is come by (torch 2.9.0,
``Optimizer._patch_step_function``): where the ``step`` of a subclass calls that of its base, twice
for one step; and twice as well if two threads have made the first optimizers of a class at the same
time, since each has then wrapped the class.

An optimizer may be given a closure that makes the gradients, as Lightning (2.6) always does: what
is called before a step is then called when the closure has run for the first time.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Hook = Callable[[Any, Any, Any], None]


def before_step(hook: Hook) -> None:
    """Have a hook called before each step of any optimizer, with the gradients that it will use.

    Args:
        hook: Takes the optimizer, and the arguments of its step.

    Raises:
        ImportError: An older torch, which has no such hooks.
    """
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    def before(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _inside_another(optimizer):
            return None
        if callable(kwargs.get("closure")):
            closure = _then(kwargs["closure"], hook, optimizer, args, kwargs)
            return args, {**kwargs, "closure": closure}
        # The optimizer itself is the first of its arguments.
        if len(args) > 1 and callable(args[1]):
            return (args[0], _then(args[1], hook, optimizer, args, kwargs), *args[2:]), kwargs
        hook(optimizer, args, kwargs)
        return None

    register_optimizer_step_pre_hook(before)


def after_step(hook: Hook) -> None:
    """The same after each step."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(_once(hook))


def _then(closure: Any, hook: Hook, optimizer: Any, args: Any, kwargs: Any) -> Any:
    """The closure, which is followed by the hook when it runs for the first time."""
    due = [True]

    @functools.wraps(closure, updated=())
    def watched(*given: Any, **named: Any) -> Any:
        result = closure(*given, **named)
        if due:
            due.clear()
            hook(optimizer, args, kwargs)
        return result

    return watched


def _once(hook: Hook) -> Hook:
    @functools.wraps(hook)
    def outermost(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not _inside_another(optimizer):
            hook(optimizer, args, kwargs)

    return outermost


def _inside_another(optimizer: Any) -> bool:
    """Whether the step whose hooks run now is part of a step of the same optimizer."""
    wrapper = sys._getframe(2)  # torch's own, which calls the hooks
    frame = wrapper.f_back
    while frame is not None:
        if frame.f_code is wrapper.f_code and frame.f_locals.get("self") is optimizer:
            return True
        frame = frame.f_back
    return False
