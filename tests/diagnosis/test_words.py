from __future__ import annotations

import pytest

from xladoctor import catalogue
from xladoctor.diagnosis import words


@pytest.mark.parametrize("code", sorted(words._CODES))
def test_every_code_that_a_diagnosis_uses_has_its_page(code: str) -> None:
    page = catalogue.page(code)
    assert (page.name, page.severity) == words._CODES[code]
    assert {"profile", "report"} & set(page.found_by)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.3, "0.3 times"),
        (1.0, "once"),
        (1.96, "twice"),
        (2.04, "twice"),
        (12, "12 times"),
        (101.6, "102 times"),
    ],
)
def test_how_often(value: float, text: str) -> None:
    assert words.rate(value) == text


@pytest.mark.parametrize(
    ("cores", "text"),
    [
        ([0], "core 0"),
        (range(8), "all 8 cores"),
        ([0, 1, 2, 5], "cores 0-2, 5"),
        ([1, 2], "cores 1, 2"),
    ],
)
def test_cores_in_words(cores: list[int], text: str) -> None:
    assert words.cores_text(cores, range(8)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0001, "<1 ms"),
        (0.045, "45 ms"),
        (3.14, "3.1 s"),
        (77.9, "77.9 s"),
        (259.3, "4 min 19 s"),
        (7300, "2 h 2 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text
