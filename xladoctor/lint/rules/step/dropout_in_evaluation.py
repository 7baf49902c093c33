"""XLA321: functional dropout that does not know whether the model trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.conditions import without_not
from xladoctor.lint.model.dotted import last_name
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import assigned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import FileModel, Problem

#: How many names and calls a share is followed through.
_DEPTH = 3
#: Those whose ``training`` is True unless it is given.
_DROPOUTS = tuple(
    f"torch.nn.functional.{name}" for name in ("dropout", "dropout1d", "dropout2d", "dropout3d")
)


@rule("XLA321")
def dropout_in_evaluation(model: FileModel) -> Iterator[Problem]:
    """Find ``F.dropout(x, p)`` in methods of modules, without ``training``."""
    if not model.is_xla:
        return
    for call in model.calls(*_DROPOUTS):
        if call.function is None or call.has_star or call.argument(2, "training") is not None:
            continue
        owner = call.function.owner
        if owner is None or not model.is_module(owner) or call.function.parameters[:1] != ("self",):
            continue
        share = call.argument(1, "p")
        if share is not None and _is_nothing(model, share):
            continue
        if any(_asks_for_training(guard.test) and guard.when for guard in model.guards(call.node)):
            continue
        yield model.problem(
            call.node,
            "this dropout stays on after model.eval(): training defaults to True, so evaluations "
            "drop units too",
            suggestion="training=self.training",
            fix=model.fix(
                "Drop only while the model trains",
                model.add_argument(call.node, "training=self.training"),
                safe=False,
            ),
        )


def _is_nothing(model: FileModel, share: cst.BaseExpression, depth: int = _DEPTH) -> bool:
    """``self.p if self.training else 0.0``, also through names, and from all callers."""
    if isinstance(share, cst.IfExp):
        test, when = without_not(share.test, when=True)
        if _asks_for_training(test):
            return _is_nothing(model, share.orelse if when else share.body, depth)
    if isinstance(share, cst.BinaryOperation) and isinstance(share.operator, cst.Multiply):
        return any(map(_asks_for_training, (share.left, share.right)))
    if not isinstance(share, cst.Name) or depth == 0:
        return model.literal(share) in (0, 0.0)
    made = _given(model, share) or assigned(model, share)
    return bool(made) and all(
        one is not None and _is_nothing(model, one, depth - 1) for one in made
    )


def _given(model: FileModel, share: cst.Name) -> Sequence[cst.BaseExpression | None]:
    """What callers give a parameter, or its default; nothing of another name."""
    function = model.with_parameter(share)
    bindings = model.bindings(share.value, share)
    if function is None or any(one.kind != "param" for one in bindings):
        return ()
    usual = function.default(share.value)
    given = [one.given_to(function, share.value) for one in model.callers(function)]
    return [one or usual for one in given] or [usual]


def _asks_for_training(test: cst.BaseExpression) -> bool:
    """``self.training``, which ``model.eval()`` makes False."""
    return isinstance(test, cst.Attribute) and last_name(test) == "training"
