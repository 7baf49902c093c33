"""What rules about texts that a model writes share: ``model.generate`` of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.knowledge import CALLBACKS
from xladoctor.lint.rules._handed_over import extends_trainer
from xladoctor.lint.rules._reads import not_here

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Function

#: Arguments that only transformers' ``generate`` has (transformers 5.23, generation/utils.py and
#: configuration_utils.py).
_ITS_OWN = frozenset(
    {
        "max_new_tokens",
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

#: Packages whose models generate in a cache of full size.
_STATIC = frozenset({"optimum", "neuronx_distributed", "transformers_neuronx", "jetstream"})


def generations(model: FileModel) -> Iterator[CallSite]:
    """The calls of transformers' ``generate`` whose model or prompt is on the device."""
    packages = {name.partition(".")[0] for name in model.names.imported()}
    if not packages.isdisjoint(_STATIC):
        return
    its_own = _ITS_OWN | _USUAL if "transformers" in packages else _ITS_OWN
    for call in model.methods("generate"):
        if call.receiver is None or call.target is not None:
            continue
        writer = model.value(call.receiver)
        known = (writer.type_name or "").startswith("transformers.") or _of_trainer(model, call)
        said = its_own & {*call.keywords, *unpacked(model, call)}
        if not known and not (said and writer.type_name is None):
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
    """The keywords that a call gets from dictionaries in sight: ``generate(ids, **settings)``.

    Also what is put into them one by one: ``settings["num_beams"] = 4``.
    """
    for argument in call.node.args:
        if argument.star == "**":
            yield from (name for name, _ in model.value(argument.value).entries or ())
            yield from _put_into(model, argument.value)


def _put_into(model: FileModel, settings: cst.BaseExpression) -> Iterator[str]:
    text = dotted_text(settings)
    for line in model.nodes(cst.Assign) if text is not None else ():
        assert isinstance(line, cst.Assign)
        target = line.targets[0].target
        if not isinstance(target, cst.Subscript) or dotted_text(target.value) != text:
            continue
        index = target.slice[0].slice
        key = model.literal(index.value) if isinstance(index, cst.Index) else None
        if isinstance(key, str) and model.function_of(line) is model.function_of(settings):
            yield key


def after_an_epoch(model: FileModel, node: cst.CSTNode) -> Function | None:
    """The hook of a callback, not one of each step, that a Trainer calls and that runs a node."""
    if not model.is_xla or not_here(model, node):
        return None
    for function in model.functions_around(node):
        owner = function.owner
        if owner is not None and function.name in _SELDOM:
            return None if CALLBACKS.isdisjoint(model.library_bases(owner)) else function
    return None
