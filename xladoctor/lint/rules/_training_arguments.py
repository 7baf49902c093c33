"""What is certainly the arguments of a Trainer of transformers: how it was made or parsed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.rules._constants import PARSERS
from xladoctor.lint.rules._sources import the_call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel

#: The class itself, what transformers builds on it, and the settings of TRL's Trainers.
ARGUMENTS = re.compile(
    r"^transformers\.(\w+\.)*(Seq2Seq)?TrainingArguments$|^trl\.(\w+\.)*[A-Z]\w*Config$"
)
#: Methods of such a parser that give one object for each class, in order.
_PARSES = ("parse_args_into_dataclasses", "parse_json_file", "parse_dict", "parse_yaml_file")


def is_training_arguments(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether something is the arguments of transformers themselves, and of no class on them."""
    if not isinstance(node, cst.Name):
        return False
    made = the_call(model, node)
    if made is not None and made.name is not None:
        return ARGUMENTS.search(made.name) is not None
    parsed = list(_parsed(model, node.value))
    return bool(parsed) and all(ARGUMENTS.search(one or "") for one in parsed)


def _parsed(model: FileModel, name: str) -> Iterator[str | None]:
    """The classes that a name is parsed as: ``model_args, args = parser.parse_json_file(path)``.

    None where it gets its meaning in another way, or nobody knows the class.
    """
    classes = _classes(model)
    for line in model.nodes(cst.Assign):
        assert isinstance(line, cst.Assign)
        for target in (one.target for one in line.targets):
            parts = target.elements if isinstance(target, cst.Tuple) else ()
            values = [part.value for part in parts] or [target]
            for place, value in enumerate(values):
                if is_name(value, name):
                    known = place < len(classes) and _parses(model, line.value)
                    yield classes[place] if known else None


def _parses(model: FileModel, node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Call) and model.call(node).method in _PARSES


def _classes(model: FileModel) -> list[str | None]:
    """The classes that the one parser of a file reads."""
    parsers = list(model.calls(*PARSERS))
    given = parsers[0].node.args[:1] if len(parsers) == 1 else ()
    for argument in given:
        value = argument.value
        several = value.elements if isinstance(value, cst.Tuple | cst.List) else ()
        return [model.name(one) for one in [x.value for x in several] or [value]]
    return []
