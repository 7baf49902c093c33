"""The answer of ``xladoctor verify``, as every format shows it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xladoctor.findings import Finding, Location


@dataclasses.dataclass(frozen=True, slots=True)
class Divergence:
    """Where the ways first part.

    Attributes:
        step: The optimizer step, from 1; 0 for what the program starts with.
        way: The way that parts from the one before it.
        other: That other way; the same way if its own cores part from each other.
        what: "loss", "gradient", "parameter", "buffer" or "state".
        name: Of the tensor; "" for a loss.
        location: The line of the step, the backward pass or what explains it; None if unknown.
        difference: Relative to the largest value; None where one of them is missing or no number.
        tolerance: What would have been taken for rounding.
        cores: The cores of the way that part, if not all do.
        why: What explains it, as a sentence; "" if nothing does.
    """

    step: int
    way: str
    other: str
    what: str
    name: str
    location: Location | None
    difference: float | None
    tolerance: float
    cores: tuple[int, ...] = ()
    why: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What was found.

    Attributes:
        ways: The ways that were compared, in order.
        steps: How many steps were compared.
        divergence: None if the ways are equal.
        largest: The largest difference that counts as equal, of all that is more than rounding.
        findings: What the run on the cores and the linter found that makes results wrong.
        notes: What was made equal and how, and what could not be compared; sentences.
    """

    ways: tuple[str, ...]
    steps: int
    divergence: Divergence | None
    largest: float
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
