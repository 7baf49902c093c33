"""XLA312: ``torch.utils.checkpoint`` does not know XLA devices."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.by_name import GETATTR
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._checkpointing import made_to_work, meant_for_xla
from xladoctor.lint.rules._exact import in_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

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
    found = [(call, call.method) for call in model.methods(*_ENABLES)]
    for call, name in (*found, *_by_getattr(model)):
        brought = any("checkpoint" in model.tree.text(given) for given in call.positional)
        if brought or call.target is not None:
            continue
        if not meant_for_xla(model, _tried(model, call.node)):
            continue
        yield model.problem(
            call.node,
            f"{name} turns on torch.utils.checkpoint, which looks for the module torch.xla "
            "and raises an error for tensors on an XLA device",
            suggestion="leave it out, or wrap the layers in torch_xla.utils.checkpoint.checkpoint",
        )


def _by_getattr(model: FileModel) -> Iterator[tuple[CallSite, str]]:
    """``enable = getattr(net, "gradient_checkpointing_enable", None)``, and where it is called."""
    for asked in model.calls(GETATTR):
        name = model.literal(asked.positional[1]) if len(asked.positional) > 1 else None
        if name not in _ENABLES or _has_its_own(model, asked.positional[0], str(name)):
            continue
        call = next((x for x in model.calls_of(asked.function) if _calls(model, x, asked)), None)
        if call is not None:
            yield call, str(name)


def _calls(model: FileModel, call: CallSite, asked: CallSite) -> bool:
    """Whether a call runs what a ``getattr`` gave: by itself, by a name, through ``cast``."""
    called = call.node.func
    if isinstance(called, cst.Call) and model.name(called.func) == "typing.cast":
        called = called.args[-1].value
    if called is asked.node:
        return True
    line = model.parent(asked.node)
    held = line.targets[0].target if isinstance(line, cst.Assign) else None
    if not isinstance(held, cst.Name) or not is_name(called, held.value):
        return False
    around = {(guard.node, guard.when) for guard in model.guards(call.node)}
    under = {(guard.node, guard.when) for guard in model.guards(asked.node)}
    return in_order(model, asked.node, call.node) and under <= around


def _has_its_own(model: FileModel, holder: cst.BaseExpression, name: str) -> bool:
    """Whether what is asked is of a class of the program that has such a method."""
    value = model.value(holder)
    kinds = {value.instance.cls} if value.instance is not None else value.classes
    return any(name in cls.methods for cls in kinds)
