"""Models of transformers that read their attention mask on the host in each forward pass."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import libcst as cst

from xladoctor import catalogue, patterns
from xladoctor.lint.model.knowledge import FSDP_CLASS
from xladoctor.lint.rules._cuda import runs_with_xla
from xladoctor.lint.rules._handed_over import handed_over
from xladoctor.lint.rules._heads import ADAPTERS
from xladoctor.lint.rules._pretrained import checkpoints, library_class, takes_from
from xladoctor.lint.rules._reads import costly_loop, loop_place, often
from xladoctor.lint.rules._settled import settled
from xladoctor.lint.rules._tied import made

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem
    from xladoctor.lint.model.problems import Place
    from xladoctor.lint.model.values import Value

_LIBRARY = "transformers."
_MASK = "attention_mask"
#: Classes that make a model of the kind that a checkpoint or a configuration says.
_AUTO = patterns.lazy(r"^AutoModel(For\w+|WithLMHead)?$")
_IMPLEMENTATION = "attn_implementation"
_AROUND = frozenset({FSDP_CLASS, "SpmdFullyShardedDataParallel", "DistributedDataParallel"})
_OF_NEURON = ("optimum.neuron", "neuronx_distributed", "transformers_neuronx")
#: Attention that is computed as it is written, and needs no answer from the host.
_WRITTEN_OUT = "eager"
#: What tokenizers are called with: they give an attention mask unless they are told not to.
_TOKENIZES = patterns.lazy(r"attention_mask|\btokenizer\w*\(")
#: Where they give none, or where it gets its four dimensions.
_NO_MASK = patterns.lazy(
    r"return_attention_mask\s*=\s*False|attention_mask\W{0,4}\[:, ?None, ?None"
)


class Asked(NamedTuple):
    """A forward pass that asks on the host what its mask hides.

    Attributes:
        name: The class of the model.
        sure: Whether its kind is known; of ``AutoModelForCausalLM`` with a checkpoint that an
            option names, most are.
        always: Whether it also asks with ``attn_implementation="eager"``.
        maker: The call that makes the model.
    """

    name: str
    sure: bool
    always: bool
    maker: cst.Call

    @property
    def causal(self) -> bool:
        """Whether its mask also hides later tokens: one that is given whole would have to, too."""
        return self.name.endswith(("ForCausalLM", "LMHeadModel", "LMHead"))


def _families() -> list[dict[str, Any]]:
    return catalogue.rows("masks", "family")


@functools.cache
def _by_class() -> dict[str, dict[str, Any]]:
    return {name: row for row in _families() for name in row["classes"]}


@functools.cache
def _by_kind() -> dict[str, dict[str, Any] | None]:
    """Kinds of model, without what names are joined by, to their rows; None for those that do not.

    Of a kind with two rows the first counts.
    """
    rows = {_plain(row["type"]): row for row in reversed(_families())}
    return {_plain(kind): None for kind in catalogue.table("masks")["silent"]} | rows


@functools.cache
def _types() -> re.Pattern[str]:
    """Kinds of model in the names of checkpoints: "gemma2" of "gemma-2-9b", not of "gemma-2b"."""
    types = {row["type"] for row in _families()}
    kinds = sorted(types.union(catalogue.table("masks")["silent"]), key=len, reverse=True)
    written = (r"[-_.]?".join(re.findall(r"[a-z]+|[0-9]+", kind)) for kind in kinds)
    return re.compile("|".join(f"{one}(?![0-9.]*b(?![a-z]))" for one in written))


def _plain(text: str) -> str:
    return re.sub(r"[-_.]", "", text.lower())


def masks_that_are_read(model: FileModel) -> Iterator[Problem]:
    """``model(ids, attention_mask=mask)``: transformers asks on the host whether it hides any."""
    told = False
    for call, asked in _asking(model):
        loop = costly_loop(model, call.node)
        if loop is not None:
            told = True
            related = [model.place(asked.maker, "made here"), loop_place(model, loop)]
            yield _problem(model, call.node, asked, often(loop), related)
    for call, asked in () if told else _asking_under_trainers(model):
        at_maker = not asked.always and model.is_here(asked.maker)
        where, other = (asked.maker, call.node) if at_maker else (call.node, asked.maker)
        related = [model.place(other, "trained here" if at_maker else "made here")]
        yield _problem(model, where, asked, "in each forward pass", related)


def _problem(
    model: FileModel, node: cst.CSTNode, asked: Asked, when: str, related: list[Place]
) -> Problem:
    who = asked.name if asked.sure else f"most models behind {asked.name}"
    if not asked.always:
        # Without a mask such a model looks for packed texts, where it keeps no cache.
        instead = 'give attn_implementation="eager" where the model is made, and the mask as it is'
    else:
        instead = "leave attention_mask out where no batch is padded"
        if not asked.causal:
            instead += ", or give it as mask[:, None, None, :].bool(), which sdpa attention takes"
    return model.problem(
        node,
        f"{who} {'reads' if asked.sure else 'read'} attention_mask on the host {when}, to see "
        "whether it hides anything: the host waits and the graph is cut there",
        suggestion=instead,
        related=related,
    )


def _asking(model: FileModel) -> Iterator[tuple[CallSite, Asked]]:
    """The forward passes of models of transformers, on the device, that read their mask."""
    if not takes_from(model, _LIBRARY) or _has_its_own(model):
        return
    for call in model.calls():
        if call.target is not None or not _gives_mask(model, call):
            continue
        asked = _asked_by(model, call)
        if asked is None:
            continue
        given = (model.value(argument.value) for argument in call.node.args)
        held = model.value(call.node.func)
        if held.on_device or any(one.holds_device_tensor for one in given):
            yield call, asked


def _has_its_own(model: FileModel) -> bool:
    """Whether optimum-neuron or neuronx_distributed puts models of its own in their place."""
    return any(takes_from(model, package) for package in _OF_NEURON)


def _asking_under_trainers(model: FileModel) -> Iterator[tuple[CallSite, Asked]]:
    """The Trainers of transformers whose model reads the mask that a tokenizer has made."""
    if not model.is_xla or not model.once(_tokenizes) or _has_its_own(model):
        return
    for call, given in handed_over(model):
        if call.method == "prepare" or not runs_with_xla(model, call.node):
            continue
        asked = _read_by(model, given)
        if asked is not None and asked.sure:
            yield call, asked


def _gives_mask(model: FileModel, call: CallSite) -> bool:
    """Whether a call is given a mask: by its name, second, or within ``**batch``."""
    mask = call.keywords.get(_MASK)
    if mask is not None:
        return not _is_none(model, mask) and not _has_dimensions(model, mask)
    if len(call.positional) > 1:
        return True
    batches = [model.value(one.value) for one in call.node.args if one.star == "**"]
    return any(not _is_without(one) for one in batches) and model.once(_tokenizes)


def _is_without(batch: Value) -> bool:
    """``{"input_ids": ids, "labels": ids}``: all of its keys are known, and none is the mask."""
    keys = [key for key, _ in batch.entries or ()]
    return bool(keys) and _MASK not in keys


def _is_none(model: FileModel, node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) and model.literal(node) is None


def _has_dimensions(model: FileModel, mask: cst.BaseExpression) -> bool:
    """``mask[:, None, None, :]``: what has four dimensions is taken as it is."""
    parts = [mask, *(model.assigned_to(mask) if isinstance(mask, cst.Name) else ())]
    return any(
        model.tree.text(part).count("None") > 1 or model.tree.text(part).count("unsqueeze") > 1
        for part in parts
    )


def _tokenizes(model: FileModel) -> bool:
    texts = [part.text for part in (model, *model.linked)]
    return any(_TOKENIZES.search(text) for text in texts) and not any(
        _NO_MASK.search(text) for text in texts
    )


def _asked_by(model: FileModel, call: CallSite) -> Asked | None:
    """The model that a call runs, if it reads the mask that it is given."""
    asked = _read_by(model, call.node.func)
    by_place = _MASK not in call.keywords and len(call.positional) > 1
    return None if asked is not None and by_place and asked.name not in _second() else asked


def _read_by(model: FileModel, held: cst.BaseExpression) -> Asked | None:
    """The model that an expression holds, if it reads its mask; all that it may be have to."""
    found = [_of_maker(model, maker) for maker in makers(model, held)]
    return found[0] if found and all(one is not None for one in found) else None


@functools.cache
def _second() -> frozenset[str]:
    """Classes whose forward pass takes the mask as its second argument."""
    return frozenset(name for row in _families() for name in row.get("second", ()))


def makers(model: FileModel, node: cst.BaseExpression) -> Iterator[cst.Call]:
    """The calls that make the model which an expression holds, through what wraps it."""
    waiting, seen = [node], set()
    while waiting:
        for maker in made(model, waiting.pop()):
            if maker in seen:
                continue
            seen.add(maker)
            if _wraps(model.file_with(maker).call(maker)):
                waiting.append(maker.args[0].value)
            else:
                yield maker


def _wraps(call: CallSite) -> bool:
    """``get_peft_model(net, config)`` and ``FSDP(net)``, which run ``net``."""
    if not call.node.args or call.node.args[0].star:
        return False
    return call.name in ADAPTERS or call.last in _AROUND


def _of_maker(model: FileModel, maker: cst.Call) -> Asked | None:
    name = library_class(model, maker, _LIBRARY)
    if name is None:
        return None
    home = model.file_with(maker)
    call = home.call(maker)
    row, sure = _by_class().get(name), True
    if row is None and _AUTO.search(name):
        kind = _kind(home, call)
        sure = kind in _by_kind()
        row = _by_kind().get(kind, {"eager": True})
    if row is None or (not row["eager"] and _is_written_out(home, call)):
        return None
    return Asked(name, sure, row["eager"], maker)


def _kind(model: FileModel, call: CallSite) -> str:
    """The kind of model that a checkpoint is of, by its name; "" if that does not tell."""
    names = (name.rpartition("/")[2].lower() for name in checkpoints(model, call))
    found = [_types().search(name) for name in names]
    kinds = {_plain(match[0]) if match is not None else "" for match in found}
    return kinds.pop() if len(kinds) == 1 else ""


def _is_written_out(model: FileModel, call: CallSite) -> bool:
    """``attn_implementation="eager"``, where the model is made or in its configuration."""
    given = call.keywords.get(_IMPLEMENTATION)
    if given is not None:
        return {*settled(model, given)} == {_WRITTEN_OUT}
    return any(
        _WRITTEN_OUT in part.text and _IMPLEMENTATION in part.text
        for part in (model, *model.linked)
    )
