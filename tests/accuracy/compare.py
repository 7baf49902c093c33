"""Which findings of the linter appear and disappear between two checkouts.

    python tests/accuracy/compare.py --old CHECKOUT [--new CHECKOUT] [FOLDER ...]
    python tests/accuracy/compare.py --save now.json [FOLDER ...]
    python tests/accuracy/compare.py --old now.json [FOLDER ...]

Lints the examples of all rule pages, ``sample_runs`` and every Python file and notebook of the
FOLDERs (each by itself, so that a file's findings never depend on what else was given), and prints
each finding that only one side has, with its line. Whether a difference is right is for a person
to judge. Exit code 1 if there are differences.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parents[2]
#: File name to its findings, as (code, row, column, message).
Found: TypeAlias = "dict[str, list[tuple[str, int, int, str]]]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--old", type=Path, help="a checkout, or what --save wrote")
    parser.add_argument("--new", type=Path, default=ROOT, help="a checkout (default: this one)")
    parser.add_argument("--save", type=Path, help="write the findings of --new here")
    parser.add_argument("--messages", action="store_true", help="a changed message is a difference")
    parser.add_argument("--dump", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.dump is not None:
        options.dump.write_text(json.dumps(dump(options.folders)))
        return 0
    new = of_checkout(options.new, options.folders)
    if options.save is not None:
        options.save.write_text(json.dumps(new))
    if options.old is None:
        print(f"{sum(map(len, new.values()))} findings in {len(new)} files")
        return 0
    is_file = options.old.is_file()
    old = (
        json.loads(options.old.read_text())
        if is_file
        else of_checkout(options.old, options.folders)
    )
    return show(old, new, messages=options.messages)


def of_checkout(checkout: Path, folders: list[Path]) -> Found:
    """What the linter of a checkout finds, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        subprocess.run(
            [sys.executable, __file__, "--dump", out, *(path.resolve() for path in folders)],
            env={**os.environ, "PYTHONPATH": str(checkout.resolve())}, cwd=checkout, check=True,
        )  # fmt: skip
        found: Found = json.loads(out.read_text())
        return found


def dump(folders: list[Path]) -> Found:
    """Runs in the process of one checkout: all findings, of files that were read or not."""
    from xladoctor.errors import XladoctorError
    from xladoctor.lint import engine, sources

    found: Found = {}
    texts = {f"{page.name}#{number}.py": text.encode()
             for page in sorted((ROOT / "rules").glob("XLA*.md"))
             for number, text in enumerate(examples(page))}  # fmt: skip
    for folder in (ROOT / "sample_runs", *folders):
        files = [folder] if folder.is_file() else sorted(folder.rglob("*"))
        for path in files:
            if path.suffix in {".py", ".ipynb"} and path.is_file():
                texts[str(path)] = path.read_bytes()
    for name, data in texts.items():
        try:
            source = sources.from_bytes(data, name)
        except (
            XladoctorError
        ) as error:  # what cannot be read is a finding of its own, on both sides
            found[name] = [("unreadable", 0, 0, type(error).__name__)]
            continue
        result = engine.lint(source)
        found[name] = [
            (item.code, place.row or 0, place.column or 0, item.message)
            for item in result.findings
            for place in item.locations[:1]
        ] + [("failure", 0, 0, str(failure)) for failure in result.failures]
    return found


def examples(page: Path) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(
        r"^```py(?:thon)?[^\n]*\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE
    )


def show(old: Found, new: Found, *, messages: bool) -> int:
    differences = 0
    for name in sorted(old.keys() & new.keys()):
        before, after = ({key(item, messages): item for item in side[name]} for side in (old, new))
        lost, gained = before.keys() - after.keys(), after.keys() - before.keys()
        changes = [("-", before[each]) for each in lost] + [("+", after[each]) for each in gained]
        for sign, (code, row, column, message) in sorted(changes, key=lambda item: item[1][1:3]):
            differences += 1
            print(f"{sign} {name}:{row}:{column} {code} {message}")
    for name in sorted(old.keys() ^ new.keys()):
        print(f"only {'before' if name in old else 'now'}: {name}")
    totals = [sum(map(len, side.values())) for side in (old, new)]
    print(f"{totals[0]} findings before, {totals[1]} now, {differences} differences")
    return 1 if differences else 0


def key(item: tuple[str, int, int, str], messages: bool) -> tuple[object, ...]:
    return tuple(item) if messages else tuple(item[:3])


if __name__ == "__main__":
    sys.exit(main())
