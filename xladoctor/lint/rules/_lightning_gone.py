"""Hooks that Lightning 2 calls no more, or with less, and attributes that it no longer has."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.model import Function, walk
from xladoctor.lint.model.dotted import is_name, last_name
from xladoctor.lint.model.frameworks import (
    HELD_TRAINERS,
    LIGHTNING_CALLBACKS,
    LIGHTNING_MODULES,
)
from xladoctor.lint.rules._distinct import extends_unread, is_distinct
from xladoctor.lint.rules._itself import itself
from xladoctor.lint.rules._sources import is_made_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from xladoctor.lint.model import Class, FileModel, Problem

_TRAINER = "lightning.pytorch.Trainer"
#: What old Lightning made a Trainer of.
FROM_OPTIONS = f"{_TRAINER}.from_argparse_args"
#: What a program's modules are built on.
MODULE = "lightning.pytorch.LightningModule"
_DATA_MODULE = "lightning.pytorch.LightningDataModule"
#: How many parts the name of an attribute in the table has at most.
_PARTS = 3
#: What a module of Lightning has at least.
_OF_MODULES = frozenset({"training_step"})
_ASSIGNED = cst.AssignTarget | cst.AnnAssign
#: Classes whose methods get the Trainer as ``self.trainer``.
_WITH_TRAINER = LIGHTNING_MODULES | {_DATA_MODULE}


def changed_hooks(model: FileModel) -> Iterator[Problem]:
    """``on_epoch_end``, which nothing calls, and ``training_step(self, batch, i, optimizer_idx)``.

    A method of that name that the program calls itself is its own.
    """
    for owner in model.classes:
        bases = frozenset(model.library_bases(owner))
        known = not bases.isdisjoint(LIGHTNING_MODULES | LIGHTNING_CALLBACKS)
        if not known and not is_module_elsewhere(model, owner):
            continue
        for name, method in owner.methods.items():
            if model.callers(method):
                continue
            if name in _hooks():
                yield model.problem(
                    method.node,
                    f"Lightning 2 has no hook {name}: nothing calls it",
                    suggestion=f"use {_hooks()[name]}",
                )
            yield from _passed_no_more(model, method)


def is_module_elsewhere(model: FileModel, owner: Class) -> bool:
    """``class Net(BaseNet)`` of a file nobody has read, by its step, in a file with Lightning."""
    return owner.methods.keys() >= _OF_MODULES and extends_unread(model, owner)


def _passed_no_more(model: FileModel, method: Function) -> Iterator[Problem]:
    gone = _parameters().get(method.name, {})
    if not isinstance(method.node, cst.FunctionDef):
        return
    for param in method.node.params.params:
        name = param.name.value
        if name in gone and param.default is None:
            yield model.problem(
                param,
                f"Lightning 2 no longer gives {method.name} {name}: Trainer.fit raises",
                suggestion=gone[name],
            )
            return  # one change of the line


def gone_attributes(model: FileModel) -> Iterator[Problem]:
    """``self.trainer.use_tpu``, ``trainer.get_model()``, ``self.use_ddp`` of a module.

    Also what parts of the Trainer have lost: ``trainer.train_dataloader.loaders``; and of a Trainer
    that nobody has read, names that nothing else has.
    """
    for node in model.nodes(cst.Attribute):
        for name, first, of, instead in _lost(node):
            known = _HOLDS[of](model, first) or is_distinct(model, of, name, first.value)
            if not known or _is_given(model, node) or _is_set(model, first):
                continue
            yield model.problem(
                node,
                f"{of.rpartition('.')[2]} of Lightning 2 has no {name}: this raises AttributeError",
                suggestion=f"use {instead}",
            )


def _lost(node: cst.Attribute) -> Iterator[tuple[str, cst.Attribute, str, str]]:
    """The rows of the table that an attribute may be of: name, first part, class, what to write."""
    for name, first in _names_of(node):
        for of, instead in _attributes().get(name, {}).items():
            yield name, first, of, instead


def _names_of(node: cst.Attribute) -> Iterator[tuple[str, cst.Attribute]]:
    """What an attribute may be called, with the first of its parts: ``c``, ``b.c``, ``a.b.c``."""
    name, first = node.attr.value, node
    yield name, first
    for _ in range(_PARTS - 1):
        if not isinstance(first.value, cst.Attribute):
            return
        first = first.value
        name = f"{first.attr.value}.{name}"
        yield name, first


def assigned_attributes(model: FileModel) -> Iterator[Problem]:
    """``trainer.checkpoint_callback = saver``: a property of Lightning 2 without a setter."""
    for node in model.nodes(cst.AssignTarget):
        target = node.target
        if not isinstance(target, cst.Attribute) or target.attr.value not in _read_only():
            continue
        if _is_trainer(model, target):
            name = target.attr.value
            yield model.problem(
                target,
                f"{name} of Lightning 2's Trainer is a read-only property: this raises "
                "AttributeError",
                suggestion=f"use {_read_only()[name]}",
            )


def _is_given(model: FileModel, node: cst.Attribute) -> bool:
    """Whether the program assigns to the attribute, or asks first whether it is there."""
    if isinstance(model.parent(node), cst.AssignTarget | cst.AnnAssign | cst.Del):
        return True
    asked = (call for call in model.calls("builtins.hasattr") if len(call.positional) == 2)
    return any(model.literal(call.positional[1]) == node.attr.value for call in asked)


def _is_set(model: FileModel, node: cst.Attribute) -> bool:
    """Whether the program sets such an attribute on an object that it calls so, ``self`` apart."""
    held = last_name(node.value)
    targets = (one.target for one in model.nodes(cst.AssignTarget))
    return held != "self" and any(
        isinstance(one, cst.Attribute)
        and one.attr.value == node.attr.value
        and last_name(one.value) == held
        for one in targets
    )


def _is_trainer(model: FileModel, node: cst.Attribute) -> bool:
    """``self.trainer`` of a module, ``trainer`` of a callback's hook, what ``Trainer()`` made."""
    held = node.value
    named = [held] if isinstance(held, cst.Name) else []
    if isinstance(held, cst.Attribute):
        # Not ``self.speed = Speed(trainer.logger)``, which is another object.
        kept = (one for one in model.kept_in(held) if not isinstance(one, cst.Call))
        named = [x for one in kept for x in model.within(one, cst.Name)]
    if any(_is_declared(model, one) for one in named):
        return True
    if isinstance(held, cst.Attribute) and held.attr.value in HELD_TRAINERS:
        owner = itself(model, held.value)
        return owner is not None and not _WITH_TRAINER.isdisjoint(model.library_bases(owner))
    if not isinstance(held, cst.Name):
        return False
    function = model.function_of(node)
    owner = function.owner if function is not None else None
    if owner is not None and function is not None and held.value == "trainer":
        given = function.parameters[1:2] == ("trainer",)
        return given and not LIGHTNING_CALLBACKS.isdisjoint(model.library_bases(owner))
    return is_made_in(model, held, {_TRAINER, FROM_OPTIONS})


def _is_declared(model: FileModel, name: cst.Name) -> bool:
    """``trainer: pl.Trainer | None`` of a function that gives the name nothing else."""
    function = model.with_parameter(name) if model.is_parameter(name) else None
    if function is None or len(model.bindings(name.value, name)) != 1:
        return False
    said = function.annotation(name.value)
    return said is not None and any(
        model.name(part) == _TRAINER
        for part in walk(said)
        if isinstance(part, cst.Name | cst.Attribute)
    )


def is_own(model: FileModel, node: cst.Attribute) -> bool:
    """``self`` of a module that has no such attribute itself."""
    owner = itself(model, node.value)
    if owner is None:
        return False
    bases = model.library_bases(owner)
    # A base that nobody has read may have it.
    if not bases or not LIGHTNING_MODULES.issuperset(bases):
        return False
    each = (owner, *model.parents(owner))
    return not any(_has(model, one, node.attr.value) for one in each)


def _is_data_module(model: FileModel, node: cst.Attribute) -> bool:
    """A data module of the program that has no such attribute itself, also ``self`` of it."""
    made = model.value(node.value).instance
    owner = itself(model, node.value) or (made.cls if made is not None else None)
    if owner is None or set(model.library_bases(owner)) != {_DATA_MODULE}:
        return False
    each = (owner, *model.parents(owner))
    return not any(_has(model, one, node.attr.value) for one in each)


def _has(model: FileModel, owner: Class, name: str) -> bool:
    """Whether a class defines an attribute: a method, ``self.x = ...`` or a line of its body."""
    if not {name, "__getattr__"}.isdisjoint(owner.methods) or name in model.kept(owner):
        return True
    given = (part for part in walk(owner.node.body) if isinstance(part, _ASSIGNED))
    return any(is_name(part.target, name) for part in given)


#: Class to what says whether an attribute is asked of such an object.
_HOLDS: Mapping[str, Callable[[FileModel, cst.Attribute], bool]] = {
    _TRAINER: _is_trainer,
    MODULE: is_own,
    _DATA_MODULE: _is_data_module,
}


@functools.cache
def _hooks() -> Mapping[str, str]:
    """Hook to what to write in its place."""
    rows = catalogue.table("frameworks")["hook"]
    return {name: row["instead"] for row in rows for name in row["names"]}


@functools.cache
def _parameters() -> Mapping[str, Mapping[str, str]]:
    """Hook to the parameters that it gets no more, to what to write."""
    found: dict[str, dict[str, str]] = {}
    for row in catalogue.table("frameworks")["parameter"]:
        for hook in row["of"]:
            found.setdefault(hook, {}).update(dict.fromkeys(row["names"], row["instead"]))
    return found


@functools.cache
def _attributes() -> Mapping[str, Mapping[str, str]]:
    """Attribute to the classes that have lost it, to what to write."""
    found: dict[str, dict[str, str]] = {}
    for row in catalogue.table("frameworks")["attribute"]:
        if not row["of"].startswith("lightning."):
            continue
        for name in row["names"]:
            found.setdefault(name, {})[row["of"]] = row["instead"]
    return found


@functools.cache
def _read_only() -> Mapping[str, str]:
    """Property of the Trainer that cannot be assigned to, to what to write."""
    rows = catalogue.table("frameworks")["read_only"]
    return {name: row["instead"] for row in rows if row["of"] == _TRAINER for name in row["names"]}
