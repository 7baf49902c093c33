"""What callbacks of transformers' Trainer take out of their ``**kwargs`` and no longer get."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.frameworks import TRAINER_CALLBACKS
from xladoctor.lint.rules._environment import key_of
from xladoctor.lint.rules._sources import of_parameter
from xladoctor.lint.rules._tolerated import tolerated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

#: Keywords that transformers 5 gives its callbacks no more, and what it gives in their place
#: (``CallbackHandler.call_event``).
_GONE = {"tokenizer": "processing_class"}


def gone_keywords(model: FileModel) -> Iterator[Problem]:
    """``kwargs["tokenizer"].save_pretrained(path)`` in ``on_save``, or in what that calls."""
    for node in model.nodes(cst.Subscript):
        key = key_of(model, node)
        if key not in _GONE or not isinstance(node.value, cst.Name):
            continue
        if not _are_given(model, node.value) or _asks_first(model, node, key):
            continue
        yield model.problem(
            node,
            f"transformers 5 gives callbacks {_GONE[key]}, and no {key}: this raises KeyError",
            suggestion=f'{node.value.value}["{_GONE[key]}"]',
        )


def _are_given(model: FileModel, name: cst.Name, depth: int = 3) -> bool:
    """Whether a name holds the keywords that the Trainer gives a callback's method."""
    function = model.function_of(name)
    if function is None or not isinstance(function.node, cst.FunctionDef) or not depth:
        return False
    rest = function.node.params.star_kwarg
    if rest is not None and rest.name.value == name.value:
        owner = function.owner
        if owner is None or not function.name.startswith("on_"):
            return False
        return not TRAINER_CALLBACKS.isdisjoint(model.library_bases(owner))
    given = of_parameter(model, name) if model.is_parameter(name) else None
    return bool(given) and all(
        isinstance(one, cst.Name) and _are_given(model, one, depth - 1) for one in given or ()
    )


def _asks_first(model: FileModel, node: cst.Subscript, key: str) -> bool:
    """``if "tokenizer" in kwargs:``, or a ``try`` around it."""
    asked = any(
        model.literal(part) == key
        for guard in model.guards(node)
        for part in model.within(guard.test, cst.SimpleString)
    )
    return asked or tolerated(model, node)
