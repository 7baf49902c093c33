"""XLA306: weights that are tied before the module is moved come apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, Kind, walk
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import in_order
from xladoctor.lint.rules._handed_over import handed_over

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Function, Problem

_PARAMETERS = frozenset({"weight", "bias"})
#: The method of models of transformers that ties what their settings say.
_TIES = "tie_weights"


@rule("XLA306")
def tied_weights(model: FileModel) -> Iterator[Problem]:
    """Find weights tied in ``__init__`` of a model that the file moves to an XLA device."""
    if not model.is_xla:
        return
    yield from _tied_before(model)
    if model.led_by:
        return
    for cls, nodes in _tied_in_init(model).items():
        move = _moved(model, cls)
        for node in nodes:
            if move is not None:
                yield model.problem(
                    node,
                    "the move to the XLA device makes new parameters one by one: what is tied here "
                    "comes apart, and both copies train on their own",
                    suggestion="tie after the move: model.to(device), then model.a.weight = "
                    "model.b.weight",
                    related=[model.place(move.node, "moved here, afterwards")],
                )
    yield from _tied_elsewhere(model)


def _tied_before(model: FileModel) -> Iterator[Problem]:
    """``model.tie_weights()`` of transformers, and the move only then, also by ``prepare``."""
    ties = [call for call in model.methods(_TIES) if call.receiver is not None]
    moves = [*_moves(model)] if ties else []
    for tie in ties:
        text = dotted_text(tie.receiver) if tie.receiver is not None else None
        own = [move for move, name in moves if name == text and move.function is tie.function]
        if not own or not all(in_order(model, tie.node, move.node) for move in own):
            continue
        last = own[-1].node
        if any(in_order(model, last, x.node) for x in ties if x.function is tie.function):
            continue
        yield model.problem(
            tie.node,
            "the move to the XLA device makes new parameters one by one: what is tied here "
            "comes apart, and both copies train on their own",
            suggestion="call tie_weights() behind the move",
            related=[model.place(last, "moved here, afterwards")],
        )


def _moves(model: FileModel) -> Iterator[tuple[CallSite, str | None]]:
    """Where models are moved to the device, perhaps by Accelerate, and their names."""
    for call in model.methods("to"):
        device = call.argument(0, "device")
        moved = device is not None and model.value(device).kind is Kind.DEVICE
        if moved and call.receiver is not None:
            yield call, dotted_text(call.receiver)
    for call, given in handed_over(model):
        if call.method == "prepare":
            yield call, dotted_text(given)


def _tied_elsewhere(model: FileModel) -> Iterator[Problem]:
    """Models of other files, which programs for other devices may use as well."""
    if any(_ties(node) for node in model.nodes(cst.Assign)):
        return  # perhaps after the move
    for other in model.linked:
        for cls, nodes in _tied_in_init(other).items():
            move = _moved(model, cls)
            if move is not None:
                yield model.problem(
                    move.node,
                    "the move to the XLA device makes new parameters one by one: what the model's "
                    "`__init__` tied comes apart, and both copies train on their own",
                    suggestion="tie again behind this line: model.a.weight = model.b.weight",
                    related=[model.place(nodes[0], "tied here, before the move")],
                )


def _ties(node: cst.Assign) -> bool:
    """``self.head.weight = self.embedding.weight``."""
    target, value = node.targets[0].target, node.value
    # By type and not by isinstance, which LibCST's abstract classes make slow.
    return (
        type(target) is cst.Attribute
        and type(value) is cst.Attribute
        and target.attr.value in _PARAMETERS
        and value.attr.value == target.attr.value
        and isinstance(target.value, cst.Attribute)
        and isinstance(value.value, cst.Attribute)
    )


def _tied_in_init(model: FileModel) -> dict[Class, list[cst.Assign]]:
    """What the ``__init__`` of a class ties; nothing if the file ties elsewhere too.

    It may then tie after the move.
    """
    ties = [node for node in model.nodes(cst.Assign) if _ties(node)]
    if not ties:
        return {}
    inits = {
        part: cls
        for cls in model.classes
        for function in _run_by_init(model, cls)
        for part in walk(function.node)
        if type(part) is cst.Assign
    }
    found: dict[Class, list[cst.Assign]] = {}
    homes = set()
    for node in ties:
        homes.add(inits.get(node))
        if node in inits:
            found.setdefault(inits[node], []).append(node)
    elsewhere = len(homes) > 1 or None in homes or any(True for _ in model.methods(_TIES))
    return {} if elsewhere else found


def _run_by_init(model: FileModel, cls: Class) -> Iterator[Function]:
    """``__init__``, and methods that it alone calls."""
    init = cls.methods.get("__init__")
    if init is None:
        return
    yield init
    for name, method in cls.methods.items():
        calls = [call for part in (model, *model.linked) for call in part.methods(name)]
        if calls and all(call.function is init for call in calls):
            yield method


def _moved(model: FileModel, cls: Class) -> CallSite | None:
    for call in model.methods("to"):
        device = call.argument(0, "device")
        if device is None or call.receiver is None or model.value(device).kind is not Kind.DEVICE:
            continue
        instance = model.value(call.receiver).instance
        if instance is not None and instance.cls is cls:
            return call
    return None
