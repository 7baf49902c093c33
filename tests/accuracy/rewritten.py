"""Whether the linter says the same of public files that are written in another way.

    python -m tests.accuracy.rewritten [SET ...] [--verbose] [--write]

The labelled files of the unseen sets (``unseen.py`` fetches them into ``.accuracy/unseen``), each
by itself, as ``ast`` writes it and as each rewrite of ``mutation/rewrites.py`` makes it: none of
them changes what a file does, so no finding should come or go. No labels are needed, and a rewrite
that loses findings shows a weakness of the linter on all files, also those that nobody labelled.

Counted by file and code: of two findings of a code that come and go in one file nothing is seen.
``--verbose`` names the files, ``--write`` puts the table into ``docs/accuracy.md``. Exit code 2 if
a set is not there.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import warnings
from collections import Counter
from typing import TYPE_CHECKING

from tests.accuracy import tables
from tests.accuracy.mutation.rewrites import REWRITES
from tests.accuracy.mutation.trees import as_text
from tests.accuracy.unseen import KEPT, SETS, TABLE, Wanted
from xladoctor.lint import engine, sources
from xladoctor.lint.asked import LintOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BEGIN, END = "<!-- rewritten: begin -->", "<!-- rewritten: end -->"
HEAD = "| rewrite | files | findings | gone | new |"


def main(argv: list[str]) -> int:
    """Count what comes and goes; 2 if files are missing."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sets", nargs="*", metavar="SET", help="all by default")
    parser.add_argument("--verbose", action="store_true", help="name what comes and goes")
    parser.add_argument("--write", action="store_true", help="write the table of docs/accuracy.md")
    options = parser.parse_args(argv)
    names = options.sets or sorted(path.name for path in SETS.iterdir() if path.is_dir())
    missing = [name for name in names if not (KEPT / name).is_dir()]
    if missing:
        print(
            f"{missing[0]} is not in {KEPT}: run python -m tests.accuracy.unseen", file=sys.stderr
        )
        return 2
    warnings.simplefilter("ignore", SyntaxWarning)  # of other people's strings
    texts = {file: file.read_text(encoding="utf-8") for name in names for file in _files(name)}
    tally = Tally(verbose=options.verbose)
    for file, text in texts.items():
        tally.count(str(file.relative_to(KEPT)), text)
    rows = tally.rows()
    print("\n".join(rows))
    if options.write:
        tables.put(TABLE, BEGIN, END, rows)
    return 0


class Tally:
    """Findings of files as they are, and as each rewrite makes them.

    Args:
        verbose: Print the file and the codes wherever they differ.
    """

    def __init__(self, *, verbose: bool = False) -> None:
        self._verbose = verbose
        self._counts = {name: Counter[str]() for name in REWRITES}

    def count(self, file: str, text: str) -> None:
        """Lint a file and all that the rewrites make of it."""
        plain = _codes(as_text(ast.parse(text)))
        for name, rewrite in REWRITES.items():
            made = rewritten(text, rewrite)
            if made is None:
                continue
            found = _codes(made)
            gone, new = plain - found, found - plain
            self._counts[name].update(
                files=1, findings=plain.total(), gone=gone.total(), new=new.total()
            )
            if self._verbose and gone | new:
                print(f"{name}: {file}: gone {dict(gone)}, new {dict(new)}", flush=True)

    def rows(self) -> list[str]:
        """The table: a row for each rewrite, and one for all of them."""
        total = sum(self._counts.values(), Counter[str]())
        rows = [HEAD, "|---" * HEAD.count(" | ") + "|---|"]
        return rows + [_row(name, one) for name, one in {**self._counts, "all": total}.items()]


def rewritten(text: str, rewrite: Callable[[ast.Module], int]) -> str | None:
    """What a rewrite makes of a file; None where it does not apply."""
    tree = ast.parse(text)
    return as_text(tree) if rewrite(tree) else None


def _row(name: str, count: Counter[str]) -> str:
    share = f" ({count['gone'] / count['findings']:.3f})" if count["findings"] else ""
    cells = (name, count["files"], count["findings"], f"{count['gone']}{share}", count["new"])
    return f"| {' | '.join(map(str, cells))} |"


def _codes(text: str) -> Counter[str]:
    result = engine.lint(sources.Source("train.py", text), LintOptions())
    for failure in result.failures:
        print(failure, file=sys.stderr)
    return Counter(finding.code for finding in result.findings)


def _files(name: str) -> Iterator[Path]:
    """The files of a set that have labels and that Python can parse; notebooks are left out."""
    lines = (SETS / name / "labels.jsonl").read_text(encoding="utf-8").splitlines()
    labels = [json.loads(line) for line in lines if line.strip()]
    for one in sorted({(label["repo"], label["commit"], label["path"]) for label in labels}):
        file = Wanted(*one).below(KEPT / name)
        if file.suffix == ".py" and file.is_file() and _parses(file):
            yield file


def _parses(file: Path) -> bool:
    try:
        ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
