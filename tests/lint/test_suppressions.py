"""Comments that silence findings."""

import pytest

from xladoctor.lint import engine, sources, suppressions


def complain(model):
    """An invented rule that reports every call of ``bad``."""
    for call in model.calls():
        if getattr(call.node.func, "value", None) == "bad":
            yield model.problem(call.node, "bad is called")


def rows(code, rules=None):
    source = sources.from_bytes(f"import torch_xla\n{code}".encode(), "x.py")
    found = engine.lint(source, rules=rules or {"XLA001": complain})
    assert not found.failures
    return [item.locations[0].row for item in found.findings if item.code != "XLA002"]


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa",
        "#noqa",
        "# NOQA",
        "# noqa: XLA001",
        "# noqa:XLA001",
        "# noqa: E501,XLA001",
        "# noqa: E501 XLA001",
        "# noqa: xla001",
        "# noqa: XLA0",
        "# type: ignore # noqa: XLA001",
        "# noqa: XLA001 it is meant so",
        "# xladoctor: ignore[XLA001] it is meant so",
        "# xladoctor: ignore[XLA101, XLA001]",
        "# XLADoctor: ignore[XLA0]",
    ],
)
def test_a_comment_silences_its_line(comment):
    assert rows(f"bad()  {comment}\nbad()\n") == [3]


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa: E501",
        "# noqa: XLA002",
        "# noqa:",
        "# noqa : nothing",
        "# xladoctor: ignore",
        "# xladoctor: ignore[]",
        "# xladoctor: ignore[XLA101]",
        "# snoqabs",
    ],
)
def test_other_comments_do_not(comment):
    assert rows(f"bad()  {comment}\n") == [2]


def test_a_comment_at_the_end_of_a_statement_counts_for_all_of_it():
    assert rows("x = f(\n    bad(),\n    1,\n)  # noqa: XLA001\n") == []
    assert rows('x = """\n{}\n""".format(bad())  # noqa: XLA001\n') == []
    assert rows("if bad():\n    pass  # noqa: XLA001\n") == [2]


def test_a_string_is_no_comment():
    assert rows("bad('# noqa')\n") == [2]


@pytest.mark.parametrize(
    "line",
    [
        "# xladoctor: file-ignore[XLA001]",
        "# ruff: noqa: XLA001",
        "# flake8: noqa: XLA001",
        "# ruff: noqa",
    ],
)
def test_a_file_can_be_silenced(line):
    assert rows(f"bad()\n{line}\n") == []


def test_noqa_is_added_once_and_merged():
    source = sources.from_bytes(
        b"import torch_xla\r\nbad()\r\nbad()  # noqa: E501\r\nbad(\r\n    1,\r\n)\r\n", "x.py"
    )
    findings = engine.lint(source, rules={"XLA001": complain}).findings
    text = suppressions.add_noqa(source, findings)
    assert text == (
        "import torch_xla\r\nbad()  # noqa: XLA001\r\nbad()  # noqa: E501, XLA001\r\n"
        "bad(\r\n    1,\r\n)  # noqa: XLA001\r\n"
    )
    again = sources.from_bytes(text.encode(), "x.py")
    assert engine.lint(again, rules={"XLA001": complain}).findings == ()
