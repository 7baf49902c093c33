"""XLA804: names of torch_xla that nobody keeps: private ones and leftovers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rewrites import moving
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._api import entry_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import FileModel, Problem

_LEFTOVERS = {
    "torch_xla.distributed.data_parallel": "runs its cores as threads of one process, which "
    "trace one at a time; it is no longer maintained",
    "torch_xla.test.test_utils": "belongs to torch_xla's own tests",
    "torch_xla.test.args_parse": "belongs to torch_xla's own tests",
}
_PRIVATE = ("torch_xla._XLAC", "torch_xla._internal")


@rule("XLA804")
def private_api(model: FileModel) -> Iterator[Problem]:
    """Find imports and uses of private modules and of leftovers of torch_xla."""
    for node in model.tree.imports:
        for dotted in _imported(node):
            module = next((m for m in _LEFTOVERS if dotted.startswith(m)), None)
            private = dotted.startswith(_PRIVATE)
            if module is None and not private:
                continue
            what = _LEFTOVERS[module] if module is not None else _why_private(dotted)
            yield _problem(model, node, module or dotted, what, moving.unused_import(model, node))
            break
    told = False
    for call in model.calls():
        name = call.name or ""
        if name.startswith("torch_xla.distributed.data_parallel."):
            what = _LEFTOVERS["torch_xla.distributed.data_parallel"]
            yield _problem(model, call.node, name, what, None)
        if _is_private(name) and not told and entry_for(name) is None:
            told = True  # once a file says it
            yield _problem(model, call.node, name, _why_private(name), None)


def _is_private(name: str) -> bool:
    """``torch_xla._XLAC.f``, ``xm._maybe_convert_to_cpu``; not ``__version__``."""
    return name.startswith("torch_xla.") and _private_part(name) is not None


def _private_part(name: str) -> str | None:
    parts = name.split(".")[1:]
    return next((x for x in parts if x.startswith("_") and not x.startswith("__")), None)


def _why_private(name: str) -> str:
    part = _private_part(name)
    return f"is private ({part}): such names change or disappear between releases without notice"


def _problem(model: FileModel, node: cst.CSTNode, name: str, what: str, fix: Fix | None) -> Problem:
    advice = "torch_xla.launch" if "data_parallel" in name else "a public function, if there is one"
    if isinstance(node, cst.Import | cst.ImportFrom) and fix is not None:
        advice = "nothing here uses it: delete the import"
    return model.problem(node, f"{name} {what}", suggestion=advice, fix=fix)


def _imported(node: cst.Import | cst.ImportFrom) -> Iterator[str]:
    """The dotted names that an import brings in."""
    if isinstance(node, cst.Import):
        for alias in node.names:
            yield _dotted(alias.name)
        return
    if node.module is None or node.relative:
        return
    module = _dotted(node.module)
    if isinstance(node.names, cst.ImportStar):
        yield module
        return
    for alias in node.names:
        yield f"{module}.{_dotted(alias.name)}"


def _dotted(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Attribute):
        return f"{_dotted(node.value)}.{node.attr.value}"
    return node.value if isinstance(node, cst.Name) else ""
