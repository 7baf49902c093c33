"""TPU slices as targets, named as Google Cloud names them; the facts are in ``targets.toml``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from xladoctor import catalogue
from xladoctor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Names of generations that Google Cloud uses beside its short ones.
_ALIASES = {"v5litepod": "v5e", "v5lite": "v5e"}


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """One slice, and what is known of each of its XLA devices (cores).

    Attributes:
        name: As Google Cloud names it ("v3-8").
        generation: "v3".
        topology: As libtpu names it ("v3:2x2x1").
        options: Arguments of the topology besides its name.
        cores: XLA devices of the slice.
        clock_hz: Cycles a second.
        peak_flops: bfloat16 floating point operations a second of one core.
        memory_bytes: What a program may use on one core, as the compiler says.
        bandwidth: Bytes a second between a core and its memory.
        source: Where peak, clock and bandwidth are published.
    """

    name: str
    generation: str
    topology: str
    options: Mapping[str, Any] = dataclasses.field(hash=False)
    cores: int
    clock_hz: float
    peak_flops: float
    memory_bytes: int
    bandwidth: float
    source: str


def names() -> list[str]:
    """All targets, generation by generation."""
    return [
        f"{generation}-{number}"
        for generation, facts in catalogue.table("targets").items()
        for number in _numbers(facts)
    ]


def find(text: str) -> tuple[Target, ...]:
    """The targets of a list such as "v3-8,v5e-8", each once, in the order given.

    Raises:
        UsageError: One does not exist, or none is named; the sentence lists those there are.
    """
    wanted = dict.fromkeys(word.strip().lower() for word in text.split(",") if word.strip())
    if not wanted:
        raise UsageError(f"--tpu: no target is named; there are {_offer()}")
    found = {target.name: target for target in map(_target, wanted)}
    return tuple(found.values())


def _target(word: str) -> Target:
    generation, _, number = word.rpartition("-")
    generation = _ALIASES.get(generation, generation)
    facts = catalogue.table("targets").get(generation)
    if facts is None or number not in _numbers(facts):
        raise UsageError(f"--tpu {word}: there is no such TPU; there are {_offer()}")
    options = dict(facts.get("options", {}))
    if number in facts["slices"]:
        shape = facts["slices"][number]
    else:
        shape = facts["single"]
        options["chips_per_host_bounds"] = [1, 1, 1]
    chips = 1
    for size in shape.split("x"):
        chips *= int(size)
    return Target(
        name=f"{generation}-{number}",
        generation=generation,
        topology=f"{generation}:{shape}",
        options=options,
        cores=chips * facts["devices_a_chip"],
        clock_hz=float(facts["clock_hz"]),
        peak_flops=float(facts["peak_flops"]),
        memory_bytes=int(facts["usable_bytes"]),
        bandwidth=float(facts["bandwidth"]),
        source=str(facts["source"]),
    )


def _numbers(facts: Mapping[str, Any]) -> list[str]:
    """The numbers that slices of a generation have in their names."""
    return [*(["1"] if "single" in facts else []), *facts["slices"]]


def _offer() -> str:
    """The targets in a sentence: the list is long, so numbers are joined by generation."""
    table = catalogue.table("targets")
    return "; ".join(
        f"{generation}-{{{','.join(_numbers(facts))}}}" for generation, facts in table.items()
    )
