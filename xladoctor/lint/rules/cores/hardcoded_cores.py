"""XLA432: the number of cores is written down instead of asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._constants import constant
from xladoctor.lint.rules._cores import COUNT_NAME, entry_places
from xladoctor.lint.rules._environment import key_of
from xladoctor.lint.rules._loaders import SAMPLER
from xladoctor.lint.rules._reads import snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem


@rule("XLA432")
def hardcoded_cores(model: FileModel) -> Iterator[Problem]:
    """Find literal core counts in samplers, shares, learning rates and batch sizes."""
    if not model.is_xla or model.spmd or not model.multi_core:
        return
    for call in model.calls(SAMPLER):
        given = call.argument(1, "num_replicas")
        if given is not None and _cores(model, given, literal=True):
            yield _problem(model, given, "the sampler's shares do not fit the cores there are")
    for call in model.methods("shard"):
        given, index = call.argument(0, "num_shards"), call.argument(1, "index")
        by_core = index is not None and model.value(index).kind is Kind.CORE_NUMBER
        if given is not None and by_core and constant(model, given) == 8:
            yield _problem(model, given, "these shares do not fit the cores there are")
    for node in model.nodes(cst.BinaryOperation):
        if not isinstance(node.operator, cst.Multiply | cst.Divide | cst.FloorDivide):
            continue
        entry = model.on_every_core(node)
        if entry is None:
            continue
        for side in (node.left, node.right):
            if _cores(model, side, literal=False):
                yield _problem(model, side, "the scaling does not fit the cores there are", node)
                break


def _problem(
    model: FileModel, node: cst.CSTNode, what: str, around: cst.CSTNode | None = None
) -> Problem:
    entry = model.on_every_core(around if around is not None else node)
    written = spell(model, node, "torch_xla.runtime.world_size") if entry is not None else None
    fix = None
    if written is not None:
        asked = model.replace(node, f"{written[0]}()")
        fix = model.fix("Ask for the number of cores", asked, written[1], safe=False)
    return model.problem(
        node,
        f"{snippet(model, node)} is 8 on a v2-8 or v3-8 alone (4 on a v4-8, 1 to 8 on v5e and "
        f"v6e): elsewhere {what}",
        suggestion="xr.world_size()",
        related=entry_places(model, entry) if entry is not None else [],
        fix=fix,
    )


def _cores(model: FileModel, node: cst.BaseExpression, *, literal: bool) -> bool:
    """Whether an expression is a core count that the file itself settles."""
    if isinstance(node, cst.Integer):
        return literal and node.value == "8"
    word = node.attr.value if isinstance(node, cst.Attribute) else getattr(node, "value", "")
    if isinstance(node, cst.Subscript):
        word = key_of(model, node) or ""
    if not isinstance(word, str) or not COUNT_NAME.match(word):
        return False
    return constant(model, node) == 8
