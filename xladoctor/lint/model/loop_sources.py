"""What loops go over: batches, the modules of a model, through ``enumerate`` and the like."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Returns
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.contained import element_of
from xladoctor.lint.model.dotted import last_name
from xladoctor.lint.model.iterators import asked_one_by_one, handed_on
from xladoctor.lint.model.values import UNKNOWN, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.syntax import LoopNode
    from xladoctor.lint.model.values import Value

_DEPTH = 3
#: What gives the elements of what it is given, beside others.
_PASS_ON = frozenset({"builtins.enumerate", "builtins.zip"})


class LoopSources:
    """Answers for loops.

    Args:
        flow: The program, and the values of its expressions.
    """

    def __init__(self, flow: Flow) -> None:
        self._tree = flow.tree
        self._names = flow.names
        self._flow = flow
        #: The expression that a loop goes over; see ``Loop.over``.
        self.over = functools.cache(self._over)

    def _over(self, node: LoopNode) -> cst.BaseExpression | None:
        if isinstance(node, cst.While):
            over = asked_one_by_one(self._tree, self._names, node)
        else:
            over = node.iter
        for _ in range(_DEPTH):
            more = handed_on(self._flow, over) if isinstance(over, cst.Call) else None
            if more is None:
                break
            over = more
        return over

    def over_batches(self, node: LoopNode) -> bool:
        """Whether a loop goes over a loader, or over what is called like one."""
        over = self.over(node)
        return over is not None and (
            any(
                self._flow.value(item).is_loader or know.LOADER_NAME.search(last_name(item))
                for item in self._sources(over)
            )
            or any(value.is_loader for value in self._side_by_side(over))
        )

    def over_modules(self, node: LoopNode) -> bool:
        """``for layer in self.layers``: the layers of one model."""
        return not isinstance(node, cst.While) and any(
            self._flow.value(item).kind is Kind.MODEL for item in self._sources(node.iter)
        )

    def _sources(
        self, node: cst.BaseExpression, depth: int = _DEPTH
    ) -> Iterator[cst.BaseExpression]:
        """What a loop goes over, within ``enumerate(tqdm(...))`` and the like."""
        yield node
        if isinstance(node, cst.Name) and depth:
            for made in self._passed_on(node):
                yield from self._sources(made, depth - 1)
        if isinstance(node, cst.NamedExpr):  # ``(bar := tqdm(batches))``
            yield from self._sources(node.value, depth)
        if isinstance(node, cst.IfExp):  # ``tqdm(batches) if verbose else batches``
            yield from self._sources(node.body, depth)
            yield from self._sources(node.orelse, depth)
        elif isinstance(node, cst.Call):
            more = handed_on(self._flow, node) if depth else None
            if more is not None:
                yield from self._sources(more, depth - 1)
            for argument in node.args:
                named = argument.keyword is not None and argument.keyword.value != "iterable"
                if not named and not argument.star:
                    yield from self._sources(argument.value, depth)

    def _side_by_side(self, node: cst.BaseExpression) -> Iterator[Value]:
        """Each of ``feeds`` in ``zip(*feeds)``, where that is a list."""
        for item in self._sources(node):
            if isinstance(item, cst.Call) and self._names.resolve(item.func) == "builtins.zip":
                starred = (one.value for one in item.args if one.star == "*")
                yield from (element_of(self._flow.value(one)) for one in starred)

    def _passed_on(self, name: cst.Name) -> Iterator[cst.BaseExpression]:
        """``batches = enumerate(loader)``, ``with tqdm(loader) as batches``: what it is made of."""
        bindings = self._tree.bindings(name)
        order = self._tree.order
        before = [item for item in bindings if order.get(item.node, 0) < order[name]]
        for binding in before[-1:]:  # of a name that is used again, the last one
            node: cst.CSTNode | None = binding.node
            if binding.kind == "other":  # the target of ``with ... as name``
                around = self._tree.parents.get(binding.node)
                item = self._tree.parents.get(around) if around is not None else None
                node = item.item if isinstance(item, cst.WithItem) else None
            ways = [node.body, node.orelse] if isinstance(node, cst.IfExp) else [node]
            for made in ways:
                if isinstance(made, cst.Call) and self._passes_on(made):
                    yield made

    def _passes_on(self, call: cst.Call) -> bool:
        """Whether a call gives what it is given, one by one."""
        name = self._names.resolve(call.func) or ""
        return name in _PASS_ON or self._flow.library.returns(name) is Returns.ITERATED

    def value(self, node: LoopNode) -> Value:
        """What a loop goes over: a loader, if one is within."""
        over = self.over(node)
        if over is None:
            return UNKNOWN
        values = [self._flow.value(item) for item in self._sources(over)]
        values += self._side_by_side(over)
        loaders = [value for value in values if value.is_loader]
        on_device = (value for value in loaders if value.kind is Kind.DEVICE_LOADER)
        return next(on_device, loaders[0] if loaders else values[0])
