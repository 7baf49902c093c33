"""What rules about lengths share: which calls tokenize, and what is left unpadded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.parts import index_of
from xladoctor.lint.rules._exact import around, reads
from xladoctor.lint.rules._sources import sources
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Function

#: Methods of what pads texts, waves and pictures.
PAD_METHODS = frozenset({"pad", "pad_and_create_pixel_mask"})
#: Methods of tokenizers that do what a call of them does.
_ENCODES = frozenset({"encode", "encode_plus", "batch_encode_plus"})
#: Methods that leave the tokens of a text as many as they are.
_UNCHANGED = frozenset({"items", "values", "unsqueeze", "long"})
#: What makes a tensor of a list of tokens.
_TENSORS = frozenset(f"torch.{name}" for name in ("tensor", "as_tensor", "LongTensor"))
#: What gives one of its numbers.
_KEEPS = frozenset({"builtins.min", "builtins.max", "builtins.int"})
#: Names and sums from a number to the text that it is the length of.
_DEPTH = 4
#: Words of names of what makes blocks of one length of texts.
_BLOCKS = frozenset({"group", "grouped", "block", "blocks", "chunk", "chunks", "pack", "packed"})


def tokenizes(model: FileModel, call: CallSite) -> bool:
    """Whether a call is one of a tokenizer: by its name, or by what made it."""
    name = call.method or getattr(call.node.func, "value", "")
    if isinstance(name, str) and (name.lower().startswith("tok") or name in PAD_METHODS):
        return True
    if call.method in _ENCODES and call.receiver is not None:
        owner = model.tree.text(call.receiver).strip().rpartition(".")[2]
        if owner.lower().startswith("tok"):
            return True
    made = sources(model, call.node.func) or []
    names = (model.name(one.func) or "" for one in made if isinstance(one, cst.Call))
    return any(name.endswith("Tokenizer.from_pretrained") for name in names)


def mapped(model: FileModel) -> Iterator[Function]:
    """The functions that ``data.map(function)`` is given."""
    for call in model.methods("map"):
        given = call.argument(0, "function")
        function = model.value(given).function if given is not None else None
        if function is not None:
            yield function


def mapped_unpadded(model: FileModel) -> Iterator[CallSite]:
    """``data.map(lambda rows: tokenizer(rows["text"]))``, and nothing that makes blocks of it."""
    if any(_speaks_of_blocks(model, name) for name in model.nodes(cst.Name)):
        return
    functions = [*mapped(model)]
    if any(slices(model, part) for one in functions for part in walk(one.node.body)):
        return
    for function in functions:
        for part in walk(function.node.body):
            call = model.call(part) if isinstance(part, cst.Call) else None
            if call is None or not tokenizes(model, call):
                continue
            if "padding" not in call.keywords and not call.has_star:
                yield call


def slices(model: FileModel, node: cst.CSTNode) -> bool:
    """``[ids[i : i + size] for i in range(0, length, size)]``, also within another loop."""
    if not isinstance(node, cst.ListComp | cst.GeneratorExp):
        return False
    each, cut = innermost(node.for_in), node.elt
    over, place = each.iter, each.target
    if not isinstance(over, cst.Call) or model.name(over.func) != "builtins.range":
        return False
    if not isinstance(place, cst.Name) or not isinstance(cut, cst.Subscript) or len(over.args) != 3:
        return False
    part = cut.slice[0].slice if len(cut.slice) == 1 else None
    return isinstance(part, cst.Slice) and is_name(part.lower, place.value)


def innermost(each: cst.CompFor) -> cst.CompFor:
    """The last loop of a comprehension."""
    while each.inner_for_in is not None:
        each = each.inner_for_in
    return each


def _speaks_of_blocks(model: FileModel, name: cst.Name) -> bool:
    """Whether a name is of what makes blocks; of their size, where it is computed with or cut by.

    ``tokenizer(rows["text"], max_length=block_size)`` cuts texts, and makes no blocks of them.
    """
    if words(name.value).isdisjoint(_BLOCKS):
        return False
    return name.value != "block_size" or any(
        isinstance(parent, cst.Slice | cst.BinaryOperation)
        or (isinstance(parent, cst.Call) and model.call(parent).name == "builtins.range")
        for parent in around(model, name)
    )


def goes_to_device(model: FileModel, node: cst.CSTNode, depth: int = _DEPTH) -> bool:
    """Whether a result is moved as it is: ``enc["ids"].to(device)``, or in a comprehension.

    Also under a few other names, one after the other.
    """
    for parent in around(model, node):
        if isinstance(parent, cst.Call) and model.call(parent).method == "to":
            return True
        if isinstance(parent, cst.Assign):
            target = parent.targets[0].target
            uses = reads(model, target) if isinstance(target, cst.Name) and depth else ()
            return any(goes_to_device(model, use, depth - 1) for use in uses if use is not target)
        if isinstance(parent, cst.CompFor):
            continue
        if isinstance(parent, cst.DictComp | cst.ListComp):
            return any(
                isinstance(part, cst.Call) and model.call(part).method == "to"
                for part in walk(parent)
            )
        unchanged = isinstance(parent, cst.Subscript | cst.Attribute) or (
            isinstance(parent, cst.Call) and model.call(parent).method in _UNCHANGED
        )
        if not unchanged:
            return False
    return False


def tensor_of(model: FileModel, node: cst.CSTNode, depth: int = _DEPTH) -> CallSite | None:
    """``torch.tensor([start] + tokens)`` of a list of tokens, which nothing pads on the way.

    Args:
        model: The file.
        node: The list, or the tokenizer's call that gives it.
        depth: Through how many names.
    """
    for parent in around(model, node):
        if isinstance(parent, cst.Call):
            call = model.call(parent)
            return call if call.name in _TENSORS else None
        if isinstance(parent, cst.Assign):
            target = parent.targets[0].target
            once = isinstance(target, cst.Name) and model.assigned_once(target) is not None
            if not isinstance(target, cst.Name) or not once or depth == 0:
                return None
            uses = [use for use in reads(model, target) if use is not target]
            if any(_measures(model, use) for use in uses):
                return None
            return next(filter(None, (tensor_of(model, use, depth - 1) for use in uses)), None)
        if isinstance(parent, cst.BinaryOperation) and not (
            isinstance(parent.operator, cst.Add)
            and isinstance(parent.left, cst.List) is not isinstance(parent.right, cst.List)
        ):
            return None
        if isinstance(parent, cst.BaseSuite | cst.BaseSmallStatement | cst.BaseComp):
            return None
    return None


def _measures(model: FileModel, use: cst.Name) -> bool:
    """``[0] * (128 - len(tokens))``; not ``if len(tokens) < 2:``."""
    call = next((one for one in around(model, use) if isinstance(one, cst.Call)), None)
    if call is None or model.name(call.func) != "builtins.len":
        return False
    return not isinstance(model.parent(call), cst.Comparison)


def length_of_text(
    model: FileModel, node: cst.BaseExpression, depth: int = _DEPTH
) -> CallSite | None:
    """The call that tokenizes what a number is the length of: ``len(tokenizer(prompt).input_ids)``.

    Of a text as it is, neither padded to a length nor moved to the device: what is moved has that
    length there too, and is told where it is padded.
    """
    if not depth:
        return None
    if isinstance(node, cst.Name):
        made = model.assigned_once(node)
        return length_of_text(model, made, depth - 1) if made is not None else None
    if isinstance(node, cst.BinaryOperation):
        sides = [node.left, node.right]
    elif isinstance(node, cst.Call) and model.name(node.func) in _KEEPS:
        sides = [argument.value for argument in node.args]
    else:
        measured = _measured(model, node)
        call = _tokenized(model, measured, depth) if measured is not None else None
        return None if call is None or goes_to_device(model, call.node) else call
    return next(filter(None, (length_of_text(model, x, depth - 1) for x in sides)), None)


def _measured(model: FileModel, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """``x`` of ``len(x)``, ``x.shape[1]`` and ``x.size(-1)``."""
    if isinstance(node, cst.Subscript):
        held, place = node.value, index_of(node)
        whole = isinstance(held, cst.Attribute) and held.attr.value == "shape"
        last = place is not None and model.literal(place) in {1, -1}
        return held.value if isinstance(held, cst.Attribute) and whole and last else None
    if not isinstance(node, cst.Call) or len(node.args) != 1:
        return None
    call, given = model.call(node), node.args[0].value
    if call.name == "builtins.len":
        return given
    last = call.name is None and call.method == "size" and model.literal(given) in {1, -1}
    return call.receiver if last else None


def _tokenized(model: FileModel, node: cst.BaseExpression, depth: int) -> CallSite | None:
    """The call of a tokenizer whose tokens an expression holds, of the text as long as it is."""
    while isinstance(node, cst.Subscript | cst.Attribute):
        node = node.value
    made = model.assigned_once(node) if isinstance(node, cst.Name) and depth else node
    if made is not node:
        return _tokenized(model, made, depth - 1) if made is not None else None
    call = model.call(node) if isinstance(node, cst.Call) else None
    if call is None or call.has_star or call.method == "pad" or not tokenizes(model, call):
        return None
    padding = call.keywords.get("padding")
    return call if padding is None or model.literal(padding) is False else None
