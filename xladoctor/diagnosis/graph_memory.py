"""XLA711 graph-needs-memory: what the largest compiled graph needs on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.amounts import size
from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xladoctor.diagnosis.case import Case
    from xladoctor.findings import Finding

_PARTS = {
    "Graph input size": "inputs",
    "Graph output size": "outputs",
    "Intermediate tensor size": "intermediate tensors",
    "Compiled program size": "program",
}
_ALIASED = "Aliased Input size"


def find(case: Case) -> Iterator[Finding]:
    """At most one, from Post Compilation Analysis blocks that have all five sizes."""
    blocks = case.pasted.debug if case.pasted is not None else ()
    known = [block.sizes for block in blocks if {*_PARTS, _ALIASED} <= block.sizes.keys()]
    if not known:
        return
    largest = max(known, key=needed)
    total = needed(largest)
    small = [name for name, gib in limits.CORE_MEMORY_GIB if total > gib * 2**30]
    twice = (
        largest["Graph input size"] >= limits.DONATION_BYTES
        and largest["Graph output size"] >= largest["Graph input size"] / 2
        and largest[_ALIASED] < limits.DONATED_SHARE * largest["Graph input size"]
    )
    if not small and not twice:
        return
    parts = ", ".join(f"{text} {size(largest[label])}" for label, text in _PARTS.items())
    where = f"more than a core of {', '.join(small)} has" if small else "its state is held twice"
    yield finding(
        "XLA711",
        f"the largest graph needs {size(total)} on each core ({parts}, of which "
        f"{size(largest[_ALIASED])} are shared by inputs and outputs): {where}",
        "update parameters in place so that their memory is given back (the step's end must come "
        "after optimizer.step())"
        if twice
        else "use gradient checkpointing, bfloat16, a smaller batch or sharding (FSDP, SPMD)",
        count=len(known),
        by="report",
    )


def needed(sizes: Mapping[str, float]) -> float:
    """Bytes that a graph needs on the device: what is aliased counts once. U (debug_util.cpp)."""
    return sum(sizes[label] for label in _PARTS) - sizes[_ALIASED]
