"""What the project promises its users, held against the program sentence by sentence.

Commands, flags, exit codes and the keys of JSON are for ever: a test here that fails says that a
promise was broken, so fix the program, not the test. New keys and flags may be added freely.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.invented import InventedRun
from xladoctor import catalogue
from xladoctor.cli.app import cli, main
from xladoctor.results import CAUSE_KINDS

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "sample_runs" / "ct_slices" / "recorded" / "runnable"

NUMBER, WHOLE, TEXT, FLAG = (int, float), (int,), (str,), (bool,)
MAYBE = type(None)

#: The shape of a JSON value: a type, a list of one shape, a dict of required keys, or "*" as the
#: key of a dict for names that are free. A tuple with None allows null: "not measured".
PLACE = {"filename": TEXT, "row": WHOLE, "function": (str, MAYBE)}
FINDING = {
    "code": TEXT, "name": TEXT, "severity": TEXT, "message": TEXT, "suggestion": TEXT,
    "locations": [PLACE], "count": (int, MAYBE), "seconds": (int, float, MAYBE), "cores": [WHOLE],
    "confirmed_by": [TEXT],
}  # fmt: skip
COUNT, SECONDS = (int, MAYBE), (int, float, MAYBE)
REPORT = {
    "schema_version": WHOLE,
    "summary": {
        "verdict": TEXT, "why": TEXT, "next": TEXT, "cores": COUNT, "steps": COUNT,
        "compilations": COUNT, "compilations_after_warmup": COUNT,
        "fallbacks": (dict, MAYBE), "host_syncs": COUNT,
        "seconds": {
            "total": SECONDS, "compile": SECONDS, "execute": SECONDS, "input_wait": SECONDS,
            "host_sync": SECONDS, "trace": SECONDS, "fallback": SECONDS, "other": SECONDS,
        },
    },
    "cores": [
        {"core": WHOLE, "compilations": COUNT, "steps": COUNT, "step_seconds_median": SECONDS},
    ],
    "compilations": [
        {
            "cores": [WHOLE], "step": COUNT, "seconds": SECONDS, "graph": (str, MAYBE),
            "location": (PLACE, MAYBE),
            "cause": {
                "kind": TEXT, "detail": TEXT,
                "location": ({"filename": TEXT, "row": WHOLE}, MAYBE),
            },
        },
    ],
    "metrics": [
        {
            "source": TEXT, "core": COUNT, "step": COUNT,
            "metrics": {
                "*": {
                    "total_samples": COUNT, "accumulator": SECONDS, "unit": TEXT,
                    "percentiles": {"*": NUMBER},
                },
            },
            "counters": {"*": WHOLE},
        },
    ],
    "findings": [FINDING],
}  # fmt: skip
POSITION = {"row": WHOLE, "column": WHOLE}
LINTED = {
    "code": TEXT, "name": TEXT, "severity": TEXT, "message": TEXT, "url": TEXT, "filename": TEXT,
    "cell": COUNT, "location": POSITION, "end_location": POSITION,
    "fix": (
        {
            "applicability": TEXT, "message": TEXT,
            "edits": [{"content": TEXT, "location": POSITION, "end_location": POSITION}],
        },
        MAYBE,
    ),
}  # fmt: skip

CODE = """\
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


def train(model, loader, optimizer):
    device = xm.xla_device()
    total = 0.0
    for x in pl.MpDeviceLoader(loader, device):
        loss = model(x).sum()
        loss.backward()
        xm.optimizer_step(optimizer)
        total += loss.item()
    return total
"""


def wrong(shape, value, where: str = "") -> list[str]:
    """Where a JSON value does not have a shape."""
    if isinstance(shape, tuple):
        if any(isinstance(item, dict) for item in shape) and isinstance(value, dict):
            return wrong(next(item for item in shape if isinstance(item, dict)), value, where)
        kinds = tuple(item for item in shape if isinstance(item, type))
        plain = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        return [] if plain else [f"{where}: {value!r}"]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{where}: no list"]
        return [
            bad for i, item in enumerate(value) for bad in wrong(shape[0], item, f"{where}[{i}]")
        ]
    if not isinstance(value, dict):
        return [f"{where}: no object"]
    if "*" in shape:
        return [
            bad for key, item in value.items() for bad in wrong(shape["*"], item, f"{where}.{key}")
        ]
    missing = [f"{where}.{key} is missing" for key in shape if key not in value]
    return missing + [
        bad
        for key in shape
        if key in value
        for bad in wrong(shape[key], value[key], f"{where}.{key}")
    ]


def test_a_wrong_value_is_seen():
    assert wrong(FINDING, {}) == [f".{key} is missing" for key in FINDING]
    assert wrong({"a": COUNT}, {"a": True}) == [".a: True"]  # a flag is no number
    assert wrong({"a": COUNT}, {"a": None}) == []
    assert wrong({"a": WHOLE}, {"a": None}) == [".a: None"]
    assert wrong({"*": WHOLE}, {"b": "x"}) == [".b: 'x'"]
    assert wrong([{"a": (PLACE, MAYBE)}], [{"a": {"row": 1}}]) == [
        "[0].a.filename is missing", "[0].a.function is missing",
    ]  # fmt: skip


def options(command: str) -> set[str]:
    found = cli.get_command(None, command)
    return {name for item in found.params for name in (*item.opts, *item.secondary_opts)}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def as_json(capsys, *args: str, code: int = 0):
    assert main([*args, "--output-format", "json"]) == code
    return json.loads(capsys.readouterr().out)


# Commands and their flags


@pytest.mark.parametrize(
    ("command", "promised"),
    [
        (
            "lint",
            (
                "--fix --unsafe-fixes --diff --select --ignore --extend-select "
                "--per-file-ignores --output-format --output-file --statistics --show-files "
                "--show-settings --add-noqa --exclude --force-exclude --config --isolated "
                "--no-cache --cache-dir "
                "--stdin-filename --exit-zero --exit-non-zero-on-fix --watch --jobs --baseline "
                "--write-baseline --target-torch-xla"
            ),
        ),
        (
            "profile",
            (
                "--simulate-cores -o --output --force --output-format --output-file --html "
                "--budget --max-compilations --max-compilations-after-step --forbid-fallbacks "
                "--max-syncs-per-step --hang-timeout --trace --check"
            ),
        ),
        ("report", "--output-format --last --trace"),
        ("graph", "--diff --output-format"),
        ("server", ""),
        ("compare", "--fail-if-worse"),
        ("treat", "--write"),
        ("explain", ""),
        ("rules", "--output-format"),
        ("env", ""),
    ],
)
def test_commands_have_the_flags_that_were_promised(command, promised):
    assert set(promised.split()) <= options(command)


def test_formats_of_report():
    [choice] = [p for p in cli.get_command(None, "report").params if p.name == "output_format"]
    promised = {"full", "concise", "json", "markdown", "html", "sarif", "github", "junit"}
    assert set(choice.type.choices) >= promised


# report


@pytest.mark.parametrize("source", ["run", "text", "invented"])
def test_the_json_of_report_field_by_field(here, capsys, source):
    if source == "run":
        name = str(RECORDED)
    elif source == "text":
        name = "metrics.txt"
        (here / name).write_text((next(RECORDED.glob("p*/metrics.txt"))).read_text())
    else:
        run = InventedRun()
        run.steps(6, syncs=[(52, "item", 1, 0.2, 0)], host_sync=0.2)
        run.end()
        name = str(run.write(here / "run"))
    data = as_json(capsys, "report", name)
    assert wrong(REPORT, data) == []
    assert data["schema_version"] == 1


def test_what_was_not_measured_is_null_and_what_was_and_is_none_is_0(here, capsys):
    (here / "metrics.txt").write_text("Counter: MarkStep\n  Value: 5\n")
    summary = as_json(capsys, "report", "metrics.txt")["summary"]
    assert summary["steps"] == 5
    assert summary["compilations"] is None
    assert summary["fallbacks"] is None
    assert set(summary["seconds"].values()) == {None}
    treated = as_json(capsys, "report", str(RECORDED.parent / "treated"))["summary"]
    assert treated["fallbacks"] == {}
    assert treated["compilations_after_warmup"] == 0


def test_how_things_are_counted(capsys):
    data = as_json(capsys, "report", str(RECORDED))
    summary = data["summary"]
    assert summary["cores"] == len(data["cores"]) == 8
    for name in ("steps", "compilations"):  # the largest number over the cores
        assert summary[name] == max(core[name] for core in data["cores"])
    # One entry is one graph, with all the cores for which it was new.
    assert all(entry["cores"] for entry in data["compilations"])
    new = [sum(core in entry["cores"] for entry in data["compilations"]) for core in range(8)]
    assert new == [core["compilations"] for core in data["cores"]]
    assert {entry["cause"]["kind"] for entry in data["compilations"]} <= set(CAUSE_KINDS)
    # Sums over all cores.
    assert summary["host_syncs"] == sum(core["host_syncs"] for core in data["cores"])
    assert sum(summary["fallbacks"].values()) == sum(core["fallbacks"] for core in data["cores"])
    seconds = summary["seconds"]
    parts = [value for name, value in seconds.items() if name != "total" and value is not None]
    assert sum(parts) == pytest.approx(seconds["total"])


def test_the_kinds_of_cause_are_those_that_were_promised():
    assert set(CAUSE_KINDS) >= {
        "first-graph", "input-shape", "op-changed", "constant-changed", "live-tensors-changed",
        "host-sync-split", "graph-grew", "core-divergence", "unknown",
    }  # fmt: skip


def test_the_newest_run_is_last(here, capsys):
    run = InventedRun()
    run.steps(4)
    run.end()
    run.write(here / ".xladoctor" / "runs" / "one")
    assert as_json(capsys, "report", "--last")["summary"]["steps"] == 4


# lint


def test_the_json_of_lint_field_by_field(here, capsys):
    (here / "train.py").write_text(CODE)
    cells = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    notebook = {
        "cells": [{**cells, "source": "x = 1"}, {**cells, "source": CODE.splitlines(True)}],
        "metadata": {}, "nbformat": 4, "nbformat_minor": 5,
    }  # fmt: skip
    (here / "train.ipynb").write_text(json.dumps(notebook))
    (here / "broken.py").write_text("import torch_xla\ndef f(:\n")
    data = as_json(capsys, "lint", "--isolated", ".", code=1)
    assert isinstance(data, list)
    assert wrong([LINTED], data) == []
    by_file = {name: [item for item in data if item["filename"] == name] for name in
               ("train.py", "train.ipynb", "broken.py")}  # fmt: skip
    assert [item["code"] for item in by_file["broken.py"]] == ["XLA001"]  # stops no other
    plain, cell = by_file["train.py"], by_file["train.ipynb"]
    assert {item["cell"] for item in plain} == {None}
    assert {item["cell"] for item in cell} == {1}  # 0-based, and rows count inside the cell
    rows = [(item["code"], item["location"]["row"]) for item in plain]
    assert sorted(rows) == sorted((item["code"], item["location"]["row"]) for item in cell)
    assert {item["severity"] for item in data} <= {"error", "warning", "info"}
    fixes = [item["fix"] for item in data if item["fix"] is not None]
    assert {fix["applicability"] for fix in fixes} <= {"safe", "unsafe"}
    assert fixes


def test_exit_codes_of_lint(here, capsys):
    (here / "good.py").write_text("x = 1\n")
    (here / "train.py").write_text(CODE)
    assert main(["lint", "--isolated", "good.py"]) == 0
    assert main(["lint", "--isolated", "train.py"]) == 1
    assert main(["lint", "--isolated", "--exit-zero", "train.py"]) == 0
    assert main(["lint", "--no-such-flag"]) == 2
    assert main(["lint", "--isolated", "--select", "XLA999", "train.py"]) == 2
    (here / "xladoctor.toml").write_text("select = 3\n")
    assert main(["lint", "train.py"]) == 2
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err


# One code per problem


def test_codes_and_their_families():
    families = {
        "0": "xladoctor itself", "1": "host sync", "2": "dynamic shapes", "3": "step",
        "4": "cores", "5": "fall back", "6": "input", "7": "precision", "8": "old",
        "9": "frameworks",
    }  # fmt: skip
    for code in catalogue.pages():
        assert len(code) == 6
        assert code.startswith("XLA")
        assert code[3] in families
    table = (ROOT / "rules" / "README.md").read_text()
    for digit, word in families.items():
        [row] = [line for line in table.splitlines() if line.startswith(f"| XLA{digit}xx |")]
        assert word in row


def test_explain_rules_and_env(capsys):
    assert main(["explain", "XLA101"]) == 0
    page = (ROOT / "rules" / "XLA101-host-sync-in-step.md").read_text()
    out = capsys.readouterr().out

    def without_marks(text):
        lines = re.sub(r"  # (error: .*|XLA101)$", "", text, flags=re.MULTILINE).splitlines()
        return [line.rstrip() for line in lines]

    # What is only for the page's tests is not shown; nothing else differs.
    head, _, tests = page.partition("## Tests\n")
    rest = tests.partition("\n## ")[2]
    shown = f"{head}## {rest}" if rest else head
    assert without_marks(out.strip()) == without_marks(shown.strip())
    table = as_json(capsys, "rules")
    assert [item["code"] for item in table] == list(catalogue.pages())
    facts = as_json(capsys, "env")
    assert {"xladoctor", "python", "packages"} <= set(facts)
