"""How far ``lint --fix --unsafe-fixes`` brings public 8-core programs of 2019 to 2021.

    python tests/accuracy/tutorials.py --files FOLDER [--run --stand-ins FOLDER] [--only TEXT]

FOLDER holds the files of ``tutorials.toml`` as ``owner+name/commit/path``; they belong to others,
are never committed, and nothing here fetches them. Each is linted, fixed on a copy in memory, and
linted again; what is left of severity error would stop it on torch_xla 2.9.

With ``--run`` (``--run-found``: as it was found, too) the program runs on 8 simulated cores, in a
folder of its own. Its data, and packages that are not installed, are stood in for by the modules of
``--stand-ins`` (and of its folder of the program's name, if there is one): they go to the front of
PYTHONPATH, and no line of the program is touched. It runs if it ends with exit code 0, no core
failed, and all made a step (programs that only evaluate, marked so in the list: all took part).
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xladoctor.findings import Severity
from xladoctor.lint import engine, fixes, sources

if TYPE_CHECKING:
    from collections.abc import Iterator

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("tutorials.toml")
CORES = 8
LIMIT_SECONDS = 900


@dataclasses.dataclass(frozen=True)
class Program:
    """One row of the list, and where it is."""

    path: Path
    row: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.row['repo']}: {Path(self.row['path']).name} ({self.row['commit'][:7]})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=Path, required=True)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--run-found", action="store_true")
    parser.add_argument("--stand-ins", type=Path, help="folder with modules to run with")
    parser.add_argument("--only", default="", help="only programs whose path holds this text")
    options = parser.parse_args()
    totals = dict.fromkeys(
        ("programs", "stopped", "before", "after", "fixed", "clean", "ran", "runs"), 0
    )
    for program in programs(options.files, options.only):
        for key, value in judge(program, options).items():
            totals[key] += value
    if not totals["programs"]:
        print(f"none of the files of {LIST.name} is in {options.files}", file=sys.stderr)
        return 2
    print(
        f"\n{totals['programs']} programs, {totals['stopped']} with an error as found: "
        f"{totals['before']} findings, {totals['fixed']} fixed, {totals['after']} left or new; "
        f"{totals['clean']} programs without an error left"
    )
    if options.run_found:
        print(f"run as found: {totals['ran']}")
    if options.run:
        print(f"run as fixed: {totals['runs']}")
    return 0


def programs(files: Path, only: str) -> Iterator[Program]:
    for row in tomllib.loads(LIST.read_text())["program"]:
        path = files / row["repo"].replace("/", "+") / row["commit"] / row["path"]
        if only in row["path"] and path.is_file():
            yield Program(path, row)


def judge(program: Program, options: argparse.Namespace) -> dict[str, int]:
    """Lint and fix one program, print its line, and give what goes into the totals."""
    data = program.path.read_bytes()
    if program.path.suffix == ".py":
        data = as_script(program.path, data).encode()
    before = engine.lint(sources.from_bytes(data, str(program.path)))
    done = fixes.fix(data, str(program.path), engine.lint, unsafe=True)
    after = done.result.findings
    errors = sorted({item.code for item in after if item.severity is Severity.ERROR})
    line = f"{len(before.findings):4} findings, {len(done.made):3} fixed, {len(after):3} left"
    print(f"{line}  {' '.join(errors) or '-':16}  {program.name}", flush=True)
    counts = {
        "programs": 1, "stopped": any(item.severity is Severity.ERROR for item in before.findings),
        "before": len(before.findings), "after": len(after),
        "fixed": len(done.made), "clean": not errors,
    }  # fmt: skip
    if options.run_found:
        counts["ran"] = runs(program, data, options.stand_ins, "as found")
    if options.run:
        counts["runs"] = runs(program, done.data, options.stand_ins, "as fixed")
    return counts


def runs(program: Program, data: bytes, stand_ins: Path | None, how: str) -> bool:
    """Run a program on simulated cores, and say how it ended."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for other in program.row.get("beside", ()):
            text = (program.path.parent / other).read_bytes()
            if how == "as fixed":
                text = fixes.fix(text, other, engine.lint, unsafe=True).data
            (home / other).write_bytes(text)
        (home / "program.py").write_text(as_script(program.path, data))
        environ = {**os.environ, **program.row.get("environment", {})}
        environ["PYTHONPATH"] = os.pathsep.join(python_path(program, stand_ins))
        try:
            done = subprocess.run(
                [sys.executable, "-m", "xladoctor", "profile", "--simulate-cores", str(CORES),
                 "-o", "run", "--output-format", "json", "--output-file", "report.json", "--",
                 sys.executable, "program.py", *program.row.get("arguments", ())],
                cwd=home, env=environ, capture_output=True, text=True, check=False,
                timeout=LIMIT_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            print(f"     {how}: not at its end after {LIMIT_SECONDS} s", flush=True)
            return False
        report = json.loads((home / "report.json").read_text())
    return judged(program, done, report, how)


def judged(
    program: Program, done: subprocess.CompletedProcess[str], report: dict[str, Any], how: str
) -> bool:
    """Whether a run counts as one, with a line that says why not."""
    summary = report["summary"]
    worked = bool(summary["steps"] or program.row.get("evaluates"))
    failed = any(item["code"] == "XLA411" for item in report["findings"])
    ran = done.returncode == 0 and summary["cores"] == CORES and worked and not failed
    raised = re.findall(r"^\w*(?:Error|Exception)\b.*$", done.stderr, re.MULTILINE)
    why = "" if ran else f": {(raised or [summary['why']])[0][:160]}"
    steps = f"{summary['steps']} steps"
    print(f"     {how}: {'runs' if ran else 'does not run'}, {steps}{why}", flush=True)
    return ran


def python_path(program: Program, stand_ins: Path | None) -> Iterator[str]:
    if stand_ins is not None:
        yield str(stand_ins.resolve() / program.path.stem)
        yield str(stand_ins.resolve())
    yield str(ROOT)
    if "PYTHONPATH" in os.environ:
        yield os.environ["PYTHONPATH"]


def as_script(path: Path, data: bytes) -> str:
    """The program as Python: a notebook's code cells, shell lines and magics left out."""
    if path.suffix == ".ipynb":
        return sources.from_bytes(data, str(path)).text
    # What a converter made of ``%%time`` stands in the notebook as code.
    return re.sub(
        r"^get_ipython\(\)\.run_cell_magic\('time', '', (.*)\)$",
        lambda found: str(ast.literal_eval(found[1])),
        data.decode(),
        flags=re.MULTILINE,
    )


if __name__ == "__main__":
    sys.exit(main())
