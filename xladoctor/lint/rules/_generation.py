"""What rules about texts that a model writes share: ``model.generate`` of transformers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, LoopKind
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.frameworks import CALLBACKS
from xladoctor.lint.rules._given import all_given, entries
from xladoctor.lint.rules._handed_over import extends_trainer
from xladoctor.lint.rules._reads import costly_loop, loop_place, not_here, often
from xladoctor.lint.rules._sources import the_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Function
    from xladoctor.lint.model.problems import Place

#: Arguments that only transformers' ``generate`` has (transformers 5.23, generation/utils.py and
#: configuration_utils.py).
_ITS_OWN = frozenset(
    {
        "num_beams",
        "do_sample",
        "pad_token_id",
        "eos_token_id",
        "decoder_start_token_id",
    }
)
#: Hooks of callbacks that show what a model writes so far.
_SELDOM = frozenset(
    {
        *("on_epoch_end", "on_evaluate", "on_log", "on_save", "on_train_end"),
        *("on_train_epoch_end", "on_validation_epoch_end", "on_validation_end"),
    }
)
#: What others may take too, where the file imports transformers.
_USUAL = frozenset({"attention_mask", "max_length", "generation_config", "num_return_sequences"})
#: What small models of a program's own take too; of transformers where the program imports it, or
#: what is built on it.
_ALSO = frozenset({"max_new_tokens"})
_BUILT_ON = frozenset({"transformers", "peft", "trl", "unsloth", "sentence_transformers"})
#: What ``Seq2SeqTrainer.evaluate`` keeps for ``prediction_step``.
_OF_EVALUATE = "self._gen_kwargs"
#: How a class of another file comes to be one of transformers.
_LOADED = ".from_pretrained"
#: Packages whose models generate in a cache of full size.
_STATIC = frozenset({"optimum", "neuronx_distributed", "transformers_neuronx", "jetstream"})


def generations(model: FileModel) -> Iterator[CallSite]:
    """The calls of transformers' ``generate`` whose model or prompt is on the device."""
    packages = {name.partition(".")[0] for name in model.names.imported()}
    if not packages.isdisjoint(_STATIC):
        return
    its_own = _ITS_OWN | _USUAL if "transformers" in packages else _ITS_OWN
    linked = (name.partition(".")[0] for part in model.linked for name in part.names.imported())
    if not _BUILT_ON.isdisjoint({*packages, *linked}):
        its_own |= _ALSO
    for call in model.methods("generate"):
        # ``super().generate(...)`` in a model's own ``generate`` is told where that is called.
        if call.receiver is None or call.target is not None or model.is_super(call.receiver):
            continue
        writer = model.value(call.receiver)
        known = (writer.type_name or "").startswith("transformers.") or _of_trainer(model, call)
        said = its_own & {*call.keywords, *unpacked(model, call)}
        ours = writer.type_name is None or writer.type_name.endswith(_LOADED)
        if not known and not (said and ours):
            continue
        given = [*call.positional, *call.keywords.values()]
        on_device = writer.kind is Kind.MODEL and writer.on_device
        if on_device or any(model.value(item).is_device_tensor for item in given):
            yield call


def _of_trainer(model: FileModel, call: CallSite) -> bool:
    """``self.model.generate(...)`` in a Trainer of transformers, whose models are its own too."""
    owner = call.function.owner if call.function is not None else None
    held = call.receiver is not None and (dotted_text(call.receiver) or "") == "self.model"
    return held and extends_trainer(model, owner)


def unpacked(model: FileModel, call: CallSite) -> Iterator[str]:
    """The keywords that a call gets from dictionaries in sight: ``generate(ids, **settings)``."""
    for argument in call.node.args:
        if argument.star == "**":
            yield from (name for name, _ in model.value(argument.value).entries or ())
            yield from (name for name, _ in entries(model, argument.value))


def has_settings(model: FileModel, call: CallSite) -> bool:
    """``generate(**settings)``, where anything may stand; not ``**inputs`` of a tokenizer."""
    starred = [argument.value for argument in call.node.args if argument.star]
    return not all_given(model, call) and any(
        not model.value(one).holds_device_tensor and model.value(one).entries is None
        for one in starred
        if not _is_known(model, one)
    )


def _is_known(model: FileModel, node: cst.BaseExpression) -> bool:
    """``inputs = tokenizer(text).to(place)``, tensors wherever that is; a Trainer's own settings.

    ``self._gen_kwargs.copy()`` are those that ``evaluate`` was given: lengths and beams.
    """
    made = the_source(model, node)
    if not isinstance(made, cst.Call):
        return False
    call = model.call(made)
    held = dotted_text(call.receiver) if call.receiver is not None else None
    return call.method == "to" or (call.method == "copy" and held == _OF_EVALUATE)


@dataclasses.dataclass(frozen=True)
class Writing:
    """Where texts are generated: how often, as an adverb or nothing, and what says so."""

    often: str
    related: Sequence[Place]


def generated(model: FileModel) -> Iterator[tuple[CallSite, Writing]]:
    """The calls of ``generate`` that cost: a text is as many graphs as it has tokens.

    One text is enough for that, also once in so many steps. Programs that ask for a cache of full
    size are left alone.
    """
    for call in generations(model):
        writing = _writing(model, call.node)
        if writing is not None:
            yield call, writing


def _writing(model: FileModel, node: cst.CSTNode) -> Writing | None:
    loop = costly_loop(model, node)
    if loop is not None:
        return Writing(f", {often(loop)}", [loop_place(model, loop)])
    if not model.is_xla or not_here(model, node):
        return None
    hook = _after_an_epoch(model, node)
    if hook is not None:
        return Writing(f", in each {hook.name}", [model.place(hook.node, "the Trainer calls it")])
    around = model.loop(node)
    turns = around is not None and around.kind is LoopKind.OTHER
    return Writing("", [loop_place(model, around)] if around is not None and turns else [])


def _after_an_epoch(model: FileModel, node: cst.CSTNode) -> Function | None:
    """The hook of a callback, not one of each step, that a Trainer calls and that runs a node."""
    for function in model.functions_around(node):
        owner = function.owner
        if owner is not None and function.name in _SELDOM:
            return None if CALLBACKS.isdisjoint(model.library_bases(owner)) else function
    return None
