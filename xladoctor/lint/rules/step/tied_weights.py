"""XLA306: weights that are tied before the module is moved come apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, Kind, walk
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import in_order
from xladoctor.lint.rules._handed_over import handed_over
from xladoctor.lint.rules._object_runs import PARAMETERS
from xladoctor.lint.rules._optimized import CONFIGURES, owners
from xladoctor.lint.rules._protocol import makes_optimizer
from xladoctor.lint.rules._tied import made, says_otherwise, tied_by

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Function, Problem

_PARAMETERS = frozenset({"weight", "bias"})
#: The method of models of transformers that ties what their settings say.
_TIES = "tie_weights"
#: Others of these that call it.
_TIE_TOO = ("init_weights", "post_init", "resize_token_embeddings")


@rule("XLA306")
def tied_weights(model: FileModel) -> Iterator[Problem]:
    """Find weights tied in ``__init__`` of a model that the file moves to an XLA device."""
    if not model.is_xla:
        return
    yield from _tied_before(model)
    yield from _tied_by_class(model)
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


def _tied_by_class(model: FileModel) -> Iterator[Problem]:
    """``GPT2LMHeadModel(config).to(device)`` that is trained, and that nothing ties again."""
    if "lightning" in model.frameworks or says_otherwise(model):
        return
    moves = [move for move in _moves_of_models(model) if not _is_tied_again(model, *move)]
    trained = set(_trained(model)) if moves else set()
    told: set[cst.Call] = set()
    for call, moved in moves:
        makers = set(made(model, moved))
        if model.value(moved).on_device or not makers & trained or makers & told:
            continue
        ties = _in_order(model, makers)
        owner = next(filter(None, (tied_by(model, one) for one in ties)), None)
        if owner is None or _freezes(model, makers):
            continue
        told |= makers
        by = "the move by prepare" if call.method == "prepare" else "the move"
        yield model.problem(
            call.node,
            f"this model ({owner}) ties its output layer to its embeddings, and {by} to the XLA "
            "device makes new parameters one by one: they come apart, and no longer train as one",
            suggestion="call tie_weights() behind the move",
            related=[model.place(one, "made here") for one in ties if tied_by(model, one)],
        )


def _in_order(model: FileModel, makers: Collection[cst.Call]) -> Sequence[cst.Call]:
    """Calls as they stand in the program: which one is named is the same in every run."""
    return sorted(makers, key=model.program.tree.order.__getitem__)


def _moves_of_models(model: FileModel) -> Iterator[tuple[CallSite, cst.BaseExpression]]:
    """Where models are moved to the device, and what is moved; none that a Trainer gets as well."""
    handed = [*handed_over(model)]
    trainers = {
        maker for call, given in handed if call.method != "prepare" for maker in made(model, given)
    }
    moves = [(call, call.receiver) for call, _ in _moves(model) if call.method == "to"]
    moves += [(call, given) for call, given in handed if call.method == "prepare"]
    for call, moved in moves:
        if moved is not None and trainers.isdisjoint(made(model, moved)):
            yield call, moved


def _is_tied_again(model: FileModel, move: CallSite, moved: cst.BaseExpression) -> bool:
    """Whether ``model.resize_token_embeddings(n)``, which ties, may run behind the move."""
    makers = set(made(model, moved))
    return any(
        call.receiver is not None
        and not makers.isdisjoint(made(model, call.receiver))
        and not (call.function is move.function and in_order(model, call.node, move.node))
        for call in model.methods(*_TIE_TOO)
    )


def _trained(model: FileModel) -> Iterator[cst.Call]:
    """The calls that make the models whose parameters an optimizer of the program gets."""
    for part in (model, *model.linked):
        for call in part.calls():
            if makes_optimizer(part, call) or "optim" in call.last.lower():
                for owner, _ in owners(part, call):
                    yield from made(part, owner)
            if call.method in CONFIGURES and call.target is None and call.receiver is not None:
                yield from made(part, call.receiver)


def _freezes(model: FileModel, makers: Collection[cst.Call]) -> bool:
    """Whether weights are frozen that may be of these models: untied, they stay equal."""
    for part in (model, *model.linked):
        for frozen in _frozen(part):
            others = set(made(part, frozen))
            if not others or not others.isdisjoint(makers):
                return True
    return False


def _frozen(model: FileModel) -> Iterator[cst.BaseExpression]:
    """``model`` of ``model.requires_grad_(False)``, or of a loop that freezes its parameters."""
    found = [
        call.receiver
        for call in model.methods("requires_grad_")
        if call.receiver is not None
        and any(model.literal(one) is False for one in (*call.positional, *call.keywords.values()))
    ]
    found += [
        line.targets[0].target.value
        for line in model.nodes(cst.Assign)
        if isinstance(line.targets[0].target, cst.Attribute)
        and line.targets[0].target.attr.value == "requires_grad"
        and model.literal(line.value) is not True
    ]
    for node in found:
        loop = model.loop(node)
        asked = model.calls_in(loop.over) if loop and loop.over is not None else ()
        models = [one.receiver for one in asked if one.method in PARAMETERS]
        yield from ([one for one in models if one is not None] or [node])


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
    if any(node not in inits for node in ties) or any(True for _ in model.methods(_TIES)):
        return {}
    found: dict[Class, list[cst.Assign]] = {}
    for node in ties:
        found.setdefault(inits[node], []).append(node)
    return found


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
