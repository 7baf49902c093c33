"""What one round of the abstract run found out for the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from xladoctor.lint.model.frames import join_env
from xladoctor.lint.model.syntax import Function
from xladoctor.lint.model.values import NOTHING, Instance, Value, join

if TYPE_CHECKING:
    import libcst as cst

    from xladoctor.lint.model.frames import Env
    from xladoctor.lint.model.syntax import Class

#: A function, and of a method the object that it is run for.
Context: TypeAlias = tuple[Function, Instance | None]


class Facts:
    """What one round found out for the next."""

    def __init__(self) -> None:
        self.parameters: dict[Context, dict[str, Value]] = {}
        self.results: dict[Context, Value] = {}
        self.attributes: dict[tuple[Instance, str], Value] = {}
        self.outer: dict[Function | cst.Module | cst.FunctionDef, Env] = {}
        self.instances: dict[Class, dict[Instance, None]] = {}
        #: What functions have set with ``global``.
        self.shared: dict[tuple[cst.Module, str], Value] = {}
        #: What decorators of the program have put in the place of functions.
        self.wrappers: dict[Function, Function] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Facts) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def joined(self, other: Facts) -> Facts:
        """What both rounds found."""
        both = Facts()
        for facts in (self, other):
            for context, parameters in facts.parameters.items():
                before = both.parameters.get(context, {})
                both.parameters[context] = join_env(before, parameters)
            for home, env in facts.outer.items():
                both.outer[home] = join_env(both.outer.get(home, {}), env)
            for context, result in facts.results.items():
                both.results[context] = join(both.results.get(context, NOTHING), result)
            for place, value in facts.attributes.items():
                both.attributes[place] = join(both.attributes.get(place, NOTHING), value)
            for name, value in facts.shared.items():
                both.shared[name] = join(both.shared.get(name, NOTHING), value)
            for cls, instances in facts.instances.items():
                both.instances.setdefault(cls, {}).update(instances)
            both.wrappers |= facts.wrappers
        return both
