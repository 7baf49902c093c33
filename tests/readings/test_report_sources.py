from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from xladoctor.errors import SourceError, UsageError
from xladoctor.readings import load

if TYPE_CHECKING:
    from pathlib import Path

REPORT = "Counter: MarkStep\n  Value: 61\n"


def test_a_text_file(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_text(REPORT)
    assert load([tmp_path / "m.txt"]).reports[0].counters == {"MarkStep": 61}


def test_standard_input() -> None:
    (report,) = load(["-"], REPORT).reports
    assert report.source == "standard input"


def test_the_text_that_a_powershell_redirection_writes(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_bytes(REPORT.encode("utf-16"))
    assert load([tmp_path / "m.txt"]).reports[0].counters == {"MarkStep": 61}


def test_bytes_that_are_not_utf8_do_not_hide_the_report(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_bytes(b"caf\xe9\n" + REPORT.encode())
    assert load([tmp_path / "m.txt"]).reports[0].counters == {"MarkStep": 61}


def test_a_notebook_whose_outputs_hold_a_report(tmp_path: Path) -> None:
    lines = REPORT.splitlines(keepends=True)
    cells = [
        {"cell_type": "markdown", "source": ["# x"]},
        {
            "cell_type": "code",
            "source": ["Counter: no"],
            "outputs": [{"name": "stdout", "text": lines}],
        },
        {
            "cell_type": "code",
            "outputs": [{"data": {"text/plain": "'Counter: A\\n  Value: 3\\n'"}}],
        },
    ]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}))
    (report,) = load([tmp_path / "n.ipynb"]).reports
    assert report.counters == {"MarkStep": 61, "A": 3}


def test_several_sources_are_the_cores_of_one_run(tmp_path: Path) -> None:
    for core in (0, 3):
        (tmp_path / f"m.txt.{core}").write_text(REPORT)
    reports = load([tmp_path / "m.txt.0", tmp_path / "m.txt.3"]).reports
    assert [report.core for report in reports] == [0, 3]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("absent.txt", None, "there is no such file or folder"),
        ("empty.txt", b"", "this is empty"),
        ("prose.txt", b"my training is slow\n", "no torch_xla metrics report"),
        ("image.png", b"\x89PNG\0\0\0", "this is a binary file"),
        ("broken.ipynb", b"{", "not a notebook"),
        ("list.ipynb", b"[]", "not a notebook"),
    ],
)
def test_bad_sources_are_one_sentence_that_names_them(
    tmp_path: Path, name: str, content: bytes | None, sentence: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SourceError, match=sentence) as failure:
        load([path])
    assert str(path) in str(failure.value)
    assert "\n" not in str(failure.value)


def test_no_source_at_all() -> None:
    with pytest.raises(UsageError):
        load([])
