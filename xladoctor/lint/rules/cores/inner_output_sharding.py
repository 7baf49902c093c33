"""XLA445: FSDPv2 on two data axes whose inner layers shard their outputs over one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._spmd import FSDP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem


@rule("XLA445")
def inner_output_sharding(model: FileModel) -> Iterator[Problem]:
    """Find ``extra_data_axis`` together with ``auto_wrap_policy``, and no ``shard_output``."""
    for call in model.calls(*FSDP):
        given = {name: model.literal(value) for name, value in call.keywords.items()}
        if call.has_star or {"shard_output", "auto_wrapper_callable"} & given.keys():
            continue
        if "auto_wrap_policy" not in given or not isinstance(given.get("extra_data_axis"), str):
            continue
        axis = given["extra_data_axis"]
        yield model.problem(
            call.keywords["extra_data_axis"],
            f"the layers that auto_wrap_policy wraps are not told of '{axis}': their outputs are "
            "sharded over 'fsdp' alone, and the same work is done along the other axis",
            suggestion="shard_output=: a function that marks the output over "
            f"(('{axis}', 'fsdp'), None, ...) on every layer",
        )
