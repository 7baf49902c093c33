"""Which objects values may be, and which methods these have."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from xladoctor.lint.model.syntax import Class, Function, Tree
from xladoctor.lint.model.values import Instance, Kind, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names

_Defined = TypeVar("_Defined", Function, Class)
#: A value of more classes than these is any object.
_MOST_CLASSES = 6


class Classes:
    """Answers for the classes of a program.

    Args:
        tree: The syntax of the file or files.
        names: What their names are bound to.
    """

    def __init__(self, tree: Tree, names: Names | LinkedNames) -> None:
        self._tree = tree
        self._names = names
        self._above: dict[Class, Sequence[Class]] = {}
        self._below: dict[Class, list[Class]] | None = None

    def objects(self, value: Value) -> Sequence[Instance]:
        """What a value may be an object of: of one made by a known call, or of several classes."""
        if value.instance is not None:
            return (value.instance,)
        order = self._tree.order
        classes = sorted(value.classes, key=lambda cls: order[cls.node])
        return [Instance(cls, None) for cls in classes[:_MOST_CLASSES]]

    def runs(self, value: Value) -> Value:
        """What a call of a value runs: of an object with ``__call__`` that method, bound to it."""
        if value.kind is not Kind.OBJECT or value.instance is None:
            return value
        method = self.method(value.instance.cls, "__call__")
        if method is None:
            return value
        return Value(Kind.FUNCTION, function=method, instance=value.instance)

    def named(self, value: Value) -> Sequence[Instance]:
        """What stands for the classes themselves that a value may be: ``cls.kinds``."""
        return [Instance(cls, None) for cls in self.in_order(value.makes)]

    def above(self, cls: Class) -> Sequence[Class]:
        """The base classes of a class in the program, and theirs, nearest first."""
        if cls not in self._above:
            self._above[cls] = ()  # a class that inherits from itself has no other
            found: list[Class] = []
            for base in cls.bases:
                outer = self._names.definition(base)
                if isinstance(outer, Class) and outer is not cls:
                    found += [outer, *self.above(outer)]
            self._above[cls] = tuple(dict.fromkeys(found))
        return self._above[cls]

    def heirs(self, method: Function) -> Sequence[Class]:
        """The classes in the program that inherit a method from the class it stands in."""
        below = self.below(method.owner) if method.owner is not None else ()
        return [cls for cls in below if self.method(cls, method.name) is method]

    def below(self, owner: Class) -> Sequence[Class]:
        """The classes in the program that inherit from a class."""
        if self._below is None:
            self._below = {}
            for cls in self._tree.classes.values():
                for base in self.above(cls):
                    self._below.setdefault(base, []).append(cls)
        return self._below.get(owner, ())

    def in_order(self, known: frozenset[_Defined]) -> Sequence[_Defined]:
        """Functions or classes in the order of the program; of very many none."""
        found = sorted(known, key=lambda one: self._tree.order[one.node])
        return found if len(found) <= _MOST_CLASSES else ()

    def method(self, cls: Class, name: str, depth: int = 4) -> Function | None:
        """A method of a class or of its base classes in this file."""
        if name in cls.methods:
            return cls.methods[name]
        return self.inherited(cls, name, depth)

    def inherited(self, cls: Class, name: str, depth: int = 4) -> Function | None:
        """A method of the base classes of a class in this file."""
        for base in cls.bases if depth else ():
            outer = self._names.definition(base)
            if isinstance(outer, Class) and outer is not cls:
                found = self.method(outer, name, depth - 1)
                if found is not None:
                    return found
        return None
