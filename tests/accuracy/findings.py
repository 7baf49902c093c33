"""All findings on all code there is, to hold two versions of the linter side by side.

    python tests/accuracy/findings.py dump OUT.json [FOLDER ...]
    python tests/accuracy/findings.py diff BEFORE.json AFTER.json

``dump`` lints the examples of the rule pages, the samples, and the files of the folders (each as
one run, so that what imports each other is linked) and writes every finding whole: place, message,
related places, fix. ``diff`` prints what one version found and the other did not, and where they
say it in other words. To be held against a worktree of the version before, with PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from xladoctor import catalogue
from xladoctor.findings import packed
from xladoctor.lint import engine, run, sources
from xladoctor.lint.asked import LintOptions

SAMPLES = Path(__file__).resolve().parents[2] / "sample_runs"


def main() -> int:
    match sys.argv[1:]:
        case ["dump", out, *folders]:
            Path(out).write_text(json.dumps(dump(folders), indent=0), encoding="utf-8")
            return 0
        case ["diff", before, after]:
            return diff(*(json.loads(Path(name).read_text("utf-8")) for name in (before, after)))
    print(__doc__)
    return 2


def dump(folders: list[str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for code, page in catalogue.pages().items():
        for number, example in enumerate(page.examples):
            name = f"{code}-{number}.py"
            options = LintOptions(frozenset(catalogue.pages()))
            result = engine.lint(sources.Source(name, example.source), options)
            found[f"pages/{name}"] = [packed(item) for item in result.findings]
    for folder in [str(SAMPLES), *folders]:
        os.chdir(folder)
        paths = [path for path in sorted(Path().rglob("*")) if _is_ours(path)]
        for item in run.lint_files(paths, run.Plan(LintOptions())):
            for failure in item.result.failures:
                print(failure, file=sys.stderr)
            found[f"{Path(folder).name}/{item.filename}"] = [
                packed(finding) for finding in item.result.findings
            ]
    return found


def diff(before: dict[str, list[Any]], after: dict[str, list[Any]]) -> int:
    changed = 0
    for name in sorted(before.keys() | after.keys()):
        one = {json.dumps(item, sort_keys=True): item for item in before.get(name, ())}
        other = {json.dumps(item, sort_keys=True): item for item in after.get(name, ())}
        gone = [item for text, item in one.items() if text not in other]
        new = [item for text, item in other.items() if text not in one]
        for item in gone:
            twin = next((x for x in new if _same(x, item)), None)
            changed += 1
            if twin is None:
                print(f"- {name}{_line(item)}")
            else:
                new.remove(twin)
                print(f"~ {name}{_line(item)}")
                for key in item.keys() | twin.keys():
                    if item.get(key) != twin.get(key):
                        print(f"    {key}: {item.get(key)}\n    {key}: {twin.get(key)}")
        for item in new:
            changed += 1
            print(f"+ {name}{_line(item)}")
    print(f"{changed} changed of {sum(map(len, before.values()))}")
    return int(changed > 0)


def _is_ours(path: Path) -> bool:
    return path.suffix in {".py", ".ipynb"} and path.is_file()


def _same(one: Any, other: Any) -> bool:
    return bool(one["code"] == other["code"] and one["locations"] == other["locations"])


def _line(item: Any) -> str:
    return f":{item['locations'][0]['row']} {item['code']} {item['message']}"


if __name__ == "__main__":
    sys.exit(main())
