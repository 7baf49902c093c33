"""False alarms over PyTorch code that has nothing to do with XLA.

    python tests/accuracy/plain.py [FOLDER ...]

Lints the installed torch package (or the folders given) and says how many findings there are for
each 20,000 lines. Files that name torch_xla are left out: what is found there may be right. Exit
code 1 if there is one finding or more for 20,000 lines, or one of severity error.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import sys
from pathlib import Path

from xladoctor.findings import Severity
from xladoctor.lint import engine, sources

LINES_PER_FINDING = 20_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path)
    folders = parser.parse_args().folders or [installed("torch")]
    lines = files = 0
    found: collections.Counter[tuple[str, Severity]] = collections.Counter()
    for path in sorted(item for folder in folders for item in folder.rglob("*.py")):
        source = sources.read(path)
        if "torch_xla" in source.text:
            continue
        files += 1
        lines += source.text.count("\n") + 1
        result = engine.lint(source)
        assert not result.failures, result.failures
        for finding in result.findings:
            found[finding.code, finding.severity] += 1
            print(f"{path}:{finding.locations[0].row}: {finding.code} {finding.message}")
    rate = sum(found.values()) * LINES_PER_FINDING / max(lines, 1)
    errors = sum(count for (_, severity), count in found.items() if severity is Severity.ERROR)
    print(
        f"{files} files, {lines} lines: {sum(found.values())} findings ({errors} of severity "
        f"error), {rate:.3f} for {LINES_PER_FINDING} lines"
    )
    return 1 if rate >= 1 or errors else 0


def installed(package: str) -> Path:
    """The folder of an installed package, which is not imported for it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        sys.exit(f"{package} is not installed: name the folders to lint")
    return Path(spec.origin).parent


if __name__ == "__main__":
    sys.exit(main())
