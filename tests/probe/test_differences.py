"""Operations whose results differ: the table, the probe that measures it, the rule."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from xladoctor import catalogue
from xladoctor.lint.rules.step.different_result import _TELLS, added_length, arange_length
from xladoctor.probe.differences import differences

_ROWS = catalogue.table("differences")["difference"]


def probe(*options):
    return subprocess.run(
        [sys.executable, "-m", "xladoctor", "probe", *options],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_every_row_differs_and_says_what_to_write():
    for row in differences():
        assert row.cpu != row.xla, row.code
        assert row.why, row.code
        assert row.write, row.code


def test_what_the_linter_tells_it_can_tell():
    told = [row for row in _ROWS if "when" in row]
    # A slice is no call, and in a run it raises.
    assert {row["when"] for row in told} == {*_TELLS, "before the start"}
    assert all(("calls" in row) is (row["when"] in _TELLS) for row in told)
    assert all("calls" not in row for row in _ROWS if "when" not in row)


@pytest.mark.parametrize(
    ("start", "end", "step", "cpu", "xla"),
    # Measured on torch_xla 2.9: the lengths of torch.arange on the CPU and on the device.
    [
        (0, 1, 0.1, 10, 11),
        (0, 0.3, 0.1, 3, 3),
        (0, 3, 0.3, 10, 11),
        (0, 1, 0.01, 100, 100),
        (-1, 1, 0.1, 20, 21),
        (0, 0.9, 0.3, 3, 4),
        (0, 100, 0.1, 1000, 1001),
        (0, 1, 0.25, 4, 4),
        (0, 2, 0.4, 5, 5),
    ],
)
def test_the_lengths_of_ranges_are_those_that_were_measured(start, end, step, cpu, xla):
    assert arange_length(start, end, step) == cpu
    assert added_length(start, end, step) == xla


@pytest.mark.xla
def test_the_table_says_what_torch_xla_does():
    done = probe("--values", "--diff")
    assert done.returncode == 0, done.stdout
    assert "0 are not as the table says" in done.stderr


@pytest.mark.xla
def test_one_expression_as_json():
    done = probe("--values", "--only", "amax", "--output-format", "json")
    [row] = json.loads(done.stdout)
    assert (row["cpu"], row["xla"]) == ("4.0", "[[1.0, 2.0], [3.0, 4.0]]")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--values", "--only", "nothing like it"), "no expression of the table"),
        (("--values", "--list"), "--values goes with"),
        (("--values", "--output-format", "toml"), "--values goes with"),
    ],
)
def test_bad_options_are_one_sentence(options, words):
    done = probe(*options)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
