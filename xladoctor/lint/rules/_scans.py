"""What runs in a scan (``torch_xla.experimental.scan`` and ``scan_layers``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.dotted import is_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from xladoctor.lint.model import CallSite, FileModel

#: Which argument says that what is scanned is pure.
SCANS = {
    "torch_xla.experimental.scan.scan": "is_fn_pure",
    "torch_xla.experimental.scan_layers.scan_layers": "is_layer_pure",
}


def scans(model: FileModel) -> Iterator[CallSite]:
    """The calls of both."""
    return model.calls(*SCANS)


def runs(model: FileModel, given: cst.CSTNode | None, wanted: Iterable[str]) -> CallSite | None:
    """The first call of one of some functions in what is scanned, or made pure.

    That is the given expression, and all functions, classes and values of the file that it, or one
    of them, names: the layers are what ``self.layers`` was set to, and the classes of that.
    """
    names = set(wanted)
    if given is None:
        return None
    seen: set[cst.CSTNode] = set()
    rest = [given]
    while rest:
        node = rest.pop(0)
        if node in seen:
            continue
        seen.add(node)
        for one in walk(node):
            if isinstance(one, cst.Call) and model.call(one).name in names:
                return model.call(one)
            if isinstance(one, cst.Name):
                rest += _named(model, one, given)
    return None


def _named(model: FileModel, name: cst.Name, given: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """What a name may stand for in the file: a function or class, or what it was set to."""
    for function in model.functions:
        if function.name == name.value:
            yield function.node
    for owner in model.classes:
        if owner.name == name.value:
            yield owner.node
    parent = model.parent(name)
    attribute = isinstance(parent, cst.Attribute) and parent.attr is name
    where = model.function_of(given)
    for assign in model.nodes(cst.Assign):
        for target in assign.targets:
            to = target.target
            if attribute:
                fits = isinstance(to, cst.Attribute) and to.attr.value == name.value
            else:
                fits = is_name(to, name.value)
                fits = fits and model.function_of(assign) in (where, None)
            if fits:
                yield assign.value
