"""XLA312: ``torch.utils.checkpoint`` does not know XLA devices."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._checkpointing import made_to_work, meant_for_xla

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_TORCH = ("torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential")
#: Methods of the models of transformers and of diffusers.
_ENABLES = ("gradient_checkpointing_enable", "enable_gradient_checkpointing")


@rule("XLA312")
def torch_checkpoint(model: FileModel) -> Iterator[Problem]:
    """Find activation checkpointing of torch itself in files for XLA devices."""
    if not model.is_xla or made_to_work(model):
        return
    for call in model.calls(*_TORCH):
        if not meant_for_xla(model, call.node):
            continue
        yield model.problem(
            call.node,
            "torch.utils.checkpoint looks for the module torch.xla, which does not exist: it "
            "raises an error for tensors on an XLA device",
            suggestion="torch_xla.utils.checkpoint.checkpoint(function, *args), which also keeps "
            "the compiler from undoing the recomputation",
        )
    yield from _turned_on(model)


def _tried(model: FileModel, node: cst.CSTNode) -> cst.CSTNode:
    """The outermost ``try`` around a node: what is turned on in it fails later, in a step."""
    around = model.tree.ancestors(node)
    inside = itertools.takewhile(lambda x: not isinstance(x, cst.FunctionDef | cst.Lambda), around)
    tries = [x for x in inside if isinstance(x, cst.Try)]
    return tries[-1] if tries else node


def _turned_on(model: FileModel) -> Iterator[Problem]:
    """``model.gradient_checkpointing_enable()``, which brings torch's own function along."""
    for call in model.methods(*_ENABLES):
        brought = any("checkpoint" in model.tree.text(given) for given in call.positional)
        if brought or call.target is not None:
            continue
        if not meant_for_xla(model, _tried(model, call.node)):
            continue
        yield model.problem(
            call.node,
            f"{call.method} turns on torch.utils.checkpoint, which looks for the module torch.xla "
            "and raises an error for tensors on an XLA device",
            suggestion="leave it out, or wrap the layers in torch_xla.utils.checkpoint.checkpoint",
        )
