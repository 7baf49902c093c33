"""What two people marked alike: lines and families, or codes, in common."""

import pytest

from tests.accuracy import agreement


def label(line, family="host-sync", sev="high", kind="problem", alt=()):
    """A label of one file."""
    place = {"repo": "a/b", "commit": "0" * 40, "path": "train.py", "line": line}
    return place | {"alt_lines": list(alt), "label": kind, "family": family, "sev": sev}


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (label(10), True),
        (label(12, alt=(11, 10)), True),
        (label(10, "host-sync-eval"), True),  # the same codes find both
        (label(10, "nprocs"), False),
        (label(11), False),
        (label(10) | {"path": "test.py"}, False),
    ],
)
def test_labels_of_one_problem(other, same):
    assert agreement.is_same(label(10), other) is same
    assert agreement.is_same(other, label(10)) is same


def test_only_problems_of_weight_are_counted_and_traps_are_none():
    first = [label(1), label(2), label(3, sev="low"), label(4, kind="trap"), label(5)]
    second = [label(1, sev="low"), label(2, kind="trap"), label(5)]
    assert agreement.shared(first, second) == (2, 3)
    assert agreement.shared(second, first) == (1, 1)


def test_every_second_reading_is_of_the_files_of_its_set():
    seconds = sorted(agreement.SETS.glob("*/second.jsonl"))
    assert seconds
    for second in seconds:
        listed = second.with_name("files.txt").read_text().splitlines()
        named = {f"{one['repo']} {one['commit']} {one['path']}" for one in agreement.read(second)}
        assert named <= set(listed), second.parent.name
