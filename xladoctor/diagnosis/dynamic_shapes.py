"""XLA201 data-dependent-shape, from counters: results whose size depends on the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis.words import finding, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.case import Case
    from xladoctor.findings import Finding

#: U: troubleshoot.md, recompilation.md, aten_xla_type.cpp. index_put_ is left out: with index
#: tensors of fixed size it is static, and a counter does not tell.
DATA_DEPENDENT = (
    "nonzero", "argwhere", "masked_select", "_unique", "_unique2", "unique_dim",
    "unique_consecutive", "_pack_padded_sequence",
)  # fmt: skip
_SPACES = ("xla", "aten")


def find(case: Case) -> Iterator[Finding]:
    """One finding for the program; a recorded run knows the line and needs no guess."""
    if case.pasted is None:
        return
    for state in case.pasted.states:
        found = {
            name: count
            for name in DATA_DEPENDENT
            if (count := state.counter(*(f"{space}::{name}" for space in _SPACES)))
        }
        if found and not state.too_early:
            what = ", ".join(f"{name} ({plural(count, 'time')})" for name, count in found.items())
            yield finding(
                "XLA201",
                f"{what} gives results whose size depends on the data, so what follows is "
                "compiled again for each new size",
                "use torch.where or a multiplication by the mask, which keep the size",
                count=sum(found.values()),
                by="report",
            )
            return
