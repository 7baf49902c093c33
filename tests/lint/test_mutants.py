"""A seeded part of ``make mutants``: faults are found, changes without a meaning are not."""

from __future__ import annotations

import ast
import random

import pytest

from tests.accuracy import mutants
from tests.accuracy.mutation.faults import FAULTS
from tests.accuracy.mutation.spellings import CHANGES, MAIN, SPELLINGS

HEALTHY = sorted((mutants.ROOT / "tests/accuracy/healthy").glob("*.py"))


@pytest.fixture(scope="module")
def texts():
    return mutants.programs()


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_nothing_is_found_in_a_healthy_program(path):
    assert not mutants.found({MAIN: path.read_text()})


def test_each_fault_has_a_place_and_makes_programs_that_parse(texts):
    planted = {}
    for name, fault, _, mutation in mutants.planted(texts):
        if fault.name not in planted:
            text = mutation().code
            ast.parse(text)
            planted[fault.name] = text != texts[name]
    assert planted == {fault.name: True for fault in FAULTS}


def test_planted_faults_are_found(texts):
    sample = list(mutants.chosen(texts, 90, seed=5))
    missed = [str(mutant) for mutant in sample if not mutants.is_found(mutant)]
    assert len(sample) == 90
    assert len(missed) <= 0.05 * len(sample), missed


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_changes_without_a_meaning_bring_no_finding(path):
    for name, difference, _ in mutants.unchanged(path.read_text(), seed=5):
        assert not any(difference.values()), name


def test_the_same_seed_makes_the_same_mutants(texts):
    some = {"flat.py": texts["flat.py"]}
    first, second, other = (
        [(str(mutant), mutant.files) for mutant in mutants.chosen(some, 6, seed)]
        for seed in (7, 7, 8)
    )
    assert first == second != other


def test_what_does_not_parse_is_no_mutant():
    for spelling in (*SPELLINGS.values(), *CHANGES.values()):
        if spelling is not SPELLINGS["as written"]:
            assert mutants.spelled("def broken(:", spelling, random.Random(1)) is None
    assert mutants.spelled("x = (", SPELLINGS["as written"], random.Random(1)) is None
