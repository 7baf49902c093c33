"""What linting costs, as a ratio: the time of all rules and the model to that of parsing alone.

    python tests/benchmarks/lint_speed.py [FILE ...]

Lints files for XLA devices (the samples by default) and parses the same texts with LibCST. A ratio
does not depend on the machine; it grows when a rule walks more than it should.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import libcst as cst

from xladoctor.lint import engine, sources

ROUNDS = 5
SAMPLES = Path(__file__).resolve().parents[2] / "sample_runs"


def main() -> None:
    names = sys.argv[1:] or sorted(str(path) for path in SAMPLES.glob("*/*.py"))
    files = [source for name in names if "xla" in (source := sources.read(Path(name))).text]
    engine.lint(files[0])  # loads rules and tables
    ratios = []
    for _ in range(ROUNDS):
        parsing = seconds(lambda: [cst.parse_module(source.text) for source in files])
        ratios.append(seconds(lambda: [engine.lint(source) for source in files]) / parsing)
    lines = sum(source.text.count("\n") for source in files)
    print(
        f"{len(files)} files, {lines} lines: linting takes {statistics.median(ratios):.1f} times "
        f"as long as parsing ({min(ratios):.1f} to {max(ratios):.1f})"
    )


def seconds(work: object) -> float:
    assert callable(work)
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    main()
