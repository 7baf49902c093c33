"""Published silent faults, and healthy programs: what lint, a run and verify say of each.

``python -m tests.accuracy.silent.run [--only NAME,...] [--by lint,run,verify] [--again]
[--write]``: each program in a folder of its own, on two simulated cores. What has been measured of
a program that has not changed since is not measured again (``--again``: it is). Results are kept in
``measured.json`` after every program, so that a run may be cut off; ``--write`` writes the page.
Exit code 1 if fewer faults are found than ``GOAL``, or a healthy program is accused.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import tomllib

from tests.accuracy.silent import document

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TABLE, MEASURED, PAGE = HERE / "table.toml", HERE / "measured.json", ROOT / "docs/silent-faults.md"
BY = ("lint", "run", "verify")
CORES, STEPS, LIMIT = 2, 4, 900


def main() -> int:
    """Measure, keep, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", type=_names, default=[], help="programs, by a part of their name")
    parser.add_argument("--by", type=_names, default=list(BY))
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    given = parser.parse_args()
    table = read_table()
    for case in [*table["fault"], *table["healthy"]]:
        name = case["program"]
        if given.only and not any(one in name for one in given.only):
            continue
        for by in given.by:
            if given.again or by not in _known(read_measured(), name):
                result = _ASK[by](path_of(name), case)
                print(f"{name}: {by}: {document.in_short(result)}", flush=True)
                if "internal error" not in str(result):  # of ours: no result of the program
                    _keep(name, by, result)
    measured = read_measured()
    if given.write:
        PAGE.write_text(document.page(table, measured, marked), encoding="utf-8")
    found, accused = document.found(table, measured), document.accused(table, measured)
    print(f"{len(found)} of {len(table['fault'])} faults found; accused: {accused or 'none'}")
    return 0 if len(found) >= document.GOAL and not accused else 1


def read_table() -> dict[str, Any]:
    """The faults and the healthy programs."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def read_measured() -> dict[str, Any]:
    """What has been measured so far, by program."""
    return json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {}


def _known(measured: dict[str, Any], name: str) -> dict[str, Any]:
    """What has been measured of a program as it is."""
    row = measured.get(name, {})
    return row if row.get("digest") == digest(name) else {"digest": digest(name)}


def _keep(name: str, by: str, result: Any) -> None:
    """Add a result to those that are there now: another run may have added some meanwhile."""
    measured = read_measured()
    measured[name] = {**_known(measured, name), by: result}
    MEASURED.write_text(json.dumps(measured, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def path_of(name: str) -> Path:
    """A program's file."""
    return ROOT / name if "/" in name else HERE / "programs" / f"{name}.py"


def digest(name: str) -> str:
    """Of a program and what it shares with the others."""
    texts = [path_of(name).read_bytes(), (HERE / "programs/common.py").read_bytes()]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def marked(name: str) -> set[int]:
    """The lines of a program where a finding may stand: those of the fault, and where it shows."""
    lines = path_of(name).read_text(encoding="utf-8").splitlines()
    return {at for at, line in enumerate(lines, 1) if line.endswith(("# fault", "# here"))}


def _names(text: str) -> list[str]:
    return [one for one in text.split(",") if one]


def _lint(path: Path, case: dict[str, Any]) -> list[dict[str, Any]]:
    done = _xladoctor(
        path, "lint", "--isolated", "--no-cache", "--output-format", "json", str(path)
    )
    return [
        {"code": one["code"], "severity": one["severity"], "row": one["location"]["row"]}
        for one in json.loads(done.stdout)
    ]


def _run(path: Path, case: dict[str, Any]) -> list[dict[str, Any]] | dict[str, str]:
    """What the run found; a sentence if there was none."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["--simulate-cores", str(case.get("cores", CORES))] if case.get("cores", 1) else []
        done = _xladoctor(
            path, "profile", *words, "-o", "run", "--hang-timeout", "30", "--output-format", "json",
            "--output-file", "report.json", "--", sys.executable, str(path),
            *case.get("arguments", []), folder=folder,
        )  # fmt: skip
        report = Path(folder, "report.json")
        if not report.exists():
            return {"cannot": _last(done.stderr)}
        found = json.loads(report.read_text(encoding="utf-8"))
    if done.returncode and not found["findings"]:
        return {"cannot": _last(done.stderr)}
    return _seen(found, path)


def _seen(report: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    rows = []
    for one in report["findings"]:
        if "runtime" not in one["confirmed_by"]:
            continue
        places = [at for at in one["locations"] if at["filename"].endswith(path.name)]
        step = re.search(r"\bstep (\d+)", one["message"])
        rows.append(
            {
                "code": one["code"],
                "severity": one["severity"],
                "row": places[0]["row"] if places else None,
                "step": int(step[1]) if step else None,
            }
        )
    return rows


def _verify(path: Path, case: dict[str, Any]) -> dict[str, Any]:
    """Where the ways part, that they do not, or why they could not be compared."""
    if case.get("cores", 1) == 0:
        return {"cannot": "is not run on simulated cores"}
    with tempfile.TemporaryDirectory() as folder:
        done = _xladoctor(
            path, "verify", "--simulate-cores", str(case.get("cores", CORES)),
            "--steps", str(STEPS),
            "--output-format", "json", "--output-file", "answer.json", "--", sys.executable,
            str(path), *case.get("arguments", []), folder=folder,
        )  # fmt: skip
        answer = Path(folder, "answer.json")
        if not answer.exists():
            return {"cannot": _last(done.stderr)}
        found = json.loads(answer.read_text(encoding="utf-8"))
    parts = found["parts_at"]
    if parts is None:
        return {"equal": found["steps"], "ways": found["ways"]}
    place = parts["location"] or {}
    here = str(place.get("filename", "")).endswith(path.name)
    return {
        "step": parts["step"],
        "way": parts["way"],
        "what": f"{parts['what']} {parts['name']}".strip(),
        "row": place["row"] if here else None,
        "because": (parts.get("because") or "").partition(" ")[0] or None,
    }


def _xladoctor(path: Path, *words: str, folder: str | None = None) -> Any:
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(path.parent)]),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }
    return subprocess.run(
        [sys.executable, "-m", "xladoctor", *words],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def _last(text: str) -> str:
    """The last error, or line, that was written, without this machine's paths."""
    lines = [line for line in text.splitlines() if line.strip() and "see it as a page" not in line]
    errors = [line for line in lines if "Error: " in line]
    lines = errors or lines
    said = lines[-1].removeprefix("xladoctor: ") if lines else "nothing was said"
    return said.replace(str(ROOT) + "/", "")


_ASK = {"lint": _lint, "run": _run, "verify": _verify}

if __name__ == "__main__":
    sys.exit(main())
