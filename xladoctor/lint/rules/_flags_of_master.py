"""Flags that only the master core sets, and by which every core leaves a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.taken import targets
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import FileModel, Loop

#: Words of what an object says when it has seen enough: ``stopper.early_stop``.
_STOPS = frozenset({"stop", "stopped", "stopping", "done", "finished"})


def set_on_master(model: FileModel, test: cst.BaseExpression, loop: Loop) -> cst.CSTNode | None:
    """What sets a condition on the master core alone, in each turn of a loop; None if others do.

    ``if master: stop = loss > best``, or ``if master: stopper(loss)``, and then on every core
    ``if stop: break``, ``if stopper.early_stop: break``.
    """
    parts = [*walk(test)]
    if any(isinstance(part, cst.Call) for part in parts):
        return None  # the cores may agree in there
    around = {guard.node for guard in model.guards(test)}
    for part in parts:
        if not isinstance(part, cst.Name | cst.Attribute) or not _is_whole(model, part):
            continue
        setting = _setting(model, part, loop)
        guards = [model.master_only(node) for node in setting]
        if setting and all(one is not None and one.node not in around for one in guards):
            return setting[-1]
    return None


def _setting(model: FileModel, flag: cst.Name | cst.Attribute, loop: Loop) -> Sequence[cst.CSTNode]:
    """What sets a flag in a loop, or may."""
    text = dotted_text(flag)
    if text is None:
        return ()
    lines = [line for line in _set_in(model, text, loop) if not _is_reset(model, line)]
    if lines:
        return [*lines, *_told_in(model, text, loop)]
    if isinstance(flag, cst.Attribute) and words(flag.attr.value) & _STOPS:
        return [*_told_in(model, dotted_text(flag.value), loop)]
    return ()


def _set_in(model: FileModel, text: str, loop: Loop) -> Iterator[cst.CSTNode]:
    """The lines of a loop that set a name, or an attribute."""
    for line in walk(loop.node, into_functions=False):
        if isinstance(line, cst.Assign | cst.AugAssign | cst.AnnAssign):
            parts = (part for one in targets(line) for part in walk(one))
            if any(
                isinstance(part, cst.Name | cst.Attribute)
                and _is_whole(model, part)
                and dotted_text(part) == text
                for part in parts
            ):
                yield line


def _is_whole(model: FileModel, node: cst.CSTNode) -> bool:
    """A name or attribute that is no part of another one."""
    parent = model.parent(node)
    return isinstance(node, cst.Name | cst.Attribute) and not isinstance(parent, cst.Attribute)


def _is_reset(model: FileModel, line: cst.CSTNode) -> bool:
    """``stop = False`` at the beginning of each turn."""
    return isinstance(line, cst.Assign) and model.literal(line.value) in (False, None)


def _told_in(model: FileModel, held: str | None, loop: Loop) -> Iterator[cst.CSTNode]:
    """Where a loop tells an object something: ``stopper(loss)``, ``stopper.step(loss)``.

    Also where it hands the object on: what is done with it there is not known
    (``dist.broadcast(stop, 0)``).
    """
    for node in walk(loop.node, into_functions=False) if held is not None else ():
        if not isinstance(node, cst.Call):
            continue
        receiver = node.func.value if isinstance(node.func, cst.Attribute) else node.func
        given = (argument.value for argument in node.args)
        handed = {dotted_text(part) for one in given for part in _listed(one)}
        if dotted_text(receiver) == held or (held in handed and not _is_python(model, node)):
            yield node


def _listed(node: cst.BaseExpression) -> Sequence[cst.BaseExpression]:
    """``xm.all_reduce("max", [stop])``: what a list holds, too."""
    if isinstance(node, cst.List | cst.Tuple):
        return [one.value for one in node.elements]
    return [node]


def _is_python(model: FileModel, call: cst.Call) -> bool:
    """``print(stop)``."""
    return (model.name(call.func) or "").startswith("builtins.")
