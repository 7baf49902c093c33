"""XLA320: an evaluation loop that keeps what only a backward pass needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, Kind, LoopKind, OnXla, walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._beside import over_own_loader
from xladoctor.lint.rules._exact import in_order
from xladoctor.lint.rules._protocol import OPTIMIZER_STEP
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem, Value

#: What turns gradients off, as a context, a decorator or a call.
_OFF = (
    *("torch.no_grad", "torch.inference_mode", "torch.set_grad_enabled", "torch.enable_grad"),
    *(f"torch.autograd.{name}" for name in ("no_grad", "inference_mode", "set_grad_enabled")),
    *(f"torch.autograd.grad_mode.{name}" for name in ("no_grad", "inference_mode")),
)
#: Names of contexts of other files that may turn them off.
_MAY_BE_OFF = re.compile(r"grad|infer|eval|ctx|context|freeze|test", re.IGNORECASE)
_EVALUATES = frozenset({"eval", "evaluate", "evaluation", "val", "valid", "validate", "validation",
                        "test", "predict", "inference", "infer"})  # fmt: skip
_SAYS = frozenset({"eval", "evaluate", "evaluation", "valid", "validate", "validation"})
_TRAINS = frozenset({"backward", "zero_grad", "manual_backward", "requires_grad_", "no_sync"})
#: Packages whose functions ask for gradients.
_DIFFERENTIATES = ("torch.autograd.grad", "torch.autograd.functional.", "torch.func.")
_COPY = "copy.deepcopy"
_DEPTH = 4


@rule("XLA320")
def evaluation_with_gradients(model: FileModel) -> Iterator[Problem]:
    """Find evaluation loops after ``model.eval()`` with nothing around that turns gradients off."""
    if not model.is_xla or "lightning" in model.led_by:
        return
    told: set[cst.CSTNode] = set()
    for loop in model.loops:
        if loop.kind is not LoopKind.EVAL or loop.implicit:
            continue
        if "transformers" in model.led_by and not over_own_loader(model, loop):
            continue
        if not told.isdisjoint(model.tree.ancestors(loop.node)):
            continue  # ``for x in loader: for run in range(3):``: one loop to put it around
        ready, run = _made_ready(model, loop), _run(model, loop)
        if run is None or model.on_xla(loop.node) is OnXla.NO:
            continue
        if ready is None and not _says_so(model, loop):
            continue
        if _trains(model, loop) or _is_off(model, loop, run):
            continue
        if _are_off_everywhere(model):
            return
        told.add(loop.node)
        yield model.problem(
            _whole(model, loop),
            "evaluates with gradients on: while the result is alive, each activation that a "
            "backward pass would need is an output of the graph, written to memory for nothing",
            suggestion="with torch.no_grad(): around the loop, or @torch.no_grad() over the "
            "function",
            related=[
                model.place(run.node, "the model, run with gradients"),
                *(
                    [model.place(ready.node, "only turns dropout and the like off")]
                    if ready is not None
                    else []
                ),
            ],
        )


def _are_off_everywhere(model: FileModel) -> bool:
    """``torch.set_grad_enabled(False)`` at the top of a file."""
    names = [name for name in _OFF if name.endswith("set_grad_enabled")]
    return any(
        _home(other, node) is None
        for other in (model, *model.linked)
        for name in names
        for node in other.named.get(name, ())
    )


def _mentions(model: FileModel) -> Iterator[cst.BaseExpression]:
    for name in _OFF:
        yield from model.named.get(name, ())


def _home(model: FileModel, node: cst.CSTNode) -> cst.FunctionDef | None:
    """The function that a mention stands in, or that it decorates."""
    parents = model.tree.ancestors(node)
    return next((parent for parent in parents if isinstance(parent, cst.FunctionDef)), None)


def _made_ready(model: FileModel, loop: Loop) -> CallSite | None:
    """``model.eval()`` before the loop, in its function, with no ``train()`` in between.

    Or in a caller of a function whose name says that it evaluates.
    """
    here = (call for call in model.calls_of(loop.function) if in_order(model, call.node, loop.node))
    before = [made for call in here if (made := _prepares(model, call)) is not None]
    if before or loop.function is None or not words(loop.function.name) & _EVALUATES:
        return before[-1] if before and _is_for_evaluation(model, before[-1]) else None
    homes = {call.function for call in model.callers(loop.function)}
    return next((call for call in model.methods("eval") if call.function in homes), None)


def _says_so(model: FileModel, loop: Loop) -> bool:
    """Whether a function is for evaluation by its name, wherever ``eval()`` is called.

    What nobody here calls may be called with gradients off.
    """
    function = loop.function
    return (
        function is not None
        and bool(words(function.name) & _SAYS)
        and bool(model.callers(function))
    )


def _is_for_evaluation(model: FileModel, call: CallSite) -> bool:
    """``model.eval()`` and ``model.train(False)``."""
    mode = call.argument(0, "mode") if call.method == "train" else None
    return call.method == "eval" or (mode is not None and model.literal(mode) is False)


def _prepares(model: FileModel, call: CallSite) -> CallSite | None:
    """``model.eval()``, ``model.train()``; also the only one in a helper, if it is ``eval()``."""
    if call.method in {"train", "eval"}:
        return call
    if not isinstance(call.target, Function):
        return None
    inner = [one for one in model.reached(call.node) if one.method in {"train", "eval"}]
    return inner[0] if len(inner) == 1 and inner[0].method == "eval" else None


def _whole(model: FileModel, loop: Loop) -> cst.CSTNode:
    """The loop with what it runs: of a comprehension that stands before its ``for``."""
    around = model.parent(loop.node) if isinstance(loop.node, cst.CompFor) else None
    return loop.node if around is None else around


def _run(model: FileModel, loop: Loop) -> CallSite | None:
    """The first call in the loop that surely runs a model on the device."""
    for call in model.reached(_whole(model, loop)):
        on_device = model.value(call.node).holds_device_tensor
        if on_device and model.value(call.node.func).kind is Kind.MODEL:
            return call
    return None


def _trains(model: FileModel, loop: Loop) -> bool:
    return any(
        call.method in _TRAINS
        or call.name == OPTIMIZER_STEP
        or (call.name or "").startswith(_DIFFERENTIATES)
        for call in model.reached(_whole(model, loop))
    )


def _is_off(model: FileModel, loop: Loop, run: CallSite) -> bool:
    """Whether anything in reach turns gradients off, or may do so."""
    homes = {_home(other, node) for other in (model, *model.linked) for node in _mentions(other)}
    functions = [*_around(model, loop.function, _DEPTH)]
    functions += [
        x.target for x in model.reached(_whole(model, loop)) if isinstance(x.target, Function)
    ]
    around = [*model.tree.ancestors(loop.node), *walk(_whole(model, loop))]
    contexts = [item for node in around if isinstance(node, cst.With) for item in node.items]
    entered = (model.call(x.item).target for x in contexts if isinstance(x.item, cst.Call))
    functions += [function for function in entered if isinstance(function, Function)]
    if any((None if function is None else function.node) in homes for function in functions):
        return True
    return _is_frozen(model, run) or any(
        _MAY_BE_OFF.search(model.tree.text(item.item)) for item in contexts
    )


def _is_frozen(model: FileModel, run: CallSite) -> bool:
    """``model.requires_grad_(False)``: no parameter asks for a gradient.

    Of another model than the one that runs it says nothing: ``ema.requires_grad_(False)``.
    """
    runs = model.value(run.node.func)
    return any(
        (given := call.argument(0, "requires_grad")) is not None
        and model.literal(given) is False
        and not _is_another(model, call, runs)
        for call in model.methods("requires_grad_")
    )


def _is_another(model: FileModel, frozen: CallSite, runs: Value) -> bool:
    held = model.value(frozen.receiver) if frozen.receiver is not None else None
    if held is None or held.kind is not Kind.MODEL or held.roads:
        return False
    if None in {held.origin, runs.origin}:
        return False
    return held.origin is not runs.origin or _COPY in {held.type_name} - {runs.type_name}


def _around(model: FileModel, function: Function | None, depth: int) -> Iterator[Function | None]:
    """A function, those around it, and those that call it; None is the module."""
    yield function
    if function is None or depth == 0:
        return
    if function.outer is not None:
        yield from _around(model, function.outer, depth)
    for call in model.callers(function):
        yield from _around(model, call.function, depth - 1)
