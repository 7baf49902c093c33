"""XLA321: functional dropout that does not know whether the model trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

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
        if share is not None and model.literal(share) in (0, 0.0):
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
