"""What is kept from run to run: found again only where nothing that it depends on changed."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from random import Random

import pytest

from xladoctor import catalogue
from xladoctor.cli.app import main
from xladoctor.lint import engine, linking, run
from xladoctor.lint import looked as looking
from xladoctor.lint.cache import NAME, Cache
from xladoctor.lint.contents import Files
from xladoctor.lint.engine import LintOptions
from xladoctor.lint.run import Plan
from xladoctor.lint.store import Store

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


def entries(folder="kept"):
    """What is kept, by key."""
    with contextlib.closing(sqlite3.connect(Path(folder, NAME))) as opened:
        return {
            key: json.loads(text) for key, text in opened.execute("SELECT key, value FROM entries")
        }


def keep(changed, secret=SECRET, folder="kept"):
    """Keep other values, as somebody with that secret would."""
    store = Store(Path(folder, NAME), TODAY, secret)
    for key, value in changed.items():
        store.put(key, value)
    store.save()
    store.close()


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


def _as_text(text):
    def spoil(path):
        path.write_bytes(text)

    return spoil


def _cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _overwritten(path):
    data = bytearray(path.read_bytes())
    data[200:-200] = b"\xa5" * (len(data) - 400)
    path.write_bytes(bytes(data))


def _of_another_form(path):
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as opened:
        opened.executescript(
            "CREATE TABLE entries (key TEXT, value TEXT); INSERT INTO entries VALUES ('a', 'b')"
        )


def _with_a_trigger(path):
    with contextlib.closing(sqlite3.connect(path)) as opened:
        opened.executescript(
            "CREATE TRIGGER theirs AFTER INSERT ON entries BEGIN DELETE FROM entries; END"
        )


def _as_a_view(path):
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as opened:
        opened.executescript(
            "CREATE VIEW entries AS SELECT 'a' AS key, 1 AS day, x'00' AS seal, '{}' AS value"
        )


def _with_values_of_other_types(path):
    with contextlib.closing(sqlite3.connect(path)) as opened:
        opened.executescript("UPDATE entries SET value = 3, seal = 'x', day = 'never'")


def _as_a_pipe(path):
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "spoil",
    [
        *map(_as_text, (b"", b"{", b"\x00\xff", b"SQLite format 3\x00", b"[" * 100_000)),
        _cut, _overwritten, _of_another_form, _with_a_trigger, _as_a_view,
        _with_values_of_other_types, _as_a_pipe,
    ],
)  # fmt: skip
def test_a_cache_that_is_broken_is_as_good_as_none(project, linted, spoil):
    first = lint()
    spoil(project / "kept" / NAME)
    linted()
    assert lint() == first
    assert linted() == ALL
    assert lint() == first
    assert linted() == []


@pytest.mark.parametrize("spoil", ["found", "severity", "row"])
def test_an_entry_that_is_broken_is_found_anew(project, linted, spoil):
    first = lint()
    changed = {}
    for key, entry in entries().items():
        if "modules" in entry:
            continue
        if spoil == "found":
            entry = {"other.py": []}
        for finding in (item for items in entry.values() for item in items):
            if spoil == "severity":
                finding["severity"] = "dreadful"
            elif spoil == "row":
                del finding["locations"][0]["row"]
        changed[key] = entry
    keep(changed)
    linted()
    assert lint() == first
    assert linted() != []


def test_a_cache_of_another_user_hides_nothing(project, linted):
    first = lint()
    real = entries()
    nothing = {
        key: entry if "modules" in entry else {name: [] for name in entry}
        for key, entry in real.items()
    }
    linted()
    keep(nothing, b"theirs")
    assert lint() == first
    assert linted() == ALL
    # A value of ours that was sealed for another key is none either.
    lint("tools.py", "train.py", plan=Plan(LintOptions(codes=frozenset())))
    with contextlib.closing(sqlite3.connect(project / "kept" / NAME)) as opened, opened:
        nothing = 'FROM entries WHERE CAST(value AS TEXT) = \'{"tools.py":[],"train.py":[]}\''
        opened.execute(f"CREATE TEMP TABLE one AS SELECT seal, value {nothing}")
        opened.execute("UPDATE entries SET (seal, value) = (SELECT seal, value FROM one)")
    linted()
    assert lint() == first
    assert linted() == ALL


def test_a_link_in_the_place_of_the_store_is_not_followed(project):
    """Neither to a file that would be written, nor to one that would be taken for damaged."""
    theirs = project / "theirs"
    for ending in ("", "-journal", "-wal", "-shm"):
        (project / "kept").mkdir(exist_ok=True)
        (project / "kept" / NAME).unlink(missing_ok=True)
        theirs.write_bytes(b"dear to me")
        (project / "kept" / f"{NAME}{ending}").symlink_to(theirs)
        lint()
        assert theirs.read_bytes() == b"dear to me"
        assert entries()


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
    assert {path.name for path in (project / "kept").iterdir()} == {".gitignore", NAME}


def test_a_folder_that_cannot_be_written_costs_nothing(project, linted):
    (project / "kept").write_text("a file where the folder would be")
    first = lint()
    assert lint() == first
    assert linted() == sorted(ALL + ALL)


def test_what_nobody_asks_for_is_dropped(project):
    lint("alone.py")
    lint("train.py", today=TODAY + 20)
    lint("tools.py", today=TODAY + 40)
    names = [name for entry in entries().values() if "modules" not in entry for name in entry]
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


def test_tables_are_kept_as_they_were_parsed(project, monkeypatch):
    def asked():
        for question in (catalogue.table, catalogue.rows):
            question.cache_clear()
        with catalogue.tables_kept_by(Cache(Path("kept"), TODAY, SECRET)):
            return catalogue.table("library"), catalogue.rows("ops_torch_tpu", "call")

    cache = Cache(Path("kept"), TODAY, SECRET)
    with catalogue.tables_kept_by(cache):
        catalogue.table.cache_clear()
        catalogue.rows.cache_clear()
        first = catalogue.table("library"), catalogue.rows("ops_torch_tpu", "call")
    cache.save()
    assert first[0]["call"]
    monkeypatch.setattr(catalogue.tomllib, "loads", lambda _: pytest.fail("parsed again"))
    assert asked() == first


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
    assert entries("elsewhere")
    (project / "xladoctor.toml").write_text('cache-dir = "sub/cache"\n')
    main(["lint", "alone.py"])
    assert entries("sub/cache")


def test_a_run_in_which_nothing_changed_that_concerns_rules_loads_no_parser(project):
    code = (
        "import sys\nfrom xladoctor.cli.app import main\n"
        "code = main(['lint', '--isolated', '--output-format=json', '--cache-dir=kept', '.'])\n"
        "print(code, 'libcst' in sys.modules, file=sys.stderr)\n"
    )
    plain = project / "plain.py"
    runs = []
    for text in ("x = 1\n", "x = 1\n", "x = 2\n", "import torch_xla\nx = 3\n"):
        if not plain.exists() or plain.read_text() != text:
            plain.write_text(text)
        runs.append(
            subprocess.run(
                [sys.executable, "-c", code],
                cwd=project,
                capture_output=True,
                text=True,
                check=True,
            )
        )
    assert len({item.stdout for item in runs} - {""}) == 1
    loaded = [item.stderr.split()[-2:] for item in runs]
    assert loaded == [["1", "True"], ["1", "False"], ["1", "False"], ["1", "True"]]


def test_two_runs_at_once_harm_nothing(project):
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
    assert entries()
    assert {path.name for path in (project / "kept").iterdir()} == {".gitignore", NAME}
    after = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert {after.stdout} == said


# Whole runs

PROJECT = {
    "train.py": textwrap.dedent(TRAIN),
    "tools.py": TOOLS,
    "alone.py": "import torch_xla.core.xla_model as xm\nt = xm.xla_device()\n",
    "pkg/__init__.py": "",
    "pkg/steps.py": "import torch_xla\nfrom tools import accuracy\n\ndevice = torch_xla.device()\n",
    "old/legacy.py": "import torch_xla.core.xla_model as xm\nt = xm.xla_device()\n",
}
LINES = (
    "xm.mark_step()",
    "x = 1",
    "# nothing",
    "import tools",
    "from pkg import steps",
    "(",
    "def accuracy(output):\n    return output.sum().item()",
    "def accuracy(output):\n    return 1.0",
)


def said(capsys, *flags):
    code = main(["lint", "--output-format", "json", *flags])
    out, err = capsys.readouterr()
    return code, out, err


def _change(project, random):
    """One thing that people do to a folder."""
    files = sorted(path for path in project.rglob("*.py") if "old" not in path.parts)
    path = random.choice(files)
    match random.randrange(9):
        case 0 | 1 | 2:
            with path.open("a") as stream:
                stream.write(random.choice(LINES) + "\n")
        case 3:
            name = str(path.relative_to(project))
            path.write_text(PROJECT.get(name, ""))
        case 4:
            new = project / random.choice(["tools.py", "pkg/tools.py", "new.py", "pkg/more/a.py"])
            new.parent.mkdir(exist_ok=True)
            new.write_text(random.choice(list(PROJECT.values())))
        case 5 if len(files) > 2:
            path.unlink()
        case 6:
            ignored = random.choice(["tools.py\n", "old/\n", "# none\n"])
            (project / random.choice([".gitignore", "pkg/.gitignore"])).write_text(ignored)
        case 7:
            ignore = random.choice(['["XLA8"]', '["XLA101"]', "[]"])
            place = random.choice(["xladoctor.toml", "pkg/xladoctor.toml", "old/.xladoctor.toml"])
            (project / place).write_text(f"ignore = {ignore}\n")
        case _:
            names = ["xladoctor.toml", "pkg/xladoctor.toml", "old/.xladoctor.toml", ".gitignore"]
            (project / random.choice(names)).unlink(missing_ok=True)


@pytest.mark.parametrize("coarsest", [-(10**19), 2 * 10**9])
@pytest.mark.parametrize("seed", range(3))
def test_whatever_changes_a_kept_run_says_what_a_new_one_says(
    tmp_path, monkeypatch, capsys, coarsest, seed
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(looking, "COARSEST", coarsest)
    (tmp_path / ".git").mkdir()
    for name, text in PROJECT.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    random = Random(seed)
    for _ in range(12):
        for _ in range(random.randrange(1, 3)):
            _change(tmp_path, random)
        kept = said(capsys, "--cache-dir", "kept", ".")
        assert kept == said(capsys, "--no-cache", ".")
        assert kept == said(capsys, "--cache-dir", "kept", ".")


KEPT = Path(".xladoctor", "cache")


@pytest.fixture
def settled(project):
    """The project with its settings, and a place for the cache that no search looks into."""
    (project / "xladoctor.toml").write_text("")
    (project / ".xladoctor").mkdir()
    return project


#: Edits of what one file does for another, each with the codes that it adds or takes away there.
EDITS = {
    "a comment": ("tools.py", "# why\n" + TOOLS, {}),
    "a comment behind the code": ("tools.py", TOOLS.replace("()\n", "()  # read\n"), {}),
    "another name inside": (
        "tools.py",
        "def accuracy(output):\n    mean = output.mean()\n    return mean.item()\n",
        {},
    ),
    "no read": ("tools.py", TOOLS.replace(".item()", ""), {"XLA101": -1}),
    "one more read": (
        "tools.py",
        TOOLS.replace("    return", "    output.cpu()\n    return"),
        {"XLA101": 1},
    ),
    "a number returned": ("tools.py", "def accuracy(output):\n    return 1.0\n", {"XLA101": -1}),
    "a read of what is returned": ("train.py", None, {}),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_counts_where_it_matters_and_links_nothing_anew(
    settled, capsys, monkeypatch, linted, what
):
    name, text, changes = EDITS[what]
    before = json.loads(said(capsys, ".")[1])
    linted()
    with monkeypatch.context() as patched:
        patched.setattr(linking, "groups", lambda *_: pytest.fail("files were linked again"))
        edited = Path(name)
        edited.write_text(edited.read_text() + "out.item()\n" if text is None else text)
        kept = said(capsys, ".")
        assert linted() == ["tools.py", "train.py"]
        assert said(capsys, ".") == kept
        assert linted() == []
    assert kept == said(capsys, "--no-cache", ".")
    codes = [[item["code"] for item in found] for found in (before, json.loads(kept[1]))]
    for code in {*codes[0], *codes[1]}:
        assert codes[1].count(code) - codes[0].count(code) == changes.get(code, 0), code


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("alone.py", "import torch_xla\nimport tools\n"),
        ("train.py", textwrap.dedent(TRAIN).replace("from tools", "from others")),
        ("train.py", "print('moved')\n"),
        ("new.py", "import torch_xla\nimport alone\n"),
        ("tools.py", None),
    ],
)
def test_where_other_files_belong_together_they_are_linked_again(
    settled, capsys, monkeypatch, name, text
):
    said(capsys, ".")
    asked = []
    groups = linking.groups
    monkeypatch.setattr(linking, "groups", lambda *given: asked.append(1) or groups(*given))
    if text is None:
        (settled / name).unlink()
    else:
        (settled / name).write_text(text)
    kept = said(capsys, ".")
    assert asked
    assert kept == said(capsys, "--no-cache", ".")


@pytest.mark.parametrize("lines", [3, 30])
def test_the_lines_of_a_group_count_where_they_decide(settled, capsys, monkeypatch, linted, lines):
    monkeypatch.setattr(linking, "_MOST_LINES", 25)
    text = "import torch_xla\n" + TOOLS
    (settled / "tools.py").write_text(text + "\n" * lines)
    said(capsys, ".")
    assert linted() == ALL
    (settled / "tools.py").write_text(text + "\n" * (33 - lines))
    kept = said(capsys, ".")
    assert linted() == ["tools.py", "train.py"]
    assert kept == said(capsys, "--no-cache", ".")


def test_what_comes_and_goes_around_a_project_is_not_looked_at(tmp_path, capsys, monkeypatch):
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    (tmp_path / "mine" / ".xladoctor").mkdir()
    for name, text in PROJECT.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    first = said(capsys, ".")
    (tmp_path / "letter.txt").write_text("")
    with monkeypatch.context() as patched:
        patched.setattr(linking, "groups", lambda *_: pytest.fail("files were linked again"))
        assert said(capsys, ".") == first
    (tmp_path / "setup.py").write_text("")  # now the folder is the project's
    (tmp_path / "tools.py").write_text("")
    assert said(capsys, ".") == said(capsys, "--no-cache", ".")


def test_what_an_edited_run_took_over_stays_and_what_is_stale_goes(settled, capsys):
    """After many edits a kept run stands for no more than one after a single edit."""
    sizes = []
    for number in range(6):
        (settled / "alone.py").write_text(f"import torch_xla\n# {number}\n")
        said(capsys, ".")
        runs = [item for item in entries(KEPT).values() if "uses" in item]
        sizes.append([len(item["uses"]) for item in runs])
        assert all(key in entries(KEPT) for item in runs for key in item["uses"])
    assert sizes == [sizes[0]] * 6


def test_a_run_in_which_nothing_changed_reads_no_file(project, capsys, monkeypatch):
    monkeypatch.setattr(looking, "COARSEST", -(10**19))
    (project / "xladoctor.toml").write_text("")
    (project / ".xladoctor").mkdir()
    first = said(capsys, ".")
    monkeypatch.setattr(looking, "load", lambda name: pytest.fail(f"{name} was read"))
    monkeypatch.setattr(
        "xladoctor.lint.discovery.discover", lambda *_: pytest.fail("files were looked for")
    )
    assert said(capsys, ".") == first
    assert first[0] == 1


def test_what_changed_just_before_a_run_is_read_again(project, capsys, monkeypatch):
    """Two changes within one tick of a coarse clock leave the same size and times."""
    Path("alone.py").write_text("import torch_xla\nprint(1)\n")
    first = said(capsys, "--cache-dir", "kept", "alone.py")
    Path("alone.py").write_text("import torch_xla\nprint(2\n\n")
    real = looking.stamp_of
    frozen = real("alone.py")
    monkeypatch.setattr(
        looking, "stamp_of", lambda path: frozen if str(path) == "alone.py" else real(path)
    )
    assert said(capsys, "--cache-dir", "kept", "alone.py") != first


def test_a_kept_run_shows_the_lines_of_its_findings(project, capsys, monkeypatch):
    monkeypatch.setattr(looking, "COARSEST", -(10**19))
    for flags in ([], ["--output-format", "concise"], ["--statistics"]):
        results = []
        for _ in range(3):
            code = main(["lint", "--cache-dir", "kept", *flags, "."])
            results.append((code, *capsys.readouterr()))
        assert results[0] == results[1] == results[2]
        assert "XLA101" in results[0][1]


def test_plugins_of_folders_inside_are_no_part_of_a_kept_run(project, capsys):
    (project / "sub").mkdir()
    (project / "sub" / "b.py").write_text("import torch_xla\n")
    (project / "xladoctor.toml").write_text("")
    for ignore in ('["XLA8"]', "[]", '["XLA"]'):
        (project / "sub" / "xladoctor.toml").write_text(f"ignore = {ignore}\n")
        kept = said(capsys, "--cache-dir", "kept", ".")
        assert kept == said(capsys, "--no-cache", ".")


def test_a_run_keeps_what_it_stands_for(project):
    """What whole runs answer is not asked for: it is still there after a month of them."""

    def run_at(day):
        cache = Cache(Path("kept"), day, SECRET)
        run_ = cache.run(["."], 2**62)
        if run_.found() is None:
            paths = [Path(name) for name in ALL]
            list(run.lint_files(paths, Plan(LintOptions()), 1, None, cache, run_))
        cache.save()

    for day in range(0, 60, 20):
        run_at(TODAY + day)
    assert sum("modules" in entry for entry in entries().values()) == len(ALL)
