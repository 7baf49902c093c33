"""What ``xladoctor verify`` has found, for people and as JSON (see the contract)."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from xladoctor import visible
from xladoctor.results import finding_to_json, location_to_json
from xladoctor.verify.words import in_way, way_words

if TYPE_CHECKING:
    from xladoctor.findings import Finding
    from xladoctor.verify.result import Parting, Verdict

FORMATS = ("full", "json")


def render(verdict: Verdict, output_format: str, *, width: int = 100, color: bool = False) -> str:
    """A verdict in one of :data:`FORMATS`."""
    if output_format == "json":
        return visible.in_json(json.dumps(to_json(verdict), indent=1) + "\n")
    return visible.guarded(_full(visible.of(verdict), width, color=color))


def to_json(verdict: Verdict) -> dict[str, Any]:
    """The object that the contract fixes, with what may be added to it."""
    return {
        "schema_version": 1,
        "equal": verdict.parting is None,
        "steps": verdict.steps,
        "ways": list(verdict.ways),
        "parts_at": None if verdict.parting is None else _parting(verdict.parting),
        "largest_difference": verdict.largest,
        "findings": [finding_to_json(finding) for finding in verdict.findings],
        "notes": list(verdict.notes),
    }


def _parting(parting: Parting) -> dict[str, Any]:
    return {
        "step": parting.step,
        "way": parting.way,
        "from": parting.other,
        "what": parting.what,
        "name": parting.name,
        "location": location_to_json(parting.location),
        "difference": parting.difference,
        "tolerance": parting.tolerance,
        "cores": list(parting.cores),
        "because": parting.why or None,
    }


def _full(verdict: Verdict, width: int, *, color: bool) -> str:
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=color, color_system="standard" if color else None,
        highlight=False,
    )  # fmt: skip
    ways = [way_words(way) for way in verdict.ways]
    listed = ", ".join(ways[:-1]) + f" and {ways[-1]}"
    steps = f"step {verdict.steps}"
    if verdict.parting is None:
        console.print(Text(f"Equal through {steps}: {listed}", "bold green"))
        console.print(
            f"  The largest difference is {verdict.largest:.1e} of a tensor's largest value: "
            "no more than rounding makes."
        )
    else:
        _show_parting(console, verdict.parting, listed)
    for finding in verdict.findings:
        _show(console, finding)
    for note in verdict.notes:
        console.print(f"Note: {note}.", style="dim")
    return out.getvalue()


def _show_parting(console: Console, parting: Parting, listed: str) -> None:
    what = f"{parting.what} {parting.name}".strip()
    if parting.other == parting.way:
        cores = ", ".join(str(core) for core in parting.cores)
        title = f"The cores part after step {parting.step}: {what} of core {cores} and core 0"
    else:
        title = (
            f"They part at step {parting.step}: the {what} {in_way(parting.way)} "
            f"and {in_way(parting.other)}"
        )
    console.print(Text(title, "bold red"))
    amount = (
        "one of them is missing or no number"
        if parting.difference is None
        else f"{parting.difference:.2g} of its largest value"
    )
    console.print(f"  difference  {amount} (rounding would make up to {parting.tolerance:.1e})")
    if parting.location is not None:
        inside = f" in {parting.location.function}" if parting.location.function else ""
        console.print(f"  at          {parting.location.at}{inside}")
    if parting.why:
        console.print(f"  because     {parting.why}")
    console.print(f"  compared    {listed}")


def _show(console: Console, finding: Finding) -> None:
    at = f"{finding.locations[0].at}: " if finding.locations else ""
    console.print(f"{finding.code} [{finding.name}] {at}{finding.message}", markup=False)
    if finding.suggestion:
        console.print(f"  fix {finding.suggestion}", markup=False)
