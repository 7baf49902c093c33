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


def test_rules_are_asked_only_of_what_is_wanted() -> None:
    asked = []

    def spy(model):
        asked.append(model.text)
        return iter(())

    main = sources.Source("a.py", "import torch_xla\nimport b\n")
    helper = sources.Source("b.py", "x = 1\n")
    members = [
        engine.Member(main, engine.LintOptions(), {"b": "b.py"}),
        engine.Member(helper, engine.LintOptions(), wanted=False),
    ]
    assert engine.lint_together(members, {"XLA101": spy}) == [engine.Result(), engine.Result()]
    assert asked == [main.text]
