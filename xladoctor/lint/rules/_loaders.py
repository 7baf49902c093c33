"""What rules about data loaders share: what a loader is for, who iterates it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import LoopKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.lint.model import CallSite, FileModel, Loop

DATA_LOADER = "torch.utils.data.DataLoader"
SAMPLER = "torch.utils.data.DistributedSampler"

#: Words that say "not for training", and beginnings that do ("device" and "values" do not).
_EVAL_WORDS = frozenset({"val", "dev"})
_EVAL_BEGINNINGS = ("valid", "valload", "valset", "valdata", "test", "eval", "infer", "pred")
_DEEPEST = 6


def bound_name(model: FileModel, node: cst.CSTNode) -> str:
    """The name that a call's result is assigned to, lower case; "" if there is none."""
    parent = model.parent(node)
    for _ in range(_DEEPEST):
        if isinstance(parent, cst.Assign):
            target = parent.targets[0].target
            if isinstance(target, cst.Attribute):
                return target.attr.value.lower()
            return target.value.lower() if isinstance(target, cst.Name) else ""
        if parent is None or isinstance(parent, cst.BaseStatement):
            return ""
        parent = model.parent(parent)
    return ""


def says_evaluation(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether names say that a loader or sampler is not for training."""
    function = model.function_of(node)
    words = [bound_name(model, node), function.name.lower() if function else ""]
    parts = [part for word in words for part in word.split("_")]
    return any(part in _EVAL_WORDS or part.startswith(_EVAL_BEGINNINGS) for part in parts)


def loops_over(model: FileModel, call: CallSite) -> Sequence[Loop]:
    """The loops that go over the loader that a call makes, through device loaders too.

    Those of other files count: what makes the loaders often stands in a file of its own.
    """
    return [
        loop
        for loop in model.loops_of_program
        if _comes_from(model, loop.iterates.origin, call.node, 0)
    ]


def _comes_from(
    model: FileModel, origin: cst.CSTNode | None, maker: cst.CSTNode, depth: int
) -> bool:
    """Whether a value made at ``origin`` was made from what ``maker`` made."""
    if origin is maker:
        return True
    if not isinstance(origin, cst.Call) or depth >= _DEEPEST:
        return False
    sources = [argument.value for argument in origin.args]
    if isinstance(origin.func, cst.Attribute):
        sources.append(origin.func.value)
    return any(
        _comes_from(model, model.value(source).origin, maker, depth + 1) for source in sources
    )


def training_loop(model: FileModel, call: CallSite) -> Loop | None:
    """The step loop that goes over the loader that a call makes."""
    return next((x for x in loops_over(model, call) if x.kind is LoopKind.STEP), None)
