"""Hooks around an optimizer's step, called once for each step that the program makes.

torch calls its hooks wherever a ``step`` of a class is come by (torch 2.9.0,
``Optimizer._patch_step_function``): where the ``step`` of a subclass calls that of its base, twice
for one step; and twice as well if two threads have made the first optimizers of a class at the same
time, since each has then wrapped the class.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Hook = Callable[[Any, Any, Any], None]


def before_step(hook: Hook) -> None:
    """Have a hook called before each step of any optimizer.

    Args:
        hook: Takes the optimizer, and the arguments of its step.

    Raises:
        ImportError: An older torch, which has no such hooks.
    """
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    register_optimizer_step_pre_hook(_once(hook))


def after_step(hook: Hook) -> None:
    """The same after each step."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(_once(hook))


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
