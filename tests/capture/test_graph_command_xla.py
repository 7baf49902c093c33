"""``xladoctor graph`` on a real run: the graphs of a program whose lines and shapes are known."""

from __future__ import annotations

import json
import re
import shutil
import sys
from typing import TYPE_CHECKING

import programs
import pytest
from test_profile_xla import profile

from xladoctor.cli.app import main
from xladoctor.diagnosis import diagnose
from xladoctor.readings import load
from xladoctor.store.launchers import Identity
from xladoctor.store.locations import located
from xladoctor.store.upload import Uploader

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    (folder / "train.py").write_text(programs.CORES)
    done = profile(
        folder, "--simulate-cores", "2", "-o", "run", "--output-format", "concise", "--",
        sys.executable, "train.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture(scope="module")
def numbers(run: Path) -> dict[str, int]:
    """The graphs' numbers: the step of 16 rows, the fallback's, and the step of 10 rows."""
    compilations = diagnose(load([run])).compilations
    assert len(compilations) == 3
    kinds = {
        "fallback" if item.trigger == "fallback" else "first" if item.step == 1 else "last": number
        for number, item in enumerate(compilations, 1)
    }
    assert set(kinds) == {"first", "fallback", "last"}
    return kinds


def shown(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main(["graph", *map(str, arguments)]) == code
    out, err = capsys.readouterr()
    return err if code else out


def line_of(text: str) -> int:
    return next(
        row for row, line in enumerate(programs.CORES.splitlines(), 1) if line.strip() == text
    )


def test_all_graphs_are_listed_with_their_numbers(run, numbers, capsys):
    lines = shown(capsys, run).splitlines()
    step, fallback = (programs.line(programs.CORES, mark) for mark in ("STEP", "FALLBACK"))
    for name, where in (("first", f"train.py:{step} (step end)"),
                        ("fallback", f"train.py:{fallback} (CPU operation)"),
                        ("last", f"train.py:{step} (step end)")):  # fmt: skip
        (line,) = [line for line in lines if line.split()[0] == str(numbers[name])]
        assert where in line
    assert "(x): f32[16,24] -> f32[10,24]" in " ".join(lines)


def test_a_graph_shows_the_operations_under_their_lines(run, numbers, capsys):
    text = shown(capsys, run, numbers["first"])
    forward = f"train.py:{line_of('loss = model(x).pow(2).mean()')} in train"
    step = f"train.py:{line_of('xm.optimizer_step(optimizer)')} in train"
    assert text.index(forward) < text.index(step)
    body = text[text.index(forward) :].split("\n\n")[0]
    assert "aten::addmm(f32[16,24]" in body
    assert "-> f32[16,8]" in body
    assert "aten::relu(0, f32[16,8])" in body
    assert "cross_replica_sum" in text[text.index(step) :]
    assert "f32[16,24]" in text[text.index("inputs (") : text.index(forward)]


def test_a_diff_says_where_it_begins_and_what_follows(run, numbers, capsys):
    text = shown(capsys, run, numbers["last"], "--diff", numbers["first"])
    (batch,) = [line for line in text.splitlines() if "f32[16,24] -> f32[10,24]" in line
                and "input" in line and line.startswith("  ~")]  # fmt: skip
    assert batch.endswith("*")
    forward = f"train.py:{line_of('loss = model(x).pow(2).mean()')} in train"
    body = text[text.index(forward) :].split("\n\n")[0].splitlines()
    assert any(
        row.startswith("  ~ aten::addmm") and "f32[16,8] -> f32[10,8]" in row for row in body
    )
    assert not [row for row in text.splitlines() if row.startswith(("  + ", "  - "))]
    assert "operations that both graphs have: 100%" in text


def test_a_graph_does_not_differ_from_itself(run, numbers, capsys):
    text = shown(capsys, run, numbers["first"], "--diff", numbers["first"])
    assert "no operation, shape or constant differs" in text


def test_operations_that_only_one_graph_has_are_told_by_line(run, numbers, capsys):
    text = shown(capsys, run, numbers["first"], "--diff", numbers["fallback"])
    assert "  + aten::addmm" in text
    back = shown(capsys, run, numbers["fallback"], "--diff", numbers["first"])
    assert "  - aten::addmm" in back


def test_a_graph_whose_lines_were_not_noted_has_those_of_its_like(run, numbers, capsys):
    """The last step's graph is new when the program had settled."""
    text = shown(capsys, run, numbers["last"])
    assert f"lines as in graph {numbers['first']}: here they were no longer noted" in text
    forward = f"train.py:{line_of('loss = model(x).pow(2).mean()')} in train"
    assert "aten::addmm(f32[10,24]" in text[text.index(forward) :].split("\n\n")[0]


def test_json_has_the_same(run, numbers, capsys):
    view = json.loads(shown(capsys, run, numbers["first"], "--output-format", "json"))
    row = line_of("loss = model(x).pow(2).mean()")
    (product,) = [one for one in view["operations"]
                  if one["name"] == "aten::addmm" and "f32[16,24]" in one["inputs"]]  # fmt: skip
    assert product["outputs"] == ["f32[16,8]"]
    assert product["location"] == {"filename": "train.py", "row": row, "function": "train"}
    assert view["inputs"].count("f32[16,24]") == 1
    data = json.loads(
        shown(capsys, run, numbers["last"], "--diff", numbers["first"], "--output-format", "json")
    )
    assert data["diff"]["other"] == numbers["first"]
    (change,) = [one for one in data["diff"]["inputs"] if one["before"] == "f32[16,24]"]
    assert (change["after"], change["kind"], change["origin"]) == ("f32[10,24]", "changed", True)


def test_hlo_is_the_graph_as_it_was_given_to_xla(run, numbers, capsys):
    text = shown(capsys, run, numbers["first"], "--output-format", "hlo")
    assert text.startswith("HloModule ")
    arguments = (numbers["last"], "--diff", numbers["first"], "--output-format", "hlo")
    diff = shown(capsys, run, *arguments).splitlines()
    assert diff[:2] == [f"--- graph {numbers['first']}", f"+++ graph {numbers['last']}"]
    changed = [line for line in diff[2:] if line.startswith(("+", "-"))]
    assert any("f32[16,24]" in line for line in changed)
    assert all("metadata=" not in line for line in diff)


@pytest.mark.parametrize("number", [0, 99, -1])
def test_a_number_that_does_not_exist_lists_those_that_do(run, capsys, number):
    said = shown(capsys, run, "--", number, code=2)
    assert said.startswith(f"xladoctor: there is no graph {number}: this run has 1-3")
    assert len(said.splitlines()) == 1


def test_a_graph_that_was_cut_or_lost_is_one_sentence(run, numbers, tmp_path, capsys):
    broken = tmp_path / "broken"
    shutil.copytree(run, broken)
    for file in broken.glob("p*/graphs/*.txt.z"):
        file.write_bytes(file.read_bytes()[:40])
    said = shown(capsys, broken, numbers["first"], code=2)
    assert "is missing or cut" in said
    assert len(said.splitlines()) == 1


# -- the same run, as hosts of a pod have it -------------------------------------------------------
def as_hosts(run: Path, folder: Path, address: str, hosts: int) -> None:
    """Write the run as what each of some hosts left; the last one names its graphs otherwise."""
    for host in range(hosts):
        copied = folder / f"host-{host}"
        shutil.copytree(run, copied)
        if host == hosts - 1:
            for events in copied.glob("p*/events.jsonl"):
                text = re.sub(r'"graph":"(\w+)"', r'"graph":"odd-\1"', events.read_text())
                events.write_text(text)
        uploader = Uploader(
            copied, located(address), Identity("job", str(host), hosts, None, None, None, "node"),
            started=1_763_670_000.0, pid=5, version="0", every=60.0, clock=lambda: 1_763_670_060.0,
        )  # fmt: skip
        uploader.start()
        assert uploader.finish() is None


@pytest.mark.parametrize("hosts", [2, 12])
@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_the_graphs_of_a_pod(run, numbers, hosts, kind, tmp_path, capsys):
    if kind == "memory":
        pytest.importorskip("fsspec")
    address = str(tmp_path / "pod") if kind == "folder" else f"memory://graphs/{hosts}"
    as_hosts(run, tmp_path, address, hosts)
    listed = shown(capsys, address)
    assert "(not kept)" not in listed
    assert [line.split()[0] for line in listed.splitlines() if line.split()[0].isdigit()] == [
        str(number) for number in range(1, 7)
    ]
    assert shown(capsys, address, numbers["first"]) == shown(capsys, run, numbers["first"])
    # Those of the last host are others by name, and are there too, whatever their number.
    odd = shown(capsys, address, 6, "--output-format", "hlo")
    assert odd in {shown(capsys, run, number, "--output-format", "hlo") for number in (1, 2, 3)}
    assert "this run has 1-6" in shown(capsys, address, 7, code=2)
