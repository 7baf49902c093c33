"""What names hold while a function runs, and after one of two roads."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from xladoctor.lint.model.values import Instance, Value, join

if TYPE_CHECKING:
    import libcst as cst

    from xladoctor.lint.model.syntax import Function

Env: TypeAlias = "dict[str, Value]"


class Frame:
    """One run of a function (or of the module) with what its names hold just now.

    Attributes:
        env: Names (and dotted texts such as ``args.device``) to what they hold.
        dead: The end of the block is not reached.
        result: What was returned so far.
        left: What the names held where the function was left early.
        leaps: The same where the body of the innermost loop was (``break``, ``continue``).
        over: What each loop goes over, in this run.
        apart: How many conditions around the statement differ from core to core: a number that is
            set under one does too.
    """

    def __init__(self, function: Function | None, instance: Instance | None) -> None:
        self.function = function
        self.instance = instance
        self.env: Env = {}
        self.dead = False
        self.result: Value | None = None
        self.left: Env = {}
        self.leaps: Env = {}
        self.apart = 0
        self.over: dict[cst.CSTNode, Value] = {}


def join_env(one: Env, other: Env) -> Env:
    """What names hold after one of two roads."""
    joined = dict(one)
    for name, value in other.items():
        before = joined.get(name)
        if before is not value:  # mostly neither road has bound the name anew
            joined[name] = value if before is None else join(before, value)
    return joined
