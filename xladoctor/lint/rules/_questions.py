"""How programs ask a framework for torch_xla: ``if is_torch_tpu_available():``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.rules._api import tolerated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
    for alias, module, row in _imported(model, package):
        known: Sequence[str] = row["still_in"]
        yield model.problem(
            alias,
            row["asks"] if module in known else row["gone"],
            suggestion=row["instead"],
        )
    yield from _of_the_package(model, package)


def gone_questions(model: FileModel, package: str) -> Iterator[Problem]:
    """The same of a file that asks in this way and names XLA in no other: imports that fail."""
    asked = {(call.name or "").rpartition(".")[2] for call in model.calls()}
    for alias, module, row in _imported(model, package):
        if module not in row["still_in"] and row["name"] in asked:
            yield model.problem(alias, row["gone"], suggestion=row["instead"])


def _imported(
    model: FileModel, package: str
) -> Iterator[tuple[cst.ImportAlias, str, Mapping[str, Any]]]:
    """What a file imports of the functions of a framework: where it stands, the module, the row."""
    for node in model.nodes(cst.ImportFrom):
        assert isinstance(node, cst.ImportFrom)
        module = dotted_text(node.module) if node.module is not None and not node.relative else None
        if module is None or module.partition(".")[0] != package:
            continue
        for alias in () if isinstance(node.names, cst.ImportStar) else node.names:
            row = _questions().get(alias.evaluated_name)
            if row is not None and row["package"] == package and not tolerated(model, node):
                yield alias, module, row


def _of_the_package(model: FileModel, package: str) -> Iterator[Problem]:
    """``transformers.is_torch_tpu_available()``, asked of the package or of a module of it."""
    for node in model.nodes(cst.Attribute):
        assert isinstance(node, cst.Attribute)
        row = _questions().get(node.attr.value)
        if row is None or row["package"] != package or tolerated(model, node):
            continue
        module = (model.name(node) or "").rpartition(".")[0]
        if module.partition(".")[0] != package:
            continue
        gone = row["gone"].replace("this raises ImportError", "this raises AttributeError")
        yield model.problem(
            node,
            row["asks"] if module in row["still_in"] else gone,
            suggestion=row["instead"],
        )


@functools.cache
def _questions() -> Mapping[str, Mapping[str, Any]]:
    rows = catalogue.table("frameworks")["question"]
    return {row["name"]: row for row in rows}
