"""XLA721: a checkpoint that remembers the XLA device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, Kind, OnXla, walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.frameworks import LIGHTNING_CALLBACKS
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import given_last, in_order, made_by, same_name
from xladoctor.lint.rules._handed_over import handed_over, is_trainer
from xladoctor.lint.rules._lightning_hooks import is_lightning
from xladoctor.lint.rules._reads import not_here
from xladoctor.lint.rules._saved_parameters import gone_over, listed
from xladoctor.lint.rules._sources import the_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

_RECORDS = (
    "torch.save records the XLA device of every tensor: the file cannot be loaded where there is no"
    " such device"
)
_RAISES = (
    "torch.save cannot write a generator (TypeError: cannot pickle), and of a list of these "
    "parameters it would record the XLA device"
)
#: Dictionaries within helpers within dictionaries.
_DEPTH = 4
#: Classes of other packages that write checkpoints with ``torch.save`` (timm 1.0).
_SAVERS = frozenset({"timm.utils.CheckpointSaver", "timm.utils.checkpoint_saver.CheckpointSaver"})
#: Calls of torch_xla that an optimizer on the device is given for its steps.
_STEPS = (
    "torch_xla.core.xla_model.optimizer_step",
    "torch_xla.core.xla_model.reduce_gradients",
)
#: Methods that give a module back where it is, unless they are given a device.
_STAY = frozenset(
    {"bfloat16", "double", "eval", "float", "half", "requires_grad_", "to", "train", "type"}
)
#: Hooks that run while the module is on the device: Lightning brings it back behind ``fit``.
_WHILE_TRAINING = re.compile(
    r"^on_(train|validation|test|batch|epoch|before|after)_|^(training|validation|test)_(step|epoch)"
)
#: What gives a dictionary of the same tensors, or of new ones on the same device.
_COPIES = frozenset({"copy.copy", "copy.deepcopy", "collections.OrderedDict"})
#: What tests for one process are called, in projects that are not seen whole.
_PICKS_CORES = re.compile(
    r"(?i)rank|ordinal|master|(?<!__)main|process|chief|leader|primary|is_zero"
)


@rule("XLA721")
def saved_device_tensors(model: FileModel) -> Iterator[Problem]:
    """Find ``torch.save`` of a model or optimizer on the XLA device, or of its state."""
    # Accelerate and the Trainer have functions of their own for it; ``torch.save`` is none of them.
    if not model.is_xla:
        return
    led = "lightning" in model.led_by
    for call in model.calls("torch.save"):
        if led and not _in_hook(model, call):
            continue  # behind ``trainer.fit`` all is on the host
        data = call.argument(0, "obj")
        saved = _passed_on(model, call) if data is None else [data]
        if not_here(model, call.node) or _is_of_other_fsdp(model, call):
            continue
        states = (item for one in saved for item in _states(model, one))
        there = _moved_by_lightning if led else _on_device
        holder = next((item for item in states if there(model, call, item)), None)
        if holder is None:
            continue
        raises = any(gone_over(model, one) is holder for one in saved)
        whole = holder is data or raises
        yield model.problem(
            call.node,
            _RAISES if raises else _RECORDS,
            suggestion="xm.save(model.state_dict(), path), on all cores: it copies to the host and "
            "writes on the master",
            fix=None if whole else _fix(model, call),
        )
    if not led:
        yield from _by_saver(model)


def _is_of_other_fsdp(model: FileModel, call: CallSite) -> bool:
    """``with FSDP.state_dict_type(model, ...):``, which torch_xla's FSDP does not have."""
    around = (one for one in model.tree.ancestors(call.node) if isinstance(one, cst.With))
    items = (item.item for one in around for item in one.items)
    return any(
        isinstance(item, cst.Call) and model.call(item).last == "state_dict_type" for item in items
    )


def _in_hook(model: FileModel, call: CallSite) -> bool:
    """Whether the Trainer saves while it trains: in a hook, or in what a hook calls."""
    return call.function is not None and _trains_around(model, call.function, _DEPTH)


def _trains_around(model: FileModel, function: Function, depth: int) -> bool:
    """Whether a function is a hook between the start and the end of a training, or run by one."""
    owner = function.owner
    if owner is not None and _WHILE_TRAINING.match(function.name):
        heard = not LIGHTNING_CALLBACKS.isdisjoint(model.library_bases(owner))
        return heard or is_lightning(model, owner)
    callers = (call.function for call in model.callers(function)) if depth else ()
    return any(_trains_around(model, one, depth - 1) for one in callers if one is not None)


def _passed_on(model: FileModel, call: CallSite) -> Iterator[cst.BaseExpression]:
    """``def save_on_master(*args): torch.save(*args)``: what its calls give first."""
    function, first = call.function, next(iter(call.node.args), None)
    if function is None or function.parameters or first is None or first.star != "*":
        return
    star = function.node.params.star_arg
    if isinstance(star, cst.Param) and is_name(first.value, star.name.value):
        yield from (caller.positional[0] for caller in model.callers(function) if caller.positional)


def _by_saver(model: FileModel) -> Iterator[Problem]:
    """``saver.save_checkpoint(epoch, metric)`` of timm, which calls ``torch.save`` itself."""
    for call in model.methods("save_checkpoint"):
        saver = model.value(call.receiver) if call.receiver is not None else None
        if (
            saver is None
            or saver.type_name not in _SAVERS
            or not isinstance(saver.origin, cst.Call)
        ):
            continue
        if not model.is_here(saver.origin) or model.on_xla(call.node) is OnXla.NO:
            continue
        holder = model.call(saver.origin).argument(0, "model")
        if holder is not None and _on_device(model, call, holder):
            yield model.problem(
                call.node,
                "timm's saver writes with torch.save, which records the XLA device of every "
                "tensor: the file cannot be loaded where there is no such device",
                suggestion="xm.save(model.state_dict(), path), on all cores",
                related=[model.place(saver.origin, "the saver, of a model on the device")],
            )


def _states(
    model: FileModel, data: cst.BaseExpression, depth: int = _DEPTH
) -> Iterator[cst.BaseExpression]:
    """The models that are saved, or their ``state_dict()``: also in a dictionary, by a helper."""
    if depth == 0:
        return
    if model.value(data).kind is Kind.MODEL:
        yield data
        return
    alone = gone_over(model, data) or listed(model, data)
    if alone is not None:
        yield alone
        return
    last = given_last(model, data) if isinstance(data, cst.Name) else None
    made = model.call(last) if isinstance(last, cst.Call) else made_by(model, data)
    holder = _state_of(made) if made is not None else None
    if holder is not None:
        yield from [] if _fetched_one_by_one(model, data) else [holder]
        return
    for value in _parts(model, data, made):
        yield from _states(model, value, depth - 1)


def _parts(
    model: FileModel, data: cst.BaseExpression, made: CallSite | None
) -> Iterable[cst.BaseExpression]:
    """What holds the states: the values of a dictionary, what a helper returns or is given."""
    if isinstance(data, cst.Dict):
        return [element.value for element in data.elements]
    if made is None and isinstance(data, cst.Name):
        return (*_put_into(model, data), *_handed(model, data))
    if made is None:
        return ()
    if made.name == "builtins.dict":
        return made.keywords.values()
    if made.name in _COPIES:
        return made.positional[:1]
    return returned(made.target) if isinstance(made.target, Function) else ()


def _fetched_one_by_one(model: FileModel, data: cst.BaseExpression) -> bool:
    """``for key, value in state.items(): state[key] = value.cpu()``, of all that is saved."""
    if not isinstance(data, cst.Name):
        return False
    for line in model.nodes(cst.Assign):
        place = line.targets[0].target
        if not isinstance(place, cst.Subscript) or not is_name(place.value, data.value):
            continue
        loop = next((x for x in model.tree.ancestors(line) if isinstance(x, cst.For)), None)
        if (
            loop is not None
            and any(is_name(part, data.value) for part in walk(loop.iter))
            and model.function_of(line) is model.function_of(data)
            and _taken_to_host(model, line.value)
        ):
            return True
    return False


def _state_of(made: CallSite) -> cst.BaseExpression | None:
    """``model.state_dict()``, and ``get_state_dict(model)`` of Accelerate: where the model is."""
    if isinstance(made.target, Function):
        return None
    if made.method == "state_dict":
        return made.receiver
    return made.argument(0, "model") if made.method == "get_state_dict" else None


def _put_into(model: FileModel, name: cst.Name) -> Iterator[cst.BaseExpression]:
    """A dictionary that a name is bound to, and what ``name["model"] = ...`` adds to it."""
    bound = [item.node for item in model.bindings(name.value, name) if item.kind != "param"]
    dictionaries = [node for node in bound if isinstance(node, cst.Dict)]
    last = given_last(model, name)
    if isinstance(last, cst.Dict):
        yield last
    elif len(bound) == 1 and dictionaries:  # ``if state is None: state = {}`` of a parameter, too
        yield dictionaries[0]
    home = model.function_of(name)
    for assign in model.nodes(cst.Assign) if dictionaries else ():
        for target in assign.targets:
            place = target.target
            if (
                isinstance(place, cst.Subscript)
                and is_name(place.value, name.value)
                and model.function_of(assign) is home
            ):
                yield assign.value
    for call in model.methods("append", "update") if dictionaries else ():
        held = call.receiver
        if isinstance(held, cst.Subscript) and call.method == "append":
            held = held.value
        elif call.method == "append":
            continue
        if is_name(held, name.value) and call.function is home:
            yield from call.positional


def _handed(model: FileModel, name: cst.Name) -> Iterator[cst.BaseExpression]:
    """What the calls of a function give for one of its parameters: ``keep(state, path)``."""
    function = model.function_of(name)
    bound = model.bindings(name.value, name)
    made = (item.node for item in bound if item.kind != "param")
    if function is None or not bound or not all(isinstance(node, cst.Dict) for node in made):
        return
    if name.value not in function.parameters:
        return
    for caller in model.callers(function):
        given = caller.given_to(function, name.value)
        if given is not None:
            yield given


def _moved_by_lightning(model: FileModel, save: CallSite, holder: cst.BaseExpression) -> bool:
    """Whether it is the module of Lightning whose hook saves, or a module in it with weights.

    Also the one that a callback is given.
    """
    if _taken_to_host(model, holder) or any(
        call.function is save.function and same_name(call.receiver, holder)
        for call in model.methods("cpu", "to")
    ):
        return False
    if _given_to_callback(model, save, holder):
        return model.value(holder).on_device
    if is_name(holder, "self") or not isinstance(holder, cst.Attribute):
        return is_name(holder, "self")
    return is_name(holder.value, "self") and any(
        same_name(call.receiver, holder) for call in model.methods("parameters", "named_parameters")
    )


def _given_to_callback(model: FileModel, save: CallSite, holder: cst.BaseExpression) -> bool:
    """``pl_module.net`` in ``def on_train_epoch_end(self, trainer, pl_module)``."""
    while isinstance(holder, cst.Attribute):
        holder = holder.value
    owner = save.function.owner if save.function is not None else None
    hears = owner is not None and LIGHTNING_CALLBACKS & set(model.library_bases(owner))
    return bool(hears) and isinstance(holder, cst.Name) and model.is_parameter(holder)


def _on_device(model: FileModel, save: CallSite, holder: cst.BaseExpression) -> bool:
    value = model.value(holder)
    if value.kind is Kind.OPTIMIZER:
        return _steps_there(model, holder) or _trains_beside(model, save)
    if value.kind is not Kind.MODEL:
        return False
    known = value.on_device or _is_trained(model, save, holder)
    if not known and not _trains_beside(model, save):
        return False
    if _taken_to_host(model, holder):
        return False
    home = model.function_of(holder)
    back = [
        call.method == "cpu" or _says_cpu(model, call)
        for call in model.methods("cpu", "to")
        if call.function in {save.function, home}
        and same_name(call.receiver, holder)
        and (call.function is not save.function or in_order(model, call.node, save.node))
        and (call.method == "cpu" or _says_cpu(model, call) or _says_xla(model, call))
    ]
    return not back or not back[-1]


def _taken_to_host(model: FileModel, holder: cst.BaseExpression) -> bool:
    """``model.cpu().float()``, also through a name: the last move in a row of calls counts."""
    taken = made_by(model, holder)
    while taken is not None:
        if taken.method == "cpu" or _says_cpu(model, taken):
            return True
        if taken.method not in _STAY or _says_xla(model, taken):
            return False
        taken = model.call(taken.receiver) if isinstance(taken.receiver, cst.Call) else None
    return False


def _steps_there(model: FileModel, optimizer: cst.BaseExpression) -> bool:
    """Whether its gradients are reduced for its steps, also in a function that is given it."""
    made = the_source(model, optimizer)
    return any(
        same_name(given, optimizer) or (the_source(model, given) is made and made is not optimizer)
        for call in model.calls(*_STEPS)
        if (given := call.argument(0, "optimizer")) is not None
    )


def _trains_beside(model: FileModel, save: CallSite) -> bool:
    """Whether the class that saves takes steps on XLA devices, with what its makers gave it.

    Also where it may run on other devices: it has no other way to save.
    """
    owner = save.function.owner if save.function is not None else None
    sure = model.on_xla(save.node) is OnXla.YES or not any(
        True for _ in model.calls("torch_xla.core.xla_model.save")
    )
    return (
        owner is not None
        and sure
        and any(
            call.function is not None and call.function.owner is owner
            for call in model.calls(*_STEPS)
        )
    )


def _is_trained(model: FileModel, save: CallSite, holder: cst.BaseExpression) -> bool:
    """Whether a Trainer of transformers was made of the model before, which it moves."""
    return any(
        call.function is save.function
        and is_trainer(model, call)
        and same_name(given, holder)
        and in_order(model, call.node, save.node)
        for call, given in handed_over(model)
    )


def _says_cpu(model: FileModel, call: CallSite) -> bool:
    """``net.to("cpu")``, also where a name was bound to the host's device last."""
    device = call.argument(0, "device")
    if isinstance(device, cst.Name):
        if _says_xla(model, call):
            return False  # where XLA is there: the branch for other devices stands below it
        order = model.tree.order
        bound = [item.node for item in model.bindings(device.value, device)]
        before = [node for node in bound if order.get(node, 0) < order[call.node]]
        if before and all(node in order for node in bound):
            return _names_cpu(model, before[-1])
    return _names_cpu(model, call.node)


def _says_xla(model: FileModel, call: CallSite) -> bool:
    device = call.argument(0, "device")
    return device is not None and model.value(device).kind is Kind.DEVICE


def _names_cpu(model: FileModel, node: cst.CSTNode) -> bool:
    return any(
        isinstance(part, cst.SimpleString) and model.literal(part) == "cpu" for part in walk(node)
    )


def _perhaps_one_core(model: FileModel, call: CallSite) -> bool:
    """Whether a condition around may pick cores, by what is known of it or by its words alone."""
    if model.effects.some_cores(call.node) is not None:
        return True
    callers = model.callers(call.function) if call.function is not None else ()
    return any(
        _PICKS_CORES.search(model.tree.text(guard.test))
        for node in (call.node, *(caller.node for caller in callers))
        for guard in model.guards(node)
    )


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    """``xm.save``, which takes the same two arguments; all cores have to come to it."""
    if _perhaps_one_core(model, call):
        return None  # under a rank check it would wait for cores that never come: XLA405
    written = spell(model, call.node, "torch_xla.core.xla_model.save")
    if written is None or call.has_star or len(call.positional) != 2 or call.keywords:
        return None
    return model.fix(
        "Save from the host", model.replace(call.node.func, written[0]), written[1], safe=False
    )
