"""What the Trainers of optimum-neuron refuse, and what they need to be told.

They look like those of transformers and stand on them no more: 0.4.5 was read.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.model import Class
from xladoctor.lint.pins import called
from xladoctor.lint.rules._constants import constant
from xladoctor.lint.rules._given import all_given, argument, given
from xladoctor.lint.rules._sources import sources, the_call
from xladoctor.lint.rules._tolerated import tolerated
from xladoctor.lint.rules._training_arguments import OF_NEURON

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Problem

#: What trains, and with what.
_SETTINGS = ("NeuronTrainingArguments", "NeuronSFTConfig")
_TRAINS = "per_device_train_batch_size"
#: What gives the last batch of an epoch the size of the others: stages of a pipeline force it.
_DROPS = frozenset({"dataloader_drop_last", "pipeline_parallel_size"})
_OWN_LOADER = "get_train_dataloader"


def of_neuron(model: FileModel, call: CallSite) -> str:
    """The class of optimum-neuron that a call makes an object of, below the package, or "".

    Also by a class of the program on it that hands on what it is given, and in its ``__init__``.
    """
    name, owner = call.name or "", call.target
    if call.method == "__init__" and call.function is not None and model.is_super(call.receiver):
        owner = call.function.owner if call.function.name == "__init__" else None
    elif isinstance(owner, Class) and "__init__" in owner.methods:
        owner = None  # which may take what it likes
    if isinstance(owner, Class):
        bases = model.library_bases(owner)
        name = bases[0] if len(bases) == 1 else ""
    return name.rpartition(".")[2] if name.startswith(OF_NEURON) else ""


def refused(model: FileModel) -> Iterator[Problem]:
    """``NeuronTrainer(eval_dataset=rows)``, ``NeuronTrainingArguments(eval_strategy="steps")``.

    They take the argument, and raise.
    """
    if model.keeps_old("optimum"):
        return
    for call in model.calls():
        rows = _rows().get(_asked(model, call), {})
        for name, row in rows.items():
            value = argument(model, call, row.get("place", 99), name)
            if value is None or not model.is_here(value) or tolerated(model, call.node):
                continue
            if _is_refused(model, value, row):
                yield model.problem(
                    value,
                    f"{called('optimum')} refuses {name} here: this raises {row['raises']}",
                    suggestion=row["instead"],
                )


def uneven(model: FileModel) -> Iterator[Problem]:
    """``NeuronTrainingArguments`` that leave the last batch of an epoch as small as it is."""
    parts = (model, *model.linked)
    if any(_OWN_LOADER in cls.methods for one in parts for cls in one.classes):
        return
    if not any(of_neuron(one, x).endswith("Trainer") for one in parts for x in one.calls()):
        return
    for call in model.calls():
        if of_neuron(model, call) not in _SETTINGS or isinstance(call.target, Class):
            continue
        named = given(model, call)
        off = "do_train" in named and model.literal(named["do_train"]) is False
        if off or _TRAINS not in named or _DROPS & named.keys():
            continue
        if constant(model, named[_TRAINS]) == 1:
            continue  # which is never smaller
        if all_given(model, call):
            edit = model.add_argument(call.node, "dataloader_drop_last=True")
            yield model.problem(
                call.node.func,
                "the last batch of an epoch may be smaller, and NeuronTrainer ignores "
                "even_batches: a new shape, so neuronx-cc compiles the whole step a second time",
                suggestion="dataloader_drop_last=True",
                fix=model.fix("Add dataloader_drop_last=True", edit, safe=False),
            )


def _asked(model: FileModel, call: CallSite) -> str:
    """The class, or the method of one, of the table that a call is."""
    if call.method == "train" and call.receiver is not None:
        trainer = the_call(model, call.receiver)
        of = of_neuron(model, trainer) if trainer is not None else ""
        return "NeuronTrainer.train" if of.endswith("Trainer") else ""
    return of_neuron(model, call)


def _is_refused(model: FileModel, value: cst.BaseExpression, row: Mapping[str, Any]) -> bool:
    """Whether all that an argument may be is refused."""
    made = sources(model, value)
    said = [constant(model, one) for one in made or (value,)]
    if "values" in row:
        return all(one in row["values"] for one in said)
    if "kept" in row:
        return all(isinstance(one, str) and one not in row["kept"] for one in said)
    # ``args.resume``, which nobody sees, is None unless somebody gives it.
    unseen = any(
        one is NotImplemented and isinstance(node, cst.Attribute)
        for node, one in zip(made or (), said, strict=False)
    )
    return bool(made) and not unseen and None not in said and False not in said


@functools.cache
def _rows() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Class or method to what it refuses, by the argument."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    rows: Sequence[Mapping[str, Any]] = catalogue.table("frameworks")["refused"]
    for row in rows:
        for of, name in itertools.product(row["of"], row["names"]):
            found.setdefault(of.removeprefix(OF_NEURON), {})[name] = row
    return found
