"""Code that is ready for a name to be missing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.dotted import last_name
from xladoctor.lint.model.unreached import gives_up
from xladoctor.lint.rules._answers import answers
from xladoctor.lint.rules._api import entry_for
from xladoctor.lint.rules._releases import for_older

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from xladoctor.lint.model import FileModel, Guard

_TOLERANT = frozenset({"ImportError", "ModuleNotFoundError", "AttributeError"})
_BROAD = frozenset({"Exception", "BaseException"})

#: ``torch_xla.sync``, ``torch_xla.device``: what took the place of functions in modules.
_OF_TODAY = re.compile(r"torch_xla\.\w+$")


def tolerated(model: FileModel, node: cst.CSTNode, *, missing: bool = True) -> bool:
    """Whether the code is ready for the name to be missing: try, hasattr, a version test.

    Args:
        model: The file.
        node: What names it.
        missing: Whether it is missing: what is there and called in a wrong way raises TypeError,
            which ``except ImportError`` does not catch.
    """
    around = {node, *model.tree.ancestors(node)}
    if missing and any(
        isinstance(part, cst.Try) and part.finalbody not in around and _catches(part)
        for part in around
    ):
        return True
    if _stands_in(model, node) or _behind_a_try(model, node):
        return True
    starts = [node, *(part for part in around if isinstance(part, cst.FunctionDef | cst.ClassDef))]
    return for_older(model, node) or any(
        _is_ready(model, node, guard, inside=guard.node in around)
        for start in starts
        for guard in model.guards(start)
    )


def _is_ready(model: FileModel, node: cst.CSTNode, guard: Guard, *, inside: bool) -> bool:
    """Whether a condition says that the name is there, or that the release is an older one.

    Args:
        model: The file.
        node: What names it.
        guard: The condition.
        inside: Whether the node stands in a branch; else the other branch has left before.
    """
    branch = isinstance(guard.node, cst.If | cst.IfExp)
    if inside and branch and "version" in model.tree.text(guard.written).lower():
        return True
    named = set(re.findall(r"\w+", model.tree.text(node)))
    parts = [*answers(model, guard.test, when=guard.when, today=False)]
    for part, said in parts:
        holds = said if said is None or not _is_nothing(model, part) else not said
        for holder, name in _asked_for(model, part):
            asked = model.literal(name)
            module = model.name(holder) or ""
            of_torch_xla = module.partition(".")[0] == "torch_xla"
            if holds and of_torch_xla and isinstance(asked, str):
                # What is there today says nothing of another name.
                row = entry_for(f"{module}.{asked}")
                if asked in named or (row is not None and row.removed(model.target)):
                    return True
            elif (of_torch_xla or last_name(holder) in named or asked in named) and (
                inside or holds is False or (not holds and _ask_alone(model, parts, holder))
            ):
                return True
    return False


def _ask_alone(
    model: FileModel,
    parts: Sequence[tuple[cst.BaseExpression, bool | None]],
    holder: cst.BaseExpression,
) -> bool:
    """``torch_xla is not None and hasattr(torch_xla, "sync")``: of one object and of no other."""
    written = model.tree.text(holder).strip()
    return all(
        any(True for _ in _asked_for(model, part))
        or model.tree.text(part.left if isinstance(part, cst.Comparison) else part).strip()
        == written
        for part, _ in parts
    )


def _asked_for(
    model: FileModel, test: cst.BaseExpression
) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """The objects and names of ``hasattr(xm, "xla_device")``.

    And of ``getattr(torch_xla, "sync", None)``, where a name holds what that gave.
    """
    for part in walk(test):
        made = model.assigned_once(part) if isinstance(part, cst.Name) else part
        if not isinstance(made, cst.Call):
            continue
        asks = made is part and model.call(made).written == "hasattr" and len(made.args) == 2
        if asks or _gets(model, made):
            yield made.args[0].value, made.args[1].value


def _gets(model: FileModel, node: cst.CSTNode) -> bool:
    """``getattr(torch_xla, "sync", None)``: what is there, or what stands in for it."""
    return (
        isinstance(node, cst.Call)
        and model.call(node).written == "getattr"
        and len(node.args) == 3
        and (model.name(node.args[0].value) or "").partition(".")[0] == "torch_xla"
    )


def _is_nothing(model: FileModel, test: cst.BaseExpression) -> bool:
    """``sync is None``."""
    compared = test.comparisons if isinstance(test, cst.Comparison) else ()
    return any(
        isinstance(one.operator, cst.Is | cst.Equal) and model.literal(one.comparator) is None
        for one in compared
    )


def _stands_in(model: FileModel, node: cst.CSTNode) -> bool:
    """``getattr(torch_xla, "sync", xm.mark_step)`` and ``... or xm.mark_step``."""
    inner = node
    for part in model.tree.ancestors(node):
        if isinstance(part, cst.BaseStatement | cst.BaseSmallStatement):
            return False
        if _gets(model, part) and isinstance(part, cst.Call) and inner is part.args[2]:
            return True
        if (
            isinstance(part, cst.BooleanOperation)
            and isinstance(part.operator, cst.Or)
            and inner is part.right
            and _gets(model, part.left)
        ):
            return True
        inner = part
    return False


def _behind_a_try(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether what is tried before leaves the function with a name of torch_xla that is there.

    ``try: torch_xla.sync(); return``, ``except AttributeError: pass``, and then the older name.
    """
    inner = node
    for part in model.tree.ancestors(node):
        if isinstance(part, cst.FunctionDef | cst.Lambda):
            return False
        if isinstance(part, cst.IndentedBlock):
            before = part.body[: part.body.index(inner)] if inner in part.body else ()
            if any(isinstance(one, cst.Try) and _leaves(model, one) for one in before):
                return True
        inner = part
    return False


def _leaves(model: FileModel, tried: cst.Try) -> bool:
    """Whether what is tried returns where a name is there, and is ready for it to be missing."""
    body = [*walk(tried.body)]
    calls = (model.call(part) for part in body if isinstance(part, cst.Call))
    newer = any(_gets(model, one.node) or _OF_TODAY.match(one.name or "") for one in calls)
    return newer and any(isinstance(part, cst.Return) for part in body) and _catches(tried)


def caught_by(node: cst.Try) -> Iterator[set[str] | None]:
    """The names of what each handler catches, None for a bare ``except:``.

    Not of one that gives up: what is missing ends the program all the same.
    """
    for handler in node.handlers:
        if gives_up(handler):
            continue
        if handler.type is None:
            yield None
        else:
            yield {part.value for part in walk(handler.type) if isinstance(part, cst.Name)}


def is_caught(model: FileModel, node: cst.CSTNode, names: AbstractSet[str]) -> bool:
    """Whether a ``try`` around a node catches one of these, or everything."""
    tries = (one for one in model.tree.ancestors(node) if isinstance(one, cst.Try))
    return any(caught is None or bool(caught & names) for one in tries for caught in caught_by(one))


def _catches(node: cst.Try) -> bool:
    return any(
        (names is not None and bool(names & _TOLERANT))
        or ((names is None or bool(names & _BROAD)) and not _holds_loops(node))
        for names in caught_by(node)
    )


def _holds_loops(node: cst.Try) -> bool:
    """Whether what is tried is the training itself: its handler reports a failure, and ends."""
    return any(isinstance(part, cst.For | cst.While) for part in walk(node.body))
