"""A call as rules see it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import libcst as cst

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xladoctor.lint.model.syntax import Class, Function


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class CallSite:
    """One call in the file.

    Attributes:
        node: The call.
        name: Dotted original of what is called ("torch_xla.core.xla_model.mark_step",
            "builtins.print"), None if it is neither imported nor builtin.
        method: Last part of what is called (``item`` in ``x.y.item()``), None for a plain name.
        receiver: What stands before the method; None for a plain name.
        function: The function around the call, None at module level.
        find_target: Finds ``target``: by the run of values, which is asked for then.
        arguments: What it is given, with ``**settings`` written out where that is known.
        begun: The ``functools.partial(DataLoader, ...)`` whose loader is made here.
    """

    node: cst.Call
    name: str | None
    method: str | None
    receiver: cst.BaseExpression | None
    function: Function | None
    find_target: Callable[[cst.Call], Function | Class | None]
    arguments: Sequence[cst.Arg]
    begun: cst.Call | None = None

    @property
    def target(self) -> Function | Class | None:
        """The function or class of the program that is called, if known."""
        return self.find_target(self.node)

    @property
    def written(self) -> str:
        """The last part of what is called, as it is written; "" for ``functions[0]()``."""
        return self.method or (self.node.func.value if isinstance(self.node.func, cst.Name) else "")

    @property
    def last(self) -> str:
        """The last part of the name of what is called; of what is written, if that is unknown."""
        return self.name.rpartition(".")[2] if self.name else self.written

    @property
    def positional(self) -> tuple[cst.BaseExpression, ...]:
        """The positional arguments before any ``*args``."""
        found = []
        for argument in self._given:
            if argument.star:
                break
            if argument.keyword is None:
                found.append(argument.value)
        return tuple(found)

    @property
    def _given(self) -> Sequence[cst.Arg]:
        return self.arguments if self.begun is None else (*self.begun.args[1:], *self.arguments)

    @property
    def keywords(self) -> dict[str, cst.BaseExpression]:
        """The keyword arguments by name; of ``**kwargs`` what ``arguments`` knows."""
        return {arg.keyword.value: arg.value for arg in self._given if arg.keyword is not None}

    @property
    def has_star(self) -> bool:
        """Whether ``*args`` or ``**kwargs`` hide arguments: do not call one missing then."""
        return any(argument.star for argument in self._given)

    def argument(self, index: int | None, keyword: str | None = None) -> cst.BaseExpression | None:
        """The argument at a position or of a name, None if it is not given (see ``has_star``).

        A place before the first one is that of ``self``, which no call gives.
        """
        if keyword is not None and keyword in self.keywords:
            return self.keywords[keyword]
        if index is not None and 0 <= index < len(self.positional):
            return self.positional[index]
        return None

    def written_as(self, value: cst.BaseExpression) -> cst.Arg | None:
        """The argument of the call itself that has a value; None if a dictionary brings it."""
        return next((argument for argument in self.node.args if argument.value is value), None)

    def given_to(self, function: Function, parameter: str) -> cst.BaseExpression | None:
        """What it gives a parameter of the function that it calls, None if nothing."""
        return self.argument(function.place(parameter), parameter)


def called_name(call: cst.Call) -> str:
    """The last name of what is called, whatever is before it: ``add`` of ``f().add(x)``."""
    last = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    return last.value if isinstance(last, cst.Name) else ""


def given(call: cst.Call, index: int | None, keyword: str) -> cst.BaseExpression | None:
    """What a call gives at a place or by a name, None if it does not; starred ones do not count."""
    place = 0
    for argument in call.args:
        if argument.keyword is not None and argument.keyword.value == keyword:
            return argument.value
        if argument.keyword is None and not argument.star:
            if place == index:
                return argument.value
            place += 1
    return None
