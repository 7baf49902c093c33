"""XLA722: flash attention without the scale that attention needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_ATTENTION = "torch_xla.experimental.custom_kernel.flash_attention"
#: What a program writes that scales its queries itself.
_SCALED = re.compile(r"\bscale|\bsqrt\b|\*\*\s*\(?\s*-\s*0?\.5|\brsqrt\b|norm_factor")


@rule("XLA722")
def attention_scale(model: FileModel) -> Iterator[Problem]:
    """Find calls that leave ``sm_scale`` at 1 in functions that scale nothing themselves."""
    for call in model.calls(_ATTENTION):
        if call.has_star or call.argument(6, "sm_scale") is not None:
            continue
        around = call.function.node if call.function is not None else None
        text = model.rows_of(around) if around is not None else model.text
        if _SCALED.search(text):
            continue
        yield model.problem(
            call.node,
            "sm_scale is 1 unless it is given: scores are not divided by the square root of the "
            "head's size as scaled_dot_product_attention does",
            suggestion="sm_scale=head_dim ** -0.5",
        )
