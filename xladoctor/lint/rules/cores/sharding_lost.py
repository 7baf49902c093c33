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
    from xladoctor.lint.model.syntax import Function


_DTYPES = frozenset({"bfloat16", "float16", "half", "float32", "float", "float64", "double"})
#: What makes new parameters of another type (measured on torch_xla 2.9: no sharding is left).
_CASTS = frozenset({"half", "bfloat16", "float", "double"})
_PARAMETER = ("torch.nn.Parameter", "torch.nn.parameter.Parameter")


@rule("XLA443")
def sharding_lost(model: FileModel) -> Iterator[Problem]:
    """Find what puts new tensors in the place of parameters that were sharded before."""
    sharded = list(_sharded(model))
    if not sharded:
        return
    for root, node, function, what, instead in _replaced(model):
        marks = [mark for name, mark in sharded if name == root and mark.function is function]
        before = [mark for mark in marks if in_order(model, mark.node, node)]
        if before and not any(in_order(model, node, mark.node) for mark in marks):
            yield model.problem(
                node,
                f"{what} in the place of the sharded ones: each device holds all of them from "
                "here on",
                suggestion=instead,
                related=[model.place(before[-1].node, "sharded here")],
            )


def _replaced(
    model: FileModel,
) -> Iterator[tuple[str, cst.CSTNode, Function | None, str, str]]:
    """(the model as it is written, where, in which function, what happens, what to do instead)."""
    for call in model.methods("load_state_dict", "to", *_CASTS):
        if not isinstance(call.node.func, cst.Attribute):
            continue
        name = model.tree.text(call.node.func.value).strip()
        if call.method != "load_state_dict":
            if call.method in _CASTS or _names_dtype(model, call):
                yield (
                    name, call.node, call.function, "a change of dtype puts new parameters",
                    "give the model its dtype first and shard it afterwards",
                )  # fmt: skip
        elif given_true(model, call, "assign") is not None:
            yield (
                name, call.node, call.function, "assign=True puts new parameters",
                ("load first and shard afterwards, or leave assign=True out, which copies into the "
                "sharded parameters"),
            )  # fmt: skip
    for line in model.nodes(cst.Assign):
        target = line.targets[0].target
        if not isinstance(target, cst.Attribute) or not isinstance(line.value, cst.Call):
            continue
        data = target.attr.value == "data" and isinstance(target.value, cst.Attribute)
        if data or model.call(line.value).name in _PARAMETER:
            yield (
                _root(model, target), line, model.function_of(line),
                "this puts a new tensor" if data else "this puts a new parameter",
                ("replace it first and shard afterwards, or copy into it: "
                "with torch.no_grad(): parameter.copy_(values)"),
            )  # fmt: skip


def _names_dtype(model: FileModel, call: CallSite) -> bool:
    given = [*call.positional, *call.keywords.values()]
    names = (model.name(one) or "" for one in given)
    return "dtype" in call.keywords or any(
        name.startswith("torch.") and name.rpartition(".")[2] in _DTYPES for name in names
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
