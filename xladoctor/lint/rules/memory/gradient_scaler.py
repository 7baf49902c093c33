"""XLA704: a gradient scaler, which bfloat16 does not need and which reads every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import LoopKind
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rewrites.moves import line_of
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cuda import runs_with_xla
from xladoctor.lint.rules._exact import precision_is_asked, reads
from xladoctor.lint.rules._protocol import OPTIMIZER_STEP
from xladoctor.lint.rules._settled import settled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Edit, Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

_SCALERS = tuple(
    f"torch.{name}GradScaler" for name in ("cuda.amp.", "amp.", "cuda.amp.grad_scaler.")
)


@rule("XLA704")
def gradient_scaler(model: FileModel) -> Iterator[Problem]:
    """Find gradient scalers that are on in files with a step loop on XLA devices."""
    if not model.is_xla or not any(loop.kind is LoopKind.STEP for loop in model.loops_of_program):
        return
    for call in model.calls(*_SCALERS):
        if call.has_star or not _is_on(model, call) or not runs_with_xla(model, call.node):
            continue
        if _is_unused(model, call):
            continue
        yield model.problem(
            call.node,
            "a gradient scaler reads on the host in every step whether a gradient overflowed, "
            "and its step() bypasses xm.optimizer_step; bfloat16 needs no scaling",
            suggestion="leave it out: loss.backward(), then xm.optimizer_step(optimizer)",
            fix=_fix(model, call),
        )


def _is_on(model: FileModel, call: CallSite) -> bool:
    """Not by ``enabled=``, nor by a condition, unless a setting of the program says so for good."""
    enabled = call.keywords.get("enabled")
    if enabled is not None and set(settled(model, enabled)) != {True}:
        return False
    return not any(
        precision_is_asked(model, guard.test) and set(settled(model, guard.test)) != {True}
        for guard in model.guards(call.node)
    )


def _is_unused(model: FileModel, call: CallSite) -> bool:
    """``scaler = GradScaler()`` that nothing asks for: it costs nothing."""
    line = model.parent(call.node)
    target = line.targets[0].target if isinstance(line, cst.Assign) else None
    if not isinstance(target, cst.Name) or call.function is None:
        return False
    return all(use is target for use in reads(model, target))


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    """``loss.backward()`` and the optimizer's step in place of scale, step and update."""
    line = line_of(model, call.node)
    statement = line.body[0] if line is not None else None
    if not isinstance(statement, cst.Assign) or statement.value is not call.node:
        return None
    target = statement.targets[0].target
    if len(statement.targets) != 1 or not isinstance(target, cst.Name):
        return None
    bindings = model.bindings(target.value, target)
    edits = [model.remove_statement(call.node)]
    if len(bindings) != 1:
        return None
    for use in reads(model, target):
        edits += _unscaled(model, use)
    return model.fix("Leave the scaler out", *edits, safe=False)


def _unscaled(model: FileModel, use: cst.Name) -> list[Edit | None]:
    """What becomes of ``scaler.scale(loss)``, ``.step(optimizer)`` and the like."""
    attribute = model.parent(use)
    call = model.parent(attribute) if isinstance(attribute, cst.Attribute) else None
    if not isinstance(call, cst.Call) or not isinstance(attribute, cst.Attribute):
        return [None]
    method = attribute.attr.value
    alone = isinstance(model.parent(call), cst.Expr)
    if method in {"update", "unscale_"} and alone:
        return [model.remove_statement(call)]
    if method not in {"scale", "step"} or len(call.args) != 1:
        return [None]
    text = model.tree.text(call.args[0].value).strip()
    if method == "scale":
        return [model.replace(call, text)]
    reduces = spell(model, call, OPTIMIZER_STEP)
    if model.on_every_core(call) is None or reduces is None:
        return [model.replace(call, f"{text}.step()")]
    return [model.replace(call, f"{reduces[0]}({text})"), *reduces[1]]
