"""Lines for TPUs that a file has of transformers: they say nothing of where its program runs.

Copies of transformers' Trainer and of its examples ask ``is_torch_tpu_available()`` and define
``_mp_fn`` for ``xla_spawn.py``, whatever the project that holds them runs on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import imported, last_name, takes_torch_xla
from xladoctor.lint.model.purpose import STARTED
from xladoctor.lint.model.syntax import walk
from xladoctor.lint.words import XLA_WORDS, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model.syntax import Tree

#: How transformers asks whether torch_xla is there, by its releases.
_ASKS = re.compile(r"^_?(?:is_)?torch_(?:tpu|xla)_available$|^is_tpu_available$")
#: What else its own lines name.
_COPIED = re.compile(
    r"^(?:tpu_metrics_debug|tpu_num_cores|tpu_spmd_dataloader|get_tpu_sampler"
    r"|nested_xla_mesh_reduce|xla_fsdp_config|is_fsdp_xla(?:_v2|_v1)?_enabled|is_tpu"
    r"|(?:IS_)?XLA_(?:FSDPV2_\w+|VERSION)|TPU_METRICS_DEBUG|_save_tpu)$"
    r"|^IS_XLA_FSDPV2|^(?:TPU|ADAMW_TORCH_XLA|[\"']xla(?:_fsdp_\w+)?[\"'])$"
)
_STARTS = "xla_multiprocessing"


def only_copied(tree: Tree) -> bool:
    """Whether all that a file says of XLA devices is what transformers' own lines say of them."""
    taken = [node for node in tree.imports if takes_torch_xla(node)]
    if any(not _is_asked_for(tree, node) or _starts_cores(node) for node in taken):
        return False
    if any(not _is_bare(one) for one in _started(tree)):
        return False
    copied = {part for node in _questions(tree) for part in walk(node)}
    return all(
        node in copied or _ASKS.match(node.value) or _COPIED.match(node.value)
        for node in tree.nodes(cst.Name, cst.SimpleString)
        if isinstance(node, cst.Name | cst.SimpleString)
        and words(node.value) & XLA_WORDS
        and not any(isinstance(x, cst.Import | cst.ImportFrom) for x in tree.ancestors(node))
        and not _is_told(tree, node)
    )


def _starts_cores(node: cst.Import | cst.ImportFrom) -> bool:
    return any(_STARTS in name for name in imported(node))


def _is_asked_for(tree: Tree, node: cst.CSTNode) -> bool:
    """``if is_torch_tpu_available(): import torch_xla``."""
    inner = tree.function_of(node) is not None
    return any(
        (isinstance(one, cst.If) and (_asks(one.test) or _is_setting(one.test)))
        or (inner and isinstance(one, cst.Try))  # ``from torch_xla.distributed.fsdp import ...``
        for one in tree.ancestors(node)
    )


def _is_setting(test: cst.BaseExpression) -> bool:
    """``if self.is_fsdp_xla_enabled:``, ``if args.optim == OptimizerNames.ADAMW_TORCH_XLA:``."""
    return any(isinstance(one, cst.Name) and _COPIED.match(one.value) for one in walk(test))


def _asks(test: cst.BaseExpression) -> bool:
    """``is_torch_xla_available(check_is_tpu=True) and ...``."""
    if isinstance(test, cst.BooleanOperation):
        return _asks(test.left) or _asks(test.right)
    asked = test.func if isinstance(test, cst.Call) else test
    return _ASKS.match(last_name(asked) or "") is not None


def _questions(tree: Tree) -> Iterator[cst.CSTNode]:
    """What runs where transformers' question says yes."""
    for node in tree.nodes(cst.If):
        if isinstance(node, cst.If) and _asks(node.test):
            yield node.test
            yield node.body


def _started(tree: Tree) -> Iterator[cst.FunctionDef]:
    for node in tree.nodes(cst.FunctionDef):
        if isinstance(node, cst.FunctionDef) and node.name.value == STARTED:
            yield node


def _is_bare(node: cst.FunctionDef) -> bool:
    """``def _mp_fn(index): main()``."""
    body = node.body.body
    line = body[0].body[0] if isinstance(body[0], cst.SimpleStatementLine) else None
    made = line.value if isinstance(line, cst.Expr) else None
    return len(body) == 1 and isinstance(made, cst.Call) and not made.args


def _is_told(tree: Tree, node: cst.CSTNode) -> bool:
    """Docstrings, and texts for people."""
    return isinstance(node, cst.SimpleString) and (
        len(node.value.split()) > 2 or isinstance(tree.parents.get(node), cst.Expr)
    )
