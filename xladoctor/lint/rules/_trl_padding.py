"""How TRL's Trainers pad batches, where nothing else is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor import patterns
from xladoctor.lint.model import OnXla
from xladoctor.lint.rules._given import given
from xladoctor.lint.rules._settled import by_default
from xladoctor.lint.rules._sources import the_call

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import libcst as cst

    from xladoctor.lint.model import FileModel, Problem

#: TRL's Trainer for fine-tuning, which makes its own collator.
_SFT = patterns.lazy(r"^trl\.(\w+\.)*SFTTrainer$")
#: Those for pairs of answers, whose collators pad each side to the longest of the batch.
_PAIRS = patterns.lazy(r"^trl\.(\w+\.)*(DPO|KTO|BCO|CPO|ORPO|Reward)Trainer$")
#: What tensor cores of GPUs ask for: batches of text still have dozens of lengths.
_FINE = 16


def by_trl(model: FileModel) -> Iterator[Problem]:
    """Trainers of TRL that pad each batch to its longest sample."""
    yield from _fine_tuned(model)
    yield from _in_pairs(model)


def _fine_tuned(model: FileModel) -> Iterator[Problem]:
    """``SFTTrainer(args=SFTConfig(packing=False))``: its own collator pads to the longest."""
    for call in model.calls():
        if not _SFT.search(call.name or ""):
            continue
        named = given(model, call)
        made = the_call(model, named["args"]) if "args" in named else None
        if "data_collator" in named or (made is None and "packing" not in named):
            continue
        if made is not None and made.target is not None:
            continue  # what a function of the program gives
        settings = {**named, **(given(model, made) if made is not None else {})}
        packing = settings.get("packing")
        if packing is not None and model.literal(packing) is not False:
            continue
        starred = call.has_star or (made is not None and made.has_star)
        if (starred and packing is None) or has_few(model, settings) or pads_all(model):
            continue
        yield model.problem(
            call.node.func if packing is None else packing,
            "without packing TRL pads each batch to its longest sample: each new length "
            "recompiles the whole step",
            suggestion="packing=True, or pad_to_multiple_of=128 for a few lengths",
        )


def _in_pairs(model: FileModel) -> Iterator[Problem]:
    """``DPOTrainer(model, args=DPOConfig(...))``: its own collator pads to the longest."""
    for call in model.calls():
        if not _PAIRS.search(call.name or "") or model.on_xla(call.node) is OnXla.NO:
            continue
        named = given(model, call)
        if "data_collator" in named or call.has_star:
            continue
        made = the_call(model, named["args"]) if "args" in named else None
        if made is None or made.target is not None or made.has_star:
            continue  # what a function of the program gives
        if has_few(model, given(model, made)) or pads_all(model):
            continue
        yield model.problem(
            call.node.func,
            "TRL pads the answers of each batch to its longest: each new length recompiles the "
            "whole step",
            suggestion="data_collator= with one that pads to max_length, or pad_to_multiple_of=128 "
            "for a few lengths",
        )


def has_few(model: FileModel, settings: Mapping[str, cst.BaseExpression]) -> bool:
    multiple = settings.get("pad_to_multiple_of")
    number = model.literal(multiple) if multiple is not None else None
    return multiple is not None and not (isinstance(number, int) and number <= _FINE)


def pads_all(model: FileModel) -> bool:
    """Whether the file pads samples to one length itself, wherever."""
    return any(
        "padding" in call.keywords and "max_length" in by_default(model, call.keywords["padding"])
        for call in model.calls()
    )
