"""What a module does in one of its modes alone: code under ``if not self.training:``.

Modules are made in training mode; ``eval()`` ends it, for those in them too (PyTorch 2.9,
torch/nn/modules/module.py).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.conditions import without_not
from xladoctor.lint.model.dotted import dotted_text, is_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.loops import Guard

_TRAINING = "training"


class Modes:
    """Tells which code of modules no training step runs.

    Args:
        flow: The program, and the values of its expressions.
        around: The conditions around a node within its function.
    """

    def __init__(self, flow: Flow, around: Callable[[cst.CSTNode], Sequence[Guard]]) -> None:
        self._tree = flow.tree
        self._flow = flow
        self._around = around

    def evaluates(self, node: cst.CSTNode) -> bool:
        """Whether a node of a module's method runs in evaluation mode alone.

        Not where a model may stay in that mode while another one is trained: ``teacher.eval()``,
        and no ``teacher.train()``.
        """
        function = self._tree.function_of(node) if self._asked else None
        owner = function.owner if function is not None else None
        if owner is None or not self._flow.hooks.is_module(owner):
            return False
        told = (
            one for guard in self._around(node) for one in self._says(guard.test, when=guard.when)
        )
        return False in told and not self._may_stay

    @functools.cached_property
    def _asked(self) -> bool:
        """Whether anything of the program asks for ``self.training``."""
        attributes = self._tree.by_type.get(cst.Attribute, ())
        return any(self._asks(node) for node in attributes)

    @staticmethod
    def _asks(node: cst.CSTNode) -> bool:
        return (
            isinstance(node, cst.Attribute)
            and node.attr.value == _TRAINING
            and is_name(node.value, "self")
        )

    def _says(self, test: cst.BaseExpression, *, when: bool) -> Iterator[bool]:
        """Which mode a module is in where a condition is so; nothing if that does not say it."""
        asked, holds = without_not(test, when=when)
        if isinstance(asked, cst.BooleanOperation):
            if holds is isinstance(asked.operator, cst.And):
                yield from self._says(asked.left, when=holds)
                yield from self._says(asked.right, when=holds)
            return
        made = self._tree.assigned_once(asked) if isinstance(asked, cst.Name) else None
        if self._asks(made or asked):
            yield holds

    @functools.cached_property
    def _may_stay(self) -> bool:
        """Whether a model of the program may be in evaluation mode for good.

        What ``teacher.eval()`` is called of, that nobody sets to training again, and that is not
        known to be a library's.
        """
        found: dict[str, list[cst.BaseExpression]] = {"eval": [], "train": []}
        for call in self._tree.calls:
            func = call.func
            if isinstance(func, cst.Attribute) and func.attr.value in found:
                found[func.attr.value].append(func.value)
        trained = {dotted_text(one) for one in found["train"]}
        kept = (one for one in found["eval"] if dotted_text(one) not in trained)
        return any(
            self._flow.value(one).type_name is None for one in kept if not is_name(one, "self")
        )
