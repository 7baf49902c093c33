"""What the rules are asked: all that are on by default, or the codes that were chosen."""

from xladoctor import catalogue
from xladoctor.lint import engine, sources


def codes(options: engine.LintOptions | None) -> set[str]:
    page = catalogue.page("XLA313")
    bad = next(example for example in page.examples if example.kind == "bad")
    source = sources.from_bytes(bad.source.encode(), "train.py")
    return {finding.code for finding in engine.lint(source, options).findings}


def test_a_rule_that_is_off_by_default_waits_to_be_chosen() -> None:
    assert not catalogue.page("XLA313").default
    assert "XLA313" not in codes(None)
    assert codes(engine.LintOptions(codes=frozenset({"XLA313"}))) == {"XLA313"}
