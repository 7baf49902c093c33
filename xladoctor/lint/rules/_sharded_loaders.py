"""Which loaders give each core a part of the data: by a sampler, Accelerate or a Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, Kind, children
from xladoctor.lint.model.dotted import dotted_text, is_name
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.rules._handed_over import is_accelerator
from xladoctor.lint.rules._loaders import DATA_LOADER, is_of_evaluation
from xladoctor.lint.rules._sources import gone_over

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Loop
    from xladoctor.lint.rules._given_names import Given, GivenNames

_PREPARES = frozenset({"prepare", "prepare_data_loader"})
#: Methods of the Trainer of transformers that prepare what they give.
_OF_TRAINER = frozenset({"get_eval_dataloader", "get_test_dataloader"})
_DEPTH = 12


def shares(model: FileModel, call: CallSite) -> bool:
    """Whether a call makes, or gives back, a loader of which each core has a part."""
    if call.name == DATA_LOADER:
        sampler = call.keywords.get("sampler")
        return sampler is not None and model.value(sampler).kind is Kind.SAMPLER
    if call.method in _PREPARES:
        return is_accelerator(model, call)
    if call.method in _OF_TRAINER and call.target is None and call.receiver is not None:
        owner = model.class_around(call.node) if is_name(call.receiver, "self") else None
        if owner is not None:
            return model.is_trainer(owner)
        return "trainer" in model.tree.text(call.receiver).lower()
    return False


class ShardedLoaders:
    """Questions about what loops go over.

    Args:
        model: The file that asks.
        names: What its names are given.
        known: The loops that are known to go over a shard by their values.
    """

    def __init__(self, model: FileModel, names: GivenNames, known: Iterable[Loop]) -> None:
        self._model, self._names, self._known = model, names, frozenset(known)

    def is_shared(self, loop: Loop, calls: Sequence[CallSite]) -> bool:
        """Whether a loop goes over a sharded loader, called as it was."""
        over = loop.over
        if over is None:
            return False
        if not calls and loop in self._known:
            return True
        return self._is(over, tuple(calls), 0, set())

    def says_evaluation(self, loop: Loop, calls: Sequence[CallSite]) -> bool:
        """Whether a loop that trains too is given a loader that is not for training."""
        over = loop.over
        call = calls[-1] if calls else None
        target = call.target if call is not None else None
        if over is None or call is None or target is not loop.function:
            return False
        assert isinstance(target, Function)
        names = (part.value for part in self._model.within(over, cst.Name))
        given = (call.given_to(target, name) for name in names if name in target.parameters)
        return any(is_of_evaluation(dotted_text(one) or "") for one in given if one is not None)

    def _is(
        self,
        node: cst.CSTNode | None,
        calls: tuple[CallSite, ...],
        depth: int,
        seen: set[tuple[cst.CSTNode, tuple[CallSite, ...]]],
    ) -> bool:
        """Whether any way to what an expression holds has a sharded loader."""
        if node is None or depth > _DEPTH or (node, calls) in seen:
            return False
        seen.add((node, calls))
        if isinstance(node, cst.Call):
            call = self._model.call(node)
            if shares(self._model, call):
                return True
            if call.name == DATA_LOADER:
                return False
            if isinstance(call.target, Function):
                own = returned(call.target)
                return any(self._is(one, (*calls, call), depth + 1, seen) for one in own)
            return any(
                self._is(one, calls, depth + 1, seen)
                for one in (*(item.value for item in node.args), call.receiver)
            )
        if isinstance(node, cst.Name | cst.Attribute):
            return self._held(node, calls, depth, seen)
        parts = [node.value] if isinstance(node, cst.Subscript) else children(node)
        return any(self._is(one, calls, depth + 1, seen) for one in parts)

    def _held(
        self,
        node: cst.Name | cst.Attribute,
        calls: tuple[CallSite, ...],
        depth: int,
        seen: set[tuple[cst.CSTNode, tuple[CallSite, ...]]],
    ) -> bool:
        model = self._model
        given: Sequence[Given] | None = self._names.to(node)
        if given is None and (given := self._names.kept(node)) is not None:
            calls = ()
        if given is not None:
            return any(
                self._is(one, calls, depth + 1, seen)
                for item in given
                for one in (self._listed(item.value) if item.is_loop else (item.value,))
            )
        function = model.with_parameter(node) if isinstance(node, cst.Name) else None
        if function is None or not isinstance(node, cst.Name):
            return False
        if calls and calls[-1].target is function:
            return self._is(calls[-1].given_to(function, node.value), calls[:-1], depth + 1, seen)
        return any(
            self._is(call.given_to(function, node.value), (), depth + 1, seen)
            for call in model.callers(function)
        )

    def _listed(self, node: cst.BaseExpression | None) -> Iterator[cst.BaseExpression]:
        """What stands in a list or dictionary that a loop goes over: ``[("val", loader)]``.

        What a loop over a loader gives is no loader.
        """
        for one in () if node is None else gone_over(self._model, node):
            if isinstance(one, cst.Call) and one.args == () and isinstance(one.func, cst.Attribute):
                yield from self._listed(one.func.value)  # ``loaders.items()``
            elif isinstance(one, cst.List | cst.Tuple | cst.Dict):
                yield from (part.value for part in one.elements)
