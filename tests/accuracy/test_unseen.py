"""Labelled sets are counted on the files of their commits, and what is missing is said."""

import json
import subprocess

import pytest

from tests.accuracy import unseen

PROGRAM = """import torch_xla.core.xla_model as xm

def train(loader, model, optimizer, device):
    for x in loader:
        loss = model(x.to(device))
        loss.backward()
        xm.optimizer_step(optimizer)
        xm.xrt_world_size()
"""


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A set of one program, whose repository is a folder beside it."""
    work = tmp_path / "repos" / "someone+program"
    work.mkdir(parents=True)
    (work / "train.py").write_text(PROGRAM)
    git = ["git", "-C", work, "-c", "user.name=x", "-c", "user.email=x@example.com"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "x"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    folder = tmp_path / "sets" / "Z1"
    folder.mkdir(parents=True)
    label = {
        "repo": "someone/program",
        "commit": head.stdout.strip(),
        "path": "train.py",
        "line": 8,
        "alt_lines": [],
        "label": "problem",
        "family": "removed-api",
        "sev": "high",
        "note": "gone",
    }
    (folder / "labels.jsonl").write_text(json.dumps(label) + "\n")
    (folder / "files.txt").write_text(f"someone/program {head.stdout.strip()} train.py\n")
    monkeypatch.setattr(unseen, "SETS", tmp_path / "sets")
    monkeypatch.setattr(unseen, "KEPT", tmp_path / "kept")
    monkeypatch.setenv("PYTHONPATH", str(unseen.HERE.parents[1]))
    return ["--from", str(tmp_path / "repos" / "{owner}+{name}")]


def test_files_are_fetched_and_counted(kept, capfd):
    assert unseen.main(["Z1", *kept]) == 0
    told = capfd.readouterr().out
    assert told.startswith("== Z1")
    assert "recall of high and medium 1/1" in told


def test_a_set_that_is_not_there(kept, capfd):
    assert unseen.main(["Z9", *kept]) == 2
    assert "Z9: no such set" in capfd.readouterr().err


def test_a_repository_that_is_not_there(kept, capfd):
    assert unseen.main(["Z1", "--from", "/nowhere/{owner}/{name}"]) == 2
    assert "someone/program at" in capfd.readouterr().err


def test_a_file_that_the_commit_has_not(kept, capfd):
    files = unseen.SETS / "Z1" / "files.txt"
    files.write_text(files.read_text().replace("train.py", "other.py"))
    assert unseen.main(["Z1", *kept]) == 2
    assert "other.py is not in someone/program" in capfd.readouterr().err


def test_a_file_of_no_known_repository_counts_where_it_is(kept, tmp_path, capfd):
    files, labels = (unseen.SETS / "Z1" / name for name in ("files.txt", "labels.jsonl"))
    label = json.loads(labels.read_text()) | {"repo": "stored/123", "commit": "0" * 40}
    labels.write_text(labels.read_text() + json.dumps(label) + "\n")
    files.write_text(files.read_text() + f"stored/123 {'0' * 40} train.py\n")
    assert unseen.main(["Z1", *kept]) == 0
    told = capfd.readouterr().out
    assert "left out, of no known repository: files 1" in told
    assert "recall of high and medium 1/1" in told
    there = tmp_path / "kept" / "Z1" / "stored+123" / ("0" * 40)
    there.mkdir(parents=True)
    (there / "train.py").write_text(PROGRAM)
    assert unseen.main(["Z1", *kept]) == 0
    told = capfd.readouterr().out
    assert "left out" not in told
    assert "recall of high and medium 2/2" in told


def test_a_first_count_stands(kept, tmp_path, capfd):
    assert unseen.main(["Z1", "--first", "abc1234", *kept]) == 0
    first = tmp_path / "sets" / "first.json"
    before = first.read_text()
    assert json.loads(before)["Z1"]["high"] == [1, 1]
    assert unseen.main(["Z1", "--first", "def5678", *kept]) == 0
    assert first.read_text() == before


def test_the_table_is_written_of_first_counts_and_those_of_now(kept, tmp_path, monkeypatch, capfd):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{unseen.BEGIN}\nold\n{unseen.END}\nafter\n")
    monkeypatch.setattr(unseen, "TABLE", page)
    unseen.main(["Z1", "--first", "abc1234", *kept])
    first = tmp_path / "sets" / "first.json"
    missed = first.read_text().replace("[1, 1]", "[0, 1]")
    first.write_text(missed.replace('"told": [0, 1]', '"told": [0, 0]'))
    assert unseen.main(["--write", *kept]) == 0
    rows = page.read_text().splitlines()
    assert rows[0] == "before"
    assert rows[-1] == "after"
    assert "old" not in rows
    row = next(row for row in rows if row.startswith("| Z1 |"))
    assert row == "| Z1 | 1 | 0/1 (0.00) | 0/0 | 0/0 | 0/0 | 1/1 (1.00) |"


def test_the_table_is_of_all_sets(kept, capfd):
    assert unseen.main(["Z1", "--write", *kept]) == 2
    assert "leave their names out" in capfd.readouterr().err


def test_a_set_of_known_files_is_counted_and_has_no_first_count(kept, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(unseen, "AGAIN", tmp_path / "relabelled")
    (tmp_path / "sets" / "Z1").rename(tmp_path / "Z1")
    (tmp_path / "relabelled").mkdir()
    (tmp_path / "Z1").rename(tmp_path / "relabelled" / "Z1")
    assert unseen.main(["Z1", *kept]) == 0
    assert "recall of high and medium 1/1" in capfd.readouterr().out
    assert (tmp_path / "relabelled" / "Z1").is_dir()
    assert unseen.main(["Z1", "--first", "abc1234", *kept]) == 2
    assert "no first count" in capfd.readouterr().err
    assert not (tmp_path / "sets" / "first.json").exists()
