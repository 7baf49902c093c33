"""Which methods Lightning runs on each core, and which hooks of a module reach a method."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.dotted import string
from xladoctor.lint.model.knowledge import (
    LIGHTNING_CALLBACKS,
    LIGHTNING_EVALS,
    LIGHTNING_STEPS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, Class, FileModel, Function

#: Through how many calls a hook is looked for.
_DEPTH = 3
#: Methods of modules and callbacks that run before the cores, or in one process of a host.
_BEFORE = frozenset({"__init__", "prepare_data"})
_OF_DATA = frozenset(
    {
        "setup", "teardown", "train_dataloader", "val_dataloader", "test_dataloader",
        "predict_dataloader",
    }
)  # fmt: skip
_DATA_MODULE = "LightningDataModule"
#: Hooks behind an evaluation.
EVALUATED = frozenset(
    {
        "on_validation_epoch_end", "on_test_epoch_end", "validation_epoch_end", "test_epoch_end",
        "on_validation_end", "on_test_end",
    }
)  # fmt: skip
_HOOKS = (
    LIGHTNING_STEPS | LIGHTNING_EVALS | EVALUATED | {"training_epoch_end", "on_train_epoch_end"}
)


def is_lightning(model: FileModel, owner: Class) -> bool:
    """Whether the objects of a class are modules of Lightning, also by a base of the program."""
    return "LightningModule" in _last_parts(model, owner)


def _last_parts(model: FileModel, owner: Class) -> set[str]:
    named = {base.rpartition(".")[2] for base in model.library_bases(owner)}
    return named | model.bases(owner)


def run_by_lightning(model: FileModel, function: Function, depth: int = _DEPTH) -> Function | None:
    """The method of a module or callback that Lightning runs on each core, and that calls this."""
    owner = function.owner
    if owner is not None and _runs(model, owner, function):
        return function
    if owner is not None and function.name in _BEFORE and _is_of_lightning(model, owner):
        return None
    callers = model.callers(function) if depth else ()
    around = (call.function for call in callers)
    found = (run_by_lightning(model, one, depth - 1) for one in around if one is not None)
    return next((one for one in found if one is not None), None)


def _runs(model: FileModel, owner: Class, function: Function) -> bool:
    if _DATA_MODULE in _last_parts(model, owner):
        return function.name in _OF_DATA
    return function.name not in _BEFORE and _is_of_lightning(model, owner)


def _is_of_lightning(model: FileModel, owner: Class) -> bool:
    return is_lightning(model, owner) or not LIGHTNING_CALLBACKS.isdisjoint(
        model.library_bases(owner)
    )


def hooks_of(model: FileModel, function: Function, depth: int = _DEPTH) -> frozenset[str]:
    """The hooks that run a method of a module: itself, or those that call it."""
    if function.name in _HOOKS:
        return frozenset({function.name})
    found: set[str] = set()
    for call in model.callers(function) if depth else ():
        caller = call.function
        if caller is not None and caller is not function and caller.owner is not None:
            found |= hooks_of(model, caller, depth - 1)
    return frozenset(found)


def logged_names(model: FileModel, call: CallSite) -> set[object]:
    """The names under which ``self.log`` logs: ``f"{stage}_loss"`` with what callers give."""
    name = call.argument(0, "name")
    if name is None:
        return set()
    literal = model.literal(name)
    if literal is not NotImplemented:
        return {literal}
    function = call.function
    asked = {part.value for part in walk(name) if isinstance(part, cst.Name)}
    if function is None or len(asked) != 1:
        return set()
    [parameter] = asked
    if parameter not in function.parameters:
        return set()
    place = function.parameters.index(parameter) - 1
    given = [one.argument(place, parameter) for one in model.callers(function)]
    said = (model.literal(one) for one in given if one is not None)
    return {
        text
        for one in said
        if isinstance(one, str) and (text := _spelled(name, parameter, one)) is not None
    }


def _spelled(name: cst.BaseExpression, parameter: str, given: str) -> str | None:
    """``f"{stage}_loss"`` and ``stage + "_loss"`` with a text for the parameter."""
    if isinstance(name, cst.FormattedString):
        parts = [_part(part, parameter, given) for part in name.parts]
        return None if None in parts else "".join(part for part in parts if part is not None)
    if isinstance(name, cst.BinaryOperation) and isinstance(name.operator, cst.Add):
        sides = [_spelled(side, parameter, given) for side in (name.left, name.right)]
        return None if None in sides else "".join(side for side in sides if side is not None)
    if isinstance(name, cst.Name):
        return given if name.value == parameter else None
    return str(string(name)) if isinstance(name, cst.SimpleString) else None


def _part(part: cst.BaseFormattedStringContent, parameter: str, given: str) -> str | None:
    if isinstance(part, cst.FormattedStringText):
        return part.value
    assert isinstance(part, cst.FormattedStringExpression)
    return _spelled(part.expression, parameter, given)


def logs(model: FileModel, owner: Class) -> Iterator[CallSite]:
    """``self.log(...)`` and ``self.log_dict(...)`` in the methods of a module."""
    for call in model.methods("log", "log_dict"):
        function = call.function
        if function is None or function.owner is not owner or not function.parameters:
            continue
        if isinstance(call.receiver, cst.Name) and call.receiver.value == function.parameters[0]:
            yield call
