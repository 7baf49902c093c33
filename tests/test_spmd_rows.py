"""The page of SPMD and the family of devices names pages, tests and figures that there are."""

from __future__ import annotations

import collections
import re
from pathlib import Path

import pytest
from test_promises import names

from xladoctor import catalogue
from xladoctor.lint import engine, sources

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "spmd-rows.md"
GUIDE = ROOT / "docs" / "guides" / "torchtpu.md"
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
_TARGET = re.compile(r"`make ([\w-]+)`")
_CODE = re.compile(r"\bXLA\d{3}\b")
_FOUND = re.compile(r"(XLA\d{3}) (\d+)")


def rows() -> list[tuple[str, str]]:
    """What goes wrong or must hold, and what holds it; not what is not told."""
    sections = PAGE.read_text().split("\n## ")
    tables = "\n".join(one for one in sections if not one.startswith("Not reported"))
    lines = [line.strip("| ").split(" | ") for line in tables.splitlines() if line[:2] == "| "]
    return [(line[0], line[-1]) for line in lines if not line[-1].startswith("page or test")]


@pytest.mark.parametrize(("row", "held"), rows())
def test_each_row_names_pages_and_tests_that_there_are(row: str, held: str) -> None:
    tests, targets, codes = _TEST.findall(held), _TARGET.findall(held), _CODE.findall(held)
    assert tests or targets or codes, row
    for file, name in tests:
        assert name in names(file), f"{file} has no {name}"
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{target}:" in makefile for target in targets)
    assert set(codes) <= set(catalogue.pages())


def test_every_row_is_read_and_every_rule_on_shardings_has_one() -> None:
    text = PAGE.read_text()
    assert len(_TEST.findall(text)) == sum(len(_TEST.findall(held)) for _, held in rows())
    named = {code for _, held in rows() for code in _CODE.findall(held)}
    about = {code for code in catalogue.pages() if code[:5] in ("XLA44", "XLA86")}
    assert about - named <= {"XLA448", "XLA449"}  # of cores, not of SPMD


def told() -> list[tuple[str, str]]:
    """Of the guide: a sample program, and what lint is said to say of it."""
    lines = [line.strip("| ").split(" | ") for line in GUIDE.read_text().splitlines()]
    return [
        (line[0].strip("`"), " ".join(line[1:]))
        for line in lines
        if len(line) == 3 and "XLA850 " in line[1]
    ]


@pytest.mark.parametrize(("sample", "said"), told())
def test_lint_says_of_the_samples_what_the_guide_shows(sample: str, said: str) -> None:
    path = ROOT / "sample_runs" / sample / "as_found.py"
    source = sources.from_bytes(path.read_bytes(), path.name)
    found = engine.lint(source, engine.LintOptions(device="torch_tpu")).findings
    counted = collections.Counter(one.code for one in found)
    assert counted == {code: int(count) for code, count in _FOUND.findall(said)}


def test_the_guide_shows_four_samples() -> None:
    assert len(told()) == 4
