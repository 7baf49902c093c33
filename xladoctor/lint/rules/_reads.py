"""What the rules of the host sync family share: when a read matters, and how to say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import LoopKind, OnXla, walk
from xladoctor.lint.model.devices import words
from xladoctor.lint.model.evidence import STEPS
from xladoctor.lint.model.knowledge import LIGHTNING_EVALS

if TYPE_CHECKING:
    from xladoctor.findings import Fix
    from xladoctor.lint.model import FileModel, Loop, Problem, Value
    from xladoctor.lint.model.file import Place

#: Longest piece of the user's code that a message repeats.
_LONGEST_SNIPPET = 40


def costly_loop(model: FileModel, node: cst.CSTNode) -> Loop | None:
    """The loop in whose every iteration a read at this node makes the host wait, or None.

    Reads that run once in a while (``if step % 50 == 0``) and those in a step closure, which runs
    when the step is over, are what we recommend.
    """
    loop = model.hot_loop(node) if model.is_xla else None
    if loop is None or not_here(model, node):
        return None
    # A whole evaluation in a step closure reads as often as anywhere else.
    if model.in_step_closure(node) and not model.in_step_closure(loop.node):
        return None
    return None if model.throttled(node) else loop


def not_here(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a node does not run on XLA devices, or runs to look for faults.

    ``if not is_torch_tpu_available():``, ``if args.debug:`` and the methods of unit tests.
    """
    if model.on_xla(node) is OnXla.NO:
        return True
    if any(_for_faults(guard.test, when=guard.when) for guard in model.guards(node)):
        return True
    return any(
        one.owner is not None and one.name.startswith("test_") and one.name not in LIGHTNING_EVALS
        for one in model.functions_around(node)
    )


def _for_faults(test: cst.BaseExpression, *, when: bool) -> bool:
    """Whether a condition lets only those through who look for faults: ``args.debug and x``."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return _for_faults(test.expression, when=not when)
    if isinstance(test, cst.BooleanOperation):
        parts = [_for_faults(part, when=when) for part in (test.left, test.right)]
        return any(parts) if isinstance(test.operator, cst.And) is when else all(parts)
    named = (
        words(part.value) for part in walk(test) if isinstance(part, cst.Name | cst.SimpleString)
    )
    return when and any("debug" in found for found in named)


def snippet(model: FileModel, node: cst.CSTNode) -> str:
    """The user's own words for an expression, on one line and cut to a readable length."""
    text = " ".join(model.tree.text(node).split())
    if len(text) > _LONGEST_SNIPPET:
        text = text[: _LONGEST_SNIPPET - 3] + "..."
    return f"`{text}`"


def often(loop: Loop) -> str:
    """How often something in the loop happens, as an adverb."""
    return "on every step" if loop.kind is LoopKind.STEP else "for every evaluation batch"


def loop_place(model: FileModel, loop: Loop) -> Place:
    """The loop as a related place."""
    note = f"the {loop.kind.value}"
    if loop.implicit:
        note = "called by the framework for every batch"
    return model.place(loop.node, note)


def why_on_device(model: FileModel, value: Value, loop: Loop) -> list[Place]:
    """Why the rule believes that a value is on the device, if that says more than the loop does."""
    if value.origin is None or value.origin is loop.node:
        return []
    note = "this puts it on the device"
    if isinstance(value.origin, cst.Call) and model.name(value.origin.func) in STEPS:
        note = "its backward pass belongs to this step on the device"
    return [model.place(value.origin, note)]


def read_problem(
    model: FileModel,
    node: cst.CSTNode,
    tensor: cst.BaseExpression,
    loop: Loop,
    how: str,
    suggestion: str,
    fix: Fix | None = None,
) -> Problem:
    """A read of a device tensor in a loop.

    Args:
        model: The file.
        node: What is reported.
        tensor: The device tensor that is read.
        loop: The loop in which it costs.
        how: What reads it, as the beginning of the sentence ("`.item()` reads").
        suggestion: What to write instead.
        fix: The same as edits, if it can be done.
    """
    return model.problem(
        node,
        f"{how} {snippet(model, tensor)} on the host {often(loop)}: the host waits for the device "
        "and the graph is cut there",
        suggestion=suggestion,
        related=[loop_place(model, loop), *why_on_device(model, model.value(tensor), loop)],
        fix=fix,
    )


def accumulate_advice(loop: Loop) -> str:
    """What to write instead of reading a value in every iteration of the loop."""
    if loop.kind is LoopKind.STEP:
        return (
            "keep it on the device (total += loss.detach()) and read once after the loop, "
            "or log every 100 steps with xm.add_step_closure"
        )
    return "keep it on the device (add up, or append to a list) and read once after the loop"
