"""What a rule says, in the words of the device that a file is for.

The rules speak of torch_xla. Of another member of the family a problem says what ``devices.toml``
has for it: the costs there, what to write there, and a fix only where the same edit is right.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from xladoctor.lint import family

if TYPE_CHECKING:
    from collections.abc import Collection

    from xladoctor.lint.model import Problem


def of(problem: Problem, code: str, members: Collection[str]) -> Problem:
    """A problem as a file of some members is told it.

    Args:
        problem: What the rule found, in torch_xla's words.
        code: The rule's.
        members: What the file is for; nothing stands for torch_xla.
    """
    others = [name for name in family.members() if name in members and name != family.TORCH_XLA]
    if not others or not code.startswith("XLA"):
        return problem
    held = [(name, what) for name in others if (what := family.holding(code, name)) is not None]
    if family.is_own(code):
        return problem if family.TORCH_XLA not in members else _on(problem, held[0][0])
    if family.TORCH_XLA not in members:
        return _in_words(problem, held[0][0], held[0][1])
    if not held:
        return _on(problem, family.TORCH_XLA)
    # One program for two kinds of device: torch_xla's words, and what the other needs beside it.
    both = problem if held[0][1].fix else dataclasses.replace(problem, fix=None)
    theirs = _in_words(problem, *held[0]).suggestion
    if not theirs or theirs == problem.suggestion:
        return both
    title = family.members()[held[0][0]].title
    return dataclasses.replace(both, suggestion=f"{problem.suggestion}; on {title}: {theirs}")


def _on(problem: Problem, member: str) -> Problem:
    """What is so on one of several kinds of device."""
    title = family.members()[member].title
    return dataclasses.replace(problem, message=f"on {title}: {problem.message}")


def _in_words(problem: Problem, member: str, what: family.Holding) -> Problem:
    return dataclasses.replace(
        problem,
        message=what.says or family.in_words_of(member, problem.message),
        suggestion=what.instead or family.in_words_of(member, problem.suggestion),
        fix=problem.fix if what.fix else None,
    )
