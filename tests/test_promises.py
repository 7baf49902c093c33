"""The page of what holds names tests that there are."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "promises.md"
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
_TARGET = re.compile(r"`make ([\w-]+)`")


def rows() -> list[tuple[str, str]]:
    """What is promised, and what holds it."""
    tables = PAGE.read_text().partition("## The same program")[0]
    lines = [line.strip("| ").split(" | ") for line in tables.splitlines()]
    return [(line[0], line[1]) for line in lines if len(line) == 2 and line[1] != "test"]


@functools.cache
def names(file: str) -> frozenset[str]:
    """The tests of a file."""
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return frozenset(one.name for one in tree.body if isinstance(one, ast.FunctionDef))


@pytest.mark.parametrize(("promise", "held"), rows())
def test_what_is_promised_names_tests_that_there_are(promise: str, held: str) -> None:
    tests, targets = _TEST.findall(held), _TARGET.findall(held)
    assert tests or targets, promise
    for file, name in tests:
        assert (ROOT / "tests" / file).exists(), file
        assert name in names(file), f"{file} has no {name}"
        assert name.startswith("test_")
    makefile = (ROOT / "Makefile").read_text()
    for target in targets:
        assert f"\n{target}:" in makefile, target


def test_every_row_is_read() -> None:
    text = PAGE.read_text()
    named = len(_TEST.findall(text))
    assert named == sum(len(_TEST.findall(held)) for _, held in rows())
    assert named > 80
