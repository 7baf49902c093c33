"""Modules of torch_xla that a file uses by the names that all call them, and never imports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import KNOWN_AS, LEFT_OUT, is_name
from xladoctor.lint.module_names import module_names
from xladoctor.lint.rules._exact import is_read
from xladoctor.lint.rules._tolerated import is_caught, tolerated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

#: What the names mean. Other modules bear them too, so the attribute has to be one of theirs.
_MEANT = {
    **KNOWN_AS,
    "pl": "torch_xla.distributed.parallel_loader",
    "met": "torch_xla.debug.metrics",
    "xs": "torch_xla.distributed.spmd",
    "xp": "torch_xla.debug.profiler",
    "xenv": "torch_xla.core.xla_env_vars",
}
#: What binds names, or asks for them, by their text.
_BY_TEXT = frozenset({"exec", "globals", "locals", "vars", "dir", "builtins", "__builtins__"})
#: What nearly all files import: who does not is a part of a program.
_USUAL = LEFT_OUT.keys() - _MEANT.keys()
_CATCH = frozenset({"NameError", "Exception", "BaseException"})


def never_imported(model: FileModel) -> Iterator[Problem]:
    """Find the first use of each: ``xm.mark_step()`` copied without its import."""
    told: set[str] = set()
    for node in model.nodes(cst.Attribute):
        name = node.value.value if isinstance(node.value, cst.Name) else ""
        if name not in _MEANT or name in told or not _is_meant(model, node, name):
            continue
        if _is_ready(model, node):
            continue
        if not told and _binds_otherwise(model):
            return
        if _is_given(model, name):
            continue
        told.add(name)
        alias = "" if name == _MEANT[name] else f" as {name}"
        others = _imports_elsewhere(model, name)
        where = "is imported in other functions only" if others else "is never imported"
        yield model.problem(
            node,
            f"{name} {where}: this raises NameError when it runs",
            suggestion=f"import {_MEANT[name]}{alias}",
            related=[model.place(one, "binds it in its own function") for one in others[:1]],
        )


def _imports_elsewhere(model: FileModel, name: str) -> list[cst.CSTNode]:
    """The imports that bind a name in other functions."""
    scopes = dict.fromkeys(model.tree.scopes.values())
    bound = (item for scope in scopes for item in scope.bindings.get(name, ()))
    return [item.node for item in bound if item.kind == "import"]


def _is_meant(model: FileModel, node: cst.Attribute, name: str) -> bool:
    """Whether an expression reads a name of the module through a name that nothing binds."""
    module, attribute = _MEANT[name], node.attr.value
    known = name == "torch_xla" or attribute in module_names().get(module, ())
    return known and node.value in model.tree.scopes and not model.bindings(name, node)


def _is_ready(model: FileModel, node: cst.Attribute) -> bool:
    """Whether the line is no harm: written, an annotation, or in a ``try`` that knows of it."""
    within = False  # ``os.environ[xenv.ORDINAL] = ...`` reads it
    for around in model.tree.ancestors(node):
        within = within or isinstance(around, cst.SubscriptElement)
        if isinstance(around, cst.AssignTarget) and not within:
            return True
        if isinstance(around, cst.Annotation | cst.Import | cst.ImportFrom):
            return True
    return is_caught(model, node, _CATCH) or tolerated(model, node)


def _binds_otherwise(model: FileModel) -> bool:
    """Whether names may come from out of sight: by a star, by text, around a part of a program."""
    tree = model.tree
    lines = (*model.lines, *(line for _, line in model.shell))
    if not tree.imports or any("%run" in line or "%load " in line for line in lines):
        return True
    if any(
        isinstance(x, cst.ImportFrom) and isinstance(x.names, cst.ImportStar) for x in tree.imports
    ):
        return True
    names = (x for x in model.nodes(cst.Name) if x in tree.scopes and is_read(model, x))
    return any(
        node.value in _BY_TEXT or (node.value in _USUAL and not model.bindings(node.value, node))
        for node in names
    )


def _is_given(model: FileModel, name: str) -> bool:
    """Whether another file gives the module a name: ``train.xm = xm``."""
    return any(
        isinstance(part, cst.Attribute)
        and part.attr.value == name
        and not is_name(part.value, "self")
        for other in model.linked
        for line in other.nodes(cst.Assign)
        for part in (target.target for target in line.targets)
    )
