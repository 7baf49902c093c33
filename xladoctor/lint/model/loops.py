"""Words for places in a program that matter: loops, guards and entry points of cores."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import libcst as cst

    from xladoctor.lint.model.syntax import Function
    from xladoctor.lint.model.values import Value


class LoopKind(enum.Enum):
    """What a loop is for."""

    STEP = "step loop"  # one iteration (about) is one optimizer step
    EVAL = "evaluation loop"  # goes over batches without training
    ROLLOUT = "rollout loop"  # a model chooses what an environment does next
    EPOCH = "epoch loop"  # holds a step loop, directly or through a call
    OTHER = "loop"


#: Loops of which each turn runs a model: what a turn waits for costs each time.
HOT = frozenset({LoopKind.STEP, LoopKind.EVAL, LoopKind.ROLLOUT})


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Loop:
    """A loop, or a method that a framework calls once per batch (``training_step``).

    Attributes:
        node: The ``for``, ``while`` or comprehension; the ``def`` for a framework's method.
        kind: See :class:`LoopKind`.
        function: The function it stands in (for a framework's method: that method).
        iterates: What it goes over, through ``enumerate``, ``tqdm`` and the like.
        over: The expression that it goes over: of a generator of the program that hands on what it
            goes over, that; of a ``while`` with ``next(turns)``, what ``turns`` is made of.
        implicit: Whether the loop is a framework's and not in the file.
    """

    node: cst.CSTNode
    kind: LoopKind
    function: Function | None
    iterates: Value
    over: cst.BaseExpression | None = None
    implicit: bool = False


class OnXla(enum.Enum):
    """Whether code runs on XLA devices."""

    YES = "yes"
    NO = "no"
    #: It serves several kinds of device, and nothing here says which.
    MAYBE = "maybe"


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Guard:
    """A condition under which a node runs.

    Attributes:
        node: The ``if``, ``while``, conditional expression or early return that decides.
        test: What is asked: behind a ``not``, and what a name is bound to that is asked alone.
        when: The truth value of ``test`` for which the node runs.
        written: The condition as written.
        inside: Whether the node runs where ``written`` is true: in the body of an ``if``.
        master: True if only the master core gets here, False if only the others do, None if the
            condition does not ask for the master core.
        runs: Whether it lets the node run on XLA devices; None if it does not ask for the kind of
            device.
    """

    node: cst.CSTNode
    test: cst.BaseExpression
    when: bool
    written: cst.BaseExpression
    inside: bool
    master: bool | None = None
    runs: OnXla | None = None


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Entry:
    """Where code that every core runs begins.

    Attributes:
        function: The function that is spawned or launched; None for the module's own code.
        call: The ``xmp.spawn(...)``, ``torch_xla.launch(...)`` or similar call, if there is one.
    """

    function: Function | None
    call: cst.CSTNode | None


def opposed(one: Sequence[Guard], other: Sequence[Guard]) -> bool:
    """Whether one alone of two nodes with these conditions runs: ``if`` and its ``else``."""
    sides = {(guard.node, guard.inside) for guard in one}
    return any((guard.node, not guard.inside) in sides for guard in other)
