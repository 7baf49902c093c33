"""Models that a framework moves: ``Trainer(model)``, ``accelerator.prepare(model)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, Function, Kind
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.frameworks import ACCELERATOR_CLASS, TRAINERS
from xladoctor.lint.model.helpers import listed
from xladoctor.lint.model.parts import each_in
from xladoctor.lint.rules._drawn import makers_of, surely_draws
from xladoctor.lint.rules._given import argument
from xladoctor.lint.rules._sharding_trainers import trainer_shards
from xladoctor.lint.rules._training_arguments import OF_TRANSFORMERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

#: What a Trainer of transformers takes.
_GIVEN_TO_TRAINERS = frozenset(
    {"train_dataset", "eval_dataset", "data_collator", "compute_metrics", "processing_class"}
)
#: Ignite 0.5, distributed/auto.py: it moves a model to XLA devices, and wraps it for others alone.
_MOVES = ("ignite.distributed.auto_model", "ignite.distributed.auto.auto_model")
#: Packages with Trainers of their own.
_OTHER_TRAINERS = ("lightning", "pytorch_lightning", "torch", "flair.", "spacy.", "tokenizers.")


def handed_over(model: FileModel) -> Iterator[tuple[CallSite, cst.BaseExpression]]:
    """The calls that give a model to a framework that leaves its weights as they are, and what.

    Lightning sends the first core's weights to all; the Trainer of transformers and Accelerate do
    not (transformers 5.23, Accelerate 1.15: no ``broadcast_master_param`` in either).
    """
    for call in model.calls():
        if is_trainer(model, call) or _is_trainer_elsewhere(model, call):
            given = argument(model, call, 0, "model")
            if given is not None:
                yield call, given
        elif call.method == "prepare" and is_accelerator(model, call):
            for given in _each_given(model, call):
                if _is_model(model, given):
                    yield call, given


def _each_given(model: FileModel, call: CallSite) -> Iterator[cst.BaseExpression]:
    """What a call is given, also by ``parts = [model, optimizer]`` and ``*parts``."""
    for one in call.node.args:
        parts = listed(model.tree, one.value) if one.star == "*" else ()
        yield from parts or [one.value]


def makers_handed(model: FileModel) -> dict[cst.Call, cst.Call | None]:
    """What makes the models that are handed over, to where it is told that weights are drawn.

    None: not surely. ``net = build(args)``, each of whose branches draws a model, is told once,
    where it is called.
    """
    found: dict[cst.Call, cst.Call | None] = {}
    moved = [call.argument(0, "model") for call in model.calls(*_MOVES)]
    handed = handed_over(model)
    if trainer_shards(model):
        handed = (one for one in handed if one[0].method == "prepare")
    given_on = [*(given for _, given in handed), *filter(None, moved)]
    for given in given_on:
        made = [*makers_of(model, given)]
        told = {one: one if surely_draws(model, one) else None for one in made}
        built = [one for one in model.assigned_to(given) if _is_of_program(model, one)]
        if len(built) == 1 and len(made) > 1 and None not in told.values():
            told = dict.fromkeys(made, built[0] if isinstance(built[0], cst.Call) else None)
        found.update(told)
    return found


def _is_of_program(model: FileModel, node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Call) and isinstance(model.call(node).target, Function)


def _is_model(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether something is a model: also an object of a class that nobody has read.

    Of such a one, the program asks for its parameters.
    """
    kind = model.value(node).kind
    if kind is not Kind.OBJECT:
        return kind is Kind.MODEL
    text = dotted_text(node)
    asked = (call.receiver for call in model.methods("parameters", "named_parameters"))
    return text is not None and any(dotted_text(one) == text for one in asked if one is not None)


def is_trainer(model: FileModel, call: CallSite) -> bool:
    """Whether a call makes a Trainer of transformers, of what is built on it, or a class of it."""
    if call.name in TRAINERS:
        return True
    return isinstance(call.target, Class) and model.is_trainer(call.target)


def _is_trainer_elsewhere(model: FileModel, call: CallSite) -> bool:
    """``OwnTrainer(net, args, train_dataset=rows, data_collator=pad)`` of a file nobody has read.

    By its name, and by what is handed to it beside the ``TrainingArguments`` of transformers.
    """
    name = call.name or ""
    if call.target is not None or not name.endswith("Trainer") or name.startswith(_OTHER_TRAINERS):
        return False
    given = len(_GIVEN_TO_TRAINERS & call.keywords.keys())
    return given > 1 and any(map(OF_TRANSFORMERS.search, model.named))


def extends_trainer(model: FileModel, owner: Class | None) -> bool:
    """Whether a class is built on the Trainer of transformers; a copy of it is not."""
    return owner is not None and not TRAINERS.isdisjoint(model.library_bases(owner))


def prepared_names(model: FileModel) -> Iterator[str]:
    """The names and attributes that hold what ``accelerator.prepare(...)`` gave."""
    for call in model.methods("prepare"):
        parent = model.parent(call.node)
        if not isinstance(parent, cst.Assign) or not is_accelerator(model, call):
            continue
        for target in parent.targets:
            yield from filter(None, map(dotted_text, each_in(target.target)))


def is_accelerator(model: FileModel, call: CallSite) -> bool:
    """Whether the object of a method is Accelerate's: by its class, what is known, or its name."""
    if call.receiver is None or "accelerate" not in model.frameworks:
        return False
    value = model.value(call.receiver)
    if value.type_name == ACCELERATOR_CLASS:
        return True
    made = [value.instance.cls] if value.instance is not None else value.classes
    if any(ACCELERATOR_CLASS in model.library_bases(one) for one in made):
        return True
    return "accelerator" in model.tree.text(call.receiver).lower()
