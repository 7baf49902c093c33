"""Which methods Lightning runs on each core, and which hooks of a module reach a method."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.dotted import is_name, string
from xladoctor.lint.model.frameworks import LIGHTNING_CALLBACKS, LIGHTNING_EVALS, LIGHTNING_STEPS
from xladoctor.lint.rewrites.lightning import last_parts

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
#: What Lightning itself calls of modules and callbacks, also what it once called.
_LIGHTNINGS = re.compile(
    r"^(on_|configure_|optimizer_|lr_scheduler_|init_|get_|set_|log|(train\w*|val\w*|test|predict|"
    r"tng|eval\w*)_(step|end|epoch_end|step_end|dataloader|dataloaders)|setup|teardown|forward|"
    r"backward|manual_backward|transfer_batch|tbptt|toggle|untoggle|load_state|state_dict|print|"
    r"__\w+__$|enable|disable|total_\w+)"
)
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
    return "LightningModule" in last_parts(model, owner)


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
    if _DATA_MODULE in last_parts(model, owner):
        return function.name in _OF_DATA
    if function.name in _BEFORE or not _is_of_lightning(model, owner):
        return False
    return _LIGHTNINGS.match(function.name) is not None or _is_part(model, function)


def left_to_scripts(model: FileModel, function: Function | None) -> bool:
    """``def draw_frames(self, seeds)`` of a module: no hook, and nothing in the program names it.

    Another script calls it, of a module that no Trainer has moved: it may be anywhere.
    """
    while function is not None and function.owner is None:
        function = function.outer
    if function is None or function.owner is None or not is_lightning(model, function.owner):
        return False
    if _LIGHTNINGS.match(function.name) is not None or _is_part(model, function):
        return False
    # A callback calls it of ``pl_module``, in a file that this one does not import.
    return not any(call.method == function.name for call in model.program.sites.values())


def _is_part(model: FileModel, function: Function) -> bool:
    """Whether methods may call a method: not one that a script asks for, or nothing names."""
    callers = model.callers(function)
    if callers:
        return any(
            call.function is not None and call.function.owner is not None for call in callers
        )
    named = (
        (part, node)
        for part in (model, *model.linked)
        for node in part.nodes(cst.Attribute)
        if node.attr.value == function.name
    )
    return any(not _is_called_by_script(part, node) for part, node in named)


def _is_called_by_script(model: FileModel, node: cst.Attribute) -> bool:
    """``best.test(100)`` in ``main()``, of a module that ``load_from_checkpoint`` gave."""
    function, parent = model.function_of(node), model.parent(node)
    called = isinstance(parent, cst.Call) and parent.func is node
    return called and (function is None or (function.owner is None and function.outer is None))


def _is_of_lightning(model: FileModel, owner: Class) -> bool:
    return is_lightning(model, owner) or not LIGHTNING_CALLBACKS.isdisjoint(
        model.library_bases(owner)
    )


def hooks_of(model: FileModel, node: cst.CSTNode, depth: int = _DEPTH) -> frozenset[str]:
    """The hooks that run a node in a method of a module: that method, or those that call it."""
    function = model.function_of(node)
    if function is None:
        return frozenset()
    found: set[str] = set()
    if function.name in _HOOKS:
        found.add(function.name)
    for call in model.callers(function) if depth and not found else ():
        caller = call.function
        if caller is None or caller is function or caller.owner is None:
            continue
        if _gets_through(model, node, function, call):
            found |= hooks_of(model, call.node, depth - 1)
    trains = _while_training(model, node)
    if trains is not None:
        found = {name for name in found if (name in LIGHTNING_STEPS) is trains}
    return frozenset(found)


def _while_training(model: FileModel, node: cst.CSTNode) -> bool | None:
    """Whether a node runs only under ``if self.training:``, or only under the opposite."""
    for guard in model.guards(node):
        if isinstance(guard.test, cst.Attribute) and guard.test.attr.value == "training":
            return guard.when
    return None


def _gets_through(model: FileModel, node: cst.CSTNode, function: Function, call: CallSite) -> bool:
    """Whether a call may reach a node: of ``if stage == "train":`` by the stage that it gives."""
    for guard in model.guards(node):
        test = guard.test
        if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
            continue
        [asked] = test.comparisons
        given = _given_to(model, test.left, function, call)
        with_what = model.literal(asked.comparator)
        if given is NotImplemented or with_what is NotImplemented:
            continue
        if isinstance(asked.operator, cst.Equal | cst.NotEqual):
            holds = (given == with_what) is isinstance(asked.operator, cst.Equal)
        elif isinstance(asked.operator, cst.In) and isinstance(with_what, list | tuple | set):
            holds = given in with_what
        else:
            continue
        if holds is not guard.when:
            return False
    return True


def _given_to(
    model: FileModel, name: cst.BaseExpression, function: Function, call: CallSite
) -> object:
    """The literal that a call gives to a parameter, or its default."""
    if not isinstance(name, cst.Name) or name.value not in function.parameters or call.has_star:
        return NotImplemented
    given = call.given_to(function, name.value)
    if given is None:
        given = function.default(name.value)
    return NotImplemented if given is None else model.literal(given)


def logged_names(model: FileModel, call: CallSite) -> set[object]:
    """The names under which ``self.log`` logs: ``f"{stage}_loss"`` with what callers give.

    Of ``self.log_dict`` the keys, as far as they are written.
    """
    if call.method == "log_dict":
        logged = call.argument(0, "dictionary")
        return {key for key, _ in (model.value(logged).entries or ())} if logged else set()
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
    given = [one.given_to(function, parameter) for one in model.callers(function)]
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


def logs(model: FileModel) -> Iterator[tuple[CallSite, Function, Class]]:
    """``self.log(...)`` and ``self.log_dict(...)``, with the method and the class they are in."""
    for call in model.methods("log", "log_dict"):
        function = call.function
        if function is None or function.owner is None:
            continue
        if is_name(call.receiver, next(iter(function.parameters), None)):
            yield call, function, function.owner
