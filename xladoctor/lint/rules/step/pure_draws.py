"""XLA324: functions that are traced once and draw random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_PURE = "torch_xla.experimental.assume_pure.assume_pure"
#: Which argument says that what is scanned is pure.
_SCANS = {
    "torch_xla.experimental.scan.scan": "is_fn_pure",
    "torch_xla.experimental.scan_layers.scan_layers": "is_layer_pure",
}
_DRAWS = (
    *(f"torch.nn.functional.dropout{kind}" for kind in ("", "1d", "2d", "3d")),
    *(f"torch.{name}" for name in ("rand", "randn", "randint", "rand_like", "randn_like")),
    "torch.bernoulli",
    "torch.nn.Dropout",
    "torch.nn.Dropout1d",
    "torch.nn.Dropout2d",
)


@rule("XLA324")
def pure_draws(model: FileModel) -> Iterator[Problem]:
    """Find what is said to be pure, in files where it, or its layers, draw."""
    for call in model.calls(_PURE):
        given = call.argument(0, "fn")
        seeded = call.keywords.get("add_rng_seed_argument")
        if given is None or (seeded is not None and model.literal(seeded) is not False):
            continue
        drawn = _drawn_in(model, given)
        if drawn is not None:
            yield _problem(
                model, call, drawn, "add_rng_seed_argument=True, and a new seed each step"
            )
    for call in model.calls(*_SCANS):
        said = call.keywords.get(_SCANS[call.name or ""])
        if said is None or model.literal(said) is not True:
            continue
        drawn = next((one for one in model.calls(*_DRAWS)), None)
        if drawn is not None:
            yield _problem(model, call, drawn, f"leave {_SCANS[call.name or '']} out")


def _problem(model: FileModel, call: CallSite, drawn: CallSite, write: str) -> Problem:
    return model.problem(
        call.node,
        "a pure function is traced once, and the random key becomes a constant of it: every step "
        "drops the same places",
        suggestion=write,
        related=[model.place(drawn.node, "it is drawn here")],
    )


def _drawn_in(model: FileModel, given: cst.BaseExpression) -> CallSite | None:
    """The first draw in a function that stands in the file."""
    if isinstance(given, cst.Lambda):
        bodies: list[cst.CSTNode] = [given]
    elif isinstance(given, cst.Name):
        bodies = [one.node for one in model.functions if one.name == given.value]
    else:
        return None
    for body in bodies:
        for node in walk(body):
            if isinstance(node, cst.Call) and model.call(node).name in _DRAWS:
                return model.call(node)
    return None
