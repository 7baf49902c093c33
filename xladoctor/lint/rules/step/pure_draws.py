"""XLA324: functions that are traced once and draw random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import _scans, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_PURE = "torch_xla.experimental.assume_pure.assume_pure"
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
    """Find what is said to be pure, and draws."""
    for call in model.calls(_PURE):
        given = call.argument(0, "fn")
        seeded = call.keywords.get("add_rng_seed_argument")
        if given is None or (seeded is not None and model.literal(seeded) is not False):
            continue
        drawn = _scans.runs(model, given, _DRAWS)
        if drawn is not None:
            yield _problem(
                model, call, drawn, "add_rng_seed_argument=True, and a new seed each step"
            )
    for call in _scans.scans(model):
        pure = _scans.SCANS[call.name or ""]
        said = call.keywords.get(pure)
        if said is None or model.literal(said) is not True:
            continue
        given = call.argument(0, "fn") or call.keywords.get("layers")
        drawn = _scans.runs(model, given, _DRAWS)
        if drawn is not None:
            yield _problem(model, call, drawn, f"leave {pure} out")


def _problem(model: FileModel, call: CallSite, drawn: CallSite, write: str) -> Problem:
    return model.problem(
        call.node,
        "a pure function is traced once, and the random key becomes a constant of it: every step "
        "drops the same units",
        suggestion=write,
        related=[model.place(drawn.node, "it is drawn here")],
    )
