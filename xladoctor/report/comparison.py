"""What ``xladoctor compare`` shows: for the terminal, for machines and for pull requests."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from xladoctor import amounts, visible
from xladoctor.findings import capital
from xladoctor.report import words
from xladoctor.results import SCHEMA_VERSION

if TYPE_CHECKING:
    from xladoctor.changes import Change, CodeChange, Comparison, Counted, Gate
    from xladoctor.results import Report

FORMATS = ("full", "json", "markdown", "html")
_STYLES = {"better": "green", "gone": "green", "worse": "red", "new": "red"}


def render(
    comparison: Comparison,
    names: tuple[str, str],
    output_format: str = "full",
    *,
    gate: Gate | None = None,
    width: int = 100,
    color: bool = False,
) -> str:
    """A comparison as text in one of :data:`FORMATS`, ending with a newline.

    Args:
        comparison: What to show.
        names: The sources as the user gave them.
        output_format: The form.
        gate: What the limit said, for the JSON; None if there was none.
        width: Columns of the terminal; only for ``full``.
        color: Whether to use terminal colours; only for ``full``.
    """
    if output_format == "json":
        whole = to_json(comparison, names, gate)
        text = json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        return visible.in_json(text)
    # Nothing here shows the time line, and a long run has thousands of stretches.
    short = dataclasses.replace(
        comparison,
        before=dataclasses.replace(comparison.before, timeline=None),
        after=dataclasses.replace(comparison.after, timeline=None),
    )
    comparison, names = visible.of(short), visible.of(names)
    if output_format == "html":
        from xladoctor.report import comparison_page

        return comparison_page.render(comparison, names)
    if output_format == "markdown":
        return visible.guarded(_markdown(comparison, names))
    return visible.guarded(_terminal(comparison, names, width, color=color))


def to_json(comparison: Comparison, names: tuple[str, str], gate: Gate | None) -> dict[str, Any]:
    """One object; null is "not measured"."""
    return {
        "schema_version": SCHEMA_VERSION,
        "before": _side_to_json(comparison.before, names[0]),
        "after": _side_to_json(comparison.after, names[1]),
        "figures": [_change_to_json(change) for change in comparison.changes],
        "seconds_per_step": {
            part: {"before": before, "after": after}
            for part, (before, after) in comparison.time.items()
        },
        "findings": [
            {
                "code": item.code,
                "name": item.name,
                "severity": item.severity.value,
                "verdict": item.verdict,
                "before": _counted_to_json(item.before),
                "after": _counted_to_json(item.after),
            }
            for item in comparison.codes
        ],
        "gate": None
        if gate is None
        else {
            "passed": not gate.broken,
            "broken": list(gate.broken),
            "unknown": list(gate.unknown),
        },
        "notes": list(comparison.notes),
    }


def _side_to_json(report: Report, name: str) -> dict[str, Any]:
    summary = report.summary
    return {
        "source": name,
        "verdict": summary.verdict,
        "cores": summary.cores,
        "steps": summary.steps,
        "simulated": report.simulated,
    }


def _change_to_json(change: Change) -> dict[str, Any]:
    return {
        "name": change.name,
        "title": change.title,
        "unit": change.unit,
        "before": change.before,
        "after": change.after,
        "percent": change.percent,
        "verdict": change.verdict,
        "noise": change.noise or None,
    }


def _counted_to_json(counted: Counted) -> dict[str, Any]:
    return {"findings": counted.findings, "count": counted.count, "seconds": counted.seconds}


def headline(comparison: Comparison) -> str:
    """What got better and worse, in one sentence."""
    worse, better = comparison.titles("worse"), comparison.titles("better")
    new = [item.code for item in comparison.codes if item.verdict == "new"]
    gone = [item.code for item in comparison.codes if item.verdict == "gone"]
    worse += [f"{', '.join(new)} new"] if new else []
    better += [f"{', '.join(gone)} gone"] if gone else []
    parts = [f"worse: {', '.join(worse)}"] if worse else []
    parts += [f"better: {', '.join(better)}"] if better else []
    return capital("; ".join(parts) or "nothing that was measured in both has changed") + "."


def _terminal(comparison: Comparison, names: tuple[str, str], width: int, *, color: bool) -> str:
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_jupyter=False,
        force_terminal=color, no_color=not color, highlight=False,
        color_system="truecolor" if color else None, emoji=False, markup=False,
        legacy_windows=False,
    )  # fmt: skip
    console.print(Text(headline(comparison), "bold"))
    console.print()
    for label, name, report in zip(
        ("before", "after"), names, (comparison.before, comparison.after), strict=True
    ):
        console.print(f"  {label:7} {name} ({about(report)})")
    console.print()
    console.print(_figures(comparison))
    parts = _time(comparison)
    if parts is not None:
        console.print(Text("\nSeconds per core and step", "bold"))
        console.print(parts)
    if comparison.codes:
        console.print(Text("\nFindings", "bold"))
        for item in comparison.codes:
            style = _STYLES.get(item.verdict, "")
            line = f"{item.code} {item.name}  {occurrences(item)}"
            console.print(Text.assemble("  ", (f"{item.verdict:6}", style), line.rstrip()))
    for note in comparison.notes:
        console.print(f"\nNote: {note}")
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def about(report: Report) -> str:
    """How large a run was: ``8 cores, 14 steps``."""
    summary = report.summary
    facts = [
        f"{value:,} {name}{'' if value == 1 else 's'}"
        for name, value in (("core", summary.cores), ("step", summary.steps))
        if value is not None
    ]
    return ", ".join(facts) or "no steps"


def _figures(comparison: Comparison) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", min_width=26)
    table.add_column("before", justify="right")
    table.add_column("after", justify="right")
    table.add_column("")
    for change in comparison.changes:
        table.add_row(
            f"  {change.title}",
            value(change.before, change.unit),
            value(change.after, change.unit),
            Text(verdict(change), _STYLES.get(change.verdict, "dim")),
        )
    return table


def times(comparison: Comparison) -> dict[str, tuple[float, float]]:
    """Seconds of a core's step before and after, by part; what "other" holds as far as both know.

    Parts that one of them has not measured, and those that took no time, are left out.
    """
    known = {
        part: (before, after)
        for part, (before, after) in comparison.time.items()
        if before is not None and after is not None
    }
    sides = [_within_other(report) for report in (comparison.before, comparison.after)]
    if "other" in known and None not in sides:
        for part in words.PARTS:
            before, after = (side.get(part, 0.0) if side else 0.0 for side in sides)
            if part not in known and (before or after):
                rest = known["other"]
                known[part] = (before, after)
                known["other"] = (max(0.0, rest[0] - before), max(0.0, rest[1] - after))
    return {part: known[part] for part in words.PARTS if any(known.get(part, ()))}


def _within_other(report: Report) -> dict[str, float] | None:
    """What "other" holds, in seconds a step; None if that was not recorded."""
    summary = report.summary
    if summary.within_other is None or not summary.steps:
        return None
    return {part: seconds / summary.steps for part, seconds in summary.within_other.items()}


def _time(comparison: Comparison) -> Table | None:
    known = times(comparison)
    if not known:
        return None
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("", min_width=26)
    table.add_column("before", justify="right")
    table.add_column("after", justify="right")
    for part, (before, after) in known.items():
        table.add_row(f"  {words.PARTS[part]}", words.seconds(before), words.seconds(after))
    return table


def value(number: float | None, unit: str) -> str:
    """A figure as people read it; a dash for what was not measured."""
    if number is None:
        return "-"
    if unit == "s":
        return words.seconds(number)
    if unit:
        return amounts.device_time(number / 1e6) if unit == "us" else words.amount(number, unit)
    return f"{number:,.0f}" if number == int(number) else f"{number:,.2f}"


def verdict(change: Change) -> str:
    """``better (-76%)``, ``same``, or why nothing can be said."""
    if change.verdict == "unknown":
        return "" if change.before is None and change.after is None else "measured in one only"
    grown = "" if not change.percent else f" ({change.percent:+.0f}%)"
    reason = f": {change.noise}" if change.noise else ""
    return f"{change.verdict}{grown if not reason else ''}{reason}"


def occurrences(item: CodeChange) -> str:
    """How often a code was found, before and after."""

    def written(counted: Counted) -> str:
        return f"{counted.count:,}x" if counted.count is not None else f"{counted.findings}"

    if item.verdict == "still":
        return f"{written(item.before)} -> {written(item.after)}"
    counted = item.before if item.verdict == "gone" else item.after
    return f"{counted.count:,}x" if counted.count is not None else ""


def _markdown(comparison: Comparison, names: tuple[str, str]) -> str:
    lines = [
        f"## xladoctor: {headline(comparison)}",
        "",
        "| | before | after | |",
        "|---|---|---|---|",
    ]
    reports = (comparison.before, comparison.after)
    sources = [
        f"`{name}` ({about(report)})" for name, report in zip(names, reports, strict=True)
    ]  # fmt: skip
    lines.append(f"| source | {sources[0]} | {sources[1]} | |")
    lines += [
        f"| {change.title} | {value(change.before, change.unit)} | "
        f"{value(change.after, change.unit)} | {verdict(change)} |"
        for change in comparison.changes
    ]
    if comparison.codes:
        lines += ["", "### Findings", ""]
        lines += [
            f"- {item.verdict}: **{item.code}** {item.name} {occurrences(item)}".rstrip()
            for item in comparison.codes
        ]
    if comparison.notes:
        lines += ["", *(f"- {note}" for note in comparison.notes)]
    return "\n".join(lines) + "\n"
