from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.readings.printer import ambiguous, print_bytes, print_time
from xladoctor.readings.values import parse_value, time_ns


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("012.345us", 12_345),
        ("002ms687.511us", 1_687_511),  # read part by part it would be a millisecond too much
        ("60s602ms064.245us", 59_602_064_245),
        ("07m60s991ms747.685us", 419_990_747_685),  # 6 min 59.99 s
        ("18s450ms18.269us", 18_450_018_269),  # microseconds without zeros: before 2020
        ("000.000us", 0),
    ],
)
def test_printed_durations_are_decoded_from_the_right(text: str, ns: int) -> None:
    assert time_ns(text) == ns


@given(st.integers(0, 40 * 86_400_000_000_000), st.booleans())
def test_any_duration_is_read_back_exactly(ns: int, padded: bool) -> None:
    assume(not ambiguous(ns))
    assert time_ns(print_time(ns, padded=padded)) == ns


@given(st.integers(0, 2**60))
def test_any_size_is_read_back_as_exactly_as_it_is_printed(count: int) -> None:
    text = print_bytes(count)
    read = parse_value(text)
    assert read is not None
    assert read[1] == "B"
    unit = 1024 ** ["B", "KB", "MB", "GB", "TB", "PB"].index(text.lstrip("0123456789."))
    assert abs(read[0] - count) <= unit * 0.00500001  # two digits after the point are printed


@pytest.mark.parametrize(
    "text", ["", "nanB", "01m0", "003ms", "1.03K", "12", "12.345", "abc", "1us", "-1.00", "1.00 B"]
)
def test_what_is_cut_or_foreign_is_no_value(text: str) -> None:
    assert parse_value(text) is None


def test_plain_numbers_have_no_unit() -> None:
    assert parse_value("22527705.00") == (22_527_705.0, "")


@pytest.mark.parametrize(
    "text", ["9" * 400 + ".00", "9" * 400 + "GB", "9" * 5000 + "s000ms000.000us"]
)
def test_numbers_out_of_range_are_no_values(text: str) -> None:
    assert parse_value(text) is None
