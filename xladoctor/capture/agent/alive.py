"""The objects of the program that are alive, by their class."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def instances(*classes: type) -> Iterator[Any]:
    """What Python's collector knows of these classes and what inherits from them.

    Objects are asked for their type alone: the ``__class__`` of some is a property that warns.
    """
    for one in gc.get_objects():
        if issubclass(type(one), classes):
            yield one
