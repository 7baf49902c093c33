"""What a program asks for by a name: ``getattr(callback, event)(self)``.

Engines of a program's own run their callbacks so: ``self.call("after_batch")`` in the loop over
batches, ``self.call("after_epoch")`` in the one over epochs, and one ``getattr`` for both. Which
method runs how often is known where the name is written, so that call counts as the one that runs
the method.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeAlias

import libcst as cst

from xladoctor.lint.model.dotted import string
from xladoctor.lint.model.parts import index_of
from xladoctor.lint.model.syntax import Class, Function, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree
    from xladoctor.lint.model.values import Value

#: A name, and the call that it is written in, where another function hands it on.
Spelling: TypeAlias = "tuple[str, cst.Call | None]"

GETATTR = "builtins.getattr"
VARS = "builtins.vars"
#: How many functions may hand a name on.
_DEPTH = 3
#: Of a module that has more functions and classes, none is taken for the one that is asked for.
_MOST_NAMED = 12


class ByName:
    """Which attributes are asked for by names.

    Args:
        tree: The syntax.
        names: What its names are bound to.
    """

    def __init__(self, tree: Tree, names: Names | LinkedNames) -> None:
        self._tree = tree
        self._names = names
        self._known: dict[cst.Call, Sequence[Spelling]] = {}

    def spellings(self, asked: cst.Call) -> Sequence[Spelling]:
        """The names that a ``getattr`` asks for, as far as they are written somewhere."""
        if asked not in self._known:
            node = asked.args[1].value if len(asked.args) > 1 else None
            found = [] if node is None else self._spelled(node, _DEPTH)
            self._known[asked] = list(dict.fromkeys(found))
        return self._known[asked]

    def of_module(self, asked: cst.Call) -> tuple[frozenset[Function], frozenset[Class]]:
        """The functions and classes that ``getattr(metrics, name)`` may mean of a linked file."""
        if not asked.args:
            return frozenset(), frozenset()
        return self._offered(asked.args[0].value, {name for name, _ in self.spellings(asked)})

    def of_table(self, asked: cst.Subscript) -> tuple[frozenset[Function], frozenset[Class]]:
        """The same for ``metrics.__dict__[name]``, ``vars(metrics)[name]``."""
        holder, name = asked.value, index_of(asked)
        module: cst.BaseExpression | None = None
        if isinstance(holder, cst.Attribute) and holder.attr.value == "__dict__":
            module = holder.value
        elif isinstance(holder, cst.Call) and self._names.resolve(holder.func) == VARS:
            module = holder.args[0].value if holder.args else None
        if module is None or name is None:
            return frozenset(), frozenset()
        return self._offered(module, {spelled for spelled, _ in self._spelled(name, _DEPTH)})

    def _offered(
        self, module: cst.BaseExpression, written: set[str]
    ) -> tuple[frozenset[Function], frozenset[Class]]:
        """What a linked file has of these names; where none is known, what may be meant."""
        linked = self._names.linked(module)
        if linked is None or linked[1]:
            return frozenset(), frozenset()
        defined: list[Function | Class] = [
            *self._tree.functions.values(),
            *self._tree.classes.values(),
        ]
        found = [
            one
            for one in defined
            if self._tree.parents[one.node] is linked[0].module
            and (one.name in written if written else _may_be_meant(one))
        ]
        if len(found) > _MOST_NAMED:
            return frozenset(), frozenset()
        functions = frozenset(one for one in found if isinstance(one, Function))
        return functions, frozenset(one for one in found if isinstance(one, Class))

    def _spelled(self, node: cst.BaseExpression, depth: int) -> Iterator[Spelling]:
        if isinstance(node, cst.SimpleString):
            yield str(string(node)), None
        elif isinstance(node, cst.FormattedString):
            yield from self._formatted(node, depth)
        elif isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
            ends = list(self._spelled(node.right, depth))
            for begin, site in self._spelled(node.left, depth):
                yield from ((begin + end, site or other) for end, other in ends)
        elif isinstance(node, cst.Name):
            yield from self._of_name(node, depth)
        elif isinstance(node, cst.Attribute):
            text = self._constants.get(node.attr.value)
            if text is not None:
                yield text, None

    def _formatted(self, node: cst.FormattedString, depth: int) -> Iterator[Spelling]:
        """``f"on_{event}_end"``: texts around one name."""
        texts: list[Spelling] = [("", None)]
        for part in node.parts:
            if isinstance(part, cst.FormattedStringText):
                more: list[Spelling] = [(part.value, None)]
            elif isinstance(part, cst.FormattedStringExpression):
                more = list(self._spelled(part.expression, depth))
            texts = [(begin + end, one or other) for begin, one in texts for end, other in more]
        yield from texts

    def _of_name(self, node: cst.Name, depth: int) -> Iterator[Spelling]:
        for binding in self._tree.bindings(node):
            if binding.kind == "param":
                function = self._tree.function_of(node)
                if function is not None and depth:
                    yield from self._handed(function, node.value, depth - 1)
            elif binding.kind == "assign":
                yield from _written_out(binding.node)
            elif binding.kind == "other":
                loop = self._tree.parents[binding.node]
                if isinstance(loop, cst.For | cst.CompFor):
                    yield from self._gone_over(loop.iter)

    def _gone_over(self, node: cst.BaseExpression) -> Iterator[Spelling]:
        """``for name in ("accuracy", "recall")``, also by the name of the tuple."""
        yield from _written_out(node)
        if isinstance(node, cst.Name):
            for binding in self._tree.bindings(node):
                if binding.kind == "assign":
                    yield from _written_out(binding.node)

    @functools.cached_property
    def _constants(self) -> dict[str, str | None]:
        """Texts that classes call by a name: ``BATCH_END = "after_batch"``; None if of several."""
        found: dict[str, str | None] = {}
        for owner in self._tree.classes.values():
            for name, bindings in self._tree.scopes[owner.node.body].bindings.items():
                for binding in bindings:
                    if isinstance(binding.node, cst.SimpleString):
                        text = str(string(binding.node))
                        found[name] = text if found.get(name, text) == text else None
        return found

    def _handed(self, function: Function, name: str, depth: int) -> Iterator[Spelling]:
        """What is written for a parameter where a function of that name is called."""
        if name not in function.parameters:
            return
        index = function.place(name)
        for call in self._called.get(function.name, ()):
            given = _argument(call, index, name)
            if given is not None:
                yield from ((text, site or call) for text, site in self._spelled(given, depth))

    @functools.cached_property
    def _called(self) -> dict[str, list[cst.Call]]:
        """Calls by the name of what is called; of an object itself as ``__call__``."""
        found: dict[str, list[cst.Call]] = {}
        for call in self._tree.calls:
            if isinstance(call.func, cst.Attribute):
                found.setdefault(call.func.attr.value, []).append(call)
            elif isinstance(call.func, cst.Name):
                found.setdefault(call.func.value, []).append(call)
                if self._names.definition(call.func) is None:
                    found.setdefault("__call__", []).append(call)
        return found


def _may_be_meant(one: Function | Class) -> bool:
    """Whether something that a module offers gives back what is asked for."""
    if one.name.startswith("_"):
        return False
    return isinstance(one, Class) or any(
        isinstance(part, cst.Return) and part.value is not None for part in walk(one.node)
    )


def takes(function: Function, arguments: Sequence[tuple[str | None, Value]]) -> bool:
    """Whether a function has as many parameters as a call gives it."""
    params = function.node.params
    own = len(function.arguments)
    keywords = [keyword for keyword, _ in arguments]
    if "*" in keywords or "**" in keywords or isinstance(params.star_arg, cst.Param):
        return True
    needed = own - sum(one.default is not None for one in (*params.posonly_params, *params.params))
    return needed <= len(arguments) and keywords.count(None) <= own


def _written_out(node: cst.CSTNode) -> Iterator[Spelling]:
    parts = node.elements if isinstance(node, cst.List | cst.Tuple | cst.Set) else ()
    for value in (*(part.value for part in parts), node):
        if isinstance(value, cst.SimpleString):
            yield str(string(value)), None


def _argument(call: cst.Call, index: int | None, keyword: str) -> cst.BaseExpression | None:
    place = 0
    for argument in call.args:
        if argument.keyword is not None:
            if argument.keyword.value == keyword:
                return argument.value
        elif argument.star:
            return None
        elif place == index:
            return argument.value
        else:
            place += 1
    return None
