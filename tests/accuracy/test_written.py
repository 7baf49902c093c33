"""The programs that were written for it are whole, and what is found of them is counted."""

from __future__ import annotations

import ast
import json

import pytest

from tests.accuracy import written

SETS = sorted(one.name for one in written.PROGRAMS.iterdir() if one.is_dir())


@pytest.mark.parametrize("name", SETS)
def test_labels_stand_at_lines_of_programs(name):
    folder = written.PROGRAMS / name
    files = {one.relative_to(folder).as_posix(): one for one in folder.rglob("*.py")}
    labels = [*written.labels(folder)]
    assert {one.path for one in labels} <= files.keys()
    for path, file in files.items():
        text = file.read_text(encoding="utf-8")
        ast.parse(text)
        count = len(text.splitlines())
        assert all(0 < line <= count for one in labels if one.path == path for line in one.lines)
    first = json.loads((written.PROGRAMS / "first.json").read_text(encoding="utf-8"))[name]
    for weight in (*written.WEIGHTS, "traps"):
        wanted = None if weight == "traps" else weight
        assert first[weight][1] == sum(one.weight == wanted for one in labels)


def test_what_is_found_and_taken_is_counted(tmp_path, capsys):
    (tmp_path / "train.py").write_text(
        "import torch_xla.core.xla_model as xm\n"
        "rank = xm.get_ordinal()\n"
        "size = xm.xrt_world_size()\n"
        "print(rank)\n"
    )
    labels = [
        {"path": "train.py", "line": 2, "code": "XLA801", "sev": "high", "note": "gone"},
        {"path": "train.py", "line": 4, "code": "XLA101", "sev": "low", "note": "not there"},
        {"path": "train.py", "line": 3, "code": "XLA801", "note": "to be taken"},
        {"path": "train.py", "line": 1, "alt_lines": [2], "code": "XLA801", "note": "beside one"},
    ]
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(one) + "\n" for one in labels))
    counted = written.count(tmp_path, verbose=True)
    assert counted == {"high": [1, 1], "medium": [0, 0], "low": [0, 1], "traps": [1, 2]}
    told = capsys.readouterr().out
    assert "missed: " in told
    assert ":4 XLA101 not there" in told
    assert "taken: " in told
    assert ":3 XLA801 to be taken" in told


def test_the_table_is_of_these_programs(capsys):
    """What docs/accuracy.md says is what the linter finds now."""
    assert written.main([SETS[0]]) == 0
    rows = capsys.readouterr().out.strip().splitlines()
    page = written.TABLE.read_text(encoding="utf-8")
    table = page.split(written.BEGIN)[1].split(written.END)[0]
    assert all(row in table for row in rows)
    assert written.main(["nobody"]) == 2
    assert "nobody is no set" in capsys.readouterr().err
