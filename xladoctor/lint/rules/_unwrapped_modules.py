"""``model.module`` of a model that nothing wraps: what a program for GPUs keeps it in is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, OnXla
from xladoctor.lint.model.knowledge import MODEL_WRAPPER
from xladoctor.lint.rules._sources import the_source
from xladoctor.lint.rules._tolerated import tolerated
from xladoctor.lint.words import OTHER_WORDS, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

#: Parts of names of calls that may give back a model within another one, and whole names.
_WRAPS = ("parallel", "ddp", "fsdp", "wrap", "shard", "distribut")
_WRAP = frozenset({"prepare", "prepare_model", "setup", "setup_module", "initialize", "auto_model"})
#: What has such a name and wraps no model.
_NONE = (MODEL_WRAPPER, "torch_xla.distributed.parallel_loader.", "torch.utils.data.", "functools.")
#: What gives back the model itself.
_SAME = frozenset({"to", "train", "eval", "float", "half", "bfloat16", "requires_grad_", "apply"})
#: Words of conditions under which a model would be wrapped.
_ASKED = OTHER_WORDS | {"ddp", "distributed", "multi", "parallel", "world", "wrapped"}
_MODULES = ("torch.nn.", "torchvision.models.")
_BASES = ("torch.nn.", "transformers.")
#: What a class may have that gives back a ``module``.
_HAVE = frozenset({"module", "__getattr__"})
#: How many names and calls a model goes through.
_DEPTH = 4


def unwrapped_modules(model: FileModel) -> Iterator[Problem]:
    """``model.module.state_dict()`` where no file of the program wraps a model."""
    if not model.is_xla:
        return
    asked = [node for node in model.nodes(cst.Attribute) if node.attr.value == "module"]
    if not asked or any(one.once(_wraps) for one in (model, *model.linked)):
        return
    for node in asked:
        if not _is_bare(model, node.value) or tolerated(model, node) or _is_asked(model, node):
            continue
        if isinstance(model.parent(node), cst.AssignTarget) or model.on_xla(node) is OnXla.NO:
            continue
        held = model.tree.text(node.value).strip()
        yield model.problem(
            node,
            f"{held}.module is there behind a wrapper such as DistributedDataParallel, and nothing "
            "wraps this model: this raises AttributeError",
            suggestion=f"write {held}",
        )


def _is_asked(model: FileModel, node: cst.Attribute) -> bool:
    """``net if n_gpus == 1 else net.module``: where nothing wraps it, nobody comes there."""
    return any(
        words(model.tree.text(guard.written).lower()) & _ASKED for guard in model.guards(node)
    )


def _wraps(model: FileModel) -> bool:
    """Whether a file calls anything that may wrap a model; what only holds it for the cores not."""
    return any(
        (call.last in _WRAP or any(part in call.last.lower() for part in _WRAPS))
        and not (call.name or "").startswith(_NONE)
        for call in model.calls()
    )


def _is_bare(model: FileModel, node: cst.BaseExpression, depth: int = _DEPTH) -> bool:
    """Whether an expression certainly holds a module of torch whose class has no ``module``."""
    made = the_source(model, node)
    if not isinstance(made, cst.Call) or depth == 0:
        return False
    home = model.file_with(made)
    call = home.call(made)
    if call.name == MODEL_WRAPPER:
        return True
    if call.name is None and call.method in _SAME and call.receiver is not None:
        return _is_bare(home, call.receiver, depth - 1)
    if isinstance(call.target, Class):
        classes = (call.target, *home.parents(call.target))
        named = {name for one in classes for name in (*home.kept(one), *one.methods)}
        known = all(base.startswith(_BASES) for base in home.library_bases(call.target))
        return known and home.is_module(call.target) and named.isdisjoint(_HAVE)
    return (call.name or "").startswith(_MODULES)
