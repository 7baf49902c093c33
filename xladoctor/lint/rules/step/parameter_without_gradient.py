"""XLA316: a checkpointed block behind a frozen layer; all else of this page is seen by the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.taken import targets
from xladoctor.lint.model.turns import names_in
from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_CHECKPOINT = "torch_xla.utils.checkpoint.checkpoint"
_FROM_PRETRAINED = "torch.nn.Embedding.from_pretrained"


@rule("XLA316")
def parameter_without_gradient(model: FileModel) -> Iterator[Problem]:
    """Find torch_xla's ``checkpoint`` of what a frozen layer of the file has just given."""
    frozen: dict[str, cst.CSTNode] | None = None
    for call in model.calls(_CHECKPOINT):
        if call.has_star or call.keywords or len(call.positional) != 2:
            continue  # another input may require grad
        if frozen is None:
            frozen = dict(_frozen(model))
        layer = _layer(model, call, call.positional[1])
        if layer is None or layer not in frozen:
            continue
        yield model.problem(
            call.node,
            "none of the inputs of this checkpointed block requires grad, so nothing in it is "
            "trained",
            suggestion="let its input require grad: .requires_grad_() on what the frozen layer "
            "gives",
            related=[model.place(frozen[layer], "the layer that gives its input is frozen here")],
        )


def _layer(model: FileModel, call: CallSite, given: cst.BaseExpression) -> str | None:
    """``embed``, if what is given is ``self.embed(...)``, or was set to it last."""
    if isinstance(given, cst.Name):
        rows = model.row(call.node)
        last = None
        for assign in model.nodes(cst.Assign, cst.AugAssign, cst.AnnAssign, cst.For):
            if model.function_of(assign) is not call.function or model.row(assign) >= rows:
                continue
            if given.value in _targets(assign):
                last = assign
        if _required(model, call, given.value) or not isinstance(last, cst.Assign):
            return None
        if not isinstance(last.targets[0].target, cst.Name) or len(last.targets) > 1:
            return None
        given = last.value
    if not isinstance(given, cst.Call) or not isinstance(given.func, cst.Attribute):
        return None
    owner = given.func.value
    return given.func.attr.value if is_name(owner, "self") else None


def _targets(node: cst.CSTNode) -> set[str]:
    """The names that an assignment or a loop sets."""
    where = [node.target] if isinstance(node, cst.For) else targets(node)
    return {name for part in where for name in names_in(part)}


def _required(model: FileModel, call: CallSite, name: str) -> bool:
    """Whether ``h.requires_grad_()`` or ``h.requires_grad = True`` stands in the same function."""
    for node in model.nodes(cst.Attribute):
        if node.attr.value in ("requires_grad_", "requires_grad") and is_name(node.value, name):
            return model.function_of(node) is call.function or call.function is None
    return False


def _frozen(model: FileModel) -> Iterator[tuple[str, cst.CSTNode]]:
    """Layers, by the name of their attribute, of which a line of the file freezes all."""
    for site in model.methods("requires_grad_"):
        given = site.argument(0, "requires_grad")
        if given is not None and model.literal(given) is False:
            assert isinstance(site.node.func, cst.Attribute)
            yield from _attribute(site.node.func.value, site.node)
    for assign in model.nodes(cst.Assign):
        for target in assign.targets:
            to = target.target
            if isinstance(to, cst.Attribute) and to.attr.value == "requires_grad":
                if model.literal(assign.value) is False:
                    yield from _attribute(to.value, assign)
            elif isinstance(to, cst.Attribute) and isinstance(assign.value, cst.Call):
                site = model.call(assign.value)
                kept = site.argument(1, "freeze")
                if site.name == _FROM_PRETRAINED and (
                    kept is None or model.literal(kept) is not False
                ):
                    yield to.attr.value, assign
    yield from _frozen_one_by_one(model)


def _frozen_one_by_one(model: FileModel) -> Iterator[tuple[str, cst.CSTNode]]:
    """The same of loops over all parameters of a layer."""
    for loop in model.nodes(cst.For):
        if isinstance(loop.iter, cst.Call) and isinstance(loop.iter.func, cst.Attribute):
            if loop.iter.func.attr.value != "parameters" or not isinstance(loop.target, cst.Name):
                continue
            if _freezes(model, loop, loop.target.value):
                yield from _attribute(loop.iter.func.value, loop)


def _attribute(node: cst.BaseExpression, at: cst.CSTNode) -> Iterator[tuple[str, cst.CSTNode]]:
    """``embed`` of ``model.embed`` and of ``model.embed.weight``."""
    if isinstance(node, cst.Attribute) and node.attr.value == "weight":
        node = node.value
    if isinstance(node, cst.Attribute):
        yield node.attr.value, at


def _freezes(model: FileModel, loop: cst.For, name: str) -> bool:
    """Whether each turn of a loop over parameters freezes one, whatever it is called."""
    body = loop.body.body
    if len(body) != 1 or not isinstance(body[0], cst.SimpleStatementLine):
        return False
    for node in walk(body[0]):
        if isinstance(node, cst.Assign) and isinstance(node.targets[0].target, cst.Attribute):
            to = node.targets[0].target
            owner = to.value
            if is_name(owner, name):
                return to.attr.value == "requires_grad" and model.literal(node.value) is False
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            given = model.call(node).argument(0, "requires_grad")
            if node.func.attr.value == "requires_grad_" and given is not None:
                return model.literal(given) is False
    return False
