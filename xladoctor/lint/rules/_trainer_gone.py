"""What transformers no longer takes, has or calls: arguments, attributes, methods."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.model import Class, OnXla
from xladoctor.lint.model.dotted import imported
from xladoctor.lint.model.frameworks import TRAINERS
from xladoctor.lint.model.purpose import TRAINER_PACKAGES
from xladoctor.lint.pins import called
from xladoctor.lint.rules._distinct import defines, has_it, is_distinct
from xladoctor.lint.rules._given import given
from xladoctor.lint.rules._handed_over import extends_trainer, is_trainer
from xladoctor.lint.rules._itself import whose
from xladoctor.lint.rules._neuron_trainer import of_neuron
from xladoctor.lint.rules._parsed_settings import parsed_settings
from xladoctor.lint.rules._sources import sources, the_call
from xladoctor.lint.rules._tokenized import tokenizes
from xladoctor.lint.rules._tolerated import tolerated
from xladoctor.lint.rules._training_arguments import (
    ARGUMENTS,
    OF_NEURON,
    fields,
    is_training_arguments,
    makes_own,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xladoctor.lint.model import CallSite, FileModel, Problem

_TRAINER = "transformers.Trainer"
_ARGUMENTS = "transformers.TrainingArguments"
_TOKENIZER = "tokenizer"
_TRAIN = f"{_TRAINER}.train"
_PADDING = "pad_to_max_length"
_TOKENIZERS = "transformers.PreTrainedTokenizerBase"
#: ``AutoTokenizer.from_pretrained(...)``, ``BertTokenizerFast(...)``.
_TOKENIZER_OF = re.compile(r"transformers\.(.+\.)?\w*Tokenizer(Fast)?(\.from_pretrained)?$")
#: Methods of the Trainer that transformers renamed in 4.0, and what they are called today.
RENAMED = {
    "is_world_master": "is_world_process_zero",
    "is_local_master": "is_local_process_zero",
}
#: What may hold the arguments of a Trainer.
_HOLDERS = cst.Name | cst.Attribute | cst.Subscript
#: What has lost attributes that are called like nothing else, and what messages call it.
_NAMED_ALONE = {
    _TOKENIZERS: "tokenizers",
    "transformers.PreTrainedConfig": "configurations and models",
}
#: What programs build classes on: what messages call it, and the names of such classes.
_BUILT_ON = {
    "transformers.PreTrainedModel": (
        "models",
        re.compile(r"\.(?!DataCollator)\w*(PreTrainedModel|Model|LMHeadModel|For[A-Z]\w+)$"),
    ),
    "transformers.DataCollatorForLanguageModeling": (
        "collators",
        re.compile(r"\.DataCollatorFor(LanguageModeling|WholeWordMask)$"),
    ),
}


def gone_arguments(model: FileModel) -> Iterator[Problem]:
    """``Trainer(prediction_loss_only=True)``, ``trainer.train(model_path=path)``."""
    for call in model.calls():
        for of in _which(model, call):
            for name, value in given(model, call).items():
                if name not in _lost_arguments(of) or not model.is_here(value):
                    continue
                if of == _ARGUMENTS and _declares(model, call, name):
                    continue
                if name == _TOKENIZER and of == _TRAINER and not _is_of_transformers(model, call):
                    continue  # Trainers of other packages may still take it
                framework = of.partition(".")[0]
                if model.keeps_old(framework):
                    continue
                yield model.problem(
                    value,
                    f"{called(framework)} no longer takes {name} here: this raises TypeError",
                    suggestion=_lost_arguments(of)[name],
                )


def gone_keys(model: FileModel) -> Iterator[Problem]:
    """``parser.parse_dict({"overwrite_output_dir": True, ...})``."""
    gone = _lost_arguments(_ARGUMENTS)
    for parsed in parsed_settings(model):
        for name in parsed.named.keys() & gone.keys() if parsed.strict else ():
            yield model.problem(
                parsed.named[name],
                f"transformers 5 no longer has {name}: parse_dict raises ValueError for such a key",
                suggestion=gone[name],
            )


def _is_of_transformers(model: FileModel, call: CallSite) -> bool:
    """Whether a call makes a Trainer of transformers itself, or of a class on it."""
    owner = _begun_in(model, call)
    if owner is not None:
        return _is_plain(model, owner)
    made = model.value(call.node).instance
    names = model.library_bases(made.cls) if made is not None else [call.name or ""]
    return all(name.startswith("transformers.") for name in names)


def _is_plain(model: FileModel, owner: Class) -> bool:
    """Whether a class stands on Trainers of transformers alone, none of another package."""
    return all(name.startswith("transformers.") for name in model.library_bases(owner))


def _which(model: FileModel, call: CallSite) -> Iterator[str]:
    """What a call is in the table; a class of the program may take what it likes."""
    package = (call.name or "").partition(".")[0]
    neuron = of_neuron(model, call)
    if neuron:
        yield f"optimum.{neuron}"
        return
    if package != "transformers":
        yield f"{package}.{call.last}"  # trl.SFTTrainer, however it is imported
    passes_on = call.name in TRAINERS or (is_trainer(model, call) and _passes_all_on(model, call))
    if passes_on or _begun_in(model, call) is not None:
        yield _TRAINER
    elif ARGUMENTS.search(call.name or "") or makes_own(model, call):
        yield _ARGUMENTS
    elif call.method == "train" and call.receiver is not None and _trains(model, call):
        yield _TRAIN


def _trains(model: FileModel, call: CallSite) -> bool:
    """Whether a call of ``train`` is one of a Trainer's, also of one that nobody has read.

    By what that is called, and by what it is asked for: ``trainer.train(model_path=path)``.
    """
    assert call.receiver is not None
    trainer = the_call(model, call.receiver)
    if trainer is not None and is_trainer(model, trainer):
        return not _trains_itself(model, trainer)
    return any(_says_so(model, _TRAIN, name, call.receiver) for name in call.keywords)


def _trains_itself(model: FileModel, trainer: CallSite) -> bool:
    """Whether a class of the program has a ``train`` of its own, with arguments of its own."""
    made = model.value(trainer.node).instance
    return made is not None and model.method(made.cls, "train") is not None


def _declares(model: FileModel, call: CallSite, name: str) -> bool:
    """Whether a class of the program has a field of its own of that name."""
    return isinstance(call.target, Class) and name in fields(model, call.target)


def _begun_in(model: FileModel, call: CallSite) -> Class | None:
    """The class right on the Trainer whose ``__init__`` calls that of the Trainer."""
    function = call.function
    if call.method != "__init__" or function is None or function.name != "__init__":
        return None
    owner = function.owner
    if owner is None or not model.is_super(call.receiver) or len(owner.bases) != 1:
        return None
    return owner if model.name(owner.bases[0]) in TRAINERS else None


def _passes_all_on(model: FileModel, call: CallSite) -> bool:
    """Whether a class on the Trainer hands what it does not name itself to the Trainer."""
    made = model.value(call.node).instance
    start = model.method(made.cls, "__init__") if made is not None else None
    if start is None:
        return made is not None
    node = start.node
    return (
        isinstance(node, cst.FunctionDef)
        and isinstance(node.params.star_kwarg, cst.Param)
        and not _lost_arguments(_TRAINER).keys() & {*start.parameters, *start.keyword_only}
    )


def gone_attributes(model: FileModel) -> Iterator[Problem]:
    """``training_args.tpu_num_cores``, in files of the Trainer that define nothing like it."""
    if "transformers" not in model.frameworks or _has_own_arguments(model):
        return
    gone, elsewhere_too = _lost(_ARGUMENTS), _lost(_ARGUMENTS, "shared")
    for node in model.nodes(cst.Attribute):
        name = node.attr.value
        if name not in gone or not isinstance(node.value, _HOLDERS):
            continue
        known = name not in elsewhere_too or is_training_arguments(model, node.value)
        if not known and not is_distinct(model, _ARGUMENTS, name, node.value):
            continue
        if tolerated(model, node) or has_it(model, name):
            continue
        yield model.problem(
            node,
            f"transformers 5 no longer has {name}: this raises AttributeError",
            suggestion=f"use {gone[name]}",
        )


def _has_own_arguments(model: FileModel) -> bool:
    """``from training_args import TrainingArguments``: a copy of the class, with what it had."""
    named = {
        name
        for node in model.tree.imports
        for name in imported(node)
        if name.endswith(".TrainingArguments")
    }
    return bool(named) and not any(name.partition(".")[0] in TRAINER_PACKAGES for name in named)


def gone_methods(model: FileModel) -> Iterator[Problem]:
    """``self.prediction_loop(...)``, in a class on the Trainer that defines no such method.

    Also of a Trainer that the program has made, ``trainer.tokenizer``, and of one that nobody has
    read, by names that nothing else has: ``trainer.is_world_master()``.
    """
    gone = _lost(_TRAINER)
    for node in model.nodes(cst.Attribute):
        if not isinstance(node, cst.Attribute) or node.attr.value not in gone:
            continue
        if tolerated(model, node) or model.on_xla(node) is OnXla.NO:
            continue  # ``elif self.use_amp: self.scaler.step(...)`` behind the road of TPUs
        name = node.attr.value
        if name in RENAMED and whose(model, node.value) is None:
            continue  # which are told as such
        if lacks(model, node) and not any(defines(one, name) for one in (model, *model.linked)):
            yield model.problem(
                node,
                f"the Trainer of transformers 5 no longer has {name}: this raises AttributeError",
                suggestion=f"use {gone[name]}",
            )


def lacks(model: FileModel, node: cst.Attribute) -> bool:
    """Whether an attribute is asked of a Trainer, and the program's class on it has none such."""
    name, owner = node.attr.value, whose(model, node.value)
    of_others_too = name in _lost(_TRAINER, "shared")
    if owner is None:
        trainer = the_call(model, node.value)
        if trainer is None or not is_trainer(model, trainer):
            return _says_so(model, _TRAINER, name, node.value)
        if not isinstance(trainer.target, Class):
            return (trainer.name or "").startswith("transformers.")
        owner = trainer.target
    if not extends_trainer(model, owner):
        return _says_so(model, _TRAINER, name, node.value)
    if any(base.startswith(OF_NEURON) for base in model.library_bases(owner)):
        return False  # which stands on no other, and has some of them
    if of_others_too and not _is_plain(model, owner):
        return False
    return model.method(owner, name) is None


def _says_so(model: FileModel, of: str, name: str, holder: cst.BaseExpression) -> bool:
    """Whether a name alone says, in a program with transformers, that a Trainer is asked."""
    uses = any(_imports(one) for one in (model, *model.linked))
    return uses and is_distinct(model, of, name, holder)


def gone_elsewhere(model: FileModel) -> Iterator[Problem]:
    """``tokenizer.encode_plus(text)``, ``self.get_head_mask(...)`` of a model of transformers.

    What tokenizers and configurations lost is called like nothing else; of models and collators
    only the program's own classes on them are asked.
    """
    if not any(_imports(one) for one in (model, *model.linked)):
        return
    for node in model.nodes(cst.Attribute):
        name = node.attr.value
        of = next((one for one in _NAMED_ALONE if name in _lost(one)), None)
        if of is None or has_it(model, name):
            found = (one for one in _BUILT_ON if name in _lost(one))
            of = next((one for one in found if _is_asked_of(model, node, one)), None)
        if of is None or tolerated(model, node):
            continue
        if name in _lost(of, "shared") and not _is_tokenizer(model, node.value):
            continue
        what = _NAMED_ALONE.get(of) or _BUILT_ON[of][0]
        yield model.problem(
            node,
            f"{what} of transformers 5 no longer have {name}: this raises AttributeError",
            suggestion=f"use {_lost(of)[name]}",
        )


def ignored_padding(model: FileModel) -> Iterator[Problem]:
    """``tokenizer(text, pad_to_max_length=True)``: taken, and nothing is padded.

    Measured with transformers 5.24: an argument that it does not know is left out in silence.
    """
    if not any(_imports(one) for one in (model, *model.linked)):
        return
    for call in model.calls():
        asked = call.keywords.get(_PADDING)
        if asked is None or model.literal(asked) is False or not model.is_here(asked):
            continue
        known = call.method in _lost(_TOKENIZERS) or tokenizes(model, call)
        if known and call.target is None and not tolerated(model, call.node):
            yield model.problem(
                asked,
                f"transformers 5 ignores {_PADDING}: each text keeps its own length, and each "
                "length is another graph",
                suggestion='padding="max_length"',
            )


def _is_tokenizer(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether transformers made all that an expression may hold, and calls it a tokenizer."""
    found = [
        model.name(one.func) for one in sources(model, node) or () if isinstance(one, cst.Call)
    ]
    return bool(found) and all(_TOKENIZER_OF.match(name or "") for name in found)


def _imports(model: FileModel) -> bool:
    return any(name.partition(".")[0] == "transformers" for name in model.names.imported())


def _is_asked_of(model: FileModel, node: cst.Attribute, of: str) -> bool:
    name = node.attr.value
    return _is_built_on(model, node.value, name, of) or is_distinct(model, of, name, node.value)


def _is_built_on(model: FileModel, node: cst.BaseExpression, name: str, of: str) -> bool:
    """``self`` or ``super()`` in a class on models, or collators, of transformers alone.

    And no class of the program between the two has what is asked for.
    """
    owner = whose(model, node)
    bases = model.library_bases(owner) if owner is not None else ()
    if owner is None or not bases:
        return False
    if model.method(owner, name) is not None or defines(model, name):
        return False
    return all(base.startswith("transformers.") for base in bases) and any(
        _BUILT_ON[of][1].search(base) for base in bases
    )


def old_methods(model: FileModel) -> Iterator[Problem]:
    """``def _training_step`` of a class on the Trainer: nothing calls it."""
    for owner in model.classes:
        if not extends_trainer(model, owner):
            continue
        for name, instead in _lost(_TRAINER).items():
            method = owner.methods.get(name) if instead.isidentifier() else None
            if method is not None and not model.callers(method):
                yield model.problem(
                    method.node,
                    f"the Trainer no longer calls {name}: what it does is silently left out",
                    suggestion=f"write it as {instead}, with the parameters that has",
                )


@functools.cache
def _lost_arguments(of: str) -> Mapping[str, str]:
    """Argument to what to write in its place, of a class or method."""
    rows = catalogue.table("frameworks")["argument"]
    return {name: row["instead"] for row in rows if row["of"] == of for name in row["names"]}


@functools.cache
def _lost(of: str, kind: str = "of") -> Mapping[str, str]:
    """Attribute to what to write in its place, of a class: all, or those of a kind of row."""
    rows = (row for row in catalogue.table("frameworks")["attribute"] if row.get(kind))
    return {name: row["instead"] for row in rows if row["of"] == of for name in row["names"]}
