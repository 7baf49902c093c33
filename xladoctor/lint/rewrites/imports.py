"""How a fix writes a name: as the file spells it, or with an import of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.findings import Edit, Position
from xladoctor.lint import sources
from xladoctor.lint.model.dotted import imported

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel

#: How a module is imported when a fix needs it: the statement, and what it is called then.
IMPORTS = {
    "torch_xla.core.functions": ("import torch_xla.core.functions as xf", "xf"),
    "torch_xla": ("import torch_xla", "torch_xla"),
    "torch_xla.runtime": ("import torch_xla.runtime as xr", "xr"),
    "torch_xla.core.xla_model": ("import torch_xla.core.xla_model as xm", "xm"),
    "torch_xla.distributed.parallel_loader": (
        "import torch_xla.distributed.parallel_loader as pl",
        "pl",
    ),
    "torch_xla.distributed.xla_backend": (
        "import torch_xla.distributed.xla_backend",
        "torch_xla",
    ),
    "torch": ("import torch", "torch"),
    "copy": ("import copy", "copy"),
}
#: Names that are imported by themselves, as programs do.
_BY_NAME = {
    "torch.utils.data.DistributedSampler": (
        "from torch.utils.data.distributed import DistributedSampler",
        "DistributedSampler",
    ),
    "accelerate.DataLoaderConfiguration": (
        "from accelerate import DataLoaderConfiguration",
        "DataLoaderConfiguration",
    ),
}
#: Where else programs import them from.
_OTHER_HOMES = ("torch.utils.data.distributed", "accelerate.utils")


def spell(
    model: FileModel, node: cst.CSTNode, dotted: str, *, beside: cst.BaseExpression | None = None
) -> tuple[str, list[Edit]] | None:
    """How to write a full name at a node, and the import to add for it.

    Args:
        model: The file.
        node: Where it is to be written.
        dotted: The full name ("torch_xla.sync").
        beside: A name behind whose import the new one is put if the module itself does not import
            torch_xla. Never before it: what the file does until then (set environment variables)
            may be meant for the import of torch_xla.

    Returns:
        None if the file cannot name it there: the name that the import would bind is taken, or
        torch_xla is imported somewhere else.
    """
    if dotted in _BY_NAME:
        return _by_name(model, node, dotted)
    module, _, last = dotted.rpartition(".")
    spelled = model.spelled(dotted, node)
    if spelled is not None:
        return spelled, []
    home = model.spelled(module, node)
    if home is not None:
        return f"{home}.{last}", []
    if module not in IMPORTS:
        return None
    statement, bound = IMPORTS[module]
    for binding in model.bindings(bound, node):
        if binding.kind != "import" or binding.dotted != module:
            return None
        if model.function_of(binding.node) is not None:
            return None  # in a branch of the function: there the name is no other's
    added = import_edit(model, statement, beside)
    return None if added is None else (f"{bound}.{last}", [added])


def import_edit(
    model: FileModel, statement: str, beside: cst.BaseExpression | None = None
) -> Edit | None:
    """Add an import behind another one; for torch and torch_xla never before their first import.

    A notebook installs them in a cell, behind one that imports ``os``.
    """
    if "torch_xla" not in statement:
        line = _last_import(model, "torch") if "torch" in statement else None
        return model.add_import(statement) if line is None else _behind(model, line, statement)
    line = _last_import(model, "torch_xla")
    if line is None and beside is not None:
        line = _import_of(model, beside)
    return None if line is None else _behind(model, line, statement)


def _behind(model: FileModel, line: cst.SimpleStatementLine, statement: str) -> Edit | None:
    """Add a statement on the line after another one's, as deep as it stands."""
    if len(line.body) != 1:
        return None
    lines = sources.rows(model.text)
    row = model.tree.range(line).end.line
    indent = lines[row - 1][: model.tree.range(line).start.column]
    if indent.strip():
        return None
    # At the end of its own line: the next line may belong to another cell of a notebook.
    place = Position(row, len(lines[row - 1]) + 1)
    return Edit(f"\n{indent}{statement}", place, place)


def _by_name(model: FileModel, node: cst.CSTNode, dotted: str) -> tuple[str, list[Edit]] | None:
    statement, name = _BY_NAME[dotted]
    for bound in (dotted, *(f"{home}.{name}" for home in _OTHER_HOMES)):
        spelled = model.spelled(bound, node)
        if spelled is not None:
            return spelled, []
    if model.bindings(name, node):
        return None
    added = import_edit(model, statement)
    return None if added is None else (name, [added])


def _import_of(model: FileModel, node: cst.BaseExpression) -> cst.SimpleStatementLine | None:
    """The line that imports what a name or chain begins with."""
    while isinstance(node, cst.Attribute):
        node = node.value
    if not isinstance(node, cst.Name):
        return None
    found = [x.node for x in model.bindings(node.value, node) if x.kind == "import"]
    line = model.parent(found[-1]) if found else None
    return line if isinstance(line, cst.SimpleStatementLine) else None


def _last_import(model: FileModel, package: str) -> cst.SimpleStatementLine | None:
    """The last of the module's first run of imports of a package: all that follows may need it."""
    found = None
    for line in model.tree.module.body:
        names_it = isinstance(line, cst.SimpleStatementLine) and any(
            isinstance(part, cst.Import | cst.ImportFrom)
            and any(name.startswith(package) for name in imported(part))
            for part in line.body
        )
        if names_it:
            assert isinstance(line, cst.SimpleStatementLine)
            found = line
        elif found is not None:
            break
    return found
