"""Fixes for Lightning: arguments that its ``Trainer`` no longer takes, values that are logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.findings import Edit, Position
from xladoctor.lint.model import walk
from xladoctor.lint.rules._exact import made_by

if TYPE_CHECKING:
    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, Class, FileModel, Function

#: Arguments with a new name and the same meaning.
_RENAMED = {
    "checkpoint_callback": "enable_checkpointing",
    "replace_sampler_ddp": "use_distributed_sampler",
}
_MODULES = frozenset({"LightningModule", "NeuronLTModule"})
#: Values that ask for what Lightning does anyway.
_DEFAULTS: dict[str, tuple[object, ...]] = {
    "progress_bar_refresh_rate": (None, 1),
    "weights_summary": ("top",),
    "resume_from_checkpoint": (None,),
    "auto_select_gpus": (False,),
    "gpus": (None, 0),
    "ipus": (None, 0),
    "num_processes": (None, 1),
}


def argument_fix(model: FileModel, call: CallSite, name: str) -> Fix | None:
    """What to write for a removed argument; None if it takes more than this call.

    Args:
        model: The file.
        call: ``Trainer(...)`` for XLA devices.
        name: The argument.
    """
    value = call.keywords[name]
    given = model.literal(value)
    argument = call.written_as(value)
    if argument is None:
        return None
    if name in {"tpu_cores", "num_tpu_cores"}:
        return _cores(model, call, argument)
    if name in _RENAMED and (name != "checkpoint_callback" or isinstance(given, bool)):
        text = model.tree.text(value).strip()
        edit = model.replace(argument, f"{_RENAMED[name]}={text}")
        return model.fix(f"Call it {_RENAMED[name]}", edit, safe=True)
    if name == "checkpoint_callback":
        made = made_by(model, value)
        if made is None or not (made.name or "").endswith(".ModelCheckpoint"):
            return None
        return _into_callbacks(model, call, value, model.tree.text(value).strip())
    if given in _DEFAULTS.get(name, ()):
        return model.fix("Leave it out", model.remove_argument(call.node, value), safe=True)
    if name == "progress_bar_refresh_rate" and given == 0:
        edit = model.replace(argument, "enable_progress_bar=False")
        return model.fix("Switch the progress bar off", edit, safe=True)
    if name == "weights_summary" and given is None:
        edit = model.replace(argument, "enable_model_summary=False")
        return model.fix("Switch the summary off", edit, safe=True)
    if name == "progress_bar_refresh_rate" and isinstance(given, int):
        return _callback(model, call, value, f"TQDMProgressBar(refresh_rate={given})")
    if name == "weights_summary" and given == "full":
        return _callback(model, call, value, "ModelSummary(max_depth=-1)")
    return None


def precision_fix(model: FileModel, value: cst.BaseExpression) -> Fix | None:
    """bfloat16 in place of float16."""
    return model.fix("Train in bfloat16", model.replace(value, '"bf16-true"'), safe=False)


def _cores(model: FileModel, call: CallSite, argument: cst.Arg) -> Fix | None:
    """``tpu_cores=8`` as accelerator and devices; a list named one core, counted from 1."""
    cores = model.literal(argument.value)
    if isinstance(argument.value, cst.List) and len(argument.value.elements) == 1:
        number = argument.value.elements[0].value
        if isinstance(number, cst.Name) and "devices" not in call.keywords:
            accelerator = "" if "accelerator" in call.keywords else 'accelerator="tpu", '
            edit = model.replace(argument, f"{accelerator}devices=[{number.value} - 1]")
            return model.fix("Write accelerator and devices", edit, safe=False)
    if isinstance(cores, str) and cores.isdigit():
        cores = int(cores)
    one = isinstance(cores, list) and len(cores) == 1 and isinstance(cores[0], int)
    if "devices" in call.keywords or not (isinstance(cores, int) or one):
        return None
    devices = f"[{cores[0] - 1}]" if isinstance(cores, list) else str(cores)
    accelerator = "" if "accelerator" in call.keywords else 'accelerator="tpu", '
    edit = model.replace(argument, f"{accelerator}devices={devices}")
    return model.fix("Write accelerator and devices", edit, safe=not one)


def _callback(model: FileModel, call: CallSite, value: cst.BaseExpression, made: str) -> Fix | None:
    """Put a callback into the list of callbacks, in place of an argument."""
    func = call.node.func
    if not isinstance(func, cst.Attribute):
        return None
    home = model.tree.text(func.value).strip()
    if model.name(func.value) == "lightning":
        home += ".pytorch"
    return _into_callbacks(model, call, value, f"{home}.callbacks.{made}")


def _into_callbacks(
    model: FileModel, call: CallSite, value: cst.BaseExpression, made: str
) -> Fix | None:
    callbacks = call.keywords.get("callbacks")
    if callbacks is None:
        argument = call.written_as(value)
        if argument is None:
            return None
        return model.fix(
            "Make it a callback", model.replace(argument, f"callbacks=[{made}]"), safe=True
        )
    if not isinstance(callbacks, cst.List) or not callbacks.elements:
        return None
    end = model.tree.range(callbacks.elements[-1].value).end
    place = Position(end.line, end.column + 1)
    added = Edit(f", {made}", place, place)
    return model.fix(
        "Make it a callback", added, model.remove_argument(call.node, value), safe=True
    )


def logged_fix(model: FileModel, call: CallSite) -> Fix | None:
    """``acc = x.item()`` for ``self.log("acc", acc)``: Lightning takes the tensor as well.

    A logged number is worse than its read. Lightning puts it back on the device, where torch_xla
    (2.9) makes a constant of a 0 or a 1 and an input of any other number: cores whose numbers
    differ so build different graphs.

    Args:
        model: The file.
        call: ``x.item()`` in a method of a LightningModule.
    """
    function = call.function
    if function is None or function.owner is None or not is_module(model, function):
        return None
    used: list[cst.CSTNode] = [call.node]
    parent = model.parent(call.node)
    if isinstance(parent, cst.Assign):
        target = parent.targets[0].target
        if len(parent.targets) != 1 or not isinstance(target, cst.Name):
            return None
        if len(model.bindings(target.value, parent)) > 1:
            return None
        used = [
            node
            for node in walk(function.node, into_functions=True)
            if isinstance(node, cst.Name) and node.value == target.value and node is not target
        ]
    if not used or not all(_is_only_logged(model, node) for node in used):
        return None
    assert isinstance(call.node.func, cst.Attribute)
    return model.fix("Log the tensor", model.replace(call.node.func.attr, "detach"), safe=False)


def is_module(model: FileModel, function: Function) -> bool:
    """Whether a function is a method of a LightningModule."""
    if function.owner is None:
        return False
    return not last_parts(model, function.owner).isdisjoint(_MODULES)


def last_parts(model: FileModel, owner: Class) -> set[str]:
    """The last words of what a class inherits from, also by a base of the program."""
    named = {base.rpartition(".")[2] for base in model.library_bases(owner)}
    return named | model.bases(owner)


def _is_only_logged(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a value is given to ``self.log``, or kept under a key that nobody here reads."""
    parent = model.parent(node)
    if isinstance(parent, cst.DictElement) and parent.value is node:
        key = model.literal(parent.key)
        whole = model.parent(model.parent(parent) or parent)
        if isinstance(whole, cst.Arg):
            call = model.parent(whole)
            if isinstance(call, cst.Call) and _is_log(call, "log_dict"):
                return True
        kept = isinstance(whole, cst.Return | cst.Assign | cst.Arg)
        return kept and isinstance(key, str) and not _is_read(model, key)
    if not isinstance(parent, cst.Arg):
        return False
    call = model.parent(parent)
    return isinstance(call, cst.Call) and _is_log(call, "log")


def _is_log(call: cst.Call, name: str) -> bool:
    func = call.func
    return (
        isinstance(func, cst.Attribute)
        and func.attr.value == name
        and isinstance(func.value, cst.Name)
        and func.value.value == "self"
    )


def _is_read(model: FileModel, key: str) -> bool:
    """Whether the file has ``x["key"]`` or ``x.get("key")``."""
    for node in model.nodes(cst.Subscript, cst.Call):
        found: list[cst.BaseExpression] = []
        if isinstance(node, cst.Subscript):
            parts = [part.slice for part in node.slice]
            found = [part.value for part in parts if isinstance(part, cst.Index)]
        elif isinstance(node, cst.Call):
            named = isinstance(node.func, cst.Attribute) and node.func.attr.value in ("get", "pop")
            found = [argument.value for argument in node.args[:1]] if named else []
        if any(model.literal(one) == key for one in found):
            return True
    return False
