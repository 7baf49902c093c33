"""Models of transformers whose output layer and embeddings are one parameter by default."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import libcst as cst

from xladoctor import catalogue, patterns
from xladoctor.lint.model import Class
from xladoctor.lint.rules._drawn import makers_of
from xladoctor.lint.rules._pretrained import checkpoints, makes
from xladoctor.lint.rules._sources import sources, the_call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

_LIBRARY = "transformers."
#: Classes that read what kind of model it is from its configuration.
_AUTO = patterns.lazy(
    r"^(AutoModelFor(MaskedLM|CausalLM|Seq2SeqLM|SpeechSeq2Seq)|AutoModelWithLMHead)$"
)
#: Layers that a class of the program may put in the place of the one that is tied, and methods
#: that say what is.
_HEADS = frozenset({"lm_head", "cls", "proj_out", "shared", "generator_lm_head"})
_OWN_TIES = frozenset({"tie_weights", "_tie_weights", "get_output_embeddings"})
#: What says that a model's weights are two after all, or ties them by hand; adapters train few.
_SAYS_OTHERWISE = patterns.lazy(
    r"""\btie_(word_embeddings|encoder_decoder)["']?\s*[:=](?!\s*True)|\b_?tie_(or_clone_)?weights\b"""
    r"|\bset_((in|out)put_embeddings|shared_parameters)\b|lm_head\w*\s*=[^=]"
    r"|\.weight\s*=\s*[\w.]+\.weight\b|\bset_default_device\b|\bwith (torch\.)?device\b"
    r"|\b(get_)?peft(_model)?\b|\b[lL]o[rR][aA]|\bLORA"
)
#: nanoGPT's model and configuration, as its many copies import them: its output layer is its
#: embeddings (karpathy/nanoGPT, ``model.py``).
_NANO_GPT = ("model.GPT", "model.GPTConfig")
#: A new configuration of transformers, by its class.
_CONFIG = patterns.lazy(r"^transformers\.(?:\w+\.)*(\w+)Config$")
_LAST_LAYERS = ("For", "LMHead", "MTModel")


def says_otherwise(model: FileModel) -> bool:
    """Whether a program says anything of what its models tie, or trains a few weights alone."""
    return any(_SAYS_OTHERWISE.search(part.text) for part in (model, *model.linked))


def _families() -> list[dict[str, Any]]:
    return catalogue.rows("tied", "family")


@functools.cache
def _by_class() -> dict[str, dict[str, Any]]:
    return {name: row for row in _families() for name in row["classes"]}


@functools.cache
def _checkpoints() -> re.Pattern[str]:
    """Names of checkpoints whose weights are tied, with or without the owner on the hub."""
    names = "|".join(row["checkpoints"] for row in _families() if "checkpoints" in row)
    return re.compile(rf"^([\w.-]+/)?({names})$")


def made(model: FileModel, node: cst.BaseExpression, depth: int = 3) -> Iterator[cst.Call]:
    """The calls that make the model which an expression holds, through functions and objects."""
    for one in [node, *(sources(model, node) or ())]:
        home = model.file_with(one)
        found = [*makers_of(home, one)]
        yield from found
        # ``model.to(device)`` of a parameter
        inner = home.call(one).receiver if isinstance(one, cst.Call) and not found else None
        if inner is not None and depth:
            yield from made(home, inner, depth - 1)


def tied_by(model: FileModel, maker: cst.Call) -> str | None:
    """The class of transformers that ties weights of the model which a call makes, if it does.

    ``GPT2LMHeadModel(config)``, ``AutoModelForCausalLM.from_pretrained("gpt2")``, an object of a
    class of the program that is built on such a one, or of a module that holds and runs it.
    """
    home = model.file_with(maker)
    call = home.call(maker)
    if isinstance(call.target, Class):
        owner = _base(home, call.target)
        if owner is None:
            return _held(home, call.target)
    else:
        cls = makes(call)
        if cls is not None and _is_nano_gpt(home, cls):
            return "nanoGPT's GPT"
        owner = _of_library(home, cls) if cls is not None else None
    if owner is None:
        return None
    row = _by_class().get(owner)
    if row is None and not _AUTO.search(owner):
        return None
    by = "checkpoint" if row is None else row["told_by"]
    return owner if _is_told(home, call, by) else None


def _is_nano_gpt(model: FileModel, cls: cst.BaseExpression) -> bool:
    """``from model import GPTConfig, GPT``, of a file that is not given: one that is, is read."""
    imported = model.names.imported()
    return model.name(cls) == _NANO_GPT[0] and all(name in imported for name in _NANO_GPT)


def _of_library(model: FileModel, cls: cst.BaseExpression) -> str | None:
    """The last part of the name of a class of transformers, or of the one that a class is built on.

    None for a class of the program that puts in its own last layer, or says what it ties.
    """
    name = model.name(cls) or ""
    if name.startswith(_LIBRARY):
        return name.rpartition(".")[2]
    own = model.value(cls).makes
    return _base(model, next(iter(own))) if len(own) == 1 else None


def _base(model: FileModel, cls: Class) -> str | None:
    for one in (cls, *model.parents(cls)):
        if not _HEADS.isdisjoint(model.kept(one)) or not _OWN_TIES.isdisjoint(one.methods):
            return None
    names = (base.rpartition(".") for base in model.library_bases(cls))
    return next((last for package, _, last in names if f"{package}.".startswith(_LIBRARY)), None)


def _held(model: FileModel, cls: Class) -> str | None:
    """``self.lm = GPT2LMHeadModel(config)`` of a module that calls ``self.lm(ids)``."""
    if not model.is_module(cls):
        return None
    run = {
        call.node.func.attr.value
        for method in cls.methods.values()
        for call in model.calls_in(method.node)
        if isinstance(call.node.func, cst.Attribute) and isinstance(call.receiver, cst.Name)
    }
    for name, values in model.kept(cls).items():
        for value in values if name in run else ():
            call = model.call(value) if isinstance(value, cst.Call) else None
            if call is not None and not isinstance(call.target, Class):
                return tied_by(model, call.node)
    return None


def _is_told(model: FileModel, call: CallSite, by: str) -> bool:
    """Whether a call that makes a model says enough to know that its weights are tied."""
    if call.method == "from_pretrained":
        return by == "class" or _is_named(model, call)
    config = call.argument(0, "config")
    read = the_call(model, config) if config is not None else None
    if read is not None and read.method == "from_pretrained":
        return by == "class" or _is_named(model, read)
    new = _CONFIG.search(read.name or "") if read is not None else None
    if new is None or by == "config":
        return new is not None or by == "class"
    return by == "class" or any(
        name.startswith(tuple(f"{new[1]}{last}" for last in _LAST_LAYERS))
        for row in _families()
        for name in (row["classes"] if row["told_by"] != "checkpoint" else ())
    )


def _is_named(model: FileModel, call: CallSite) -> bool:
    """Whether what is read is named, and all that it may be is known to tie its weights."""
    names = checkpoints(model, call)
    return bool(names) and all(_checkpoints().search(name) is not None for name in names)
