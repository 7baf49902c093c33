"""How programs ask a framework for torch_xla: ``if is_torch_tpu_available():``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.rules._tolerated import tolerated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xladoctor.lint.model import FileModel, Problem

#: A package that has a device ``tpu`` of its own, for which transformers asks today.
_NATIVE = "torch_tpu"


def old_questions(model: FileModel, package: str) -> Iterator[Problem]:
    """Imports of functions that no longer ask for torch_xla, or are gone.

    Args:
        model: The file, one for XLA devices.
        package: The framework that the functions are of.
    """
    if any(name.partition(".")[0] == _NATIVE for name in model.names.imported()):
        return
    for node, module, raised, row in _rows(model, package):
        gone = row["gone"].replace("ImportError", raised)
        yield model.problem(
            node,
            row["asks"] if module in row["still_in"] else gone,
            suggestion=row["instead"],
        )


def gone_questions(model: FileModel, package: str) -> Iterator[Problem]:
    """The same of a file that asks in this way and names XLA in no other: imports that fail."""
    asked = {(call.name or "").rpartition(".")[2] for call in model.calls()}
    for node, module, _, row in _rows(model, package):
        imported = isinstance(node, cst.ImportAlias) and module not in row["still_in"]
        if imported and row["name"] in asked:
            yield model.problem(node, row["gone"], suggestion=row["instead"])


def _rows(
    model: FileModel, package: str
) -> Iterator[tuple[cst.CSTNode, str, str, Mapping[str, Any]]]:
    """Where such a function of a framework is asked for: its module, what is raised, its row."""
    if model.keeps_old(package):
        return
    for node, name, module, raised in _asked(model):
        row = _questions().get(name)
        if row is None or row["package"] != package or module.partition(".")[0] != package:
            continue
        if not tolerated(model, node):
            yield node, module, raised, row


def _asked(model: FileModel) -> Iterator[tuple[cst.CSTNode, str, str, str]]:
    """What may be such a function: its name, its module, and what is raised if it is gone.

    Imported from a module, or asked of it: ``transformers.is_torch_tpu_available()``.
    """
    for node in model.nodes(cst.ImportFrom):
        absolute = node.module is not None and not node.relative
        module = dotted_text(node.module) if node.module is not None and absolute else None
        for alias in () if isinstance(node.names, cst.ImportStar) or module is None else node.names:
            yield alias, alias.evaluated_name, module or "", "ImportError"
    for attribute in model.nodes(cst.Attribute):
        given = isinstance(model.parent(attribute), cst.AssignTarget)  # put in its place
        if attribute.attr.value in _questions() and not given:
            module = (model.name(attribute) or "").rpartition(".")[0]
            yield attribute, attribute.attr.value, module, "AttributeError"


@functools.cache
def _questions() -> Mapping[str, Mapping[str, Any]]:
    rows = catalogue.table("frameworks")["question"]
    return {row["name"]: row for row in rows}
