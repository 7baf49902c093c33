"""How much code the linter is: lines by folder and by rule, now and at earlier commits.

    python tests/benchmarks/lint_size.py [COMMIT ...]

Prints a Markdown table, a column for each commit and one for the files as they are. Lines are all
lines of Python files, blank ones and comments too; a rule is a page that lint finds by itself.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[2]
LINT = "xladoctor/lint"
#: Rows of the table: beginnings of paths; the first that fits counts.
PARTS = {
    "rewrites": f"{LINT}/rewrites/",
    "shared by rules": f"{LINT}/rules/_",
    "rules": f"{LINT}/rules/",
    "model": f"{LINT}/model/",
    "the rest of lint": f"{LINT}/",
}
#: A page is of a rule that lint finds if its header says so.
_BY_LINT = re.compile(r"^found_by = .*\"lint\"", re.MULTILINE)


def main() -> None:
    commits = [*sys.argv[1:], ""]
    columns = [counted(contents(commit)) for commit in commits]
    heads = [dated(commit) if commit else "now" for commit in commits]
    print(f"| lines | {' | '.join(heads)} |")
    print(f"|---{'|---' * len(heads)}|")
    for row in columns[-1]:
        print(f"| {row} | {' | '.join(column[row] for column in columns)} |")


def contents(commit: str) -> Mapping[str, str]:
    """Paths of the linter and of the pages to what they hold, at a commit or ("") now."""
    if not commit:
        return {
            path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
            for path in (*ROOT.glob(f"{LINT}/**/*.py"), *ROOT.glob("rules/XLA*.md"))
        }
    names = git("ls-tree", "-r", "--name-only", commit, LINT, "rules").splitlines()
    wanted = [name for name in names if name.endswith(".py") or name.startswith("rules/XLA")]
    return {name: git("show", f"{commit}:{name}") for name in wanted}


def counted(files: Mapping[str, str]) -> dict[str, str]:
    """The column of a table."""
    lines = dict.fromkeys(PARTS, 0)
    for name, text in files.items():
        part = next((part for part, start in PARTS.items() if name.startswith(start)), None)
        if part is not None:
            lines[part] += text.count("\n")
    rules = sum(
        _BY_LINT.search(text) is not None for name, text in files.items() if name.endswith(".md")
    )
    whole = lines["rules"] + lines["shared by rules"] + lines["rewrites"]
    shown = {part: f"{number:,}" for part, number in lines.items()}
    return {
        "rules that lint finds": str(rules),
        **shown,
        "rules, what they share, and rewrites": f"{whole:,}",
        "of these, for each rule": f"{whole / rules:.0f}",
        "all of lint, for each rule": f"{sum(lines.values()) / rules:.0f}",
    }


def dated(commit: str) -> str:
    return git("log", "-1", "--format=%h, %ad", "--date=format:%d %b %H:%M", commit).strip()


def git(*arguments: str) -> str:
    return subprocess.run(
        ("git", *arguments), cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


if __name__ == "__main__":
    main()
