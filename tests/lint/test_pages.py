"""Every block of every page does what the page says of it."""

from __future__ import annotations

import dataclasses
import re

import pytest

from xladoctor import catalogue
from xladoctor.lint import engine, fixes
from xladoctor.lint.sources import Source

MARK = re.compile(r"# error:(?P<codes>( \[XLA\d{3}\])+)\s*$")


def _lint(text, code):
    # XLA002 judges what the other rules said, so they are all asked.
    codes = None if code == "XLA002" else frozenset({code})
    # What is on for a device alone is asked as for that device.
    device = next(iter(catalogue.page(code).default_for), "")
    result = engine.lint(Source("page.py", text), engine.LintOptions(codes=codes, device=device))
    assert result.failures == ()
    own = tuple(item for item in result.findings if item.code == code)
    return dataclasses.replace(result, findings=own)


def _rows(result):
    return sorted({finding.locations[0].row for finding in result.findings})


def _marked(text, code):
    found = []
    for row, line in enumerate(text.splitlines(), 1):
        mark = MARK.search(line)
        if mark and f"[{code}]" in mark["codes"]:
            found.append(row)
    return found


def _examples(kind):
    return [
        pytest.param(page, example, id=f"{page.code}-{example.row}")
        for page in catalogue.pages().values()
        for example in page.examples
        if example.kind == kind
    ]


def _fixed_pairs():
    pairs = []
    for page in catalogue.pages().values():
        bad = None
        for example in page.examples:
            if example.kind == "fixed":
                assert bad is not None, f"{page.code}: a fixed block without a bad one before it"
                pairs.append(pytest.param(page, bad, example, id=f"{page.code}-{example.row}"))
            elif example.kind == "bad":
                bad = example
    return pairs


@pytest.mark.parametrize(("page", "example"), _examples("bad"))
def test_bad_block_is_found_at_its_marks_and_nowhere_else(page, example):
    marks = _marked(example.source, page.code)
    assert marks, "a bad block without a mark"
    assert _rows(_lint(example.source, page.code)) == marks


@pytest.mark.parametrize(("page", "example"), _examples("good"))
def test_good_block_is_silent(page, example):
    assert _rows(_lint(example.source, page.code)) == []


@pytest.mark.parametrize(("page", "example"), [*_examples("bad"), *_examples("good")])
def test_what_other_rules_say_of_a_block_is_marked_too(page, example):
    device = next(iter(page.default_for), "")
    found = engine.lint(Source("page.py", example.source), engine.LintOptions(device=device))
    told = {(item.locations[0].row, item.code) for item in found.findings}
    marked = {
        (row, code)
        for row, line in enumerate(example.source.splitlines(), 1)
        if (mark := MARK.search(line))
        for code in re.findall(r"XLA\d{3}", mark["codes"])
    }
    # Its own rule is asked above, also where it is off by default.
    assert {(row, code) for row, code in told ^ marked if code != page.code} == set()


@pytest.mark.parametrize(("page", "bad", "fixed"), _fixed_pairs())
def test_fixed_block_is_what_the_fix_makes(page, bad, fixed):
    done = fixes.fix(
        bad.unmarked.encode(), "page.py", lambda source: _lint(source.text, page.code), unsafe=True
    )
    assert done.data.decode() == fixed.source
    assert done.stable


#: Ends of lines for str.splitlines, and none for Python.
_NO_ROW_ENDS = "# one \x0c two \u2028 three \x85 four\n"


@pytest.mark.parametrize(("page", "bad", "fixed"), _fixed_pairs())
def test_a_fix_counts_rows_as_python_does(page, bad, fixed):
    done = fixes.fix(
        (_NO_ROW_ENDS + bad.unmarked).encode(), "page.py",
        lambda source: _lint(source.text, page.code), unsafe=True,
    )  # fmt: skip
    assert done.data.decode() == _NO_ROW_ENDS + fixed.source


@pytest.mark.parametrize("page", catalogue.pages().values(), ids=lambda page: page.code)
def test_fix_of_the_page_is_the_fix_of_the_rule(page):
    made = {
        finding.fix.applicability.value
        for example in page.examples
        if example.kind == "bad"
        for finding in _lint(example.unmarked, page.code).findings
        if finding.fix is not None
    }
    if page.fix == "safe":
        made.discard("unsafe")  # a rule may know both; its page says which is which
    assert made == ({page.fix} if page.fix != "none" else set())


@pytest.mark.parametrize("page", catalogue.pages().values(), ids=lambda page: page.code)
def test_lint_rules_have_both_kinds_of_block(page):
    kinds = {example.kind for example in page.examples}
    if "lint" in page.found_by and page.code != "XLA001":
        assert {"bad", "good"} <= kinds
        assert ("fixed" in kinds) == (page.fix != "none")


def test_every_finding_says_what_to_write_instead():
    for page in catalogue.pages().values():
        for example in page.examples:
            for finding in _lint(example.source, page.code).findings:
                assert finding.suggestion, page.code
                assert "\n" not in finding.message
                assert len(finding.message) <= 300, finding.message
