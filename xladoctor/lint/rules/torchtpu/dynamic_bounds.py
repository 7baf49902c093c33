"""XLA865: bounds that TorchTPU's ``mark_dynamic`` refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_MARKS = (
    "torch_tpu._internal.dynamism.mark_dynamic",
    "torch_tpu._internal.dynamism._tpu_torch_dynamism.mark_dynamic",
)
#: Sizes of 0 and 1 have meanings of their own (nothing, broadcasting).
_LEAST = 2


@rule("XLA865")
def dynamic_bounds(model: FileModel) -> Iterator[Problem]:
    """Find lower bounds below 2 and bounds the wrong way round."""
    for call in model.calls(*_MARKS):
        if call.has_star:
            continue
        given = [call.argument(2, "lower_bound"), call.argument(3, "upper_bound")]
        lower, upper = (None if one is None else model.literal(one) for one in given)
        if not isinstance(lower, int) or given[0] is None:
            continue
        if lower < _LEAST:
            yield model.problem(
                given[0],
                f"a lower bound of {lower} raises RuntimeError: sizes of 0 and 1 have meanings of "
                "their own",
                suggestion="2, and a shape of its own where there may be one row or none",
            )
        elif isinstance(upper, int) and upper < lower and given[1] is not None:
            yield model.problem(
                given[1],
                f"no size lies between {lower} and {upper}: it raises",
                suggestion="the largest size that can come",
            )
