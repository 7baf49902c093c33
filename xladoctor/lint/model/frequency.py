"""How often a loop runs, as far as the code says it: steps in an epoch, and epochs."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Returns
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.loops import LoopKind
from xladoctor.lint.model.syntax import walk
from xladoctor.lint.model.values import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.loops import Loop
    from xladoctor.lint.model.regions import Regions

_DEPTH = 3


class Frequency:
    """Counts the iterations of loops by what they go over.

    Args:
        flow: The program, and the values of its expressions.
        regions: Its loops.
    """

    def __init__(self, flow: Flow, regions: Regions) -> None:
        self._tree = flow.tree
        self._names = flow.names
        self._flow = flow
        self._regions = regions

    def times(self, loop: Loop) -> str | None:
        """How often the body runs in all, such as "10 x len(loader)"; None if it is not known.

        If only the epochs are not known: "len(loader) times in an epoch".
        """
        inner = self.turns(loop)
        if inner is None:
            return None
        epochs = self._outer(loop, _DEPTH)
        if epochs is None:
            return f"{inner} times in an epoch"
        factors = [*epochs, inner]
        if all(isinstance(factor, int) for factor in factors):
            product = 1
            for factor in factors:
                product *= int(factor)
            return f"{product} times"
        return f"{' x '.join(str(factor) for factor in factors)} times"

    def _outer(self, loop: Loop, depth: int) -> Sequence[int | str] | None:
        """The counts of the loops around a loop, outermost first; None if one is not known."""
        found: list[int | str] = []
        node = loop.node
        while True:
            around = self._regions.loop(node)
            if around is None:
                break
            count = self.turns(around)
            if count is None:
                return None
            found.insert(0, count)
            node = around.node
        function = self._tree.function_of(node)
        callers = self._flow.callers(function) if function is not None else ()
        if not callers:
            return found
        if len(callers) > 1 or depth == 0:
            return None
        around = self._regions.loop(callers[0])
        if around is None or around.kind is not LoopKind.EPOCH:
            return found if around is None else None
        count, more = self.turns(around), self._outer(around, depth - 1)
        return None if count is None or more is None else [*more, count, *found]

    def turns(self, loop: Loop) -> int | str | None:
        """How many turns the loop takes when it is reached, such as 10 or "len(loader)"."""
        node = loop.node
        if not isinstance(node, cst.For | cst.CompFor):
            return None
        if any(isinstance(part, cst.Break) for part in walk(node, into_functions=False)):
            return None
        for source in self._sources(node.iter):
            if isinstance(source, cst.Call):
                name = self._names.resolve(source.func)
                return self._range(source) if name == "builtins.range" else None
            text = dotted_text(source)
            value = self._flow.value(source)
            if text is not None and (
                value.is_loader or know.LOADER_NAME.search(text.rpartition(".")[2])
            ):
                return f"len({text})"
            return None
        return None

    def _sources(self, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
        """What stands within ``enumerate(tqdm(...))`` and the like, if it is as long."""
        while isinstance(node, cst.Call) and node.args:
            name = self._names.resolve(node.func) or ""
            passes = self._flow.library.returns(name) is Returns.ITERATED
            as_long = passes and name not in {"itertools.cycle", "itertools.islice"}
            if not (as_long or name == "builtins.enumerate"):
                break
            node = node.args[0].value
        yield node

    def _range(self, call: cst.Call) -> int | str | None:
        arguments = [argument.value for argument in call.args if not argument.star]
        if len(arguments) != len(call.args):
            return None
        if len(arguments) == 1:
            return self._number(arguments[0])
        if len(arguments) != 2:
            return None
        start, stop = (self._number(item) for item in arguments)
        if isinstance(start, int) and isinstance(stop, int):
            return max(stop - start, 0)
        last = arguments[1]
        if (
            start == 1
            and isinstance(last, cst.BinaryOperation)
            and isinstance(last.operator, cst.Add)
            and self._number(last.right) == 1
        ):
            return self._number(last.left)
        return stop if start == 0 else None

    def _number(self, node: cst.BaseExpression) -> int | str | None:
        """A number that is written, or bound once; else how the code calls it."""
        text = dotted_text(node)
        if isinstance(node, cst.Name):
            bindings = self._tree.bindings(node)
            if len(bindings) == 1 and isinstance(bindings[0].node, cst.Integer):
                return self._number(bindings[0].node)
        if isinstance(node, cst.Integer):
            return int(ast.literal_eval(node.value))
        if isinstance(node, cst.Call) and self._names.resolve(node.func) == "builtins.len":
            inner = dotted_text(node.args[0].value) if len(node.args) == 1 else None
            return f"len({inner})" if inner is not None else None
        if text is None or self._flow.value(node).kind is Kind.CORE_NUMBER:
            return None
        return text
