"""Code that is ready for a name to be missing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.dotted import last_name
from xladoctor.lint.model.unreached import gives_up
from xladoctor.lint.rules._releases import for_older

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel

_TOLERANT = frozenset({"ImportError", "ModuleNotFoundError", "AttributeError"})
_BROAD = frozenset({"Exception", "BaseException"})


def tolerated(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether the code is ready for the name to be missing: try, hasattr, a version test."""
    child, parent = node, model.parent(node)
    while parent is not None:
        if isinstance(parent, cst.Try) and _catches(parent):
            return True
        if isinstance(parent, cst.If | cst.IfExp) and child is not parent.test:
            asked = "version" in model.tree.text(parent.test).lower()
            if asked or _is_asked_for(model, node, parent.test):
                return True
        if isinstance(parent, cst.BooleanOperation) and _is_asked_for(model, node, parent):
            return True
        child, parent = parent, model.parent(parent)
    return for_older(model, node)


def _is_asked_for(model: FileModel, node: cst.CSTNode, test: cst.CSTNode) -> bool:
    """``hasattr(xm, "xla_device")``: of the name, or of what it is a part of."""
    named = set(re.findall(r"\w+", model.tree.text(node)))
    for part in walk(test):
        if not isinstance(part, cst.Call) or model.call(part).written != "hasattr":
            continue
        if len(part.args) == 2:
            holder, name = (argument.value for argument in part.args)
            of_torch_xla = (model.name(holder) or "").partition(".")[0] == "torch_xla"
            if of_torch_xla or last_name(holder) in named or model.literal(name) in named:
                return True
    return False


def _catches(node: cst.Try) -> bool:
    for handler in node.handlers:
        if gives_up(handler):  # what is missing ends the program all the same
            continue
        caught = walk(handler.type) if handler.type is not None else ()
        names = {part.value for part in caught if isinstance(part, cst.Name)}
        everything = handler.type is None or names & _BROAD
        if names & _TOLERANT or (everything and not _holds_loops(node)):
            return True
    return False


def _holds_loops(node: cst.Try) -> bool:
    """Whether what is tried is the training itself: its handler reports a failure, and ends."""
    return any(isinstance(part, cst.For | cst.While) for part in walk(node.body))
