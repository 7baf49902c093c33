"""XLA425: only the master core runs what is pending of the step, so its graph is another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Effect
from xladoctor.lint.model import Kind, walk
from xladoctor.lint.model.parts import literal_parts
from xladoctor.lint.reading import tells_text
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import entry_places
from xladoctor.lint.rules._pending import pending_at, pending_behind
from xladoctor.lint.rules._pictures import makes_pictures
from xladoctor.lint.rules._protocol import reduces_gradients
from xladoctor.lint.rules._reads import loop_place, snippet
from xladoctor.lint.rules._reduced_reads import reduced_reads
from xladoctor.lint.rules._spmd import FSDP, MARK, asked_by, of_one_host

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Guard, Problem

#: Reads that materialize the tensor itself. Those that read a temporary copy (``.item()``,
#: ``float(t)``, ``f"{t}"``) left the step's graph as it was when measured.
_METHODS = ("cpu", "tolist", "numpy")
_PRINTS = ("builtins.print", "torch_xla.core.xla_model.master_print")
_MASTER_PRINT = _PRINTS[1]
#: Methods of TensorBoard's writer.
_WRITES = ("add_scalar", "add_scalars", "add_histogram", "add_image", "add_images")
#: What is asked of a model without running it.
_ASKED = frozenset({"state_dict", "eval", "train", "parameters", "named_parameters", "config"})


_SAVES = frozenset({"torch.save", "torch_xla.core.xla_model.save"})


@rule("XLA425")
def master_only_read(model: FileModel) -> Iterator[Problem]:
    """Find reads and runs of the pending step, and of sharded parameters, on one core or host."""
    if model.is_xla and model.spmd:
        yield from _one_host(model)
        return
    if model.is_xla:
        yield from reduced_reads(model)
    if not model.is_xla or not reduces_gradients(model):
        return
    told = set()
    for problem, inside in _branches(model):
        told |= inside
        yield problem
    for call, tensor in _reads(model):
        entry = model.on_every_core(call.node)
        guard = model.master_only(call.node)
        loop = model.step_loop(call.node)
        if entry is None or loop is None or model.in_step_closure(call.node):
            continue
        if (guard is None and call.name != _MASTER_PRINT) or call.node in told:
            continue
        if model.effects.ran_before(call.node, tensor, loop) or _is_the_masters(
            model, tensor, guard
        ):
            continue
        yield model.problem(
            call.node,
            f"only the master core reads {snippet(model, tensor)} before the step has run: its "
            "step becomes a different graph from that of the other cores, and the gradient "
            "reduction never completes",
            suggestion="read on all cores and print on the master, or use "
            "xm.add_step_closure(log, args=(loss.detach(),))",
            related=[
                *([model.place(guard.written, "only the master core gets here")] if guard else []),
                loop_place(model, loop),
                *entry_places(model, entry),
            ],
        )


def _is_the_masters(model: FileModel, tensor: cst.BaseExpression, guard: Guard | None) -> bool:
    """Whether the master alone has computed a tensor, in its branch, while nothing was pending."""
    made = model.assigned_once(tensor) if isinstance(tensor, cst.Name) else None
    return (
        guard is not None
        and made is not None
        and guard.node in model.tree.ancestors(made)
        and pending_at(model, guard.node) is None
    )


def _one_host(model: FileModel) -> Iterator[Problem]:
    """Of SPMD programs: sharded parameters that one host alone reads."""
    marks = [call for part in (model, *model.linked) for call in part.calls(*FSDP, *MARK)]
    if not marks:
        return
    here = model.is_here(marks[0].node)
    sharded = [model.place(marks[0].node, "sharded here")] if here else []
    told = set()
    for call in model.methods("state_dict"):
        if call.receiver is None or model.value(call.receiver).kind is not Kind.MODEL:
            continue
        for place, guard in _conditions(model, call):
            one_host = guard.when and of_one_host(asked_by(model, guard))
            if guard.node in told or not one_host or not _is_read(model, call):
                continue
            told.add(guard.node)
            read = [] if place is call else [model.place(call.node, "read here")]
            yield model.problem(
                place.node,
                "one host alone reads sharded parameters: bringing one to the host runs a gather "
                "on all devices, which those of the other hosts never join",
                suggestion="read on all hosts and write on one, or save from all with "
                "torch.distributed.checkpoint and SPMDSavePlanner",
                related=[model.place(guard.written, "only one host gets here"), *read, *sharded],
            )


def _conditions(model: FileModel, call: CallSite) -> Iterator[tuple[CallSite, Guard]]:
    """The conditions around a call, and around the calls of the function that it stands in."""
    callers = model.callers(call.function) if call.function is not None else ()
    for place in (call, *(one for one in callers if model.is_here(one.node))):
        for guard in model.guards(place.node):
            yield place, guard


def _is_read(model: FileModel, call: CallSite) -> bool:
    """Whether a state dict is saved, or its tensors are brought to the host, where it is asked."""
    node = model.parent(call.node)
    while node is not None and not isinstance(node, cst.SimpleStatementLine | cst.FunctionDef):
        if isinstance(node, cst.Call) and model.call(node).name in _SAVES:
            return True
        if isinstance(node, cst.BaseComp | cst.For):
            return any(one.method == "cpu" for one in model.calls_in(node))
        if isinstance(node, cst.Assign):
            target = node.targets[0].target
            return isinstance(target, cst.Name) and any(
                isinstance(first := one.argument(0, "obj"), cst.Name)
                and first.value == target.value
                for one in model.calls(*_SAVES)
                if one.function is call.function
            )
        node = model.parent(node)
    return False


def _reads(model: FileModel) -> Iterator[tuple[CallSite, cst.BaseExpression]]:
    for call in model.methods(*_METHODS):
        tensor = _detached(model, call.receiver)  # loss.detach().cpu()
        if isinstance(tensor, cst.Name) and model.value(tensor).is_device_tensor:
            yield call, tensor
    for call in model.methods("decode", "batch_decode"):
        # Takes the tensor itself, as ``.tolist()`` does.
        ids = call.argument(0, "token_ids") if tells_text(call) else None
        if ids is not None and model.value(ids).is_device_tensor:
            yield call, ids
    for call in model.methods(*_WRITES):
        # TensorBoard's ``make_np`` does ``tensor.detach().cpu()``; of what is computed for it,
        # nothing else waits.
        if not any(event.effect is Effect.READ for event in model.effects.by_call(call)):
            continue
        given = [*call.positional, *call.keywords.values()]
        for part in (*given, *(one for value in given for one in literal_parts(value))):
            tensor = _detached(model, part)
            if isinstance(tensor, cst.Name) and model.value(tensor).is_device_tensor:
                yield call, tensor
                break
    for call in model.calls(*_PRINTS):
        for argument in call.positional:
            if isinstance(argument, cst.Name) and model.value(argument).is_device_tensor:
                yield call, argument


def _detached(model: FileModel, node: cst.BaseExpression | None) -> cst.BaseExpression | None:
    """``loss`` of ``loss`` and ``loss.detach()``; nothing of what else is computed."""
    if not isinstance(node, cst.Call):
        return node
    inner = model.call(node)
    return inner.receiver if inner.method in {"detach", "cpu"} else None


def _branches(model: FileModel) -> Iterator[tuple[Problem, set[cst.CSTNode]]]:
    """Branches of the master in step loops that run a graph with a pending collective in it."""
    for node in model.nodes(cst.If):
        if model.value(node.test).kind is not Kind.IS_MASTER:
            continue
        inside = model.calls_in(node.body)
        guard = next((x for c in inside for x in model.guards(c.node) if x.node is node), None)
        if guard is None or guard.master is not True or model.master_only(node) is not None:
            continue
        entry, pending = model.on_every_core(node), pending_at(model, node)
        loop = model.step_loop(node)
        if loop is None and (left := pending_behind(model, node)) is not None:
            pending, loop = left
        if entry is None or pending is None or loop is None:
            continue
        runs = _runs_graph(model, guard, inside)
        if runs is None:
            continue
        yield (
            model.problem(
                guard.written,
                "what only the master core does here runs its graph while the reduction of the "
                "gradients is pending: the other cores run that reduction in another graph, and "
                "it never completes",
                suggestion="call torch_xla.sync() before the condition, on all cores: then "
                "nothing is pending",
                related=[
                    model.place(runs, "runs the graph, on the master core only"),
                    model.place(pending, "still pending"),
                    loop_place(model, loop),
                    *entry_places(model, entry),
                ],
            ),
            {call.node for call in inside},
        )


def _runs_graph(model: FileModel, guard: Guard, inside: Sequence[CallSite]) -> cst.CSTNode | None:
    """What runs a graph within the master's branch that the pending collective is part of."""
    for call in inside:
        for inner in model.reached(call.node):
            name = model.effects.name(inner)
            meets = name is not None and name.effects & {Effect.COLLECTIVE, Effect.SAVE}
            if model.effects.ends_graph(inner) and not meets:
                return call.node
            if inner is call and meets and _all_meet(model, guard, call):
                return None
        if _fetches_weights(model, call):
            return call.node
    trained = _trained(model, guard.node)
    if not any(_uses_trained(model, trained, part) for part in walk(guard.node)):
        return None
    for call in inside:
        if any(
            model.effects.is_read(inner.node) or makes_pictures(model, inner)
            for inner in model.reached(call.node)
        ):
            return call.node
    return None


def _all_meet(model: FileModel, guard: Guard, call: CallSite) -> bool:
    """``xm.rendezvous`` in both branches: it ends the graph on all cores, so nothing is pending."""
    assert isinstance(guard.node, cst.If)
    other = set(walk(guard.node.orelse)) if guard.node.orelse is not None else set()
    return model.effects.ends_graph(call) and any(
        one.name == call.name and one.node in other for one in model.calls(call.name or "")
    )


def _fetches_weights(model: FileModel, call: CallSite) -> bool:
    """Whether a call brings weights, or what the optimizer keeps of them, to the host.

    ``torch.save({"net": net.state_dict()}, path)``, also of what names in it hold.
    """
    if call.method == "save_pretrained" and call.receiver is not None:
        value = model.value(call.receiver)
        return value.kind is Kind.MODEL and value.on_device
    data = call.argument(0, "obj") if call.name == "torch.save" else None
    if data is None:
        return False
    names = (part for part in walk(data) if isinstance(part, cst.Name))
    held = (data, *(value for name in names for value in model.assigned_to(name)))
    return any(_is_state(model, part) for node in held for part in walk(node))


def _is_state(model: FileModel, node: cst.CSTNode) -> bool:
    if not isinstance(node, cst.Call):
        return False
    call = model.call(node)
    if call.method != "state_dict" or call.receiver is None:
        return False
    value = model.value(call.receiver)
    return value.kind is Kind.OPTIMIZER or (value.kind is Kind.MODEL and value.on_device)


def _uses_trained(model: FileModel, trained: set[str], node: cst.CSTNode) -> bool:
    """Whether a node is a model whose weights wait for the reduction, and it is run."""
    if not isinstance(node, cst.Name) or node.value not in trained:
        return False
    parent = model.parent(node)
    if isinstance(parent, cst.Attribute):
        return parent.value is node and parent.attr.value not in _ASKED
    return isinstance(parent, cst.Call) or (isinstance(parent, cst.Arg) and parent.keyword is None)


def _trained(model: FileModel, node: cst.CSTNode) -> set[str]:
    """Names of the models that an optimizer has, and of those that follow them (EMA)."""

    def models(part: cst.CSTNode) -> set[str]:
        return {
            name.value
            for name in walk(part)
            if isinstance(name, cst.Name) and model.value(name).kind is Kind.MODEL
        }

    made = (c.node for c in model.calls() if model.value(c.node).kind is Kind.OPTIMIZER)
    found = {name for call in made for argument in call.args for name in models(argument)}
    loop = model.step_loop(node)
    for call in model.calls_of(model.function_of(node)) if loop is not None else ():
        if model.step_loop(call.node) is loop:
            given = {name for argument in call.node.args for name in models(argument)}
            if given & found and len(given) == 2:
                found |= given
    return found
