"""Run directories that nobody recorded: numbers, sizes and names are bounded, nothing else is read.

Invented: rows of a recorded run with one value changed, or multiplied.
"""

import contextlib
import json
import resource
import zlib
from pathlib import Path

import pytest

from xladoctor import diagnosis, files, readings
from xladoctor.errors import XladoctorError
from xladoctor.readings import hlo
from xladoctor.report import render

RECORDED = Path(__file__).parents[2] / "sample_runs" / "ct_slices" / "recorded" / "runnable"
MANIFEST = json.loads((RECORDED / "manifest.json").read_text())


def _kinds():
    found = {}
    for line in next(RECORDED.glob("p*/events.jsonl")).read_text().splitlines():
        row = json.loads(line)
        found.setdefault(row["e"], row)
    return found


KINDS = _kinds()
HUGE = (2**62, -(2**62), 2**70, 1e18, -1)


@pytest.fixture(autouse=True)
def _bounded():
    """What is not bounded ends here, and not with the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def report(folder, rows, manifest=MANIFEST):
    process = folder / "p1-1"
    process.mkdir(exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with (process / "events.jsonl").open("w") as out:
        for row in rows:
            out.write((row if isinstance(row, str) else json.dumps(row)) + "\n")
    result = diagnosis.diagnose(readings.load([folder]))
    for output_format in ("full", "json", "html"):
        assert render(result, output_format)
    return result


def numbers(value, path=()):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from numbers(item, (*path, key))
    elif isinstance(value, list):
        for at, item in enumerate(value[:2]):
            yield from numbers(item, (*path, at))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path


def changed(value, path, new):
    copy = inner = json.loads(json.dumps(value))
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return copy


@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_a_row(tmp_path, kind):
    for path in numbers(KINDS[kind]):
        for new in HUGE:
            row = changed(KINDS[kind], path, new)
            try:
                report(tmp_path, [{**KINDS, kind: row}[name] for name in KINDS])
            except XladoctorError:
                assert (kind, path) == ("process", ("version",))


@pytest.mark.parametrize("path", list(MANIFEST))
def test_any_value_of_the_manifest(tmp_path, path):
    for new in (*HUGE, "x", [], {}, None, True):
        manifest = {**MANIFEST, path: new}
        if path == "schema_version":
            with pytest.raises(XladoctorError) if new is not True else contextlib.nullcontext():
                report(tmp_path, KINDS.values(), manifest)
        else:
            report(tmp_path, KINDS.values(), manifest)


def step(**more):
    return {**KINDS["step"], "core": 0, "syncs": [], "launches": [], "fallbacks": [], **more}


def test_more_cores_than_there_are(tmp_path):
    rows = [{"e": "core-start", "core": core, "t": 1.0} for core in range(100_000)]
    found = report(tmp_path, [KINDS["process"], *rows])
    assert found.summary.cores <= 1024
    assert len(found.notes) < 20


def test_more_steps_than_anyone_takes(tmp_path):
    million = 1_000_000
    rows = [step(first=n * million + 1, last=(n + 1) * million) for n in range(100)]
    found = report(tmp_path, [KINDS["process"], *rows])
    assert sum(len(seconds) for seconds in found.steps.values()) <= 10 * million


def test_rows_that_are_none(tmp_path):
    found = report(tmp_path, [*KINDS.values(), "[" * 100_000, '{"e":' * 5_000, "1" * 5_000_000])
    assert found.compilations


def test_a_bomb_for_a_graph(tmp_path):
    path = tmp_path / "0000.txt.z"
    path.write_bytes(zlib.compress(b"\n" * 200_000_000, 9))
    with pytest.raises(OSError, match="unpacks to more than a graph"):
        files.unpacked(path)
    path.write_bytes(zlib.compress(b"ENTRY %main {\n}\n" * 1000))
    assert files.unpacked(path) == b"ENTRY %main {\n}\n" * 1000


@pytest.mark.parametrize(
    "name", ["../..", "../0000", "/etc/passwd", "graphs/../../x", "graphs/0\n"]
)
def test_names_of_graphs_are_no_paths(tmp_path, monkeypatch, name):
    opened = []
    monkeypatch.setattr(hlo.files, "unpacked", lambda path: opened.append(path) or b"")
    rows = [{**KINDS["compilation"], "hlo": name}, {**KINDS["compilation"], "hlo": "graphs/0001"}]
    report(tmp_path, [KINDS["process"], KINDS["site"], *rows])
    assert {path.parent.name for path in opened} <= {"graphs"}
    assert all(path.resolve().is_relative_to(tmp_path.resolve()) for path in opened)
