"""Loops over the time steps of a diffusion, by what they do, and calls that hold such a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, LoopKind, walk
from xladoctor.lint.model.turns import is_of_turn
from xladoctor.lint.rules._ends import fetches, may_end
from xladoctor.lint.rules._reads import not_here

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Problem

#: Methods of OpenAI's ``GaussianDiffusion`` (guided-diffusion, gaussian_diffusion.py), which DiT
#: and many programs have a copy of: each calls the model once for each time step and gives the
#: last sample. Their ``_progressive`` twins are generators: the loop that draws from them may sync.
_SAMPLERS = frozenset({"p_sample_loop", "ddim_sample_loop"})
_WHY = (
    "all its calls of the model become one graph, which takes that many times longer to trace "
    "and compile"
)


def denoising(model: FileModel) -> Iterator[Problem]:
    """``for t in scheduler.timesteps``: hundreds of calls of a model become one graph."""
    for loop in model.loops:
        if loop.implicit or not isinstance(loop.node, cst.For):
            continue
        back = loop.kind is not LoopKind.STEP and _counts_back(model, loop.node)
        if not _over_timesteps(loop.node) and not (back and _feeds_itself(model, loop.node)):
            continue
        inside = (part for part in walk(loop.node.body) if isinstance(part, cst.Call))
        if any(is_of_turn(loop.node, part.func) for part in inside):
            continue  # ``self.blocks[i](x)``: from the last layer to the first
        calls = model.reached(loop.node)
        ran = next((call for call in calls if _runs_on_device(model, call)), None)
        if ran is None or not_here(model, loop.node) or _ends(model, calls):
            continue
        yield model.problem(
            loop.node,
            f"nothing in this loop ends the graph: {_WHY}",
            suggestion="call torch_xla.sync() at the end of the body",
            related=[model.place(ran.node, "the model, once more in each turn")],
        )
    yield from _samplers(model)


def _samplers(model: FileModel) -> Iterator[Problem]:
    """``diffusion.p_sample_loop(net, shape)`` of a class that nobody has read."""
    for call in model.methods(*_SAMPLERS):
        if call.target is not None:
            continue
        given = call.argument(0, "model")
        if given is None or not _is_model_here(model, given) or not_here(model, call.node):
            continue
        yield model.problem(
            call.node,
            f"nothing ends the graph between the time steps of {call.method}: {_WHY}",
            suggestion=f"loop over {call.method}_progressive and call torch_xla.sync() in each "
            "turn",
        )


def _is_model_here(model: FileModel, given: cst.BaseExpression) -> bool:
    """A model on the device, or a method of one: ``ema.forward_with_cfg``."""
    value = model.value(given)
    if value.kind is not Kind.MODEL and isinstance(given, cst.Attribute):
        value = model.value(given.value)
    return value.kind is Kind.MODEL and value.on_device


def _ends(model: FileModel, calls: Sequence[CallSite]) -> bool:
    """Whether one of the calls in a loop ends the graph, runs it, or may."""
    return any(
        model.effects.ends_graph(call)
        or fetches(model, call)
        or (may_end(model, call) and not _of_scheduler(call))
        for call in calls
    )


def _over_timesteps(node: cst.For) -> bool:
    """``scheduler.timesteps``, within ``enumerate`` and the like, and a name of that kind."""
    return any(
        isinstance(part, cst.Name) and part.value in {"timesteps", "time_steps"}
        for part in walk(node.iter)
    )


def _runs_on_device(model: FileModel, call: CallSite) -> bool:
    """Whether a call runs a model that is on the device, whatever its weights are."""
    value = model.value(call.node.func)
    return value.kind is Kind.MODEL and (value.on_device or model.value(call.node).is_device_tensor)


def _of_scheduler(call: CallSite) -> bool:
    """``scheduler.step(noise, t, sample)`` gives the next sample, and ends nothing."""
    return call.method in {"step", "step_with_logprob"}


def _counts_back(model: FileModel, node: cst.For) -> bool:
    """``reversed(range(steps))``, ``range(steps - 1, -1, -1)``, also within ``tqdm(...)``."""
    for part in model.within(node.iter, cst.Call):
        name = model.name(part.func)
        inner = part.args[0].value if part.args else None
        if name == "builtins.reversed" and isinstance(inner, cst.Call):
            return model.name(inner.func) == "builtins.range"
        if name == "builtins.range" and len(part.args) == 3:
            step = part.args[2].value
            return isinstance(step, cst.UnaryOperation) and isinstance(step.operator, cst.Minus)
    return False


def _feeds_itself(model: FileModel, node: cst.For) -> bool:
    """``x = denoise(net, x, t)``: what a turn computes is given to the next."""
    set_here = {
        target.target.value
        for part in walk(node.body, into_functions=False)
        if isinstance(part, cst.Assign)
        for target in part.targets
        if isinstance(target.target, cst.Name)
    }
    given = {
        argument.value.value
        for part in walk(node.body, into_functions=False)
        if isinstance(part, cst.Call) and model.value(part).is_device_tensor
        for argument in part.args
        if isinstance(argument.value, cst.Name)
    }
    return bool(set_here & given)
