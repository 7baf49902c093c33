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
    from xladoctor.verify.result import Divergence, Verdict

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
        "equal": verdict.divergence is None,
        "steps": verdict.steps,
        "ways": list(verdict.ways),
        "parts_at": None if verdict.divergence is None else _divergence(verdict.divergence),
        "largest_difference": verdict.largest,
        "findings": [finding_to_json(finding) for finding in verdict.findings],
        "notes": list(verdict.notes),
    }


def _divergence(divergence: Divergence) -> dict[str, Any]:
    return {
        "step": divergence.step,
        "way": divergence.way,
        "from": divergence.other,
        "what": divergence.what,
        "name": divergence.name,
        "location": location_to_json(divergence.location),
        "difference": divergence.difference,
        "tolerance": divergence.tolerance,
        "cores": list(divergence.cores),
        "because": divergence.why or None,
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
    if verdict.divergence is None:
        console.print(Text(f"Equal through {steps}: {listed}", "bold green"))
        console.print(
            f"  The largest difference is {verdict.largest:.1e} of a tensor's largest value: "
            "no more than rounding makes."
        )
    else:
        _show_divergence(console, verdict.divergence, listed)
    for finding in verdict.findings:
        _show(console, finding)
    for note in verdict.notes:
        console.print(f"Note: {note}.", style="dim")
    return out.getvalue()


def _show_divergence(console: Console, divergence: Divergence, listed: str) -> None:
    what = f"{divergence.what} {divergence.name}".strip()
    if divergence.other == divergence.way:
        cores = ", ".join(str(core) for core in divergence.cores)
        title = f"The cores part after step {divergence.step}: {what} of core {cores} and core 0"
    else:
        title = (
            f"They part at step {divergence.step}: the {what} {in_way(divergence.way)} "
            f"and {in_way(divergence.other)}"
        )
    console.print(Text(title, "bold red"))
    amount = (
        "one of them is missing or no number"
        if divergence.difference is None
        else f"{divergence.difference:.2g} of its largest value"
    )
    console.print(f"  difference  {amount} (rounding would make up to {divergence.tolerance:.1e})")
    if divergence.location is not None:
        inside = f" in {divergence.location.function}" if divergence.location.function else ""
        console.print(f"  at          {divergence.location.at}{inside}")
    if divergence.why:
        console.print(f"  because     {divergence.why}")
    console.print(f"  compared    {listed}")


def _show(console: Console, finding: Finding) -> None:
    at = f"{finding.locations[0].at}: " if finding.locations else ""
    console.print(f"{finding.code} [{finding.name}] {at}{finding.message}", markup=False)
    if finding.suggestion:
        console.print(f"  fix {finding.suggestion}", markup=False)
