"""How much of what a person finds in unseen public programs the linter finds: the sets with labels.

    python tests/accuracy/unseen.py [SET ...] [--verbose] [--from TEMPLATE]

``tests/accuracy/unseen/SET/labels.jsonl`` has the labels of a set (see ``lint.py`` for their form),
``files.txt`` the files that are linted together: ``owner/name commit path``, one a line. The files
belong to others: they are fetched with git at their commits, into ``.accuracy/unseen/SET`` (which
is ignored), and counted. What is there already is not fetched again.

TEMPLATE says where a repository is, with ``{owner}`` and ``{name}``: any address that git fetches
from, GitHub by default. Exit code 2 if a set has no labels or a file cannot be had.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
SETS = HERE / "unseen"
KEPT = HERE.parents[1] / ".accuracy" / "unseen"
GITHUB = "https://github.com/{owner}/{name}.git"


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
    options = parser.parse_args(argv)
    for name in options.sets or sorted(path.name for path in SETS.iterdir() if path.is_dir()):
        labels = SETS / name / "labels.jsonl"
        if not labels.is_file():
            print(f"{name}: no such set in {SETS}; leave the names out for all", file=sys.stderr)
            return 2
        folder = KEPT / name
        problem = fetch(listed(SETS / name / "files.txt"), folder, options.template)
        if problem is not None:
            print(f"{name}: {problem}", file=sys.stderr)
            return 2
        print(f"== {name}", flush=True)
        command = [sys.executable, str(HERE / "lint.py"), "--cases", labels, "--files", folder]
        subprocess.run([*command, *(["--verbose"] if options.verbose else [])], check=True)
    return 0


def listed(file: Path) -> list[Wanted]:
    """The files of a set."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [Wanted(*line.split(" ", 2)) for line in lines if line]


def fetch(wanted: list[Wanted], folder: Path, template: str) -> str | None:
    """Write the files that are not there yet; what stands in the way, if something does."""
    missing = [item for item in wanted if not item.below(folder).is_file()]
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
