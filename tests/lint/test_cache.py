"""What is kept from run to run: found again only where nothing that it depends on changed."""

from __future__ import annotations

import hmac
import json
import subprocess
import sys
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
SECRET = b"mine"


def opened(path):
    return json.loads(path.read_bytes().partition(b"\n")[2])


def sealed(document, secret):
    text = json.dumps(document).encode()
    return hmac.new(secret, text, "sha256").hexdigest().encode() + b"\n" + text


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
        paths, plan or Plan(LintOptions()), jobs=1, cache=Cache(Path(folder), today, SECRET)
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
            cache=Cache(Path("kept"), TODAY, SECRET),
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
    document = opened(path)
    for entry in document["results"].values():
        if spoil == "found":
            entry["found"] = {"other.py": []}
        for finding in (item for items in entry["found"].values() for item in items):
            if spoil == "severity":
                finding["severity"] = "dreadful"
            elif spoil == "row":
                del finding["locations"][0]["row"]
    path.write_bytes(sealed(document, SECRET))
    linted()
    assert lint() == first
    assert linted() != []


def test_a_cache_of_another_user_hides_nothing(project, linted):
    first = lint()
    [path] = (project / "kept").glob("lint-*.json")
    document = opened(path)
    for entry in document["results"].values():
        entry["found"] = {name: [] for name in entry["found"]}
    linted()
    for data in (sealed(document, b"theirs"), json.dumps(document).encode(),
                 path.read_bytes()[:65] + json.dumps(document).encode()):  # fmt: skip
        path.write_bytes(data)
        assert lint() == first
        assert linted() == ALL


def test_a_user_without_a_folder_of_settings_keeps_nothing(project, capsys, monkeypatch, linted):
    (project / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project / "file"))
    for _ in range(2):
        assert main(["lint", "train.py"]) == 1
        assert "train.py" in linted()
    assert not (project / ".xladoctor").exists()


def test_a_folder_that_was_there_stays_as_it_was(project, capsys):
    (project / "tools").mkdir()
    (project / "tools" / "more.py").write_text("print 'loss'\n")
    (project / "xladoctor.toml").write_text('cache-dir = "tools"\n')
    for flags in ((), ("--cache-dir", "."), ("--cache-dir", "tools")):
        for _ in range(2):
            assert main(["lint", *flags]) == 1
            assert "tools/more.py" in capsys.readouterr().out
    assert not list(project.glob("**/.gitignore"))


@pytest.mark.parametrize("key", ["cache-dir", "baseline"])
@pytest.mark.parametrize("value", ["..", "../theirs", "/tmp/theirs", "link/theirs", "a/../../b"])
def test_paths_of_a_configuration_file_stay_in_its_folder(project, capsys, key, value):
    clone = project / "clone"
    clone.mkdir()
    (clone / "link").symlink_to(project, target_is_directory=True)
    (clone / "a.py").write_text("import torch_xla\n")
    (clone / "xladoctor.toml").write_text(f"{key} = {value!r}\n")
    assert main(["lint", "clone"]) == 2
    assert f"{key} = {value!r} leads out of the folder of this file" in capsys.readouterr().err
    assert not (project / "theirs").exists()


def test_a_link_of_the_clone_for_the_cache_is_not_followed(project, capsys):
    (project / "clone").mkdir()
    (project / "theirs").mkdir()
    (project / "clone" / "a.py").write_text("import torch_xla\n")
    (project / "clone" / "xladoctor.toml").write_text("")
    (project / "clone" / ".xladoctor").symlink_to(project / "theirs", target_is_directory=True)
    assert main(["lint", "clone"]) == 0
    assert not list((project / "theirs").iterdir())


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
    names = [name for entry in opened(path)["results"].values() for name in entry["found"]]
    assert sorted(names) == ["tools.py", "train.py"]


def test_other_rules_have_a_cache_of_their_own(project, linted):
    lint()
    linted()
    mine = project / "rules.py"
    mine.write_text("# my rules\n")
    for text in ("# my rules\n", "# my other rules\n"):
        mine.write_text(text)
        cache = Cache(Path("kept"), TODAY, SECRET, [mine])
        list(run.lint_files([Path("alone.py")], Plan(LintOptions()), jobs=1, cache=cache))
        assert linted() == ["alone.py"]


def test_facts_of_files_are_kept(project, monkeypatch):
    cache = Cache(Path("kept"), TODAY, SECRET)
    linking.groups(ALL, Files(cache=cache))
    cache.save()
    monkeypatch.setattr("xladoctor.lint.contents.imported_modules", lambda _: pytest.fail("parsed"))
    [alone, pair] = linking.groups(ALL, Files(cache=Cache(Path("kept"), TODAY, SECRET)))
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


def test_a_run_in_which_nothing_changed_loads_no_parser(project):
    code = (
        "import sys\nfrom xladoctor.cli.app import main\n"
        "code = main(['lint', '--isolated', '--output-format=json', '--cache-dir=kept', '.'])\n"
        "print(code, 'libcst' in sys.modules, file=sys.stderr)\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True
        )
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout != ""
    assert [item.stderr.split()[-2:] for item in runs] == [["1", "True"], ["1", "False"]]


def test_two_runs_at_once_harm_nothing(project):
    """Each replaces the whole store by its own: what is there is always one of them, complete."""
    command = [
        *(sys.executable, "-m", "xladoctor", "lint", "--isolated", "--output-format=json"),
        *("--cache-dir=kept", "."),
    ]
    running = [
        subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    said = {process.communicate()[0] for process in running}
    assert [process.returncode for process in running] == [1, 1, 1]
    assert len(said) == 1
    [path] = (project / "kept").glob("lint-*.json")
    assert opened(path)["results"]
    assert not list((project / "kept").glob(".lint-*"))
    after = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert {after.stdout} == said
