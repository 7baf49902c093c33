"""What ``xladoctor plan`` predicts against training speeds that others have published.

Run: ``python tests/accuracy/published.py [--only WORD]``, from the project's folder. Each program
is traced and compiled as any other, which takes minutes. What was measured is kept in
published.json beside this file, result by result: a run that was cut goes on where it was, and
``--again`` measures what is known. ``--write`` puts the tables into docs/tpu-accuracy.md.

The published figures and their sources are in published.toml, with the batch sizes of the plan.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.accuracy import tables
from xladoctor import amounts
from xladoctor.planning.advice import advice
from xladoctor.planning.row import Row

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
MEASURED = HERE / "published.json"
DOCUMENT = HERE.parents[1] / "docs" / "tpu-accuracy.md"

#: Of a row of the plan, what is kept.
KEPT = (
    "fits", "memory_bytes", "memory_limit_bytes", "device_seconds", "samples",
    "matrix_unit_share", "error",
)  # fmt: skip


def main(argv: list[str]) -> int:
    """Measure what is not known and print the tables; exit code 2 if something is not known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="results whose name or target has this in it")
    parser.add_argument("--again", action="store_true", help="measure also what is known")
    parser.add_argument("--recorded", action="store_true", help="compile nothing")
    parser.add_argument("--write", action="store_true", help="into docs/tpu-accuracy.md")
    options = parser.parse_args(argv)
    listed = tomllib.loads((HERE / "published.toml").read_text(encoding="utf-8"))
    known = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.is_file() else {}
    done: set[str] = set()
    for one in (*listed["result"], *_planned(listed["plan"])):
        key = _key(one)
        chosen = options.only in f"{one.get('name', 'plan')} {one['target']}"
        if options.recorded or not chosen or key in done:
            continue
        if options.again or key not in known:
            done.add(key)
            known[key] = _measured(one)
            MEASURED.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    parts = {"published": _table(listed["result"], known), "plan": _plan(listed["plan"], known)}
    for text in parts.values():
        print(f"{text}\n")
    if options.write:
        write(parts)
    return 0 if all(_key(one) in known for one in listed["result"]) else 2


def _key(one: dict[str, Any]) -> str:
    return " ".join((one["target"], *one["program"]))


def _planned(plans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The commands of the plans, one for each batch size."""
    return [
        {"program": [*plan["program"], "--batch-size", str(size)], "target": plan["target"]}
        for plan in plans
        for size in plan["batch_sizes"]
    ]


def _measured(one: dict[str, Any]) -> dict[str, Any]:
    """The row of ``xladoctor plan`` for a program on a target."""
    command = [
        sys.executable, "-m", "xladoctor", "plan", "--tpu", one["target"],
        "--tpu-time-limit", "3000", "--output-format", "json",
        "--", str(HERE / "published" / one["program"][0]), *one["program"][1:],
    ]  # fmt: skip
    began = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    (row,) = json.loads(done.stdout)["rows"]
    seconds = round(time.monotonic() - began)
    return {key: row[key] for key in KEPT} | {"seconds_to_trace_and_compile": seconds}


def _table(results: list[dict[str, Any]], known: dict[str, Any]) -> str:
    rows = [
        "| published | on | step, published | device, predicted | share | unlike ours |",
        "|---|---|---|---|---|---|",
    ]
    ratios = []
    for one in results:
        row = known.get(_key(one))
        shown, share = "not measured", "-"
        if row is not None and row["device_seconds"] is not None:
            ratios.append(row["device_seconds"] / one["seconds"])
            shown, share = f"{row['device_seconds'] * 1e3:.0f} ms", f"{ratios[-1]:.2f}"
        elif row is not None:
            shown = row["error"] or "does not fit"
        rows.append(
            f"| [{one['name']}]({one['source'].split()[0]}) | {one['target']} | "
            f"{one['seconds'] * 1e3:.0f} ms | {shown} | {share} | {one['unlike']} |"
        )
    if ratios:
        middle = statistics.median(ratios)
        rows.append(
            f"\nThe device time predicted is {min(ratios):.2f} to {max(ratios):.2f} of the step "
            f"published, {middle:.2f} in the middle of {len(ratios)} results."
        )
    return "\n".join(rows)


def _plan(plans: list[dict[str, Any]], known: dict[str, Any]) -> str:
    """The plans as tables, with what follows from them."""
    out = []
    for plan in plans:
        sizes = ",".join(map(str, plan["batch_sizes"]))
        program = " ".join(plan["program"])
        command = f"xladoctor plan --tpu {plan['target']} -- tests/accuracy/published/{program}"
        rows = [
            "## Batch sizes of a ResNet-50",
            "",
            f"`{command} --batch-size '{{{sizes}}}'`, as far as it is measured:",
            "",
            "| batch of a core | memory | of | fits | device time | samples/s/core | matrix unit |",
            "|---|---|---|---|---|---|---|",
        ]
        found = []
        for one, size in zip(_planned([plan]), plan["batch_sizes"], strict=True):
            facts = known.get(_key(one))
            if facts is None or facts["memory_bytes"] is None:
                continue
            kept = {key: facts[key] for key in KEPT}
            row = Row(tuple(one["program"]), {"--batch-size": str(size)}, one["target"], **kept)
            found.append(row)
            rows.append(_cells(size, row))
        if found:
            out.append("\n".join([*rows, "", *(f"{sentence}.  " for sentence in advice(found))]))
    return "\n\n".join(out)


def _cells(size: int, row: Row) -> str:
    fits = {True: "yes", False: "no", None: row.error or "?"}[row.fits]
    time_, rate, share = row.device_seconds, row.samples_per_second, row.matrix_unit_share
    cells = [
        str(size),
        amounts.size(row.memory_bytes),
        amounts.size(row.memory_limit_bytes),
        fits,
        "-" if time_ is None else f"{time_ * 1e3:,.0f} ms",
        "-" if rate is None else f"{rate:,.0f}",
        "-" if share is None else f"{share:.0%}",
    ]
    return f"| {' | '.join(cells)} |"


def write(parts: dict[str, str]) -> None:
    """Put texts between their marks in the document."""
    for name, part in parts.items():
        tables.put(DOCUMENT, f"<!-- {name}: begin -->", f"<!-- {name}: end -->", [part])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
