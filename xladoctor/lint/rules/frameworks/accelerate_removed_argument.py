"""XLA906: arguments and names that Accelerate no longer has, or does not take on XLA devices."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.model import OnXla, walk
from xladoctor.lint.model.frameworks import ACCELERATOR_CLASS
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._given import given
from xladoctor.lint.rules._handed_over import is_accelerator
from xladoctor.lint.rules._names_gone import names_gone
from xladoctor.lint.rules._questions import old_questions
from xladoctor.lint.rules._tolerated import tolerated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xladoctor.findings import Edit, Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

_ACCELERATOR = ("accelerate.Accelerator", "accelerate.accelerator.Accelerator")
_CONFIGURATION = "accelerate.DataLoaderConfiguration"
#: Arguments that moved into the configuration of loaders with Accelerate 1.0.
_LOADERS = ("dispatch_batches", "even_batches", "use_seedable_sampler", "split_batches")
#: Arguments to the releases that removed them.
_REMOVED = {"fp16": "0.16", "logging_dir": "0.20"}
_TPU_TYPES = frozenset(
    f"accelerate{module}.DistributedType.TPU" for module in ("", ".utils", ".state")
)

#: Accelerate 1.15, utils/operations.py: raises on XLA devices, also for one process.
_GATHER_OBJECTS = ("accelerate.utils.gather_object", "accelerate.utils.operations.gather_object")
#: Methods that give numbers and texts.
_OF_HOST = frozenset({"item", "tolist", "batch_decode", "decode"})
#: Arguments for what trains on GPUs alone.
_FOR_GPUS = frozenset({"deepspeed_plugin", "megatron_lm_plugin"})


@rule("XLA906")
def accelerate_removed_argument(model: FileModel) -> Iterator[Problem]:
    """Find arguments of ``Accelerator`` and names of Accelerate that are gone."""
    if not model.is_xla or model.holds_copy_of("accelerate"):
        return
    yield from old_questions(model, "accelerate")
    yield from names_gone(model, "accelerate")
    for call in model.calls(*_ACCELERATOR):
        yield from _arguments(model, call)
    yield from _gathered_objects(model)
    if model.keeps_old("accelerate"):
        return
    for node in model.nodes(cst.Attribute):
        if node.attr.value in _lost() and _is_its_own(model, node):
            yield model.problem(
                node,
                f"Accelerator of Accelerate 1 has no {node.attr.value}: this raises AttributeError",
                suggestion=f"use {_lost()[node.attr.value]}",
            )
        if model.name(node) in _TPU_TYPES:
            yield model.problem(
                node,
                "Accelerate 1.0 renamed DistributedType.TPU: this raises AttributeError",
                suggestion="write DistributedType.XLA",
                fix=model.fix("Write XLA", model.replace(node.attr, "XLA"), safe=True),
            )


@functools.cache
def _lost() -> Mapping[str, str]:
    """Attribute of Accelerate's object to what to write in its place."""
    rows = catalogue.table("frameworks")["attribute"]
    found = (row for row in rows if row["of"] == _ACCELERATOR[0])
    return {name: row["instead"] for row in found for name in row["names"]}


def _is_its_own(model: FileModel, node: cst.Attribute) -> bool:
    """``accelerator.use_fp16``, where nothing is ready for it to be missing."""
    held = model.value(node.value)
    named = "accelerator" in model.tree.text(node.value).lower()
    is_it = held.type_name == ACCELERATOR_CLASS or ("accelerate" in model.frameworks and named)
    return is_it and not tolerated(model, node)


def _arguments(model: FileModel, call: CallSite) -> Iterator[Problem]:
    asked = given(model, call)
    elsewhere = model.on_xla(call.node) is not OnXla.YES or bool(asked.keys() & _FOR_GPUS)
    for keyword, value in asked.items():
        if keyword in _REMOVED and model.keeps_old("accelerate", _REMOVED[keyword]):
            continue
        if keyword == "fp16" and model.on_xla(call.node) is not OnXla.NO:
            yield model.problem(
                value,
                f"Accelerate {_REMOVED[keyword]} removed fp16: Accelerator raises TypeError",
                suggestion='write mixed_precision="bf16": TPUs have no float16 training',
                fix=_fp16_fix(model, call, value),
            )
        elif keyword == "mixed_precision" and model.literal(value) == "fp16" and not elsewhere:
            yield model.problem(
                value,
                'Accelerate refuses mixed_precision="fp16" on TPUs: Accelerator raises ValueError',
                suggestion='write mixed_precision="bf16"',
                fix=model.fix("Train in bfloat16", model.replace(value, '"bf16"'), safe=False),
            )
        elif keyword == "logging_dir":
            yield model.problem(
                value,
                f"Accelerate {_REMOVED[keyword]} removed logging_dir: Accelerator raises TypeError",
                suggestion="call it project_dir",
                fix=_renamed(model, call, value, "project_dir"),
            )
    gone = not model.keeps_old("accelerate")
    moved = [keyword for keyword in asked if gone and keyword in _LOADERS]
    for keyword in moved:
        ignored = keyword == "split_batches"
        what = (
            "Accelerate 1.0 ignores split_batches here: each core takes a whole batch"
            if ignored
            else f"Accelerate 1.0 removed {keyword} here: Accelerator raises TypeError"
        )
        yield model.problem(
            asked[keyword],
            what,
            suggestion=f"write dataloader_config=DataLoaderConfiguration({keyword}=...)",
            fix=_configured(model, call, moved) if keyword == moved[0] else None,
        )


def _gathered_objects(model: FileModel) -> Iterator[Problem]:
    """``accelerator.gather_for_metrics(texts)``: on XLA devices only tensors can be gathered."""
    for call in (*model.calls(*_GATHER_OBJECTS), *model.methods("gather_for_metrics")):
        if model.on_xla(call.node) is OnXla.NO:
            continue
        if call.name not in _GATHER_OBJECTS:
            given = call.argument(0, "input_data")
            asked = call.argument(1, "use_gather_object")
            objects = asked is not None and model.literal(asked) is True
            if not is_accelerator(model, call) or given is None:
                continue
            if not objects and not _is_no_tensor(model, given):
                continue
        yield model.problem(
            call.node,
            "Accelerate gathers nothing but tensors on XLA devices: this raises "
            "NotImplementedError",
            suggestion="gather the tensors (padded to one length), and make texts and numbers of "
            "them afterwards",
        )


def _is_no_tensor(model: FileModel, node: cst.BaseExpression, depth: int = 3) -> bool:
    """A number, texts, or a list with such a thing in it: what ``.item()`` and decoders give."""
    if isinstance(node, cst.List | cst.Tuple):
        return any(_is_no_tensor(model, one.value, depth) for one in node.elements)
    if isinstance(node, cst.Call):
        call = model.call(node)
        if call.receiver is not None and call.target is None and call.method in _OF_HOST:
            return True
        return call.name in {"builtins.float", "builtins.int", "builtins.str"}
    if isinstance(node, cst.Name) and depth:
        # But for what is made of it: ``texts = gather(texts)``.
        made = [one for one in model.made_of(node) if one is None or node not in walk(one)]
        return bool(made) and all(
            one is not None and _is_no_tensor(model, one, depth - 1) for one in made
        )
    return isinstance(node, cst.SimpleString | cst.FormattedString)


def _renamed(model: FileModel, call: CallSite, value: cst.BaseExpression, new: str) -> Fix | None:
    """The same argument under its new name, if that is not given as well."""
    argument = call.written_as(value)
    if new in call.keywords or argument is None or argument.keyword is None:
        return None
    return model.fix(f"Call it {new}", model.replace(argument.keyword, new), safe=True)


def _fp16_fix(model: FileModel, call: CallSite, value: cst.BaseExpression) -> Fix | None:
    """bfloat16 for ``fp16=True``; ``fp16=False`` asked for what Accelerate does anyway."""
    said = model.literal(value)
    if said is False:
        return model.fix("Remove fp16", model.remove_argument(call.node, value), safe=True)
    argument = call.written_as(value)
    if said is not True or argument is None or "mixed_precision" in call.keywords:
        return None
    written = model.replace(argument, 'mixed_precision="bf16"')
    return model.fix("Train in bfloat16", written, safe=False)


def _configured(model: FileModel, call: CallSite, moved: list[str]) -> Fix | None:
    """All arguments that moved, in a ``DataLoaderConfiguration`` where the first of them stood.

    Unsafe if ``split_batches`` is among them: the program runs without it, with other batches.
    """
    if "dataloader_config" in call.keywords or call.has_star:
        return None
    written = spell(model, call.node, _CONFIGURATION)
    if written is None:
        return None
    spelled, edits = written
    texts = [f"{name}={model.tree.text(call.keywords[name]).strip()}" for name in moved]
    if any("\n" in text for text in texts):
        return None
    first = call.written_as(call.keywords[moved[0]])
    if first is None:
        return None
    changes: list[Edit | None] = [
        model.replace(first, f"dataloader_config={spelled}({', '.join(texts)})"),
        *(model.remove_argument(call.node, call.keywords[name]) for name in moved[1:]),
    ]
    safe = "split_batches" not in moved
    return model.fix("Give the loaders' configuration", *changes, edits, safe=safe)
