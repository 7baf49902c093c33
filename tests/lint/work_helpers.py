"""How much work a function does, in a number that does not depend on how busy the machine is."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def calls_of(function: Callable[[], object]) -> int:
    """The calls, of Python and of C functions, that a function makes."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    gc.disable()  # whoever wants to be told of collections would be counted
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls
