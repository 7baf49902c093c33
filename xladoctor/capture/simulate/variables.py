"""Variables of the environment that torch_xla must not see on simulated cores."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_BFLOAT16 = "where bfloat16 cannot be reduced unseen: numbers and memory are those of float32"

#: Variable to what follows "is not obeyed on simulated cores, ". The first two make a bfloat16 of
#: every float32 behind the program's back, where no reduction can be widened; the third sets
#: options of the TPU's compiler, which the CPU's refuses (torch_xla 2.9.0).
HIDDEN = {
    "XLA_USE_BF16": _BFLOAT16,
    "XLA_DOWNCAST_BF16": _BFLOAT16,
    "ENABLE_COLLECTIVE_MATMUL_IN_MP": "whose compiler has no such option",
}

#: Values that leave them off.
_OFF = ("", "0", "false")


def take_hidden(tell: Callable[[str, dict[str, Any]], None]) -> None:
    """Keep the variables from torch_xla, which reads them at its first tensor or compilation.

    Also those that are set later: Lightning does it for ``precision="bf16-true"``, when its trainer
    is made. Python still sees them in ``os.environ``; torch_xla asks the process.

    Args:
        tell: Told once for each reason, as "not-obeyed", if one of them is set.
    """
    said: set[str] = set()

    def say(names: list[str]) -> None:
        why = HIDDEN[names[0]]
        if why not in said:
            said.add(why)
            verb = "are" if len(names) > 1 else "is"
            message = f"{' and '.join(names)} {verb} not obeyed on simulated cores, {why}"
            tell("not-obeyed", {"message": message})

    put = os.putenv

    @functools.wraps(put)
    def putenv(name: Any, value: Any) -> None:
        word = os.fsdecode(name)
        if word not in HIDDEN:
            put(name, value)
        elif os.fsdecode(value) not in _OFF:
            say([word])

    # os.environ puts each variable with it, and looks it up at every call.
    os.putenv = putenv
    found = [name for name in HIDDEN if os.environ.pop(name, "0") not in _OFF]
    for why in dict.fromkeys(HIDDEN.values()):
        names = [name for name in found if HIDDEN[name] == why]
        if names:
            say(names)
