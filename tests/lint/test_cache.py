"""What is kept from run to run: found again only where nothing that it depends on changed."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from xladoctor.cli.app import main
from xladoctor.lint import engine, linking, run
from xladoctor.lint.cache import Cache
from xladoctor.lint.contents import Files
from xladoctor.lint.engine import LintOptions
from xladoctor.lint.run import Plan

TRAIN = """
    import torch
    import torch_xla
    import torch_xla.core.xla_model as xm
    from tools import accuracy

    device = xm.xla_device()
    model = torch.nn.Linear(4, 4).to(device)
    for x in [torch.ones(2, 4)]:
        out = model(x.to(device))
        out.sum().backward()
        torch_xla.sync()
        accuracy(out)
"""
TOOLS = "def accuracy(output):\n    return output.mean().item()\n"
TODAY = 20_000


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAIN))
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "alone.py").write_text("import torch_xla\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def linted(monkeypatch):
    """How many files were really linted since the last look."""
    seen = []
    together = engine.lint_together

    def counted(members, rules=None):
        seen.extend(member.source.filename for member in members)
        return together(members, rules)

    monkeypatch.setattr(engine, "lint_together", counted)

    def look():
        found = sorted(seen)
        seen.clear()
        return found

    return look


def lint(*names, today=TODAY, plan=None, folder="kept"):
    """The findings of files, with a cache read anew as by another run."""
    paths = [Path(name) for name in names or ("alone.py", "tools.py", "train.py")]
    results = run.lint_files(
        paths, plan or Plan(LintOptions()), jobs=1, cache=Cache(Path(folder), today)
    )
    return [item for result in results for item in result.result.findings]


ALL = ["alone.py", "tools.py", "train.py"]


def test_a_second_run_lints_nothing_and_finds_the_same(project, linted):
    first = lint()
    assert linted() == ALL
    assert {item.code for item in first} >= {"XLA101", "XLA802"}
    assert any(item.fix for item in first)
    assert any(item.related for item in first)
    assert lint() == first
    assert linted() == []


def test_a_changed_file_is_linted_again_with_those_linked_to_it(project, linted):
    lint()
    linted()
    (project / "alone.py").write_text("import torch_xla\n\n")
    lint()
    assert linted() == ["alone.py"]
    (project / "tools.py").write_text(TOOLS.replace(".item()", ""))
    assert "XLA101" not in {item.code for item in lint()}
    assert linted() == ["tools.py", "train.py"]


def test_a_linked_file_that_was_not_given_counts_too(project, linted):
    given = ("train.py",)
    before = lint(*given)
    linted()
    (project / "tools.py").write_text("def accuracy(output):\n    return 0\n")
    lint(*given)
    assert linted() == ["tools.py", "train.py"]
    (project / "tools.py").unlink()
    lint(*given)
    assert linted() == ["train.py"]
    (project / "tools.py").write_text(TOOLS)
    assert lint(*given) == before
    assert linted() == []


@pytest.mark.parametrize(
    "plan",
    [
        Plan(LintOptions(codes=frozenset({"XLA101"}))),
        Plan(LintOptions(target=(2, 5))),
        Plan(LintOptions(), per_file_ignores=(("*.py", ("XLA8",)),)),
    ],
)
def test_what_is_asked_counts(project, linted, plan):
    del project
    lint()
    linted()
    other = lint(plan=plan)
    assert linted() == ALL
    assert lint(plan=plan) == other
    assert linted() == []


def test_fixes_are_made_from_what_the_file_holds(project, linted):
    lint()
    linted()
    results = list(
        run.lint_files(
            [Path("train.py"), Path("alone.py")],
            Plan(LintOptions(), fix="safe"),
            jobs=1,
            cache=Cache(Path("kept"), TODAY),
        )
    )
    assert b"torch_xla.device()" in (results[0].fixed or b"")
    # What was found after a fix is not what the file holds: it is not kept.
    assert "XLA802" in {item.code for item in lint("train.py")}


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '{"results": 3, "facts": {}}', '{"results": {"a": 1}, "facts": []}',
        "\x00\xff", "[" * 100_000,
    ],
)  # fmt: skip
def test_a_cache_that_is_broken_is_as_good_as_none(project, linted, text):
    first = lint()
    [path] = (project / "kept").glob("lint-*.json")
    path.write_text(text)
    linted()
    assert lint() == first
    assert linted() == ALL
    assert lint() == first
    assert linted() == []


@pytest.mark.parametrize("spoil", ["found", "severity", "row"])
def test_an_entry_that_is_broken_is_found_anew(project, linted, spoil):
    first = lint()
    [path] = (project / "kept").glob("lint-*.json")
    document = json.loads(path.read_text())
    for entry in document["results"].values():
        if spoil == "found":
            entry["found"] = {"other.py": []}
        for finding in (item for items in entry["found"].values() for item in items):
            if spoil == "severity":
                finding["severity"] = "dreadful"
            elif spoil == "row":
                del finding["locations"][0]["row"]
    path.write_text(json.dumps(document))
    linted()
    assert lint() == first
    assert linted() != []


def test_the_folder_hides_itself_from_git_and_holds_no_halves(project):
    lint()
    assert (project / "kept" / ".gitignore").read_text() == "*\n"
    assert {path.name[:5] for path in (project / "kept").iterdir()} == {".giti", "lint-"}


def test_a_folder_that_cannot_be_written_costs_nothing(project, linted):
    (project / "kept").write_text("a file where the folder would be")
    first = lint()
    assert lint() == first
    assert linted() == sorted(ALL + ALL)


def test_what_nobody_asks_for_is_dropped(project):
    lint("alone.py")
    lint("train.py", today=TODAY + 20)
    lint("tools.py", today=TODAY + 40)
    [path] = (project / "kept").glob("lint-*.json")
    names = [
        name
        for entry in json.loads(path.read_text())["results"].values()
        for name in entry["found"]
    ]
    assert sorted(names) == ["tools.py", "train.py"]


def test_other_rules_have_a_cache_of_their_own(project, linted):
    lint()
    linted()
    mine = project / "rules.py"
    mine.write_text("# my rules\n")
    for text in ("# my rules\n", "# my other rules\n"):
        mine.write_text(text)
        cache = Cache(Path("kept"), TODAY, [mine])
        list(run.lint_files([Path("alone.py")], Plan(LintOptions()), jobs=1, cache=cache))
        assert linted() == ["alone.py"]


def test_facts_of_files_are_kept(project, monkeypatch):
    cache = Cache(Path("kept"), TODAY)
    linking.groups(ALL, Files(cache=cache))
    cache.save()
    monkeypatch.setattr("xladoctor.lint.contents.imported_modules", lambda _: pytest.fail("parsed"))
    [alone, pair] = linking.groups(ALL, Files(cache=Cache(Path("kept"), TODAY)))
    assert (alone.names, pair.names) == (("alone.py",), ("tools.py", "train.py"))


def test_the_flags(project, capsys, linted):
    code = main(["lint", "train.py", "tools.py", "--output-format", "json"])
    first = capsys.readouterr().out
    assert (code, linted()) == (1, ["tools.py", "train.py"])
    assert (project / ".xladoctor" / "cache" / ".gitignore").is_file()
    main(["lint", "train.py", "tools.py", "--output-format", "json"])
    assert (capsys.readouterr().out, linted()) == (first, [])
    main(["lint", "train.py", "tools.py", "--output-format", "json", "--no-cache"])
    assert (capsys.readouterr().out, linted()) == (first, ["tools.py", "train.py"])
    main(["lint", "alone.py", "--no-cache", "--cache-dir", "elsewhere"])
    assert not (project / "elsewhere").exists()
    main(["lint", "alone.py", "--cache-dir", "elsewhere"])
    assert list((project / "elsewhere").glob("lint-*.json"))
    (project / "xladoctor.toml").write_text('cache-dir = "sub/cache"\n')
    main(["lint", "alone.py"])
    assert list((project / "sub" / "cache").glob("lint-*.json"))
