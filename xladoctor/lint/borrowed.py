"""What a file's loops run of other files that are read, and not linted: told at the call.

A meter that reads the loss on every step stands in a module of its own. Where that module is linted
too, the read is told there. Where only the file with the loop is linted, the line that a person
sees, and may change, is the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor import catalogue
from xladoctor.lint.model.loops import HOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import libcst as cst

    from xladoctor.lint.model import CallSite, FileModel, Problem
    from xladoctor.lint.rules import Rule

#: How many calls there may be between the loop and the problem.
_DEPTH = 4
#: Families whose problems cost on every step: reads, and graphs that are compiled again.
_FAMILIES = ("XLA1", "XLA2")


def told_here(
    model: FileModel, others: Sequence[FileModel], rules: Mapping[str, Rule]
) -> Iterator[tuple[str, Problem]]:
    """The problems of other files that loops of this one run, by their codes.

    Args:
        model: The file that is linted.
        others: Files that it imports, which are not.
        rules: The rules to ask.
    """
    told: set[tuple[str, cst.CSTNode]] = set()
    if not others or not _leaves(model):
        return
    for other in others:
        for code, rule in rules.items():
            if not code.startswith(_FAMILIES) or not catalogue.page(code).per_step:
                continue
            for problem in _problems(rule, other):
                call = _call(model, other, problem)
                if call is None or (code, call.node) in told:
                    continue
                told.add((code, call.node))
                yield code, _at(model, call, problem)


def _leaves(model: FileModel) -> bool:
    """Whether a loop of a file calls anything of another one: seldom, and cheap to ask."""
    return any(
        call.target is not None
        and not model.is_here(call.target.node)
        and model.hot_loop(call.node) is not None
        for call in model.calls()
    )


def _problems(rule: Rule, model: FileModel) -> list[Problem]:
    try:
        return list(rule(model))
    except Exception:  # noqa: BLE001  (it is told of the rule where that file is linted)
        return []


def _call(model: FileModel, other: FileModel, problem: Problem) -> CallSite | None:
    """The call of this file, in one of its hot loops, that runs a problem of another file."""
    if problem.node is None or problem.aside or problem.place.filename is not None:
        return None
    looped = [place.loop for place in problem.related if place.loop is not None]
    if not any(loop.kind in HOT for loop in looped):
        return None
    function = other.function_of(problem.node)
    waiting = [function] if function is not None else []
    for _ in range(_DEPTH):
        calls = [call for one in waiting for call in other.callers(one)]
        here = [call for call in calls if model.is_here(call.node)]
        found = next((call for call in here if model.hot_loop(call.node) in looped), None)
        if found is not None:
            return found
        waiting = [
            call.function for call in calls if call.function is not None and call not in here
        ]
    return None


def _at(model: FileModel, call: CallSite, problem: Problem) -> Problem:
    nodes = [(place.loop.node, place.note) for place in problem.related if place.loop is not None]
    if problem.node is not None:
        nodes.append((problem.node, "here, in the other file"))
    name = f"{call.last}()" if call.last else "what is called here"
    return model.problem(
        call.node,
        f"in {name}, {problem.message}",
        suggestion=problem.suggestion,
        related=[model.place(node, note) for node, note in nodes],
    )
