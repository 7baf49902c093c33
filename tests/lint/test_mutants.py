"""A seeded part of ``make mutants``: faults are found, changes without a meaning are not."""

from __future__ import annotations

import ast
import random

import pytest

from tests.accuracy import mutants
from tests.accuracy.mutation.faults import FAULTS, NOT_PLANTED
from tests.accuracy.mutation.spellings import CHANGES, MAIN, SPELLINGS
from xladoctor.lint.rules import rules

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


def test_each_rule_has_a_fault_or_a_reason():
    planted = {code for fault in FAULTS for code in fault.codes}
    assert planted | set(NOT_PLANTED) == set(rules())
    assert not planted & set(NOT_PLANTED)
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_a_run_that_is_cut_off_goes_on_where_it_was(texts, tmp_path, capsys, monkeypatch):
    some = {"flat.py": texts["flat.py"]}
    monkeypatch.setattr(mutants, "programs", lambda: some)
    options = ["mutants", "--count", "6", "--changes", "1", "--into", str(tmp_path / "rows.jsonl")]

    def run(*more):
        monkeypatch.setattr("sys.argv", [*options, *more])
        assert mutants.main() == 0
        return capsys.readouterr().out

    assert run("--minutes", "0").startswith("0 results; again")
    run("--part", "1/2")
    half = (tmp_path / "rows.jsonl").read_text()
    run("--part", "2/2")
    whole = (tmp_path / "rows.jsonl").read_text()
    assert whole.startswith(half)
    assert half.count('"kind": "mutant"') == 3
    asked = []
    monkeypatch.setattr(mutants, "found", lambda files: asked.append(files))
    last = run()
    assert not asked
    assert "Seed 1, 1 healthy programs" in last


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
