"""``xladoctor explain`` and ``xladoctor rules`` as a person or a program uses them."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from xladoctor import catalogue
from xladoctor.cli import explain as explain_module
from xladoctor.cli import rules as rules_module
from xladoctor.cli.app import main
from xladoctor.cli.explain import explain
from xladoctor.cli.rules import rules


def _run(command, *args):
    return CliRunner().invoke(command, args, standalone_mode=False, catch_exceptions=False)


def test_explain_prints_the_page_when_it_is_piped():
    assert _run(explain, "XLA101").output == catalogue.page("XLA101").readable.strip() + "\n"


def test_explain_takes_several_rules_by_code_or_name_and_shows_each_once():
    output = _run(explain, "XLA104", "drop-last-missing", "xla104").output
    assert output.count("# tensor-in-condition (XLA104)") == 1
    assert output.index("(XLA104)") < output.index("(XLA203)")


def test_explain_json_is_an_array_with_the_text():
    facts = json.loads(_run(explain, "XLA404", "--output-format", "json").output)
    assert [item["code"] for item in facts] == ["XLA404"]
    assert facts[0]["fix"] == "safe"
    assert facts[0]["text"].startswith("# spawn-nprocs (XLA404)")


@pytest.mark.parametrize("page", catalogue.pages().values(), ids=lambda page: page.code)
def test_explain_renders_every_page_on_a_terminal(page, capsys):
    explain_module._render([page])
    output = capsys.readouterr().out
    assert page.name in output
    assert "found by" in output
    assert "since =" not in output


def test_explain_on_a_terminal_shows_a_fixed_program_without_the_marks_of_tests(capsys):
    page = catalogue.page("XLA802")
    assert page.text.count("error:") == 4
    explain_module._render([page])
    assert capsys.readouterr().out.count("error:") == 0


@pytest.mark.parametrize("page", catalogue.pages().values(), ids=lambda page: page.code)
def test_explain_never_marks_the_code_to_use_instead_as_an_error(page):
    text = _run(explain, page.code).output
    (entry,) = json.loads(_run(explain, page.code, "--output-format", "json").output)
    assert entry["text"].strip() == text.strip()
    _, _, instead = text.partition("## Use instead")
    assert instead.partition("\n## ")[0].strip()
    for block in re.findall(r"^```py (?:fixed|good)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        assert not re.search(rf"# {page.code}$", block, re.MULTILINE)
    # The example says which line is meant, in no language of the tests'.
    example = text.partition("## Use instead")[0]
    assert f"# {page.code}" in example or "py bad" not in example or "error:" not in page.text
    assert "# error:" not in text
    assert "## Tests" not in text
    assert "## References" in text


def test_explain_says_in_one_sentence_that_there_is_no_such_rule(capsys):
    assert main(["explain", "XLA101", "XLA999"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert (
        captured.err == "xladoctor: there is no rule 'XLA999'; 'xladoctor rules' lists them all\n"
    )


@pytest.mark.parametrize(
    "slip",
    ["XLA1O1", "xlal01", "101", "XL101", "host-sync-in-steps", "host_sync_in_step"],
)
def test_explain_suggests_the_rule_that_was_meant(slip, capsys):
    assert main(["explain", slip]) == 2
    wanted = f"there is no rule '{slip}'; did you mean XLA101 (host-sync-in-step)?\n"
    assert capsys.readouterr().err == f"xladoctor: {wanted}"


@pytest.mark.parametrize("nothing", ["", "E501", "loss", "XLA999", "\u202e\x1b[31m", "x" * 100_000])
def test_nothing_is_suggested_where_nothing_or_all_is_near(nothing):
    assert catalogue.suggestion(nothing) == ""


def test_two_rules_are_suggested_where_both_are_as_near():
    wanted = "did you mean XLA001 (unparsable-source) or XLA101 (host-sync-in-step)?"
    assert catalogue.suggestion("XLA1001") == wanted


def test_rules_lists_every_page_once():
    lines = _run(rules).output.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(catalogue.pages())


def test_rules_json_and_markdown_name_the_same_codes():
    facts = json.loads(_run(rules, "--output-format", "json").output)
    assert [item["code"] for item in facts] == list(catalogue.pages())
    assert "text" not in facts[0]
    table = _run(rules, "--output-format", "markdown").output.splitlines()
    assert len(table) == len(facts) + 2
    assert table[2].startswith(f"| [{facts[0]['code']}](")


def test_rules_renders_on_a_terminal(capsys):
    rules_module._render(catalogue.pages().values())
    assert "XLA101" in capsys.readouterr().out
