"""What a file defines: its scopes, what names in them are bound to, its functions and classes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias

import libcst as cst

if TYPE_CHECKING:
    from collections.abc import Iterator

FunctionNode: TypeAlias = cst.FunctionDef | cst.Lambda


@dataclasses.dataclass(eq=False, slots=True)
class Scope:
    """A module, class, function or comprehension, and what is bound in it."""

    node: cst.CSTNode
    parent: Scope | None
    bindings: dict[str, list[Binding]] = dataclasses.field(default_factory=dict)
    #: The names that lines within it set for others: of the module, or of a function around.
    globals: set[str] = dataclasses.field(default_factory=set)
    #: Those of them that are of a function around.
    outer: set[str] = dataclasses.field(default_factory=set)
    top: Scope = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.top = self if self.parent is None else self.parent.top

    @property
    def is_class(self) -> bool:
        """Names of a class body are not seen by the functions in it."""
        return type(self.node) is cst.ClassDef

    def lookup(self, name: str) -> list[Binding] | None:
        """The bindings that a name has when it is read here."""
        holder = self.holder(name)
        return None if holder is None else holder.bindings[name]

    def holder(self, name: str) -> Scope | None:
        """The scope, this one or one around it, whose name it is that is read here."""
        current: Scope | None = self
        while current is not None:
            if name in current.bindings and not (current.is_class and current is not self):
                return current
            current = current.parent
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """One way in which a name gets its meaning.

    Attributes:
        kind: "import", "assign", "function", "class", "param" or "other" (loop target, with ...).
        node: The import, the assigned expression, the definition or the target.
        dotted: For an import: the full dotted name that it is bound to.
    """

    kind: str
    node: cst.CSTNode
    dotted: str | None = None


@dataclasses.dataclass(eq=False, slots=True)
class Function:
    """A function, method or lambda of the file.

    Attributes:
        node: Its definition.
        name: Its name; "<lambda>" for a lambda.
        owner: The class it is a method of, if it is one.
        outer: The function around it, if there is one.
        parameters: Names of the parameters in order, ``self`` included, without * and **.
        is_static: Whether it is a static method, which has no ``self``.
        of_class: Whether it is a class method, whose first parameter is the class.
    """

    node: FunctionNode
    name: str
    owner: Class | None
    outer: Function | None
    parameters: tuple[str, ...]
    keyword_only: tuple[str, ...] = ()
    decorators: tuple[cst.BaseExpression, ...] = ()
    is_static: bool = dataclasses.field(init=False)
    of_class: bool = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        said = {item.value for item in self.decorators if type(item) is cst.Name}
        self.is_static = "staticmethod" in said
        self.of_class = "classmethod" in said or self.name == "__init_subclass__"

    @property
    def is_bound(self) -> bool:
        """Whether its first parameter is the object (or class) that it is called on."""
        return self.owner is not None and not self.is_static

    @property
    def arguments(self) -> tuple[str, ...]:
        """The parameters that a call gives by their places: without ``self``."""
        return self.parameters[1:] if self.is_bound else self.parameters

    def place(self, parameter: str) -> int | None:
        """Where a call gives a parameter: 0 for the first argument, -1 for ``self``.

        None for one that is given by its name alone, or that there is not.
        """
        if parameter not in self.parameters:
            return None
        return self.parameters.index(parameter) - self.is_bound

    @property
    def declared(self) -> tuple[cst.Param, ...]:
        """Its parameters as they are written, without * and **."""
        params = self.node.params
        return (*params.posonly_params, *params.params, *params.kwonly_params)

    def default(self, parameter: str) -> cst.BaseExpression | None:
        """What a parameter is if a call does not give it."""
        return next((one.default for one in self.declared if one.name.value == parameter), None)

    def annotation(self, parameter: str) -> cst.BaseExpression | None:
        """What a parameter is said to be: ``args: TrainingArguments``."""
        said = (one.annotation for one in self.declared if one.name.value == parameter)
        return next((one.annotation for one in said if one is not None), None)

    @property
    def around(self) -> Iterator[Function]:
        """It and the functions around it, innermost first."""
        current: Function | None = self
        while current is not None:
            yield current
            current = current.outer


@dataclasses.dataclass(eq=False, slots=True)
class Class:
    """A class of the file with its methods by name."""

    node: cst.ClassDef
    name: str
    methods: dict[str, Function] = dataclasses.field(default_factory=dict)

    @property
    def bases(self) -> tuple[cst.BaseExpression, ...]:
        """The expressions it inherits from."""
        return tuple(argument.value for argument in self.node.bases)
