"""What rules about lengths share: which calls tokenize, and what is left unpadded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.words import words
from xladoctor.lint.rules._exact import around
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

#: Methods of what pads texts, waves and pictures.
PAD_METHODS = frozenset({"pad", "pad_and_create_pixel_mask"})
#: Methods of tokenizers that do what a call of them does.
_ENCODES = frozenset({"encode", "encode_plus", "batch_encode_plus"})
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


def mapped_unpadded(model: FileModel) -> Iterator[CallSite]:
    """``data.map(lambda rows: tokenizer(rows["text"]))``, and nothing that makes blocks of it."""
    mapped = [
        function
        for call in model.methods("map")
        if (given := call.argument(0, "function")) is not None
        and (function := model.value(given).function) is not None
    ]
    if any(_speaks_of_blocks(model, name) for name in model.nodes(cst.Name)):
        return
    for function in mapped:
        for part in walk(function.node.body):
            call = model.call(part) if isinstance(part, cst.Call) else None
            if call is None or not tokenizes(model, call):
                continue
            if "padding" not in call.keywords and not call.has_star:
                yield call


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
