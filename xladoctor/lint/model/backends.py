"""Classes of which a program takes one by its device: ``CpuBackend``, ``XlaBackend``.

What an object of one of them does is asked of the one that is taken on XLA devices.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from xladoctor.lint.words import OTHER_WORDS, XLA_WORDS, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.lint.model.classes import Classes
    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Class, Tree
    from xladoctor.lint.model.values import Instance

_XLA = "torch_xla."
_ELSEWHERE = OTHER_WORDS | {"cpu"}


class Backends:
    """Answers for the classes of a program.

    Args:
        tree: The syntax of the file or files.
        names: What their names are bound to.
        classes: Which classes inherit from which.
    """

    def __init__(self, tree: Tree, names: Names | LinkedNames, classes: Classes) -> None:
        self._tree = tree
        self._names = names
        self._classes = classes
        self._chosen: dict[frozenset[Class], frozenset[Class]] = {}

    def taken(self, objects: Sequence[Instance]) -> Sequence[Instance]:
        """Those of some objects, of which a name holds one, that it holds on XLA devices.

        All of them, unless each of the others is for other devices by its name, or of a base class
        of those that are for XLA devices.
        """
        if len(objects) < 2:
            return objects
        kinds = frozenset(one.cls for one in objects)
        if kinds not in self._chosen:  # asked again for each attribute
            self._chosen[kinds] = self._choose(kinds)
        chosen = self._chosen[kinds]
        return objects if chosen is kinds else [one for one in objects if one.cls in chosen]

    def _choose(self, kinds: frozenset[Class]) -> frozenset[Class]:
        ours = frozenset(filter(self._is_for_xla, kinds))
        bases = {base for cls in ours for base in self._classes.above(cls)}
        others = kinds - ours - bases
        return ours if ours and all(map(_is_for_others, others)) else kinds

    def _is_for_xla(self, cls: Class) -> bool:
        """Whether a class is for XLA devices by its name, or calls torch_xla in its methods."""
        named = words(cls.name)
        return not named & _ELSEWHERE and (bool(named & XLA_WORDS) or cls in self._call_xla)

    @functools.cached_property
    def _call_xla(self) -> frozenset[Class | None]:
        calls = self._tree.calls
        asked = (x for x in calls if (self._names.resolve(x.func) or "").startswith(_XLA))
        homes = (self._tree.function_of(call) for call in asked)
        return frozenset(one.owner for home in homes if home is not None for one in home.around)


def _is_for_others(cls: Class) -> bool:
    named = words(cls.name)
    return bool(named & _ELSEWHERE) and not named & XLA_WORDS
