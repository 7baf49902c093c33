"""What an optimizer counts, moved to the device: ``state[key] = value.to(device)``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.model import Kind
from xladoctor.lint.model.dotted import is_name, last_name
from xladoctor.lint.model.parts import names_bound
from xladoctor.lint.rules._exact import around
from xladoctor.lint.rules._optimized import CONFIGURES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_COUNT = "step"
_BETAS = 2


def moved_counts(model: FileModel) -> Iterator[Problem]:
    """Loops that move all tensors of an optimizer's state, the counts of its steps among them.

    ``for state in optimizer.state.values(): for key, value in state.items(): ...``, as it is
    written behind ``load_state_dict``.
    """
    counting = [call for call in model.calls() if _counts(call) or _is_asked_for(model, call)]
    if not counting or any(call.last in _others() for call in model.calls()):
        return
    for line in model.nodes(cst.Assign):
        moved = line.value
        if not isinstance(moved, cst.Call) or not _is_move(model, moved) or len(line.targets) > 1:
            continue
        if not _is_of_state(model, line.targets[0].target, moved) or _spares_count(model, line):
            continue
        yield model.problem(
            moved,
            f"{_name_of(counting[0])} counts its steps in a tensor, which this moves to the "
            "device: every later step reads it on the host, once for each parameter",
            suggestion=f'leave the count where it is: if key != "{_COUNT}"',
            related=[model.place(counting[0].node, "the optimizer")],
        )


@functools.cache
def _names() -> frozenset[str]:
    return frozenset(catalogue.table("optimizers")["counting"]["names"])


@functools.cache
def _others() -> frozenset[str]:
    """Optimizers of torch that count on the host, or not at all: the state may be theirs."""
    return frozenset(catalogue.table("optimizers")["counting"]["others"])


def _counts(call: CallSite) -> bool:
    """``torch.optim.AdamW(...)``, unless it is asked to count on the device."""
    made = (call.name or "").startswith("torch.optim.") and call.last in _names()
    return made and not {"capturable", "fused"} & call.keywords.keys()


def _is_asked_for(model: FileModel, call: CallSite) -> bool:
    """``model.configure_optimizers(decay, rate, (0.9, 0.95), kind)``, which nobody has read.

    As nanoGPT has it, and what is made after it: two betas are those of an Adam.
    """
    if call.method not in CONFIGURES or call.target is not None:
        return False
    if "betas" in call.keywords:
        return True
    return any(
        isinstance(one, cst.Tuple)
        and len(one.elements) == _BETAS
        and all(_is_beta(model, part.value) for part in one.elements)
        for one in call.positional
    )


def _is_beta(model: FileModel, node: cst.BaseExpression) -> bool:
    number = model.literal(node)
    if isinstance(number, float):
        return 0 < number < 1
    return isinstance(node, cst.Name | cst.Attribute) and "beta" in last_name(node).lower()


def _name_of(call: CallSite) -> str:
    return "an Adam" if call.method in CONFIGURES else call.last


def _is_move(model: FileModel, moved: cst.Call) -> bool:
    call = model.call(moved)
    device = call.argument(0, "device") if call.method == "to" else None
    return device is not None and model.value(device).kind is Kind.DEVICE


def _is_of_state(model: FileModel, target: cst.BaseExpression, moved: cst.Call) -> bool:
    """``state[key]`` of the innermost loop over ``state.items()``, in one over a ``.state``."""
    receiver = model.call(moved).receiver
    if not isinstance(target, cst.Subscript) or not isinstance(receiver, cst.Name):
        return False
    loops = [node for node in around(model, target) if isinstance(node, cst.For)]
    if len(loops) < 2 or not isinstance(target.value, cst.Name):
        return False
    inner, outer = loops[0], loops[1]
    items = [model.call(x) for x in model.within(inner.iter, cst.Call)]
    of_state = any(x.method == "items" and is_name(x.receiver, target.value.value) for x in items)
    state = any(x.attr.value == "state" for x in model.within(outer.iter, cst.Attribute))
    state = state or _is_of_saved(model, outer)
    return of_state and state and receiver.value in names_bound(inner.target)


def _is_of_saved(model: FileModel, loop: cst.For) -> bool:
    """``saved["state"].values()``, also by ``get``, where an optimizer loads what is saved.

    ``load_state_dict`` of torch 2.9 leaves the count where it finds it
    (``Optimizer._process_value_according_to_param_policy``), unlike the moments.
    """
    keys = (x for x in model.within(loop.iter, cst.SimpleString) if model.literal(x) == "state")
    if not any(True for _ in keys):
        return False
    home, order = model.function_of(loop), model.tree.order
    saved = {x.value for x in model.within(loop.iter, cst.Name)}
    return any(
        call.function is home
        and order[call.node] > order[loop]
        and any(isinstance(one, cst.Name) and one.value in saved for one in call.positional)
        and (call.receiver is None or model.value(call.receiver).kind is not Kind.MODEL)
        for call in model.methods("load_state_dict")
    )


def _spares_count(model: FileModel, line: cst.Assign) -> bool:
    """``if key != "step"``."""
    return any(_COUNT in model.tree.text(guard.test) for guard in model.guards(line))
