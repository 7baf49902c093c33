"""Lists of tokens that a model writes until it ends the text: of any length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, LoopKind, walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.rules._batches import OF_DATA
from xladoctor.lint.rules._reads import costly_loop
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop

_LONGER = frozenset({"append", "extend"})
#: Words of methods that write a text, token by token.
_WRITES = frozenset({"generate", "stream"})


def written_lists(model: FileModel) -> Iterator[tuple[CallSite, Loop, cst.Name]]:
    """``for token in model.generate(ids): text.append(token)``, then a tensor of it in the step.

    Args:
        model: The file.

    Yields:
        The calls that make such a tensor, the step loop, and the list; the first one for each list.
    """
    told: set[tuple[object, str]] = set()
    for call in model.calls(*OF_DATA):
        kept = _listed(call.argument(0, "data"))
        if kept is None or not model.value(call.node).is_device_tensor:
            continue
        loop = costly_loop(model, call.node)
        key = (call.function, kept.value)
        if loop is None or loop.kind is not LoopKind.STEP or key in told:
            continue
        if _is_written(model, call, kept):
            told.add(key)
            yield call, loop, kept


def _listed(data: cst.BaseExpression | None) -> cst.Name | None:
    """``text`` of ``[text]``, ``text[:512]`` and ``[text[1:]]``: cut, it may be shorter still."""
    while data is not None and not isinstance(data, cst.Name):
        if isinstance(data, cst.List) and len(data.elements) == 1:
            data = data.elements[0].value
        elif isinstance(data, cst.Subscript) and isinstance(data.slice[0].slice, cst.Slice):
            data = data.value
        else:
            return None
    return data


def _is_written(model: FileModel, call: CallSite, kept: cst.Name) -> bool:
    """Whether a loop over what a model writes makes a list longer, and nothing else does."""
    longer = [
        one
        for one in model.methods(*_LONGER)
        if is_name(one.receiver, kept.value) and one.function is call.function
    ]
    padded = any(
        is_name(line.target, kept.value) and model.function_of(line) is call.function
        for line in model.nodes(cst.AugAssign)
    )
    return not padded and bool(longer) and all(_by_model(model, one) for one in longer)


def _by_model(model: FileModel, call: CallSite) -> bool:
    loop = model.loop(call.node)
    if loop is None or loop.over is None:
        return False
    return any(
        isinstance(part, cst.Call)
        and isinstance(part.func, cst.Attribute)
        and not _WRITES.isdisjoint(words(part.func.attr.value))
        and model.value(part.func.value).kind is Kind.MODEL
        for part in walk(loop.over)
    )
