"""The table of published silent faults for people: ``docs/silent-faults.md``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

#: Faults that must be found, of those of the table.
GOAL = 22

_TOP = """# Silent faults that others have published

Training that is wrong without an error, as others have reported it: the faults that TrainCheck (OSDI 2025) reproduces and that make sense without CUDA, faults of the kind that TTrace looks for
(parallel training that is another training, from Megatron-LM's issues), and the public issues of torch_xla, Accelerate, transformers and torchtune. Each is a small program of our own in
`tests/accuracy/silent/programs`, on {cores} simulated cores; `make accuracy-silent` runs them and writes this page.

**{found} of {all} are found** ({lint} by `lint`, {run} by a run on simulated cores, {verify} by `verify`), and of {healthy} healthy programs {accused}
({healthy_lint} of them were linted, {healthy_run} run and {healthy_verify} verified).

A fault counts as found where its own finding is made, or where `verify` says that the ways part. *Line* is the line of the program that it is told at: **bold** if it is the line of the fault or
where it shows, as marked in the program. A dash: looked for and not found. *not run*: not measured.
"""

_HEALTHY = """
## Healthy programs

No finding of severity error by `lint` or the run, and no divergence in `verify` that is none.

| program | lint | run | verify |
|---|---|---|---|
"""

_LEFT_OUT = """
## Left out

Of the reproducible faults of TrainCheck: pytorch-115607 and lightning-thunder-725 (faults of a compiler that torch_xla does not use), mmpretrain-702 and pytorch-51800 (weights that are frozen or
normalized later than one may think: nothing is computed wrong), transformers-17877 (slow, not wrong), transformers-23723 and transformers-34204 (inference and tokenizing).
"""


def page(table: dict[str, Any], measured: dict[str, Any], marked: Callable[[str], set[int]]) -> str:
    """The page.

    Args:
        table: The faults and the healthy programs.
        measured: By program.
        marked: The lines of a program where a finding may stand.
    """
    faults = [(case, measured.get(case["program"], {})) for case in table["fault"]]
    healthy = table["healthy"]
    counts = {by: sum(bool(_hits(case, row, by)) for case, row in faults) for by in _BY}
    text = _TOP.format(
        cores=2,
        found=len(found(table, measured)),
        all=len(faults),
        accused=_accused_words(len(accused(table, measured))),
        healthy=len(healthy),
        **{
            f"healthy_{by}": sum(_told(measured.get(case["program"], {}), by) for case in healthy)
            for by in _BY
        },
        **counts,
    )
    text += "\n| fault | published | lint | run | verify |\n|---|---|---|---|---|\n"
    for case, row in faults:
        lines = marked(case["program"])
        cells = [_cell(case, row, by, lines) for by in _BY]
        found_one = any(_hits(case, row, by) for by in _BY)
        title = f"`{case['program']}`: {case['title']}" + ("" if found_one else " (**missed**)")
        text += f"| {title} | {_linked(case['source'])} | {' | '.join(cells)} |\n"
    missed = [case for case in table["fault"] if case["program"] not in found(table, measured)]
    if missed:
        text += "\n## Missed\n\n"
    for case in missed:
        text += f"* `{case['program']}`: {case.get('missed', 'not understood yet.')}\n"
    text += _HEALTHY
    for case in healthy:
        row = measured.get(case["program"], {})
        cells = [_healthy_cell(row, by) for by in _BY]
        text += f"| `{case['program']}` | {' | '.join(cells)} |\n"
    rightly = [case for case in healthy if "rightly" in case]
    if rightly:
        text += "\nParts, and rightly:\n\n"
        text += "".join(f"* `{case['program']}`: {case['rightly']}\n" for case in rightly)
    return text + _LEFT_OUT


_BY = ("lint", "run", "verify")


def found(table: dict[str, Any], measured: dict[str, Any]) -> list[str]:
    """The faults that are found by something."""
    return [
        case["program"]
        for case in table["fault"]
        if any(_hits(case, measured.get(case["program"], {}), by) for by in _BY)
    ]


def accused(table: dict[str, Any], measured: dict[str, Any]) -> list[str]:
    """The healthy programs of which something wrong is said."""
    names = []
    for case in table["healthy"]:
        row = measured.get(case["program"], {})
        errors = [
            one
            for by in ("lint", "run")
            if isinstance(row.get(by), list)
            for one in row[by]
            if one["severity"] == "error"
        ]
        parts = "step" in (row.get("verify") or {}) and "rightly" not in case
        if errors or parts:
            names.append(case["program"])
    return names


def _told(row: dict[str, Any], by: str) -> bool:
    """Whether a program was measured, and could be."""
    return by in row and not (isinstance(row[by], dict) and "cannot" in row[by])


def _accused_words(count: int) -> str:
    return f"{count or 'none'} {'are' if count > 1 else 'is'} accused"


def in_short(result: Any) -> str:
    """A result in one line."""
    if isinstance(result, dict):
        return " ".join(f"{key}={value}" for key, value in result.items())
    return " ".join(f"{one['code']}@{one['row']}" for one in result) or "nothing"


def _hits(case: dict[str, Any], row: dict[str, Any], by: str) -> list[dict[str, Any]]:
    """What of a result is this fault."""
    result = row.get(by)
    if by == "verify":
        return [result] if result and "step" in result else []
    if not isinstance(result, list):
        return []
    return [one for one in result if one["code"] in case["codes"]]


def _cell(case: dict[str, Any], row: dict[str, Any], by: str, lines: set[int]) -> str:
    if by not in row:
        return "not run"
    hits = _hits(case, row, by)
    if by == "verify" and not hits:
        result = row[by]
        return "-" if "equal" in result else f"cannot: {result['cannot']}"
    # The one that stands at the right line, if any does.
    for one in sorted(hits, key=lambda one: one["row"] not in lines)[:1]:
        line = f"line {one['row']}" if one["row"] is not None else "no line"
        line = f"**{line}**" if one["row"] in lines else line
        step = f"step {one['step']}, " if one.get("step") else ""
        what = f"{one['what']}, " if by == "verify" else f"{one['code']}, "
        return f"{what}{step}{line}"
    return "-"


def _healthy_cell(row: dict[str, Any], by: str) -> str:
    result = row.get(by)
    if result is None:
        return "not run"
    if isinstance(result, dict):
        if "equal" in result:
            return f"equal through step {result['equal']} ({', '.join(result['ways'])})"
        if "step" in result:
            return f"parts at step {result['step']} ({result['what']}, {result['way']})"
        return f"cannot: {result['cannot']}"
    errors = [one for one in result if one["severity"] == "error"]
    return in_short(errors) if errors else "none"


def _linked(source: str) -> str:
    """A source with its addresses as links."""

    def link(match: re.Match[str]) -> str:
        address = match[0]
        name = "/".join(address.split("/")[3:])
        name = re.sub(r"/(issues|pull)/", "#", name) if "github.com" in address else name
        return f"[{name}]({address})"

    return re.sub(r"https://[^\s,]+", link, source)
