"""Runs real programs on plain CPU and on simulated cores, and says whether they agree.

    python -m tests.programs.run --files folder [name ...]

``folder`` holds the public files as ``owner+name/path``, each at the commit that ``programs.toml``
names; they belong to others, so a person fetches them (``git clone``, ``git checkout``). What is
missing is said and left out. Results are kept from run to run in ``.programs/results.json``;
``--write`` makes ``docs/programs.md`` of them, and keeps beside this file what that is made of.

With ``--times`` each program is run so often on simulated cores (``tests.determinism.runs``), those
first where cores are most likely to race, and only what differs from run to run is told.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import tomllib

from tests.determinism import runs
from tests.programs import table
from tests.programs.prepare import ROOT, NotReadyError, Program, ready
from xladoctor.diagnosis import printed

RESULTS = ROOT / ".programs" / "results.json"
#: What the document is made of, without messages, which may name folders of the machine.
MEASURED = Path(__file__).with_name("measured.json")
#: Of a run, what the document and its check need.
_KEPT = ("code", "losses", "steps", "each", "compilations")
#: Held while a program is made ready: to draw what all see takes the process's generators.
_READY = threading.Lock()
#: Findings that stand and fall with how fast the machine is at that moment.
_OF_SECONDS = {"XLA211", "XLA414", "XLA601", "XLA602"}
#: Seconds after which a run counts as hanging.
LIMIT = 900


TABLE = Path(__file__).with_name("programs.toml")


def programs() -> list[Program]:
    """All rows of the table."""
    return [Program.read(row) for row in tomllib.loads(TABLE.read_text())["program"]]


def main() -> int:
    """Run what was asked for; 0 if all agree and every finding has been judged."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="programs; all of the table by default")
    parser.add_argument("--files", type=Path, help="folder of the public files")
    parser.add_argument("--again", action="store_true", help="also those that have a result")
    parser.add_argument("--begin-within", type=float, default=float("inf"), metavar="SECONDS",
                        help="begin no program later than this")  # fmt: skip
    parser.add_argument("--keep", type=Path, help="work here and leave all as it is")
    parser.add_argument(
        "--read-again",
        action="store_true",
        help="report once more on the runs that --keep has kept",
    )
    parser.add_argument("--write", action="store_true", help="write docs/programs.md")
    runs.options(parser)
    asked = parser.parse_args()
    results = _read(MEASURED) | _read(RESULTS)
    done = set(_read(RESULTS))
    rows = [row for row in programs() if not asked.names or row.name in asked.names]
    if asked.times:
        return _many_times(rows, asked)
    began = time.monotonic()
    if asked.read_again and asked.keep is not None:
        for row in rows:
            results.update(_read_again(row, asked.keep / row.name / "cores0", results))
    elif asked.files is not None:
        for row in rows:
            if row.name in done and not asked.again:
                continue
            if time.monotonic() - began > asked.begin_within:
                print(f"{row.name}: left for another time", flush=True)
                continue
            results.update(_run(row, asked))
    if asked.write:
        measured = {name: _measured(result) for name, result in sorted(results.items())}
        MEASURED.write_text(json.dumps(measured, indent=1) + "\n")
        page = ROOT / "docs" / "programs.md"
        page.write_text(table.document(programs(), results, page.read_text()))
    wrong = [
        f"{row.name}: {why}" for row in rows for why in table.wrong(row, results.get(row.name))
    ]
    print("\n".join(wrong) or "all agree")
    return 1 if wrong else 0


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def _measured(result: dict[str, Any]) -> dict[str, Any]:
    kept = {
        side: {key: result[side][key] for key in _KEPT if key in result[side]}
        for side in ("plain", "cores")
    }
    found = [{key: item[key] for key in ("code", "at")} for item in result["cores"]["findings"]]
    kept["cores"]["findings"] = found
    return {**result, **kept}


def _run(row: Program, asked: argparse.Namespace) -> dict[str, Any]:
    """Its name and result, which are kept; nothing if it cannot run here."""
    if _lacks(row):
        return {}
    base = asked.keep or Path(tempfile.mkdtemp())
    began = time.monotonic()
    try:
        plain = _plain(row, asked.files, base / row.name / "plain")
        cores = _simulated(row, asked.files, base / row.name / "cores0")
    except NotReadyError as error:
        print(f"{row.name}: left out, {error}", flush=True)
        return {}
    finally:
        if asked.keep is None:
            shutil.rmtree(base, ignore_errors=True)
    result = {"plain": plain, "cores": cores}
    RESULTS.parent.mkdir(exist_ok=True)
    # Another process may have added results meanwhile.
    RESULTS.write_text(json.dumps({**_read(RESULTS), row.name: result}, indent=1))
    took = time.monotonic() - began
    print(f"{row.name}: {plain['code']} {cores['code']} ({took:.0f} s)", flush=True)
    return {row.name: result}


def _read_again(row: Program, folder: Path, results: dict[str, Any]) -> dict[str, Any]:
    """A kept run's name and result with the findings of today's diagnosis; nothing if none is."""
    if not (folder / "run").exists() or row.name not in results:
        return {}
    words = [sys.executable, "-m", "xladoctor", "report", str(folder / "run")]
    words += ["--output-format", "json", "--output-file", str(folder / "report.json")]
    _process(words, ROOT, dict(os.environ))
    manifest = json.loads((folder / "run" / "manifest.json").read_text())
    ended = {"code": manifest.get("exit_code", results[row.name]["cores"]["code"])}
    cores = {**results[row.name]["cores"], **ended, **_reported(folder)}
    result = {**results[row.name], "cores": cores}
    RESULTS.write_text(json.dumps({**_read(RESULTS), row.name: result}, indent=1))
    return {row.name: result}


def _lacks(row: Program) -> bool:
    """Whether a package that it needs is missing; says so."""
    lacking = [name for name in row.needs if importlib.util.find_spec(name) is None]
    if lacking:
        print(f"{row.name}: left out, needs {', '.join(lacking)}", flush=True)
    return bool(lacking)


def _many_times(rows: list[Program], asked: argparse.Namespace) -> int:
    """Run each on simulated cores so often; 1 if any outcomes differ."""
    rows = [row for row in rows if row.ends != "refused" and row.cores and not _lacks(row)]
    first = {name: at for at, name in enumerate(tomllib.loads(TABLE.read_text())["racy"])}
    rows.sort(key=lambda row: (first.get(row.name, len(first)), -row.cores))
    named = {row.name: row for row in rows}

    def once(name: str) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            try:
                return _told(_simulated(named[name], asked.files, Path(folder)))
            except NotReadyError as error:
                return str(error)

    return runs.many_times(asked, list(named), once)


def _told(one: dict[str, Any]) -> dict[str, Any]:
    """What must be the same each time: all but how long things took and how much memory was free.

    What a line says beside its loss may be memory; a machine that does other things as well makes
    compilations, batches and cores slow, and the report says so.
    """
    return {
        "code": one["code"],
        "steps": one["each"],
        "compilations": one["compilations"],
        "losses": sorted(value for _, value in one["losses"]),
        "findings": sorted(
            item["at"] for item in one["findings"] if item["code"] not in _OF_SECONDS
        ),
    }


def _environ(row: Program) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PJRT", "CPU_NUM", "XLA"))}
    return {**kept, "PJRT_DEVICE": "CPU", "HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled",
            **row.environ}  # fmt: skip


def _plain(row: Program, files: Path, folder: Path) -> dict[str, Any]:
    """One run on one core of the CPU, without xladoctor."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    script = ready(row, files, folder)
    words = [sys.executable, *row.launcher, script.name, *(row.plain or row.arguments)]
    done = _process(words, script.parent, {**_environ(row), "CPU_NUM_DEVICES": "1"})
    (folder / "output.txt").write_text(done.stdout + done.stderr)
    return {"code": done.returncode, "losses": _losses(done.stdout + done.stderr),
            "said": done.stderr[-600:] if done.returncode else ""}  # fmt: skip


def _simulated(row: Program, files: Path, folder: Path) -> dict[str, Any]:
    """One run on simulated cores, with its report."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with _READY:
        script = ready(row, files, folder)
    words = [sys.executable, "-m", "xladoctor", "profile", "-o", str(folder / "run")]
    words += ["--simulate-cores", str(row.cores)] if row.cores else []
    words += ["--output-format", "json", "--output-file", str(folder / "report.json"), "--"]
    words += [sys.executable, *row.launcher, script.name, *row.arguments]
    environ = _environ(row)
    path = [str(ROOT), environ.get("PYTHONPATH", "")]
    done = _process(words, script.parent, {**environ, "PYTHONPATH": os.pathsep.join(path)})
    (folder / "output.txt").write_text(done.stdout + done.stderr)
    return {
        "code": done.returncode,
        "losses": _losses(done.stdout + done.stderr),
        "said": done.stderr[-600:] if done.returncode else "",
        **_reported(folder),
    }


def _reported(folder: Path) -> dict[str, Any]:
    """What the report of a run says."""
    report = {}
    if (folder / "report.json").exists():
        report = json.loads((folder / "report.json").read_text())
    summary = report.get("summary", {})
    return {
        "verdict": summary.get("verdict"),
        "steps": summary.get("steps"),
        "each": [core["steps"] for core in report.get("cores", ())],
        "compilations": summary.get("compilations"),
        "findings": [_brief(item) for item in report.get("findings", ())],
    }


def _process(
    words: list[str], folder: Path, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words, cwd=folder, env=env, capture_output=True, text=True, errors="replace",
            timeout=LIMIT, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        said = (error.stderr or b"").decode("utf-8", "replace")
        return subprocess.CompletedProcess(words, -1, "", f"{said}\nno end after {LIMIT} s")


def _losses(output: str) -> list[tuple[str, float]]:
    return [(loss.label, loss.value) for loss in printed.losses(output)]


def _brief(item: dict[str, Any]) -> dict[str, Any]:
    place = item["locations"][0] if item["locations"] else None
    at = f"{item['code']} {Path(place['filename']).name}:{place['row']}" if place else item["code"]
    return {"code": item["code"], "at": at, "severity": item["severity"],
            "message": item["message"], "by": item["confirmed_by"]}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
