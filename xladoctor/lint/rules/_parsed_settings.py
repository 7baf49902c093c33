"""Dictionaries that ``HfArgumentParser.parse_dict`` makes the arguments of a Trainer of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

from xladoctor.lint.rules._constants import PARSERS
from xladoctor.lint.rules._given import entries, is_written
from xladoctor.lint.rules._sources import made_in
from xladoctor.lint.rules._training_arguments import OF_TRANSFORMERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xladoctor.lint.model import CallSite, Class, FileModel


class Parsed(NamedTuple):
    """The settings of such a call.

    Attributes:
        call: ``parser.parse_dict(settings)``.
        named: What the dictionary holds, but for fields of the program's own classes.
        whole: Whether all that it holds is in sight.
        strict: Whether a key that is no field raises.
    """

    call: CallSite
    named: Mapping[str, cst.BaseExpression]
    whole: bool
    strict: bool


def parsed_settings(model: FileModel) -> Iterator[Parsed]:
    """The dictionaries of which arguments of transformers itself are made, none of its heirs."""
    for call in model.methods("parse_dict"):
        parser = made_in(model, call.receiver, PARSERS) if call.receiver is not None else None
        settings = call.argument(0, "args")
        if parser is None or settings is None:
            continue
        classes = [model.value(one).makes for one in _listed(parser)]
        theirs = [OF_TRANSFORMERS.search(model.name(one) or "") for one in _listed(parser)]
        if not any(theirs) or not all(a or b for a, b in zip(classes, theirs, strict=True)):
            continue
        own = {name for each in classes for cls in each for name in _fields(model, cls)}
        named = {
            name: value
            for name, value in reversed([*entries(model, settings)])
            if name not in own and model.is_here(value)
        }
        extra = call.argument(1, "allow_extra_keys")
        yield Parsed(call, named, is_written(model, settings), extra is None)


def _listed(parser: CallSite) -> list[cst.BaseExpression]:
    """``HfArgumentParser((ModelArguments, TrainingArguments))``: the classes."""
    given = parser.argument(0, "dataclass_types")
    if isinstance(given, cst.Tuple | cst.List):
        return [one.value for one in given.elements]
    return [given] if given is not None else []


def _fields(model: FileModel, cls: Class) -> Iterator[str]:
    for one in (cls, *model.parents(cls)):
        for line in model.within(one.node.body, cst.AnnAssign):
            if isinstance(line.target, cst.Name):
                yield line.target.value
