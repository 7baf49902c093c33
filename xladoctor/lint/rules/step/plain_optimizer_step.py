"""XLA302: ``optimizer.step()`` on several cores, with gradients that nobody reduced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, OnXla, walk
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import tells_core
from xladoctor.lint.rules._exact import in_order, in_two_branches, same_name
from xladoctor.lint.rules._handed_over import extends_trainer, prepared_names
from xladoctor.lint.rules._protocol import (
    ALL_REDUCE,
    OPTIMIZER_STEP,
    REDUCE,
    reduces_gradients,
    steps_optimizer,
)
from xladoctor.lint.rules._scaled_steps import scaled_steps
from xladoctor.lint.rules._sources import sources
from xladoctor.lint.rules._writes import written_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

#: What torch_xla reduces gradients with: whose gradients can be asked.
_OWN = (OPTIMIZER_STEP, REDUCE, *ALL_REDUCE)

_DDP = "torch.nn.parallel.DistributedDataParallel"
#: Methods of a model that give its parameters one by one.
_PARAMETERS = frozenset({"parameters", "named_parameters"})


@rule("XLA302")
def plain_optimizer_step(model: FileModel) -> Iterator[Problem]:
    """Find plain optimizer steps on several cores that reduce no gradients, or step twice."""
    if not model.is_xla:
        return
    yield from _inside_prepared(model)
    if model.led_by:
        return
    yield from _twice(model)
    yield from _per_parameter(model)
    beside = (*_OWN, _DDP) if _wraps_elsewhere(model) else _OWN
    if model.spmd or reduces_gradients(model, beside=beside):
        return
    if not any(True for part in (model, *model.linked) for _ in part.methods("backward")):
        return
    if any(_keeps_its_own(part) for part in (model, *model.linked)):
        return
    yield from scaled_steps(model)
    for call in model.methods("step"):
        entry = model.on_every_core(call.node) if steps_optimizer(model, call) else None
        if entry is None or model.master_only(call.node) is not None or _is_reduced(model, call):
            continue
        related = []
        if entry.call is not None:
            related.append(model.place(entry.call, "the cores are started here"))
        elif entry.function is not None:
            related.append(model.place(entry.function.node, "for several cores: asks which it is"))
        yield model.problem(
            call.node,
            "each core applies the gradients of its own batch only: the cores train different "
            "models, without any error",
            suggestion="xm.optimizer_step(optimizer) averages the gradients over the cores and "
            "then steps",
            related=related,
            fix=_fix(model, call),
        )


def _wraps_elsewhere(model: FileModel) -> bool:
    """Whether DDP is for other devices alone: ``if on_tpu: pass``, ``else: net = DDP(net)``."""
    calls = [(part, call) for part in (model, *model.linked) for call in part.calls(_DDP)]
    return bool(calls) and all(part.on_xla(call.node) is OnXla.NO for part, call in calls)


def _inside_prepared(model: FileModel) -> Iterator[Problem]:
    """``self.optimizer.optimizer.step()`` of what Accelerate prepared, for a closure of its own."""
    prepared = set(prepared_names(model))
    for call in model.methods("step"):
        inner = call.receiver
        if not isinstance(inner, cst.Attribute) or inner.attr.value != "optimizer":
            continue
        outer = dotted_text(inner.value)
        owner = call.function.owner if call.function is not None else None
        of_trainer = outer == "self.optimizer" and extends_trainer(model, owner)
        if outer is None or not (of_trainer or outer in prepared):
            continue
        if model.value(inner.value).kind is not Kind.OPTIMIZER:
            continue  # a plan of learning rates has an optimizer too
        if model.on_xla(call.node) is not OnXla.NO:
            yield model.problem(
                call.node,
                f"`{outer}` is Accelerate's, and reduces the gradients over the cores in its own "
                "step(): the optimizer in it applies those of each core's batch alone",
                suggestion=f"{outer}.step(), with what else the step needs kept on the optimizer",
            )


def _keeps_its_own(model: FileModel) -> bool:
    """Whether each core saves a model of its own, of data that nothing shares out: on purpose.

    One fold, seed or experiment for each core: ``torch.save(net.state_dict(), f"fold_{rank}.pt")``.
    """
    if any(call.last == "DistributedSampler" for call in model.calls()):
        return False
    for call in (*model.calls("torch.save"), *model.methods("save_pretrained")):
        path = written_path(model, call)
        if path is None or model.on_every_core(call.node) is None:
            continue
        if model.master_only(call.node) is None and _is_own(model, path):
            return True
    return False


def _is_own(model: FileModel, path: cst.BaseExpression) -> bool:
    """Whether a path names the core, also by the folder that it begins with."""
    names = (part for part in walk(path) if isinstance(part, cst.Name | cst.Attribute))
    made = [one for name in names for one in sources(model, name) or ()]
    return any(tells_core(model, part) for one in (path, *made) for part in walk(one))


def _is_reduced(model: FileModel, step: CallSite) -> bool:
    """Whether torch_xla's functions may reduce the gradients of this step's optimizer."""
    loop = model.step_loop(step.node)
    if loop is None:
        return reduces_gradients(model)
    calls = [call for part in (model, *model.linked) for call in part.calls(*_OWN)]
    named = sum(
        not isinstance(part.parent(node), cst.ImportAlias)
        for part in (model, *model.linked)
        for name in _OWN
        for node in part.named.get(name, ())
    )
    if named != len(calls):
        return True  # one of them is handed on, or has another name
    reached = {call.node for call in model.reached(loop.node)}
    return any(
        call.node in reached
        if call.name in ALL_REDUCE
        else not (_is_other(model, call, step) or _is_later(model, call, step))
        for call in calls
    )


def _is_later(model: FileModel, reducing: CallSite, step: CallSite) -> bool:
    """Whether a reduction behind the step, in its turn, is of the gradients of a later backward.

    A GAN whose discriminator steps with its own gradients, clears them, and steps once more with
    the generator.
    """
    if reducing.function is not step.function or not in_order(model, step.node, reducing.node):
        return False
    if model.loop(reducing.node) is not model.loop(step.node) or in_two_branches(
        model, reducing.node, step.node
    ):
        return False
    backward = [call for call in model.methods("backward") if call.function is step.function]
    return any(in_order(model, step.node, call.node, reducing.node) for call in backward)


def _is_other(model: FileModel, reducing: CallSite, step: CallSite) -> bool:
    """Whether a reduction is of another optimizer, as far as both are known."""
    given = reducing.argument(0, "optimizer")
    if given is None or step.receiver is None or same_name(given, step.receiver):
        return False
    if _are_two(model, given, step.receiver):
        return True
    one, other = sources(model, given), sources(model, step.receiver)
    made = one and other and all(isinstance(node, cst.Call) for node in (*one, *other))
    return bool(made) and not any(node in (other or ()) for node in one or ())


def _are_two(model: FileModel, one: cst.BaseExpression, other: cst.BaseExpression) -> bool:
    """Whether two calls have made what two attributes hold: ``state.dense``, ``state.table``."""
    if not isinstance(one, cst.Attribute) or not isinstance(other, cst.Attribute):
        return False
    if not same_name(one.value, other.value):
        return False
    values = [model.value(node) for node in (one, other)]
    made = {value.origin for value in values if value.kind is Kind.OPTIMIZER}
    return len(made) == 2 and all(isinstance(origin, cst.Call) for origin in made)


def _twice(model: FileModel) -> Iterator[Problem]:
    """``optimizer.step()`` beside ``xm.optimizer_step(optimizer)``, which steps itself.

    Or inside: ``xm.optimizer_step(optimizer.step())``.
    """
    for reducing in model.calls(OPTIMIZER_STEP):
        given = reducing.argument(0, "optimizer")
        if isinstance(given, cst.Call) and steps_optimizer(model, model.call(given)):
            yield model.problem(
                given,
                "the optimizer steps here, with the gradients of this core's own batch, and what "
                "step() returns is not an optimizer: xm.optimizer_step raises AttributeError",
                suggestion="xm.optimizer_step(optimizer) reduces the gradients, then steps",
                fix=_inner_fix(model, given),
            )
            continue
        for plain in model.methods("step"):
            if not steps_optimizer(model, plain) or not _same_step(model, plain, reducing):
                continue
            yield model.problem(
                plain.node,
                "the optimizer steps twice: here with the gradients of this core's own batch, and "
                "once more in xm.optimizer_step",
                suggestion="leave this step out: xm.optimizer_step(optimizer) reduces the "
                "gradients, then steps",
                related=[model.place(reducing.node, "the other step")],
            )
            break


def _per_parameter(model: FileModel) -> Iterator[Problem]:
    """A step in the loop that divides or clips each gradient: one line too far to the right."""
    for call in model.calls():
        if call.name == OPTIMIZER_STEP:
            optimizer = call.argument(0, "optimizer")
        elif steps_optimizer(model, call) and model.on_xla(call.node) is not OnXla.NO:
            optimizer = call.receiver
        else:
            continue
        loop = model.loop(call.node)
        if loop is None or optimizer is None or not isinstance(loop.node, cst.For):
            continue
        if not _goes_over_parameters(model, loop.node) or _is_of_turn(model, optimizer, loop.node):
            continue
        yield model.problem(
            call.node,
            "the optimizer steps once for every parameter of the model: the first time with one "
            "gradient prepared and the others not yet",
            suggestion="step behind the loop over the parameters",
            related=[model.place(loop.node, "the loop over the parameters")],
        )


def _goes_over_parameters(model: FileModel, loop: cst.For) -> bool:
    """``for p in model.parameters()``, which changes each ``p.grad``, to the end."""
    calls = (model.call(node) for node in model.within(loop.iter, cst.Call))
    over = any(
        call.method in _PARAMETERS
        and call.receiver is not None
        and model.value(call.receiver).kind in {Kind.MODEL, Kind.UNKNOWN}
        for call in calls
    )
    changes = any(node.attr.value == "grad" for node in model.within(loop.body, cst.Attribute))
    leaves = (cst.Break, cst.Return, cst.Yield)
    return over and changes and not any(isinstance(part, leaves) for part in walk(loop.body))


def _is_of_turn(model: FileModel, optimizer: cst.BaseExpression, loop: cst.For) -> bool:
    """Whether each parameter has an optimizer of its own: ``optimizers[name]``, or a new one."""
    made = [*(sources(model, optimizer) or ()), *model.assigned_to(optimizer)]
    if any(loop in model.tree.ancestors(node) for node in made):
        return True
    turn = {part.value for part in walk(loop.target) if isinstance(part, cst.Name)}
    return any(isinstance(part, cst.Name) and part.value in turn for part in walk(optimizer))


def _same_step(model: FileModel, plain: CallSite, reducing: CallSite) -> bool:
    """Whether both stand in one block, for one optimizer, with no new gradients between."""
    if not same_name(plain.receiver, reducing.argument(0, "optimizer")):
        return False
    lines = [model.parent(call.node) for call in (plain, reducing)]
    outer = [model.parent(line) if line is not None else None for line in lines]
    blocks = [model.parent(line) if line is not None else None for line in outer]
    if blocks[0] is None or blocks[0] is not blocks[1] or not isinstance(lines[0], cst.Expr):
        return False
    first, last = sorted((plain.node, reducing.node), key=model.tree.order.__getitem__)
    return not any(
        call.method in {"zero_grad", "backward"} and in_order(model, first, call.node, last)
        for call in model.calls()
    )


def _inner_fix(model: FileModel, step: cst.Call) -> Fix | None:
    receiver = model.call(step).receiver
    if receiver is None or step.args:
        return None
    text = model.tree.text(receiver).strip()
    return model.fix("Hand over the optimizer", model.replace(step, text), safe=False)


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    spelled = model.spelled("torch_xla.core.xla_model.optimizer_step", call.node)
    if spelled is None or call.node.args or call.receiver is None:
        return None
    optimizer = model.tree.text(call.receiver).strip()
    return model.fix(
        "Reduce the gradients over the cores",
        model.replace(call.node, f"{spelled}({optimizer})"),
        safe=False,
    )
