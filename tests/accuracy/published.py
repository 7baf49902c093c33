"""What ``xladoctor plan`` predicts against training speeds that others have published.

Run: ``python tests/accuracy/published.py [--only WORD]``, from the project's folder. Each program
is traced and compiled as any other; compiling takes minutes the first time, and answers are kept
in .xladoctor/cache. The published figures and their sources are in published.toml.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent


def predicted(program: list[str], target: str) -> dict[str, Any]:
    """The row of ``xladoctor plan`` for a program on a target."""
    command = [
        sys.executable, "-m", "xladoctor", "plan", "--tpu", target, "--tpu-time-limit", "3000",
        "--output-format", "json", "--", str(HERE / "published" / program[0]), *program[1:],
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    (row,) = json.loads(done.stdout)["rows"]
    return row


def main(argv: list[str]) -> int:
    """Print the table; exit code 2 if a program could not be planned."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="results whose name or target has this in it")
    options = parser.parse_args(argv)
    results = tomllib.loads((HERE / "published.toml").read_text(encoding="utf-8"))["result"]
    chosen = [one for one in results if options.only in f"{one['name']} {one['target']}"]
    ratios, failed = [], False
    print("| published | on | step, published | device, predicted | share | unlike ours |")
    print("|---|---|---|---|---|---|")
    for one in chosen:
        row = predicted(one["program"], one["target"])
        if row["device_seconds"] is None:
            failed = True
            shown = row["error"] or "does not fit"
            share = "-"
        else:
            ratios.append(row["device_seconds"] / one["seconds"])
            shown = f"{row['device_seconds'] * 1e3:.0f} ms"
            share = f"{ratios[-1]:.2f}"
        print(
            f"| [{one['name']}]({one['source'].split()[0]}) | {one['target']} | "
            f"{one['seconds'] * 1e3:.0f} ms | {shown} | {share} | {one['unlike']} |",
            flush=True,
        )
    if ratios:
        print(
            f"\nThe device time predicted is {min(ratios):.2f} to {max(ratios):.2f} of the step "
            f"published, {statistics.median(ratios):.2f} in the middle of {len(ratios)} results."
        )
    return 2 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
