"""``xladoctor compare`` as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.report.test_formats import EVIL, evil_report, full_report, tags
from xladoctor.cli.app import main
from xladoctor.diagnosis.comparison import compare
from xladoctor.report import comparison

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "sample_runs" / "ct_slices" / "recorded"


def test_the_page_says_what_the_terminal_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    sides = [str(RECORDED / "runnable"), str(RECORDED / "treated")]
    out = tmp_path / "page.html"
    assert main(["compare", *sides, "--output-format", "html", "-o", str(out)]) == 0
    assert main(["compare", *sides]) == 0
    said = capsys.readouterr().out
    page = tags(out.read_text(encoding="utf-8"))
    names = {name for name, _ in page.seen}
    assert not names & {"script", "link", "img", "iframe"}
    shown = "".join("".join(page.text).split())
    told = 0
    for line in said.splitlines():
        if "better (" in line or line.strip().startswith("gone"):
            assert "".join(line.split()) in shown
            told += 1
    assert told >= 8


def test_hostile_names_are_text() -> None:
    text = comparison.render(compare(evil_report(), full_report()), (EVIL, "\u202e"), "html")
    page = tags(text)
    assert "script" not in {name for name, _ in page.seen}
    assert EVIL in "".join(page.text)
    assert "\u202e" not in text
