"""Pages, rules and tables agree with each other."""

from __future__ import annotations

import re

import pytest

from xladoctor import catalogue
from xladoctor.errors import CatalogueError, UsageError
from xladoctor.lint import rules as registry

HEADINGS = (
    "What it does",
    "Why it is",
    "Example",
    "Use instead",
    "Fix safety",
    "What the profiler shows",
    "References",
    "Tests",
)
#: Found where sources are read, before any rule runs.
WITHOUT_RULE = {"XLA001", "XLA002"}
FINDERS = {"lint", "profile", "report"}

PAGES = list(catalogue.pages().values())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.code)
def test_headings_are_there_in_order(page):
    found = re.findall(r"^## (.+)$", page.text, re.MULTILINE)
    found = ["Why it is" if title.startswith("Why it is") else title for title in found]
    wanted = [title for title in HEADINGS if title != "Fix safety" or page.fix != "none"]
    assert found == wanted


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.code)
def test_facts_are_words_that_mean_something(page):
    assert page.fix in {"none", "safe", "unsafe"}
    assert page.confidence in {"high", "medium", "low"}
    assert page.found_by
    assert set(page.found_by) <= FINDERS
    assert len(page.summary) <= 80
    assert not page.summary.endswith(".")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.code)
def test_codes_a_page_speaks_of_exist(page):
    mentioned = set(re.findall(r"XLA\d{3}", page.text))
    assert mentioned <= set(catalogue.pages())


def test_lint_codes_and_registry_agree():
    linted = {page.code for page in PAGES if "lint" in page.found_by}
    assert set(registry.rules()) == linted - WITHOUT_RULE


def test_pages_that_only_a_run_shows_have_no_blocks():
    for page in PAGES:
        if "lint" not in page.found_by:
            assert page.examples == (), page.code


def test_a_page_is_found_by_code_and_name_in_any_case():
    page = catalogue.page("xla101")
    assert page is catalogue.page("Host-Sync-In-Step")
    assert page.code == "XLA101"


def test_an_unknown_rule_is_one_sentence_with_the_remedy():
    with pytest.raises(UsageError, match=r"no rule 'XLA999'; 'xladoctor rules' lists them all"):
        catalogue.page("XLA999")


@pytest.mark.parametrize(
    "text",
    [
        "no title\n",
        "# a-name (XLA999)\n\nno block\n",
        '# a-name (XLA999)\n\n```toml\ncode = "XLA998"\nname = "a-name"\n```\n',
        '# a-name (XLA999)\n\n```toml\ncode = "XLA999"\nname = "a-name"\nseverity = "awful"\n```\n',
    ],
)
def test_a_malformed_page_says_which_file(text):
    with pytest.raises(CatalogueError, match=r"XLA999-a-name\.md"):
        catalogue.parse_page("XLA999-a-name.md", text)


def test_policy_of_a_rule_stands_in_its_header():
    pages = catalogue.pages()
    assert pages["XLA101"].per_step
    assert not pages["XLA401"].per_step
    for page in pages.values():
        if page.needed_to_run or page.changes_numbers:
            assert page.fix != "none", page.code
        for code in (*page.same_problem_as, *page.stands_for):
            assert code != page.code
            assert code in pages
