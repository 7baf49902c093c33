"""The longest sample of a batch, as collate functions compute it to pad to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.helpers import only_returned, returned
from xladoctor.lint.rules._exact import same_name
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

#: Names from the batch of a collate function to what is measured.
_DEPTH = 3
#: Names and calls from a length to where it is computed.
_WAY = 5
#: What finds the longest or the shortest.
_EXTREMES = frozenset(
    f"{module}.{name}" for module in ("builtins", "numpy", "torch") for name in ("max", "min")
) | {"numpy.amax", "numpy.amin"}
#: What holds the numbers that it is given.
_HOLDS = frozenset(
    {"builtins.list", "builtins.sorted", "numpy.array", "numpy.asarray", "torch.tensor",
     "torch.as_tensor", "torch.LongTensor", "torch.IntTensor", "torch.Tensor"}
)  # fmt: skip


def longest(model: FileModel, function: Function, call: CallSite) -> Iterator[cst.Call]:
    """``max(len(x) for x in batch)`` that the arguments of a call come from.

    It stands in them or is bound, alone and once, to a name in them.

    Args:
        model: The file.
        function: Makes batches.
        call: Makes something of a shape.
    """
    for value in (*call.positional, *call.keywords.values()):
        for part in lengths_in(value):
            yield from longest_in(model, function, part)


def filled_up(
    model: FileModel, function: Function, node: cst.BinaryOperation
) -> Iterator[cst.Call]:
    """The longest length in ``row + [pad] * (n - len(row))``, of the product in it."""
    if isinstance(node.operator, cst.Multiply) and isinstance(node.left, cst.List):
        for part in lengths_in(node.right):
            yield from longest_in(model, function, part)


def longest_in(
    model: FileModel, function: Function, part: cst.BaseExpression
) -> Iterator[cst.Call]:
    """Where the longest length is computed that an expression is, itself or by its name."""
    made: cst.CSTNode | None = part
    if isinstance(part, cst.Name):
        made = model.assigned_once(part)
        if isinstance(made, cst.BinaryOperation) and isinstance(made.operator, cst.Subtract):
            # ``missing = width - len(row)``, and then ``[0] * missing``.
            yield from longest_in(model, function, made.left)
    batch = _batch(function)
    if batch is None or not isinstance(made, cst.Call):
        return
    helper = model.call(made).target
    if isinstance(helper, Function):
        # ``width = longest(texts)``, of a helper that gives it back.
        handed = _batch(helper)
        given = model.call(made).argument(0, handed)
        if handed is None or given is None or not _is_of_batch(model, given, batch, _DEPTH):
            return
        told = (one for one in returned(helper) if isinstance(one, cst.Call))
        if any(_is_capped_longest(model, one, handed) for one in told):
            yield made
    elif _is_capped_longest(model, made, batch):
        yield made


def _is_capped_longest(model: FileModel, call: cst.Call, batch: str) -> bool:
    """Also ``min(max(map(len, rows)), limit)``: as long as the longest, up to the limit."""
    capped = model.name(call.func) == "builtins.min"
    inner = [item.value for item in call.args] if capped else [call]
    return any(isinstance(one, cst.Call) and _is_longest(model, one, batch) for one in inner)


def _batch(function: Function) -> str | None:
    """The parameter that holds the samples: the first one, but for the object."""
    return next(iter(function.arguments), None)


def lengths_in(value: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The lengths in an argument: ``n``, ``(n, 8)``, ``(0, n - len(x))``; nothing computed."""
    if isinstance(value, cst.Tuple | cst.List):
        for element in value.elements:
            yield from lengths_in(element.value)
    elif isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Subtract):
        yield value.left
    else:
        yield value


def _is_longest(model: FileModel, call: cst.Call, batch: str) -> bool:
    """``max`` over the batch of each sample's ``len``, ``.shape[n]``, ``.size(n)`` or ``numel``."""
    if model.name(call.func) != "builtins.max" or len(call.args) != 1:
        return False
    return _are_lengths(model, call.args[0].value, batch)


def _are_lengths(model: FileModel, every: cst.BaseExpression, batch: str) -> bool:
    if isinstance(every, cst.Name):
        made = model.assigned_once(every)
        return isinstance(made, cst.ListComp) and _are_lengths(model, made, batch)
    if isinstance(every, cst.Call) and model.name(every.func) == "builtins.map":
        given = [item.value for item in every.args]
        by_len = len(given) == 2 and model.name(given[0]) == "builtins.len"
        return by_len and _is_of_batch(model, given[1], batch, _DEPTH)
    if not isinstance(every, cst.GeneratorExp | cst.ListComp) or every.for_in.ifs:
        return False
    return _is_length(every.elt) and _is_of_batch(model, every.for_in.iter, batch, _DEPTH)


def _is_length(length: cst.BaseExpression) -> bool:
    if isinstance(length, cst.Subscript):
        held = length.value
        return isinstance(held, cst.Attribute) and held.attr.value == "shape"
    if not isinstance(length, cst.Call):
        return False
    if isinstance(length.func, cst.Attribute):
        asked, places = length.func.attr.value, len(length.args)
        return (asked == "size" and places == 1) or (asked == "numel" and not places)
    return is_name(length.func, "len")


def _is_of_batch(model: FileModel, node: cst.BaseExpression, batch: str, depth: int) -> bool:
    """The batch, or ``texts, labels = zip(*batch)`` and ``[row["ids"] for row in batch]``.

    Also a list that a loop over the batch fills.
    """
    if not isinstance(node, cst.Name):
        return False
    if node.value == batch or (depth and _is_filled(model, node, batch, depth - 1)):
        return True
    named = [
        [part for part in walk(source) if isinstance(part, cst.Name)] if source is not None else []
        for source in (model.made_of(node) if depth else ())
    ]
    # ``rows = [pad(row) for row in rows]`` is of what it was before.
    named = [parts for parts in named if not any(is_name(part, node.value) for part in parts)]
    return bool(named) and all(
        any(_is_of_batch(model, part, batch, depth - 1) for part in parts) for parts in named
    )


def varying_length(
    model: FileModel, function: Function, node: cst.BaseExpression, depth: int = _WAY
) -> cst.BaseExpression | None:
    """Where the length of the longest (or shortest) sample of a batch is computed, if a number is.

    ``lengths.max().item()`` of ``lengths = torch.tensor([len(x) for x in batch])``,
    ``longest = max(longest, len(x))`` in a loop over the batch, ``len(max(batch, key=len))``.
    """
    batch = _batch(function)
    if batch is None or depth == 0:
        return None
    if isinstance(node, cst.Name):
        found = (
            varying_length(model, function, made, depth - 1) for made in model.assigned_to(node)
        )
        return next(filter(None, found), None)
    if _is_length(node) and _is_of_picked(model, node, batch):
        return node
    if isinstance(node, cst.Subscript):
        return node if _is_sorted(model, node.value, batch) else None
    if not isinstance(node, cst.Call):
        return None
    call = model.call(node)
    if call.name in {"builtins.int", "builtins.min"}:
        inner = (varying_length(model, function, one, depth - 1) for one in call.positional)
        return next(filter(None, inner), None) or (
            node if _is_extreme(model, call, batch) else None
        )
    if call.name is None and call.method in {"item", "max", "min"} and call.receiver is not None:
        if call.method != "item" and _hold_lengths(model, call.receiver, batch, _DEPTH):
            return node
        return varying_length(model, function, call.receiver, depth - 1)
    return node if _is_extreme(model, call, batch) else None


def _is_of_picked(model: FileModel, length: cst.BaseExpression, batch: str) -> bool:
    """``longest = max(batch, key=width)[0]``, and then ``longest.size(1)``."""
    named = (part for part in walk(length) if isinstance(part, cst.Name))
    for name in named:
        for made in model.assigned_to(name):
            while isinstance(made, cst.Subscript):
                made = made.value
            if isinstance(made, cst.Call) and _picks(model, made, batch):
                by = dimension(_key(model, model.call(made)))
                return by is None or dimension(length) in {by, None}
    return False


def _key(model: FileModel, call: CallSite) -> cst.CSTNode | None:
    """What ``max(batch, key=...)`` compares: what a lambda, or a function of the file, gives."""
    key = call.keywords.get("key")
    if isinstance(key, cst.Lambda):
        return key.body
    function = model.value(key).function if key is not None else None
    return only_returned(function) if function is not None else key


def dimension(length: cst.CSTNode | None) -> int | None:
    """Of which dimension a length is: 0 of ``len(x)``, 1 of ``x.size(1)`` and ``x.shape[1]``."""
    name = length.func if isinstance(length, cst.Call) else length
    if isinstance(name, cst.Name):
        return 0 if name.value == "len" else None
    if length is None or not _is_dimension(length):
        return None
    numbers = [part for part in walk(length) if isinstance(part, cst.Integer)]
    return int(numbers[-1].value) if numbers else None


def _is_dimension(node: cst.CSTNode) -> bool:
    """``x.size(1)``, ``x.shape[1]``."""
    if isinstance(node, cst.Call):
        return isinstance(node.func, cst.Attribute) and node.func.attr.value == "size"
    held = node.value if isinstance(node, cst.Subscript) else None
    return isinstance(held, cst.Attribute) and held.attr.value == "shape"


def _picks(model: FileModel, node: cst.Call, batch: str) -> bool:
    """``max(batch, key=len)``: one sample of the batch."""
    call = model.call(node)
    return (
        call.name in {"builtins.max", "builtins.min"}
        and "key" in call.keywords
        and bool(call.positional)
        and _is_of_batch(model, call.positional[0], batch, _DEPTH)
    )


def _is_sorted_by_length(model: FileModel, node: cst.BaseExpression, batch: str) -> bool:
    """``batch.sort(key=lambda row: len(row))`` before ``len(batch[0])``; also ``sorted``."""
    if not isinstance(node, cst.Name):
        return False
    function = model.function_of(node)
    sorts = [
        call
        for call in model.methods("sort")
        if call.function is function
        and isinstance(call.receiver, cst.Name)
        and call.receiver.value == node.value
        and _is_of_batch(model, call.receiver, batch, _DEPTH)
    ]
    for one in model.assigned_to(node):
        made = model.call(one) if isinstance(one, cst.Call) else None
        given = made.argument(0) if made is not None and made.name == "builtins.sorted" else None
        if made is not None and given is not None and _is_of_batch(model, given, batch, _DEPTH):
            sorts.append(made)
    keys = (call.keywords.get("key") for call in sorts)
    return any(
        key is not None
        and any(
            _is_length(part) or is_name(part, "len")
            for part in (key, *walk(key))
            if isinstance(part, cst.BaseExpression)
        )
        for key in keys
    )


def _is_extreme(model: FileModel, call: CallSite, batch: str) -> bool:
    """``np.max(lengths)``, ``max(longest, len(x))``, ``len(max(batch, key=len))``."""
    if call.name == "builtins.len" and call.positional:
        inner = call.positional[0]
        if isinstance(inner, cst.Subscript):
            while isinstance(inner, cst.Subscript):
                inner = inner.value  # ``batch[0]["ids"]``
            return _is_sorted_by_length(model, inner, batch)
        return isinstance(inner, cst.Call) and _picks(model, inner, batch)
    if call.name not in _EXTREMES or not call.positional:
        return False
    if len(call.positional) == 1 or call.name.startswith(("numpy.", "torch.")):
        return _hold_lengths(model, call.positional[0], batch, _DEPTH)
    return _goes_on(model, call) and any(
        _is_length(one) and _is_of_turn(model, one, batch) for one in call.positional
    )


def _goes_on(model: FileModel, call: CallSite) -> bool:
    """``longest = max(longest, len(x))``; ``n = min(len(x), limit)`` is one sample's length."""
    bound = model.parent(call.node)
    target = bound.targets[0].target if isinstance(bound, cst.Assign) else None
    return target is not None and any(same_name(one, target) for one in call.positional)


def _is_of_turn(
    model: FileModel, length: cst.BaseExpression, batch: str, depth: int = _DEPTH
) -> bool:
    """Whether a length is one of what a loop over the batch goes over."""
    for part in model.within(length, cst.Name):
        for binding in model.bindings(part.value, part):
            over = next(
                (one for one in model.tree.ancestors(binding.node) if isinstance(one, cst.For)),
                None,
            )
            if over is not None and any(
                isinstance(one, cst.Name) and _is_of_batch(model, one, batch, depth)
                for one in walk(over.iter)
            ):
                return True
    return False


def _hold_lengths(model: FileModel, node: cst.BaseExpression, batch: str, depth: int) -> bool:
    """A list, an array or a tensor of the lengths of all samples."""
    if _are_lengths(model, node, batch):
        return True
    if isinstance(node, cst.Name) and depth:
        return any(
            _hold_lengths(model, made, batch, depth - 1) for made in model.assigned_to(node)
        ) or _is_filled_with_lengths(model, node, batch)
    if not isinstance(node, cst.Call):
        return False
    call = model.call(node)
    if call.name is None and call.method in {"long", "int", "to", "cpu"} and call.receiver:
        return _hold_lengths(model, call.receiver, batch, depth)
    holds = call.name in _HOLDS and bool(call.positional)
    return holds and _hold_lengths(model, call.positional[0], batch, depth)


def _is_filled_with_lengths(model: FileModel, node: cst.Name, batch: str) -> bool:
    """``lengths.append(len(x))`` in a loop over the batch."""
    return any(
        _is_length(one) and _is_of_turn(model, one, batch) for _, one in _appended(model, node)
    )


def _is_filled(model: FileModel, node: cst.Name, batch: str, depth: int) -> bool:
    """``rows.append(tokenizer(text)["input_ids"])`` in a loop over the batch that pads nothing."""
    made = list(model.made_of(node))
    if not made or not all(_is_empty_list(model, one) for one in made):
        return False
    filled = list(_appended(model, node))
    return bool(filled) and all(
        _is_of_turn(model, one, batch, depth) and not _pads_in_turn(model, call)
        for call, one in filled
    )


def _is_empty_list(model: FileModel, node: cst.BaseExpression | None) -> bool:
    """``[]``, ``list()``."""
    if isinstance(node, cst.Call):
        return not node.args and model.name(node.func) == "builtins.list"
    return isinstance(node, cst.List) and not node.elements


def _pads_in_turn(model: FileModel, filled: CallSite) -> bool:
    """Whether a loop that fills a list gives each sample a length: ``padding="max_length"``."""
    around = (one for one in model.tree.ancestors(filled.node) if isinstance(one, cst.For))
    over = next(around, filled.node)
    return any(
        "pad" in words(call.last) or "padding" in call.keywords for call in model.calls_in(over)
    )


def _appended(model: FileModel, node: cst.Name) -> Iterator[tuple[CallSite, cst.BaseExpression]]:
    """What a function appends to a list, and where."""
    function = model.function_of(node)
    for call in model.methods("append"):
        held = call.receiver
        mine = call.function is function and isinstance(held, cst.Name) and held.value == node.value
        if mine and len(call.positional) == 1:
            yield call, call.positional[0]


def _is_sorted(model: FileModel, node: cst.BaseExpression, batch: str) -> bool:
    """``lengths, order = torch.sort(torch.tensor([len(x) for x in batch]), descending=True)``."""
    if not isinstance(node, cst.Name):
        return False
    for made in model.made_of(node):
        call = model.call(made) if isinstance(made, cst.Call) else None
        if call is None or call.name not in {"torch.sort", "builtins.sorted"}:
            continue
        if call.positional and _hold_lengths(model, call.positional[0], batch, _DEPTH):
            return True
    return False
