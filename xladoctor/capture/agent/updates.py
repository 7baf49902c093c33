"""When an optimizer is about to change its parameters, with the gradients that it will use.

That is before its step; but an optimizer may be given a closure that makes the gradients, as
Lightning (2.6) always does: then it is after the closure has run for the first time.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def watch(look: Callable[[Any], None]) -> bool:
    """Have every optimizer looked at before its updates, in the thread that steps it.

    Args:
        look: Gets the optimizer. Those that watch are called in the order in which they began to.

    Returns:
        False if this torch has no such hooks.
    """
    try:
        from torch.optim.optimizer import register_optimizer_step_pre_hook
    except ImportError:
        return False

    def before(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": _then(kwargs["closure"], optimizer, look)}
        # The optimizer itself is the first of its arguments.
        if len(args) > 1 and callable(args[1]):
            return (args[0], _then(args[1], optimizer, look), *args[2:]), kwargs
        look(optimizer)
        return None

    register_optimizer_step_pre_hook(before)
    return True


def _then(closure: Any, optimizer: Any, look: Callable[[Any], None]) -> Any:
    """The closure, which is followed by a look when it runs for the first time."""
    due = [True]

    @functools.wraps(closure, updated=())
    def watched(*args: Any, **kwargs: Any) -> Any:
        result = closure(*args, **kwargs)
        if due.pop() if due else False:
            look(optimizer)
        return result

    return watched
