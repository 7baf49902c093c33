"""XLA436: gradients of a sharded model that are clipped by the norm of one core's shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._model_parallel import divided
from xladoctor.lint.rules._sharded import asked, sharded_at
from xladoctor.lint.rules._sources import the_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

_CLIPS = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad.clip_grad_norm_")
#: The wrapper's own method takes no others (torch_xla 2.9).
_KEYWORDS = frozenset({"max_norm", "norm_type"})


@rule("XLA436")
def sharded_clip(model: FileModel) -> Iterator[Problem]:
    """Find torch's ``clip_grad_norm_`` on the parameters of a sharded or divided model."""
    yield from _of_parallel_layers(model)
    for call in model.calls(*_CLIPS):
        sharded = _clipped_model(model, call)
        origin = sharded_at(model, sharded) if sharded is not None else None
        if sharded is None or origin is None or _excluded(model, origin, call.node):
            continue
        yield model.problem(
            call.node,
            "clip_grad_norm_ sees only this core's shard of the gradients: every core clips by a "
            "different norm",
            suggestion=f"{model.tree.text(sharded).strip()}.clip_grad_norm_(max_norm), which "
            "reduces the norm over the cores",
            related=[model.place(origin, "the model is sharded here")],
            fix=_fix(model, call, sharded),
        )


def _of_parallel_layers(model: FileModel) -> Iterator[Problem]:
    """``clip_grad_norm_(model.parameters(), 1.0)`` where neuronx_distributed divides the model."""
    clips = list(model.calls(*_CLIPS))
    start = divided(model) if clips else None
    if start is None or model.spmd or model.guards(start.node):
        return
    for call in clips:
        if _clipped_model(model, call) is not None and not model.guards(call.node):
            yield model.problem(
                call.node,
                "clip_grad_norm_ sees only this core's part of the divided layers: every core "
                "clips by a different norm",
                suggestion="neuronx_distributed.parallel_layers.clip_grad_norm(parameters, "
                "max_norm), which reduces the norm over the cores",
                related=[model.place(start.node, "the model is divided here")],
            )


def _clipped_model(model: FileModel, clip: CallSite) -> cst.BaseExpression | None:
    """The model of ``clip_grad_norm_(model.parameters(), 1.0)``, by a name too."""
    given = clip.argument(0, "parameters")
    asks = the_source(model, given) if given is not None else None
    return asked(asks, "parameters") if asks is not None else None


def _excluded(model: FileModel, origin: cst.CSTNode, clip: cst.CSTNode) -> bool:
    """Whether settings exclude each other: ``if args.fsdp:`` it is sharded, ``else:`` clipped."""

    def sides(node: cst.CSTNode) -> set[tuple[str, bool]]:
        return {(model.tree.text(guard.test).strip(), guard.when) for guard in model.guards(node)}

    clipped = sides(clip)
    return any((test, not when) in clipped for test, when in sides(origin))


def _fix(model: FileModel, call: CallSite, sharded: cst.BaseExpression) -> Fix | None:
    if call.has_star or "parameters" in call.keywords or set(call.keywords) - _KEYWORDS:
        return None
    arguments = [model.tree.text(argument).strip().rstrip(",") for argument in call.node.args[1:]]
    written = f"{model.tree.text(sharded).strip()}.clip_grad_norm_({', '.join(arguments)})"
    return model.fix(
        "Clip by the norm of all shards", model.replace(call.node, written), safe=False
    )
