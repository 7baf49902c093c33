"""XLA209: batches are padded to their longest sample."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import OnXla, walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._chunks import uneven_chunks
from xladoctor.lint.rules._collate import (
    SHAPED,
    SHAPED_METHODS,
    collate_functions,
    handed_sizes,
    sizes,
)
from xladoctor.lint.rules._loaders import DATA_LOADER
from xladoctor.lint.rules._longest import filled_up, longest, longest_in, varying_length
from xladoctor.lint.rules._padded_sets import pads_first
from xladoctor.lint.rules._reads import costly_loop
from xladoctor.lint.rules._settled import by_default, settled
from xladoctor.lint.rules._sources import of_parameter
from xladoctor.lint.rules._tokenized import (
    PAD_METHODS,
    goes_to_device,
    mapped_unpadded,
    tensor_of,
    tokenizes,
)
from xladoctor.lint.rules._trl_padding import by_trl, pads_all
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Function, Loop, Problem

_COLLATORS = frozenset(
    {
        *("transformers.DataCollatorWithPadding", "transformers.DataCollatorForSeq2Seq"),
        "transformers.DataCollatorForTokenClassification",
        "trl.DataCollatorForCompletionOnlyLM",
        # Of pairs of answers (until TRL 0.12, and since).
        *("trl.trainer.utils.DPODataCollatorWithPadding", "trl.DPODataCollatorWithPadding"),
        "trl.trainer.dpo_trainer.DataCollatorForPreference",
    }
)
#: Pads too, but mostly gets texts that are cut into blocks of one length.
_LANGUAGE = "transformers.DataCollatorForLanguageModeling"
_LONGEST = (True, "longest")
#: Make batches of torchtext's (up to 0.8; ``legacy`` up to 0.11), padded to their longest.
_BUCKETS = tuple(
    f"torchtext.{data}.{name}"
    for data in ("data", "legacy.data")
    for name in ("BucketIterator", "BucketIterator.splits")
)
_PAD_SEQUENCE = "torch.nn.utils.rnn.pad_sequence"
#: What is called so pads texts, waves and pictures.
_PADS = frozenset({"tokenizer", "tok", "processor", "extractor"})
#: Makes tensors of what it is given, and pads nothing.
_DEFAULT_COLLATORS = frozenset(
    f"transformers.{name}default_data_collator" for name in ("", "data.data_collator.", "data.")
)
_TRAINERS = frozenset({"transformers.Trainer", "transformers.trainer.Trainer"})
#: Functions that hand on what is tokenized.
_HANDED = 2
#: Lengths are rounded up to this: few graphs, and what TPUs lay out a last dimension in.
_MULTIPLE = 128
#: What tensor cores of GPUs ask for: batches of text still have dozens of lengths.
_FINE = 16


@rule("XLA209")
def dynamic_padding(model: FileModel) -> Iterator[Problem]:
    """Find padding to the longest sample where batches are made."""
    if not model.is_xla:
        return
    yield from by_trl(model)
    yield from _left_to_collators(model)
    yield from _by_torchtext(model)
    collating = set(collate_functions(model))
    for call in model.calls():
        if call.has_star or _has_few_lengths(model, call):
            continue
        if call.name == _PAD_SEQUENCE and call.function not in collating:
            yield from _padded_in_step(model, call)
        padding = call.keywords.get("padding")
        longest_one = padding is not None and _are_all(model, padding, _LONGEST)
        if call.name in _COLLATORS:
            found = (padding is None or longest_one) and not pads_all(model)
        elif call.name == _LANGUAGE:
            found = any(mapped_unpadded(model)) and not pads_all(model)
        else:
            found = (
                (longest_one or (padding is None and _fills_up(model, call)))
                and tokenizes(model, call)
                and (call.function in collating or costly_loop(model, call.node) is not None)
            )
        if found and not _is_excused(model, call):
            yield model.problem(
                call.node,
                "padded to the longest sample, every batch may have another shape: each new length "
                "recompiles the whole step",
                suggestion='padding="max_length" with max_length=, or pad_to_multiple_of=128 for a '
                "few lengths",
            )
        elif _unpadded(model, call):
            yield model.problem(
                call.node,
                "without padding every text has a length of its own on the device: each new "
                "length recompiles the whole step",
                suggestion='padding="max_length" with truncation=True and max_length=',
            )
    here = [function for function in collating if model.is_here(function.node)]
    for function in sorted(here, key=lambda one: model.row(one.node)):
        yield from _padded_by_hand(model, function)


def _by_torchtext(model: FileModel) -> Iterator[Problem]:
    """``BucketIterator(data, 32)`` of old torchtext: its fields pad, unless they have a length."""
    fields = (call for part in (model, *model.linked) for call in part.calls())
    if any("fix_length" in call.keywords for call in fields):
        return
    for call in model.calls(*_BUCKETS):
        if model.on_xla(call.node) is not OnXla.NO:
            yield _problem(
                model, call.node.func, "fix_length= of the fields pads all to one length"
            )


def _is_excused(model: FileModel, call: CallSite) -> bool:
    """Whether batches of another length are not to be feared from a call that pads."""
    return _for_float16(model, call) or _is_left_out(model, call) or pads_first(model, call)


def _is_left_out(model: FileModel, call: CallSite) -> bool:
    """Whether a collator is not made unless the settings are changed.

    ``default_data_collator if args.pad_to_max_length else DataCollatorWithPadding(tokenizer)``
    """
    for guard in model.guards(call.node):
        values = by_default(model, guard.test)
        if values and all(v is not NotImplemented and bool(v) != guard.when for v in values):
            return True
    return False


def _left_to_collators(model: FileModel) -> Iterator[Problem]:
    """Texts that nothing pads before the collator that loaders and Trainers have by default.

    ``Trainer(processing_class=tokenizer)`` pads each batch to its longest;
    ``default_data_collator`` pads nothing, so that each batch is one text.
    """
    made = next((call for call in model.calls() if _takes_any_length(model, call)), None)
    if made is None or pads_all(model) or _pads_itself(model):
        return
    yield from uneven_chunks(model, made)
    for call in mapped_unpadded(model):
        if model.on_xla(call.node) is not OnXla.NO:
            yield model.problem(
                call.node,
                "nothing pads these texts to one length, so batches are as long as their texts: "
                "each new length recompiles the whole step",
                suggestion='padding="max_length" with truncation=True and max_length=',
                related=[model.place(made.node.func, "the batches are made of them here")],
            )


def _takes_any_length(model: FileModel, call: CallSite) -> bool:
    """Whether a loader or Trainer makes batches of texts of any length, and compiles for each."""
    if call.has_star:
        return False
    if call.name == DATA_LOADER:
        given = call.argument(6, "collate_fn")
        return given is not None and (model.name(given) or "") in _DEFAULT_COLLATORS
    known = call.keywords.keys()
    return (
        call.name in _TRAINERS
        and "data_collator" not in known
        and not {"tokenizer", "processing_class"}.isdisjoint(known)
        and len(call.positional) < 3
        and "train_dataset" in known
    )


def _pads_itself(model: FileModel) -> bool:
    """Whether a file has a function or a name of its own for padding, wherever."""
    texts = (name.value for name in model.nodes(cst.Name))
    return any("pad" in text.lower() and not text.lower().startswith("pad_token") for text in texts)


def _has_few_lengths(model: FileModel, call: CallSite) -> bool:
    """``pad_to_multiple_of=128``; not None or 8 (also by a name), which leave dozens of lengths."""
    multiple = call.keywords.get("pad_to_multiple_of")
    if multiple is None:
        return False
    values = settled(model, multiple)
    return not all(value is None or (isinstance(value, int) and value <= _FINE) for value in values)


def _are_all(model: FileModel, node: cst.BaseExpression, values: tuple[object, ...]) -> bool:
    """Whether all that an expression may be is one of these values."""
    return all(value in values for value in settled(model, node))


def _unpadded(model: FileModel, call: CallSite) -> bool:
    """``tokenizer(text, return_tensors="pt")`` in a step loop, whose result goes to the device.

    Also ``torch.tensor(tokenizer.encode(text))``.

    One text that changes from step to step: the same one keeps its length.
    """
    text, kind = call.argument(0, "text"), call.keywords.get("return_tensors")
    if text is None or not tokenizes(model, call):
        return False
    made = tensor_of(model, call.node) if kind is None else None
    if made is None and (kind is None or model.literal(kind) != "pt"):
        return False
    padding = call.keywords.get("padding")
    if call.method == "pad" or (padding is not None and model.literal(padding) is not False):
        return False
    loop = None if "pad_to_max_length" in call.keywords else costly_loop(model, call.node)
    if loop is None or not _changes(model, text, loop):
        return False
    if made is not None and "device" in made.keywords:
        return True
    return goes_to_device(model, call.node if made is None else made.node)


def _changes(model: FileModel, text: cst.BaseExpression, loop: Loop, depth: int = _HANDED) -> bool:
    """Whether an expression is computed of what the loop binds anew in each turn.

    Also as the parameter of a function that the loop calls.
    """
    for name in model.within(text, cst.Name):
        for binding in model.bindings(name.value, name):
            if loop.node in model.tree.ancestors(binding.node) and binding.kind != "param":
                return True
            given = of_parameter(model, name) if binding.kind == "param" and depth else None
            if given and all(_changes(model, one, loop, depth - 1) for one in given):
                return True
    return False


def _for_float16(model: FileModel, call: CallSite) -> bool:
    """``if training_args.fp16: DataCollatorWithPadding(...)``: a choice of GPUs, with scaling."""
    return any(
        guard.inside
        and isinstance(guard.written, cst.Name | cst.Attribute)
        and "fp16" in words(model.tree.text(guard.written))
        for guard in model.guards(call.node)
    )


def _padded_by_hand(model: FileModel, function: Function) -> Iterator[Problem]:
    """A collate function that computes the longest length of its batch and pads to it.

    Once for each length: inputs and targets have one of their own.
    """
    nodes = list(walk(function.node, into_functions=False))
    calls = [model.call(node) for node in nodes if isinstance(node, cst.Call)]
    # What is padded once more may well get a length of its own.
    again = any(_rounds(node) for node in nodes) or any(call.name in SHAPED for call in calls)
    found: list[cst.Call] = []
    for call in calls:
        if call.name == _PAD_SEQUENCE and not again:
            yield _problem(model, call.node, "pad all to one length, or the result to a few")
        elif call.name in SHAPED or call.method in SHAPED_METHODS:
            found += itertools.islice(longest(model, function, call), 1)
        elif not any(map(_rounds, nodes)):
            for size in handed_sizes(model, call):
                found += itertools.islice(longest_in(model, function, size), 1)
    rounded = any(map(_rounds, nodes))
    for node in nodes:
        if isinstance(node, cst.BinaryOperation) and not rounded:
            found += itertools.islice(filled_up(model, function, node), 1)
    for made in dict.fromkeys(found):
        yield _to_longest(model, made)
    if found or rounded:
        return
    lengths = (_varying(model, function, node) for node in nodes)
    for length in dict.fromkeys(filter(None, lengths)):
        yield _problem(model, length, "pad (or cut) all to one length, or to a few")


def _padded_in_step(model: FileModel, call: CallSite) -> Iterator[Problem]:
    """``pad_sequence(rows)`` in a step, of what is on the device or moved there as it is."""
    there = model.value(call.node).is_device_tensor or goes_to_device(model, call.node)
    if isinstance(call.argument(0, "sequences"), cst.List | cst.Tuple):
        return  # ``pad_sequence([left, right])``: as many as are written, of a length each
    function = call.function
    nodes = walk(function.node, into_functions=False) if function is not None and there else ()
    again = (isinstance(x, cst.Call) and model.call(x).name in SHAPED for x in nodes)
    if there and costly_loop(model, call.node) is not None and not any(again):
        yield _problem(model, call.node, "pad all to one length, or the result to a few")


def _varying(model: FileModel, function: Function, node: cst.CSTNode) -> cst.BaseExpression | None:
    """The length of the longest sample in what gives a batch its shape.

    Of several sizes the last: the others are sizes that all samples have.
    """
    found = (varying_length(model, function, part) for part in reversed(list(sizes(model, node))))
    return next(filter(None, found), None)


def _to_longest(model: FileModel, length: cst.Call) -> Problem:
    text = model.tree.text(length).strip()
    rounded = f"-(-{text} // {_MULTIPLE}) * {_MULTIPLE}"
    fix = model.fix(
        f"Round the length up to a multiple of {_MULTIPLE}",
        model.replace(length, rounded),
        safe=False,
    )
    return _problem(model, length, f"pad all to one length, or to {rounded}", fix)


def _rounds(node: cst.CSTNode) -> bool:
    """``-(-n // 128) * 128``, ``(n + 127) // 128 * 128``: not the half of a length."""
    return (
        isinstance(node, cst.BinaryOperation)
        and isinstance(node.operator, cst.Multiply)
        and any(
            isinstance(part, cst.FloorDivide)
            for side in (node.left, node.right)
            for part in walk(side)
        )
    )


def _problem(
    model: FileModel, node: cst.BaseExpression, advice: str, fix: Fix | None = None
) -> Problem:
    cores = ", and cores whose lengths differ run different graphs" if model.multi_core else ""
    return model.problem(
        node,
        "padded to the longest sample, every batch may have another shape: each new length "
        f"recompiles the whole step{cores}",
        suggestion=advice,
        fix=fix,
    )


def _fills_up(model: FileModel, call: CallSite) -> bool:
    """``tokenizer.pad(rows)``, which pads to the longest where nothing else is said.

    Image processors of DETR and its like pad to the largest picture: ``processor.pad(pictures)``.
    """
    if call.method not in PAD_METHODS or call.name is not None or call.receiver is None:
        return False
    owner = words(model.tree.text(call.receiver).strip().rpartition(".")[2])
    return not owner.isdisjoint(_PADS)
