"""XLA910: hooks and callbacks that Lightning no longer has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.findings import Edit, Position
from xladoctor.lint import sources
from xladoctor.lint.model import Function, walk
from xladoctor.lint.model.frameworks import (
    LIGHTNING_CALLBACKS,
    LIGHTNING_MODULES,
    LIGHTNING_PACKAGES,
)
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._called_with import misfits
from xladoctor.lint.rules._exact import around
from xladoctor.lint.rules._lightning_gone import (
    assigned_attributes,
    changed_hooks,
    gone_attributes,
    is_module_elsewhere,
)
from xladoctor.lint.rules._lightning_hooks import is_lightning
from xladoctor.lint.rules._lightning_prepared import prepared_by_one

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import Class, FileModel, Problem

#: Old hook: the new one, the step whose outputs the old one got.
_HOOKS = {
    "training_epoch_end": ("on_train_epoch_end", "training_step"),
    "validation_epoch_end": ("on_validation_epoch_end", "validation_step"),
    "test_epoch_end": ("on_test_epoch_end", "test_step"),
}
#: Hooks whose result Lightning once took apart, and the keys that it logged.
_GIVES_BACK = re.compile(r"^(training|validation|test)_(step|step_end|epoch_end|end)$")
_MAGIC = ("log", "progress_bar")
_DATA_MODULE = "lightning.pytorch.LightningDataModule"
#: What Lightning calls, by the classes of its table.
_CALLED_BACK = {
    "lightning.pytorch.LightningModule": LIGHTNING_MODULES,
    "lightning.pytorch.callbacks.Callback": LIGHTNING_CALLBACKS,
    _DATA_MODULE: frozenset({_DATA_MODULE, "lightning.pytorch.core.LightningDataModule"}),
}
_CALLBACKS = frozenset({"lightning.pytorch.callbacks.XLAStatsMonitor"})


@rule("XLA910")
def lightning_removed_hook(model: FileModel) -> Iterator[Problem]:
    """Find hooks that nothing calls, or calls otherwise, and attributes that are gone."""
    if "lightning" not in model.frameworks or not model.is_xla:
        return
    if model.holds_copy_of(*LIGHTNING_PACKAGES):
        return
    has_old = model.keeps_old("lightning")
    for owner in model.classes:
        if not is_lightning(model, owner) and not is_module_elsewhere(model, owner):
            continue
        for name, (new, step) in _HOOKS.items():
            hook = owner.methods.get(name)
            if hook is not None and not has_old:
                yield model.problem(
                    hook.node,
                    f"Lightning 2.0 removed {name}: Trainer.fit raises NotImplementedError",
                    suggestion=f"write {new}(self), and keep what {step} gives in a list",
                    fix=_hook_fix(model, owner, hook),
                )
        yield from () if model.keeps_old("lightning", "1.3") else _returned_keys(model, owner)
        yield from () if has_old else _parameters(model, owner)
    told = [] if has_old else [*changed_hooks(model)]
    yield from told
    nodes = {problem.node for problem in told if problem.node is not None}
    for of, bases in _CALLED_BACK.items():
        yield from misfits(model, of, bases, "Lightning", told=nodes)
    yield from prepared_by_one(model)
    if not has_old:
        yield from gone_attributes(model)
        yield from assigned_attributes(model)
        yield from _callbacks(model)
        yield from _loaded_by_object(model)


def _loaded_by_object(model: FileModel) -> Iterator[Problem]:
    """``module.load_from_checkpoint(path)``: asked of the class, it gives a new module.

    ``_restricted_classmethod`` in ``lightning/pytorch/utilities/model_helpers.py``.
    """
    for call in model.methods("load_from_checkpoint"):
        asked = call.receiver
        own = isinstance(asked, cst.Name) and asked.value in {"self", "cls"}
        if not isinstance(asked, cst.Name | cst.Call) or own:
            continue
        made = model.value(asked).instance
        if made is None or not is_lightning(model, made.cls):
            continue
        if model.method(made.cls, "load_from_checkpoint") is None:
            yield model.problem(
                call.node,
                "load_from_checkpoint makes a new module, and Lightning 2 raises TypeError if an "
                "object is asked for it",
                suggestion=f"{made.cls.name}.load_from_checkpoint(...), whose result is the module",
            )


def _parameters(model: FileModel, owner: Class) -> Iterator[Problem]:
    """``self.hparams = hparams``: a property without a setter."""
    if "hparams" in owner.methods:
        return
    for method in owner.methods.values():
        own = method.parameters[0] if method.parameters else ""
        for node in walk(method.node.body):
            if not isinstance(node, cst.Assign) or model.function_of(node) is not method:
                continue
            target = node.targets[0].target
            if model.tree.text(target).strip() != f"{own}.hparams":
                continue
            given = model.tree.text(node.value).strip()
            text = f"{own}.save_hyperparameters({given})"
            plain = isinstance(node.value, cst.Name) and len(node.targets) == 1
            yield model.problem(
                target,
                "hparams of Lightning's modules is a read-only property: this raises "
                "AttributeError",
                suggestion=f"{own}.save_hyperparameters(...), which fills it",
                fix=model.fix("Save them", model.replace(node, text), safe=False)
                if plain
                else None,
            )


def _returned_keys(model: FileModel, owner: Class) -> Iterator[Problem]:
    """``return {"loss": loss, "log": logs}``: nothing is logged any more.

    Also where a method of the module's own gives it: ``return self.average(outputs, "val")``.
    """
    seen: set[cst.CSTNode] = set()  # what several hooks give back alike
    for name, hook in owner.methods.items():
        if not _GIVES_BACK.search(name):
            continue
        for node in _given_back(model, hook):
            keys = [key for key in _keys(model, node) if key in _MAGIC]
            made = model.assigned_once(node) if isinstance(node, cst.Name) else None
            place = model.parent(node) if made is None else made
            if keys and place is not None and place not in seen:
                seen.add(place)
                told = " and ".join(f'"{key}"' for key in keys)
                yield model.problem(
                    place,
                    f"Lightning ignores {told} in what {name} returns (since 1.3): nothing of "
                    "it is logged",
                    suggestion="self.log(name, value) in the hook",
                )


def _given_back(model: FileModel, hook: Function) -> Iterator[cst.BaseExpression]:
    """What a hook returns, and what a function of the file returns that it hands on."""
    for node in returned(hook):
        function = model.call(node).target if isinstance(node, cst.Call) else None
        if isinstance(function, Function) and function.node in model.tree.order:
            yield from returned(function)
        else:
            yield node


def _keys(model: FileModel, node: cst.BaseExpression | None) -> Iterator[str]:
    """The keys of the dictionary that an expression is, or that a name is bound to once.

    Not one that says whether to log: ``{"loss": loss, "log": step % 50 == 0}``.
    """
    if isinstance(node, cst.Name):
        node = model.assigned_once(node)
    if isinstance(node, cst.Call):
        name = model.name(node.func)
        if name == "builtins.dict":
            yield from (x.keyword.value for x in node.args if x.keyword is not None)
        elif name == "collections.OrderedDict" and node.args:
            yield from _keys(model, node.args[0].value)
    elif isinstance(node, cst.Dict):
        for element in node.elements:
            key = model.literal(element.key) if isinstance(element, cst.DictElement) else None
            if isinstance(key, str) and not isinstance(element.value, cst.Comparison):
                yield key


def _hook_fix(model: FileModel, owner: Class, hook: Function) -> Fix | None:
    """Keep the step's outputs in a list of the module, and take them from there."""
    new, step_name = _HOOKS[hook.name]
    step, start = owner.methods.get(step_name), owner.methods.get("__init__")
    kept = f"{step_name}_outputs"
    if step is None or start is None or len(hook.parameters) != 2:
        return None
    ready = next((c for c in model.calls_of(start) if c.method == "__init__"), None)
    ready_line = _line(model, ready.node) if ready is not None else None
    if ready_line is None or not isinstance(hook.node, cst.FunctionDef):
        return None
    params = hook.node.params.params
    own, given = hook.parameters
    between = Edit("", _end(model, params[0]), _end(model, params[1]))
    edits: list[Edit | None] = [model.replace(hook.node.name, new), between]
    body = hook.node.body
    first = body.body[0] if isinstance(body, cst.IndentedBlock) else None
    if first is None:
        return None
    taken = f"{given}, {own}.{kept} = {own}.{kept}, []"
    edits.append(model.insert_before(first, taken))
    end = model.tree.range(ready_line).end
    indent = " " * model.tree.range(ready_line).start.column
    place = Position(end.line, end.column + 1)
    edits.append(Edit(f"\n{indent}{start.parameters[0]}.{kept} = []", place, place))
    edits += _returns(model, step, kept)
    return model.fix(f"Write {new}", *edits, safe=False)


def _returns(model: FileModel, step: Function, kept: str) -> list[Edit | None]:
    """Keep what a step returns, without the graph that a loss carries along."""
    edits: list[Edit | None] = []
    for node in walk(step.node, into_functions=False):
        if not isinstance(node, cst.Return) or node.value is None:
            continue
        if model.literal(node.value) is None:
            continue  # the step is skipped
        kept_text = _detached(model, node.value)
        if kept_text is None and step.name != "training_step":
            # Computed in the return: once, and kept as it is; there are no gradients here.
            edits += _named(model, node, f"{step.parameters[0]}.{kept}")
            continue
        if kept_text is None or "\n" in kept_text:
            return [None]
        statement = f"{step.parameters[0]}.{kept}.append({kept_text})"
        edits.append(model.insert_before(node, statement))
    return edits or [None]


def _named(model: FileModel, node: cst.Return, kept: str) -> list[Edit | None]:
    assert node.value is not None
    text = model.tree.text(node.value).strip()
    start = model.tree.range(node).start
    indent = sources.rows(model.text)[start.line - 1][: start.column]
    if indent.strip() or model.bindings("output", node):
        return [None]
    content = f"output = {text}\n{indent}{kept}.append(output)\n{indent}return output"
    return [model.replace(node, content)]


def _detached(model: FileModel, value: cst.BaseExpression) -> str | None:
    """An output as it can be kept: names of device tensors detached."""
    text = model.tree.text(value).strip()
    if isinstance(value, cst.Name):
        return f"{text}.detach()" if _may_be_tensor(model, value) else text
    if not isinstance(value, cst.Dict):
        return None
    parts = []
    for element in value.elements:
        if not isinstance(element, cst.DictElement):
            return None
        key, item = (model.tree.text(part).strip() for part in (element.key, element.value))
        if not isinstance(element.value, cst.Name | cst.Attribute):
            return None
        tensor = isinstance(element.value, cst.Name) and _may_be_tensor(model, element.value)
        parts.append(f"{key}: {item}.detach()" if tensor else f"{key}: {item}")
    return f"{{{', '.join(parts)}}}"


def _may_be_tensor(model: FileModel, name: cst.Name) -> bool:
    return model.value(name).is_device_tensor


def _callbacks(model: FileModel) -> Iterator[Problem]:
    """Imports of callbacks that are gone, with their uses in lists."""
    for statement in model.tree.imports:
        if not isinstance(statement, cst.ImportFrom) or isinstance(statement.names, cst.ImportStar):
            continue
        module = model.tree.text(statement.module).strip() if statement.module else ""
        for alias in statement.names:
            dotted = f"{module}.{alias.name.value}".replace(
                "pytorch_lightning", "lightning.pytorch"
            )
            if dotted in _CALLBACKS:
                yield model.problem(
                    alias,
                    f"Lightning removed {alias.name.value}: the import fails",
                    suggestion="leave it out, or use DeviceStatsMonitor",
                    fix=_without(model, statement, alias),
                )


def _without(model: FileModel, statement: cst.ImportFrom, alias: cst.ImportAlias) -> Fix | None:
    names = [] if isinstance(statement.names, cst.ImportStar) else list(statement.names)
    if len(names) < 2 or alias.asname is not None:
        return None
    index = names.index(alias)
    if index:
        edits = [Edit("", _end(model, names[index - 1]), _end(model, alias))]
    else:
        edits = [Edit("", _start(model, alias), _start(model, names[1]))]
    for node in model.nodes(cst.Name):
        if node.value != alias.name.value:
            continue
        call = model.parent(node)
        element = model.parent(call) if isinstance(call, cst.Call) else None
        if call is None or node is alias.name or isinstance(call, cst.ImportAlias):
            continue
        made = model.parent(element) if isinstance(element, cst.Element) else None
        if not isinstance(made, cst.List) or not isinstance(element, cst.Element):
            return None
        place = made.elements.index(element)
        if len(made.elements) == 1:
            edits.append(Edit("", _start(model, element.value), _end(model, element.value)))
        elif place:
            before = made.elements[place - 1].value
            edits.append(Edit("", _end(model, before), _end(model, element.value)))
        else:
            behind = made.elements[1].value
            edits.append(Edit("", _start(model, element.value), _start(model, behind)))
    return model.fix("Leave it out", edits, safe=False)


def _line(model: FileModel, node: cst.CSTNode) -> cst.SimpleStatementLine | None:
    lines = (one for one in around(model, node) if isinstance(one, cst.SimpleStatementLine))
    return next(lines, None)


def _start(model: FileModel, node: cst.CSTNode) -> Position:
    found = model.tree.range(node).start
    return Position(found.line, found.column + 1)


def _end(model: FileModel, node: cst.CSTNode) -> Position:
    found = model.tree.range(node).end
    return Position(found.line, found.column + 1)
