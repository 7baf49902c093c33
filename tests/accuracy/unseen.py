"""How much of what a person finds in unseen public programs the linter finds: the sets with labels.

    python -m tests.accuracy.unseen [SET ...] [--verbose] [--from TEMPLATE] [--first LINTER]
    python -m tests.accuracy.unseen --write

``tests/accuracy/unseen/SET/labels.jsonl`` has the labels of a set (see ``lint.py`` for their form),
``files.txt`` the files that are linted together: ``owner/name commit path``, one a line. The files
belong to others: they are fetched with git at their commits, into ``.accuracy/unseen/SET`` (which
is ignored), and counted. What is there already is not fetched again. Of some files no repository is
known (``stored/NUMBER``, the number that a text index has for them): they count where somebody has
put them there, and are left out elsewhere.

``unseen/first.json`` holds the first count of each set: the one before anything was changed for it.
``--first LINTER`` adds that of a new set, with the commit of the linter that counts, and never
changes one that is there. ``--write`` puts the first counts, and those of now, into the table of
``docs/accuracy.md``.

The sets of ``relabelled``, of files that had been fixed for by other labels, are counted by their
names alone; they have no first count.

TEMPLATE says where a repository is, with ``{owner}`` and ``{name}``: any address that git fetches
from, GitHub by default. Exit code 2 if a set has no labels or a file cannot be had.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from tests.accuracy import lint, tables

HERE = Path(__file__).resolve().parent
SETS = HERE / "unseen"
#: Sets of files that had been fixed for, labelled once more by people who saw no labels of them.
AGAIN = HERE / "relabelled"
KEPT = HERE.parents[1] / ".accuracy" / "unseen"
GITHUB = "https://github.com/{owner}/{name}.git"
TABLE = HERE.parents[1] / "docs" / "accuracy.md"
BEGIN, END = "<!-- unseen: begin -->", "<!-- unseen: end -->"
#: Who owns what no repository is known of.
STORED = "stored"
HEAD = "| set | files | found | without removed names | precision | traps taken | now |"


class Wanted(NamedTuple):
    """A file of a commit of a public repository."""

    repo: str
    commit: str
    path: str

    def below(self, folder: Path) -> Path:
        """Where the file is kept: ``owner+name/commit/path``."""
        return folder / self.repo.replace("/", "+") / self.commit / self.path


def main(argv: list[str]) -> int:
    """Fetch what is missing and count each set; 2 if that is not possible."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sets", nargs="*", metavar="SET", help="all by default")
    parser.add_argument("--verbose", action="store_true", help="show every miss and false alarm")
    parser.add_argument("--from", dest="template", default=GITHUB, help="where repositories are")
    parser.add_argument("--first", metavar="LINTER", help="keep as first count, by this commit")
    parser.add_argument("--write", action="store_true", help="write the table of docs/accuracy.md")
    options = parser.parse_args(argv)
    if options.write and options.sets:
        print("--write counts all sets: leave their names out", file=sys.stderr)
        return 2
    counts: dict[str, dict[str, Any]] = {}
    for name in options.sets or sorted(path.name for path in SETS.iterdir() if path.is_dir()):
        where = next(
            (one for one in (SETS, AGAIN) if (one / name / "labels.jsonl").is_file()), None
        )
        if where is None:
            print(f"{name}: no such set in {SETS}; leave the names out for all", file=sys.stderr)
            return 2
        if options.first and where is AGAIN:
            print(f"{name}: its files had been fixed for: it has no first count", file=sys.stderr)
            return 2
        labels = where / name / "labels.jsonl"
        folder = (KEPT.with_name(AGAIN.name) if where is AGAIN else KEPT) / name
        problem = fetch(listed(where / name / "files.txt"), folder, options.template)
        if problem is not None:
            print(f"{name}: {problem}", file=sys.stderr)
            return 2
        print(f"== {name}", flush=True)
        with tempfile.TemporaryDirectory() as store:
            kept_labels = there(labels, folder, Path(store))
            tally = lint.count(kept_labels, folder, verbose=options.verbose)
        lint.show(tally.families)
        print(f"codes on lines without a label {tally.unlabelled}\n", flush=True)
        counts[name] = figures(tally)
    kept = SETS / "first.json"
    first = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    if options.first:
        first = {name: {"linter": options.first} | count for name, count in counts.items()} | first
        rows = [f"  {json.dumps(name)}: {json.dumps(first[name])}" for name in sorted(first)]
        kept.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    if options.write:
        tables.put(TABLE, BEGIN, END, rows_of(first, counts))
    return 0


def there(labels: Path, folder: Path, store: Path) -> Path:
    """The labels of the files that are there: all of them, but for what nobody can fetch."""
    lines = labels.read_text(encoding="utf-8").splitlines(keepends=True)
    cases = [json.loads(line) for line in lines]
    files = [Wanted(case["repo"], case["commit"], case["path"]) for case in cases]
    found = [line for line, file in zip(lines, files, strict=True) if file.below(folder).is_file()]
    if len(found) == len(lines):
        return labels
    gone = {file for file in files if not file.below(folder).is_file()}
    print(f"left out, of no known repository: files {len(gone)}")
    kept = store / labels.name
    kept.write_text("".join(found), encoding="utf-8")
    return kept


def figures(tally: lint.Tally) -> dict[str, Any]:
    """The counts that are kept of a set: pairs of a part and its whole."""
    return {"files": tally.files} | lint.totals(tally.families)


def rows_of(first: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> list[str]:
    """The table: a row for each set that has a first count, and one for all of them."""
    rows = [HEAD, "|---" * HEAD.count(" | ") + "|---|"]
    names = [name for name in sorted(first) if name in now]
    rows += [_row(name, first[name], now[name]) for name in names]
    if names:
        rows.append(_row("all", _sum(first, names), _sum(now, names)))
    return rows


def _row(name: str, first: dict[str, Any], now: dict[str, Any]) -> str:
    found = _weighty(first)
    rest = [a - b for a, b in zip(found, first["named"], strict=True)]
    cells = [name, str(first["files"]), _share(found), _share(rest), _share(first["told"])]
    cells += [_of(first["traps"]), _share(_weighty(now))]
    return f"| {' | '.join(cells)} |"


def _sum(counts: dict[str, dict[str, Any]], names: list[str]) -> dict[str, Any]:
    keys = ("high", "medium", "low", "named", "told", "traps")
    sums = {key: [sum(counts[name][key][at] for name in names) for at in (0, 1)] for key in keys}
    return {"files": sum(counts[name]["files"] for name in names)} | sums


def _weighty(count: dict[str, Any]) -> list[int]:
    return [a + b for a, b in zip(count["high"], count["medium"], strict=True)]


def _of(pair: list[int]) -> str:
    return f"{pair[0]}/{pair[1]}"


def _share(pair: list[int]) -> str:
    return _of(pair) + (f" ({pair[0] / pair[1]:.2f})" if pair[1] else "")


def listed(file: Path) -> list[Wanted]:
    """The files of a set."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [Wanted(*line.split(" ", 2)) for line in lines if line]


def fetch(wanted: list[Wanted], folder: Path, template: str) -> str | None:
    """Write the files that are not there yet; what stands in the way, if something does."""
    known = (item for item in wanted if item.repo.partition("/")[0] != STORED)
    missing = [item for item in known if not item.below(folder).is_file()]
    for repo, commit in sorted({(item.repo, item.commit) for item in missing}):
        owner, _, name = repo.partition("/")
        with tempfile.TemporaryDirectory() as store:
            git = ["git", "--git-dir", store]
            subprocess.run([*git, "init", "--quiet", "--bare"], check=True)
            address = template.format(owner=owner, name=name)
            fetched = subprocess.run(
                [*git, "fetch", "--quiet", "--depth", "1", address, commit],
                capture_output=True,
                text=True,
                check=False,
            )
            if fetched.returncode:
                said = fetched.stderr.strip().splitlines()
                return f"{repo} at {commit[:7]} cannot be fetched: {said[-1] if said else 'git'}"
            for item in missing:
                if (item.repo, item.commit) == (repo, commit):
                    shown = subprocess.run(
                        [*git, "show", f"{commit}:{item.path}"], capture_output=True, check=False
                    )
                    if shown.returncode:
                        return f"{item.path} is not in {repo} at {commit[:7]}"
                    target = item.below(folder)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(shown.stdout)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
