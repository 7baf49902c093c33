"""XLA443: parameters that are replaced after they were sharded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import given_true, in_order
from xladoctor.lint.rules._spmd import FSDP, MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem


@rule("XLA443")
def sharding_lost(model: FileModel) -> Iterator[Problem]:
    """Find ``load_state_dict(assign=True)`` on a model whose parameters were sharded before."""
    sharded = list(_sharded(model))
    if not sharded:
        return
    for call in model.methods("load_state_dict"):
        if given_true(model, call, "assign") is None or not isinstance(
            call.node.func, cst.Attribute
        ):
            continue
        name = model.tree.text(call.node.func.value).strip()
        marks = [
            mark
            for root, mark in sharded
            if root == name
            and mark.function is call.function
            and in_order(model, mark.node, call.node)
        ]
        if marks:
            yield model.problem(
                call.node,
                "assign=True puts new parameters in the place of the sharded ones: each device "
                "holds all of them from here on",
                suggestion="load first and shard afterwards, or leave assign=True out, which "
                "copies into the sharded parameters",
                related=[model.place(marks[-1].node, "sharded here")],
            )


def _sharded(model: FileModel) -> Iterator[tuple[str, CallSite]]:
    """(the model as it is written, what sharded it)."""
    for call in model.calls(*MARK):
        given = call.argument(0, "t")
        if given is not None:
            yield _root(model, given), call
    for call in model.calls(*FSDP):
        parent = model.parent(call.node)
        if isinstance(parent, cst.Assign):
            for target in parent.targets:
                yield model.tree.text(target.target).strip(), call


def _root(model: FileModel, node: cst.BaseExpression) -> str:
    """``model`` of ``model.head.weight`` and of ``model.layers[0].weight``."""
    text = model.tree.text(node).strip()
    while isinstance(node, cst.Attribute | cst.Subscript):
        node = node.value
        written = model.tree.text(node).strip()
        if isinstance(node, cst.Attribute) and written.count(".") == 1 and "self." in written:
            return written
        text = written
    return text
