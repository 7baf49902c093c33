"""What the rules of the host sync family share: when a read matters, and how to say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import LoopKind, OnXla, walk
from xladoctor.lint.model.conditions import asked_for_none
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.evidence import STEPS
from xladoctor.lint.model.knowledge import ASKS_OF_TENSORS
from xladoctor.lint.rules._exact import same_name
from xladoctor.lint.rules._lightning_hooks import left_to_scripts
from xladoctor.lint.rules._never_given import asked_by_nobody
from xladoctor.lint.rules._sources import of_parameter
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from xladoctor.findings import Fix
    from xladoctor.lint.model import FileModel, Guard, Loop, Problem, Value
    from xladoctor.lint.model.problems import Place

#: Longest piece of the user's code that a message repeats.
_LONGEST_SNIPPET = 40
#: How many functions may hand on an argument.
_DEPTH = 3


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


def waiting_loop(model: FileModel, node: cst.CSTNode) -> Loop | None:
    """The same for what does nothing but read: not where only other scripts draw pictures."""
    loop = costly_loop(model, node)
    if loop is None or loop.kind is not LoopKind.EVAL:
        return loop
    return None if left_to_scripts(model, model.function_of(node)) else loop


def not_here(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a node does not run on XLA devices, or runs to look for faults.

    ``if not is_torch_tpu_available():``, ``if args.debug:`` and the methods of unit tests (which
    the engine leaves out itself for most rules, but not for those on numbers: XLA705, XLA712).
    """
    if model.on_xla(node) is OnXla.NO:
        return True
    return model.in_unit_test(node) or any(
        _for_faults(guard.test, when=guard.when)
        or never(model, guard)
        or asked_by_nobody(model, guard)
        for guard in model.guards(node)
    )


def never(model: FileModel, guard: Guard) -> bool:
    """``if length is None:`` of a parameter that every call of the program gives."""
    name = _is_none(guard)
    return isinstance(name, cst.Name) and always_given(model, name)


def always_given(model: FileModel, name: cst.Name) -> bool:
    """Whether a parameter is given by every call of the program, and by none as None."""
    if not model.is_parameter(name):
        return False
    given = of_parameter(model, name)
    return bool(given) and not any(_may_be_none(model, value, _DEPTH) for value in given or ())


def _may_be_none(model: FileModel, node: cst.BaseExpression, depth: int) -> bool:
    """Whether a caller may give None: says so, asks a dictionary, or hands on what it got."""
    if isinstance(node, cst.IfExp):
        asked = asked_for_none(node.test)
        there = asked is not None and not asked[1] and same_name(asked[0], node.body)
        sides = (node.orelse,) if there else None
        return any(_may_be_none(model, one, depth) for one in sides or (node.body, node.orelse))
    if isinstance(node, cst.BooleanOperation):
        return True
    if isinstance(node, cst.Call):
        return model.call(node).method == "get"
    if not isinstance(node, cst.Name):
        return False
    if node.value == "None":
        return True
    if _is_filled_in(model, node):
        return False
    for binding in model.bindings(node.value, node):
        if binding.kind == "param":
            given = of_parameter(model, node) if depth else None
            if given is None or any(_may_be_none(model, one, depth - 1) for one in given):
                return True
        elif is_name(binding.node, "None"):
            return True
    return False


def _is_filled_in(model: FileModel, name: cst.Name) -> bool:
    """Whether a line above gives a name a value, always or where it is None.

    ``noise = noise if noise is not None else draw()``, ``if noise is None: noise = draw()``.
    """
    order, function = model.tree.order, model.function_of(name)
    if name not in order:
        return False  # of another file
    for binding in model.bindings(name.value, name):
        made = binding.node
        if binding.kind != "assign" or not isinstance(made, cst.BaseExpression):
            continue
        if model.function_of(made) is not function or order[made] > order[name]:
            continue
        if made is name or made in model.tree.ancestors(name):
            continue  # ``size = size if wide else 8`` asks for what ``size`` was before
        mine = {guard.node for guard in model.guards(name)}
        outer = [guard for guard in model.guards(made) if guard.node not in mine]
        filled = all(guard.when and is_name(_is_none(guard), name.value) for guard in outer)
        if filled and not _may_be_none(model, made, 0):
            return True
    return False


def _is_none(guard: Guard) -> cst.BaseExpression | None:
    """What is None where a condition lets through: ``if name is None:``."""
    asked = asked_for_none(guard.test)
    return asked[0] if asked is not None and asked[1] is guard.when else None


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
    return {
        LoopKind.STEP: "on every step",
        LoopKind.ROLLOUT: "on every step of the environment",
    }.get(loop.kind, "for every evaluation batch")


def loop_place(model: FileModel, loop: Loop) -> Place:
    """The loop as a related place."""
    note = f"the {loop.kind.value}"
    if loop.implicit:
        each = "step of the environment" if loop.kind is LoopKind.ROLLOUT else "batch"
        note = f"called by the framework for every {each}"
    return model.place(loop.node, note)


def why_on_device(model: FileModel, value: Value, loop: Loop) -> list[Place]:
    """Why the rule believes that a value is on the device, if that says more than the loop does."""
    if (
        value.origin is None
        or value.origin is loop.node
        or not _goes_with(model, value.origin, loop)
    ):
        return []
    note = "this puts it on the device"
    if isinstance(value.origin, cst.Call):
        if model.name(value.origin.func) in STEPS:
            note = "its backward pass belongs to this step on the device"
        elif model.call(value.origin).last in ASKS_OF_TENSORS:
            note = "only tensors are asked this: taken for one on the device"
    return [model.place(value.origin, note)]


def _goes_with(model: FileModel, origin: cst.CSTNode, loop: Loop) -> bool:
    """Whether what puts a value on the device belongs to this loop.

    What a helper gives back has the origin of one of its calls, which may be another loop's.
    """
    home, around = model.function_of(origin), model.function_of(loop.node)
    if home is None or around is None or home is around:
        return True
    if home.owner is not None and home.owner is around.owner:
        return True
    return any(call.target is home for call in model.reached(loop.node)) or any(
        call.target is around for call in model.reached(home.node)
    )


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
    if loop.kind is LoopKind.ROLLOUT:
        return (
            "let a copy of the policy act on the CPU and give it the new weights after each "
            "update, or act in many environments at a time"
        )
    return "keep it on the device (add up, or append to a list) and read once after the loop"
