"""What others wrote cannot move the cursor, turn the line round or forge a line of ours."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xladoctor import visible
from xladoctor.findings import Finding, Location, Severity
from xladoctor.report import FORMATS, render
from xladoctor.results import Report, Summary

EVIL = "a\x1b[31m\u202eb\r\n::error::forged\u2028c\udcffd\x9b2J\ttab"


def report_of(text):
    """Invented: every text of the report is the same hostile one."""
    place = Location(text, 3, function=text)
    return Report(
        summary=Summary(text, text, text),
        findings=(Finding("XLA101", text, Severity.ERROR, text, text, (place,)),),
        about={text: text},
        notes=(text,),
    )


@given(st.text())
def test_a_line_is_one_line_of_characters_that_can_be_seen(text):
    shown = visible.line(text)
    assert len(shown.splitlines()) <= 1
    hidden = {c for c in shown if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert hidden <= {"\u200c", "\u200d"}  # joiners, which scripts and emoji need


@given(st.text())
def test_json_keeps_every_value(text):
    document = json.dumps({text: [text]}, ensure_ascii=False, indent=2)
    shown = visible.in_json(document)
    assert json.loads(shown) == {text: [text]}
    hidden = {c for c in shown if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert hidden <= {"\n", "\u200c", "\u200d"}


@pytest.mark.parametrize("output_format", [name for name in FORMATS if name != "json"])
def test_no_format_shows_what_cannot_be_seen(output_format):
    text = render(report_of(EVIL), output_format)
    for character in "\x1b\u202e\r\u2028\udcff\x9b":
        assert character not in text
    starts = [row.lstrip() for row in text.splitlines()]
    commands = [row for row in starts if row.startswith("::")]
    assert not [row for row in commands if "forged" in row.partition("::")[0]]
    assert output_format == "github" or commands == []


def test_json_says_exactly_what_there_is():
    text = render(report_of(EVIL), "json")
    assert json.loads(text)["findings"][0]["message"] == EVIL
    text.encode()  # the surrogate is written as JSON writes it


def test_a_name_at_the_start_of_a_line_is_no_command():
    place = Location("::error file=x::forged", 3)
    finding = Finding("XLA101", "n", Severity.ERROR, "m ::warning::x", "", (place,))
    shown = render(Report(Summary("v", "w", "n"), findings=(finding,)), "concise")
    assert shown.startswith("\\x3a:error file=x::forged:3: XLA101")


def test_wrapped_text_starts_no_command():
    message = " ".join(["::error::forged"] * 40)
    finding = Finding("XLA101", "n", Severity.ERROR, message)
    shown = render(Report(Summary("v", "w", "n"), findings=(finding,)), "full", width=60)
    assert "forged" in shown
    assert not [row for row in shown.splitlines() if row.lstrip().startswith("::")]


def test_concise_is_one_line_a_finding():
    finding = Finding("XLA101", "n", Severity.ERROR, "first\nsecond", "", (Location("a\nb.py", 3),))
    shown = render(Report(Summary("v", "w", "n"), findings=(finding,)), "concise")
    assert shown.splitlines() == ["a\\nb.py:3: XLA101 first\\nsecond", "verdict: v"]
