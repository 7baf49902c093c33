"""A run as tables and as JSON for people's own questions. The recorded runs are real."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import types
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import xladoctor
from tests.data_page import PAGE, filled
from tests.invented import InventedRun
from tests.report.test_formats import ALL
from xladoctor.columns import TABLES
from xladoctor.diagnosis import diagnose
from xladoctor.errors import MissingExtra, SourceError, UsageError
from xladoctor.readings import load
from xladoctor.results import to_json

ROOT = Path(__file__).resolve().parents[1]
RECORDED = sorted((ROOT / "sample_runs").glob("*/recorded/*"))
RUNNABLE = ROOT / "sample_runs" / "ct_slices" / "recorded" / "runnable"


def test_the_page_has_the_columns_that_there_are() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == filled(page), "run 'python -m tests.data_page'"
    for name in TABLES:
        assert f"## {name}\n" in page


@pytest.mark.parametrize("source", RECORDED, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def test_frames_add_up_to_the_report(source: Path) -> None:
    pytest.importorskip("pandas")
    run = xladoctor.load_run(source)
    report = run.result
    for name, columns in TABLES.items():
        frame = getattr(run, name)
        assert list(frame.columns) == [column.name for column in columns]
    steps = run.steps
    assert steps.groupby("core")["steps"].sum().to_dict() == {c.core: c.steps for c in report.cores}
    parts = [name for name in steps.columns if name.removesuffix("_seconds") in PARTS]
    assert len(parts) == len(PARTS)
    assert (steps[parts].sum(axis=1) - steps["seconds"]).abs().max() < 1e-3
    assert run.reads["count"].sum() == report.summary.host_syncs
    assert run.fallbacks["count"].sum() == sum((report.summary.fallbacks or {}).values())
    assert len(run.compilations) == len(report.compilations)
    assert run.findings["code"].tolist() == [finding.code for finding in report.findings]
    assert set(run.metrics["kind"]) == {"metric", "counter"}


PARTS = {"compile", "execute", "host_sync", "fallback", "input_wait", "trace", "core_wait",
         "transfer", "other"}  # fmt: skip


def test_kinds_of_read_are_parts_of_the_count() -> None:
    pytest.importorskip("pandas")
    reads = xladoctor.load_run(RUNNABLE).reads
    kinds = reads[["compiled", "cut", "waited", "free"]].sum(axis=1)
    assert (kinds == reads["count"]).all()


def test_types_and_units_are_the_same_with_rows_and_without(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    (tmp_path / "m.txt").write_text("Counter: MarkStep\n  Value: 232\n")
    text, run = xladoctor.load_run(tmp_path / "m.txt"), xladoctor.load_run(RUNNABLE)
    for name in TABLES:
        assert getattr(text, name).dtypes.to_dict() == getattr(run, name).dtypes.to_dict()
        assert getattr(text, name).attrs == getattr(run, name).attrs
    assert len(text.steps) == 0
    assert text.metrics.loc[0, "samples"] == 232
    assert run.steps.attrs["units"]["compile_seconds"] == "s"


def test_arrow_has_the_same_rows_with_units() -> None:
    pa = pytest.importorskip("pyarrow")
    run = xladoctor.load_run(RUNNABLE)
    for name, columns in TABLES.items():
        table = run.arrow(name)
        assert table.num_rows == len(getattr(run, name))
        for column in columns:
            metadata = table.schema.field(column.name).metadata
            assert metadata[b"unit"].decode() == column.unit
    assert table.schema.field("cores").type == pa.list_(pa.int64())
    assert sum(run.arrow("reads")["count"].to_pylist()) == run.result.summary.host_syncs


def test_a_notebook_shows_the_tables_and_hostile_text_as_text(tmp_path: Path) -> None:
    shown = xladoctor.load_run(RUNNABLE)._repr_html_()
    for name in TABLES:
        assert f"<code>{name}</code>" in shown
    assert "steps" in repr(xladoctor.load_run(RUNNABLE))
    run = InventedRun(cores=1)
    evil = "<script>alert(1)</script>\u202e"
    run.rows.append({"e": "error", "core": 0, "step": 1, "type": evil, "message": evil,
                     "traceback": evil, "site": run.site(52, f"/home/user/project/{evil}.py"),
                     "feeding": False})  # fmt: skip
    hostile = xladoctor.load_run(run.write(tmp_path / "run"))
    assert "<script" not in hostile._repr_html_()
    assert "\u202e" not in hostile._repr_html_() + repr(hostile)


def test_what_is_missing_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = xladoctor.load_run(RUNNABLE)
    with pytest.raises(UsageError, match="choose from steps, compilations"):
        run.frame("step")
    with pytest.raises(SourceError, match="not a run directory"):
        xladoctor.load_run(tmp_path)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r'pip install "xladoctor\[report\]"'):
        _ = run.steps
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r'pip install "xladoctor\[arrow\]"'):
        run.arrow("steps")


def test_counts_are_those_of_the_summary_and_what_was_not_measured_is_left_out(
    tmp_path: Path,
) -> None:
    run = xladoctor.load_run(RUNNABLE)
    summary = run.result.summary
    assert run.counts["compilations"] == summary.compilations
    assert run.counts["fallbacks"] == sum((summary.fallbacks or {}).values())
    (tmp_path / "m.txt").write_text("Counter: MarkStep\n  Value: 232\n")
    assert xladoctor.load_run(tmp_path / "m.txt").counts == {"steps": 232}


def snippets() -> list[str]:
    """The Python that the page shows."""
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_the_first_example_of_the_page_runs() -> None:
    pytest.importorskip("pandas")
    code = re.sub(r'load_run\("[^"]*"\)', f"load_run({str(RUNNABLE)!r})", snippets()[0])
    exec(code, {})


def test_numbers_go_into_other_tools_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tools are stand-ins that take what the real ones take: a name, a number, a step."""
    pytest.importorskip("pandas")
    logged: dict[str, list[Any]] = {"tensorboard": [], "mlflow": [], "wandb": []}

    class Writer(contextlib.AbstractContextManager[Any]):
        def __init__(self, folder: str) -> None: ...

        def __exit__(self, *_: object) -> None: ...

        def add_scalar(self, tag: str, value: float, step: int) -> None:
            logged["tensorboard"].append((tag, float(value), int(step)))

    def of(name: str, **members: Any) -> None:
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)

    of("torch.utils.tensorboard", SummaryWriter=Writer)
    of("mlflow", start_run=contextlib.nullcontext, log_metrics=logged["mlflow"].append,
       log_artifact=lambda path: None)  # fmt: skip
    of("wandb", init=lambda project: types.SimpleNamespace(log=logged["wandb"].append))
    run = xladoctor.load_run(RUNNABLE)
    for code in snippets()[1:]:
        if "torch.utils" in code:
            for name in ("torch", "torch.utils"):
                monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        exec(code, {"run": run})
    steps = {step for tag, _, step in logged["tensorboard"] if tag == "step_seconds/core_0"}
    assert steps == set(range(1, (run.result.summary.steps or 0) + 1))
    new = sum(value for tag, value, _ in logged["tensorboard"] if tag == "compilations/core_0")
    assert 0 < new <= run.result.cores[0].compilations
    assert logged["mlflow"] == [{f"xla_{name}": value for name, value in run.counts.items()}]
    assert logged["wandb"] == [{f"xla/{name}": value for name, value in run.counts.items()}]


# JSON Schema


def schema() -> dict[str, Any]:
    """The schema as the package publishes it."""
    return json.loads(files("xladoctor.report").joinpath("report.schema.json").read_text("utf-8"))


def strict(node: Any) -> Any:
    """The schema without room for keys that it does not describe."""
    if isinstance(node, list):
        return [strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {key: strict(value) for key, value in node.items()}
    if "properties" in node and isinstance(node["properties"], dict) and "type" in node:
        made["additionalProperties"] = False
    return made


def test_the_schema_is_one_and_describes_every_key() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(schema())

    def undescribed(node: Any, where: str) -> list[str]:
        if not isinstance(node, dict):
            return []
        found = []
        for key, value in node.get("properties", {}).items():
            if not ({"description", "$ref", "oneOf"} & set(value)):
                found.append(f"{where}.{key}")
            found += undescribed(value, f"{where}.{key}")
        return found + undescribed(node.get("items"), f"{where}[]")

    whole = schema()
    assert undescribed(whole, "") == []
    assert [bad for name, one in whole["$defs"].items() for bad in undescribed(one, name)] == []


@pytest.mark.parametrize("source", RECORDED, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def test_the_json_of_recorded_runs_is_what_the_schema_says_and_nothing_else(source: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    data = json.loads(json.dumps(to_json(diagnose(load([source])))))
    jsonschema.Draft202012Validator(strict(schema())).validate(data)
    assert data["steps"]


def test_the_json_of_invented_reports_is_what_the_schema_says() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    checker = jsonschema.Draft202012Validator(strict(schema()))
    for report in ALL:
        checker.validate(json.loads(json.dumps(to_json(report))))
    with pytest.raises(jsonschema.ValidationError):
        checker.validate({"schema_version": 1})
