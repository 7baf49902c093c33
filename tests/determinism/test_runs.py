"""The same thing many times: kept, gone on with, and told apart."""

from __future__ import annotations

import argparse
import collections
import json
import threading

from tests.determinism import runs
from tests.programs.run import TABLE, programs, tomllib


def given(*words):
    parser = argparse.ArgumentParser()
    runs.options(parser)
    return parser.parse_args(list(words))


def test_a_run_that_was_cut_off_goes_on_and_another_load_begins_anew(tmp_path, capsys):
    kept = str(tmp_path / "runs.jsonl")
    made = []
    asked = given("--times", "2", "--kept", kept)
    assert runs.many_times(asked, ["a"], made.append) == 0
    more = given("--times", "3", "--kept", kept)
    assert runs.many_times(more, ["a", "b"], made.append) == 0
    assert made == ["a"] * 2 + ["a", "b", "b", "b"]
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "a: 1 different in 3 of 3 runs",
        "b: 1 different in 3 of 3 runs",
    ]
    runs.many_times(given("--times", "1", "--jobs", "2", "--kept", kept), ["a"], made.append)
    assert made.count("a") == 4


def test_outcomes_that_differ_are_listed_with_how_often(capsys):
    outcomes = iter(["well", "well", "failed"])
    assert runs.many_times(given("--times", "3"), ["a"], lambda _: next(outcomes)) == 1
    assert capsys.readouterr().out.splitlines() == [
        "a: 2 different in 3 of 3 runs",
        '  2 x "well"',
        '  1 x "failed"',
    ]


def test_nothing_is_begun_when_time_is_over(capsys):
    asked = given("--times", "2", "--seconds", "0")
    assert runs.many_times(asked, ["a"], lambda _: 1 / 0) == 0
    assert capsys.readouterr().out == "a: 0 different in 0 of 2 runs\n"


def test_two_at_the_same_time_lose_nothing(tmp_path):
    together = threading.Barrier(2, timeout=60)

    def once(name):
        together.wait()
        return name

    asked = given("--times", "4", "--jobs", "2", "--kept", str(tmp_path / "kept"))
    runs.many_times(asked, ["a", "b"], once)
    rows = [json.loads(row) for row in (tmp_path / "kept").read_text().splitlines()]
    assert collections.Counter(row["name"] for row in rows) == {"a": 4, "b": 4}
    assert {row["load"] for row in rows} == {"jobs 2, load 0"}


def test_the_programs_that_race_most_are_programs():
    racy = tomllib.loads(TABLE.read_text())["racy"]
    assert set(racy) <= {row.name for row in programs()}
