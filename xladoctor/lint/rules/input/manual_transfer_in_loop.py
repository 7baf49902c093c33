"""XLA603: batches of a plain loader are moved to the device one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, LoopKind, walk
from xladoctor.lint.model.contained import element_of
from xladoctor.lint.model.knowledge import LEARN_NAME
from xladoctor.lint.model.loops import HOT
from xladoctor.lint.model.parts import names_bound
from xladoctor.lint.model.trainers import LOADERS, MOVES
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._batches import (
    filled_here,
    is_handed_in,
    loops_that_call,
    moves_by_hand,
    uploads_of_arrays,
)
from xladoctor.lint.rules._beside import over_own_loader
from xladoctor.lint.rules._follows_reads import follows_reads
from xladoctor.lint.rules._host_draws import is_drawn
from xladoctor.lint.rules._made_in_step import made_in_step
from xladoctor.lint.rules._marked_again import marked_again
from xladoctor.lint.rules._protocol import OPTIMIZER_STEP
from xladoctor.lint.rules._reads import costly_loop, loop_place, not_here, often

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem

_OTHER_LOADER = (
    "for batch in pl.MpDeviceLoader(loader, device): it uploads the next batches in the background"
)
#: Libraries whose functions move no batch for their callers, or as they say by themselves.
_LIBRARIES = ("builtins.", "torch.", "torch_xla.", "accelerate.", "transformers.", "lightning.")


@rule("XLA603")
def manual_transfer_in_loop(model: FileModel) -> Iterator[Problem]:
    """Find loops whose body moves what was loaded on the host; one problem a way through it."""
    yield from _second_batches(model)
    if not model.is_xla:
        return
    yield from made_in_step(model)
    yield from marked_again(model)
    led = bool(model.led_by) or "accelerate" in model.frameworks
    led = led and not _by_fabric_alone(model)
    arrays = {} if led else uploads_of_arrays(model)
    for loop in (*model.loops, *(() if led else loops_that_call(model))):
        if loop.kind not in HOT or not _is_seen(loop):
            continue
        if led and not over_own_loader(model, loop):
            continue
        loads = loop.iterates.kind.uploads
        found: list[Problem] = []
        if loads or _by_device_loader(model, loop):
            pass
        elif (
            isinstance(loop.node, cst.For)
            and loop.iterates.kind is Kind.LOADER
            and model.is_here(loop.node)
        ):
            found.extend(_over_loader(model, loop, loop.node))
        else:
            found.extend(_over_anything(model, loop))
        if not found and (
            given := [
                x
                for x in arrays.get(loop, ())
                if not _is_drawn(model, x) and not follows_reads(model, loop, x)
            ]
        ):
            found.append(_of_array(model, loop, given[0]))
        yield from found


def _second_batches(model: FileModel) -> Iterator[Problem]:
    """``self._prepare_inputs(self.positives(labels))``: a Trainer's step makes a batch of its own.

    What it is given is on the device: the Trainer's loader has moved it.
    """
    for call in model.methods("_prepare_inputs"):
        given = call.argument(0, "inputs")
        if given is None or (isinstance(given, cst.Name) and model.is_parameter(given)):
            continue
        held = model.value(given)
        on_host = held.kind is Kind.CONTAINER and element_of(held).kind is Kind.CPU_TENSOR
        if not on_host or not model.value(call.node).holds_device_tensor:
            continue
        loop = costly_loop(model, call.node)
        if loop is not None:
            yield model.problem(
                call.node,
                f"a batch is made and moved {often(loop)} itself: its upload waits for Python, and "
                "the device waits for the upload",
                suggestion="make it in the Dataset or in data_collator, with the batch that it "
                "goes with: the Trainer's loader uploads both in the background",
                related=[loop_place(model, loop)],
            )


def _is_drawn(model: FileModel, call: CallSite) -> bool:
    """Whether what is uploaded is noise, which the device could draw itself (XLA604)."""
    method = call.name is None and call.receiver is not None
    return is_drawn(model, call.receiver if method and call.receiver is not None else call.node)


def _is_seen(loop: Loop) -> bool:
    """Whether what fetches the batches is in sight: a loop, or an agent's ``learn()``."""
    function = loop.function
    if loop.kind is LoopKind.ROLLOUT:
        return not loop.implicit
    return not loop.implicit or (function is not None and bool(LEARN_NAME.search(function.name)))


def _by_fabric_alone(model: FileModel) -> bool:
    """Whether a program of Fabric's moves its batches itself: none of its loaders is set up."""
    return (
        model.frameworks == {"lightning"}
        and any((call.name or "").endswith(".Fabric") for call in model.calls())
        and not any(model.methods("setup_dataloaders", "fit"))
    )


def _over_loader(model: FileModel, loop: Loop, node: cst.For) -> Iterator[Problem]:
    """A loop over a plain loader: the device loader takes its place."""
    move = next((call for call in model.methods("to") if _moves(model, loop, call)), None)
    by_hand = [] if move is not None else [*moves_by_hand(model, loop)]
    if by_hand:
        move = next((one for one in by_hand if one.function is loop.function), by_hand[0])
    if move is None:
        move = _by_helper(model, loop, node) or _by_unread(model, loop, node)
    if move is None:
        yield from _by_trainer(model, loop, node)
        return
    inner = (one for one in by_hand if one is not move and _has_batches(model, loop, one))
    yield from (_problem(model, loop, one, _OTHER_LOADER, None) for one in inner)
    sharded = ", input_sharding=xs.ShardingSpec(mesh, axes)" if model.spmd else ""
    yield _problem(
        model,
        loop,
        move,
        f"for batch in pl.MpDeviceLoader(loader, device{sharded}): it uploads the "
        "next batches in the background, and ends the graph of each step",
        None if model.spmd else _fix(model, node, move),
    )


def _has_batches(model: FileModel, loop: Loop, move: CallSite) -> bool:
    """Whether a loop that this one runs goes over a plain loader too, and moves its batches."""
    above = set(model.tree.ancestors(move.node))
    return any(
        one.node in above and one is not loop and one.iterates.kind is Kind.LOADER
        for one in model.loops
    )


def _by_helper(model: FileModel, loop: Loop, node: cst.For) -> CallSite | None:
    """``batch = self.to_device(batch)``: a helper of the program moves it, also for other loops."""
    names = set(names_bound(node.target))
    for call in model.calls():
        given = call.positional[0] if call.positional else None
        if not isinstance(given, cst.Name) or given.value not in names or call.target is None:
            continue
        if model.value(call.node.func).kind is Kind.MODEL:
            continue  # its weights are there, which moves no batch
        moved = model.value(call.node)
        if (
            model.loop(call.node) is loop
            and moved.holds_device_tensor
            and model.value(given).kind is Kind.CPU_TENSOR
            and not model.throttled(call.node)
        ):
            return call
    return None


def _by_unread(model: FileModel, loop: Loop, node: cst.For) -> CallSite | None:
    """``loss = losses(model, batch, device)`` of a module that nobody has read: it moves the batch.

    What a plain loader gives is on the host, the model is not, and the device is given for it.
    """
    names = set(names_bound(node.target))
    for call in model.calls():
        if call.target is not None or call.name is None or call.name.startswith(_LIBRARIES):
            continue
        given = [*call.positional, *call.keywords.values()]
        kinds = {model.value(one).kind for one in given}
        batch = any(isinstance(one, cst.Name) and one.value in names for one in given)
        if (
            batch
            and {Kind.DEVICE, Kind.MODEL} <= kinds
            and model.loop(call.node) is loop
            and not model.throttled(call.node)
        ):
            return call
    return None


def _by_trainer(model: FileModel, loop: Loop, node: cst.For) -> Iterator[Problem]:
    """``for step, inputs in enumerate(loader)`` of a Trainer's own loader: its methods move it."""
    made = loop.iterates.origin
    if not isinstance(made, cst.Call) or not isinstance(made.func, cst.Attribute):
        return
    if made.func.attr.value not in LOADERS or not_here(model, node):
        return
    calls = model.reached(loop.node)
    move = next((call for call in calls if call.method in MOVES and call.target is None), None)
    if move is None:
        return
    each = "training step" if loop.kind is LoopKind.STEP else "evaluation loop"
    yield model.problem(
        node.iter,
        f"the Trainer's own loader is a plain one here, and its methods move each batch in the "
        f"{each}: the upload waits for Python, and the device waits for the upload",
        suggestion="go over pl.MpDeviceLoader(loader, device): it uploads the next batches in the "
        "background, and ends the graph of each step",
        related=[model.place(move.node, "the Trainer moves the batch in it")],
    )


def _of_array(model: FileModel, loop: Loop, move: CallSite) -> Problem:
    """A loop that uploads an array or what it filled itself, also beside a device loader."""
    each = "training step" if loop.kind is LoopKind.STEP else "evaluation loop"
    return model.problem(
        move.node,
        f"the {each} uploads data of the host itself: the upload waits for Python, and the device "
        "waits for the upload",
        suggestion="make the tensor in the Dataset or in collate_fn, so that a device loader "
        "uploads it with the batch",
        related=[model.place(loop.node, f"the {loop.kind.value}")],
    )


def _over_anything(model: FileModel, loop: Loop) -> Iterator[Problem]:
    """A loop that fetches its batches itself, or from a loader that another file makes."""
    for move in moves_by_hand(model, loop):
        if follows_reads(model, loop, move):
            continue
        if loop.kind is LoopKind.ROLLOUT:
            yield model.problem(
                move.node,
                "what the environment gives is uploaded on each of its steps: the upload waits for "
                "Python, and the device waits for the upload",
                suggestion="keep what is seen on the host (NumPy), and upload whole rollouts",
                related=[loop_place(model, loop)],
            )
            continue
        yield _problem(
            model,
            loop,
            move,
            "make the batches in a Dataset, and go over pl.MpDeviceLoader(loader, device): it "
            "fetches and uploads the next ones in the background",
            None,
        )


def _problem(
    model: FileModel, loop: Loop, move: CallSite, suggestion: str, fix: Fix | None
) -> Problem:
    what = "training step" if loop.kind is LoopKind.STEP else "evaluation loop"
    note = "the loop over the plain loader"
    if loop.iterates.kind is not Kind.LOADER:
        note = f"the {loop.kind.value}"
    return model.problem(
        move.node,
        f"the batch is moved in the {what} itself: its upload waits for Python, and the device "
        "waits for the upload",
        suggestion=suggestion,
        related=[model.place(loop.node, note)],
        fix=fix,
    )


def _by_device_loader(model: FileModel, loop: Loop) -> bool:
    """A loader that a caller nobody has read gives, whose steps nothing else can end.

    A loop that reduces and steps needs something that ends its graph: it is a device loader.
    """
    if loop.kind is not LoopKind.STEP:
        return False
    calls = model.reached(loop.node)
    return (
        any(call.name == OPTIMIZER_STEP for call in calls)
        and not any(model.effects.ends_graph(call) for call in calls)
        and is_handed_in(model, loop)
    )


def _moves(model: FileModel, loop: Loop, call: CallSite) -> bool:
    """``images.to(device)`` of a part of the loop's batch, directly in the loop."""
    if call.receiver is None or _loop_around(model, call.node) is not loop.node:
        return False
    moved = model.value(call.node)
    if filled_here(model, call.receiver):
        return False
    return (
        moved.is_device_tensor
        and moved.origin is call.node
        and model.value(call.receiver).kind is Kind.CPU_TENSOR
    )


def _loop_around(model: FileModel, node: cst.CSTNode) -> cst.CSTNode | None:
    """The innermost loop statement: a comprehension over the batch belongs to it."""
    for parent in model.tree.ancestors(node):
        if isinstance(parent, cst.For | cst.While):
            return parent
        if isinstance(parent, cst.FunctionDef | cst.Lambda):
            return None
    return None


def _fix(model: FileModel, loop: cst.For, move: CallSite) -> Fix | None:
    """Go over the loader through ``MpDeviceLoader``; the moves in the body do nothing then."""
    device = move.argument(0, "device")
    if not isinstance(device, cst.Name) or model.value(device).kind is not Kind.DEVICE:
        return None
    names = [
        part
        for part in walk(loop.iter)
        if isinstance(part, cst.Name) and model.value(part).kind is Kind.LOADER
    ]
    written = spell(model, loop, "torch_xla.distributed.parallel_loader.MpDeviceLoader")
    if len(names) != 1 or written is None:
        return None
    content = f"{written[0]}({names[0].value}, {device.value})"
    return model.fix(
        "Upload in the background", model.replace(names[0], content), written[1], safe=False
    )
