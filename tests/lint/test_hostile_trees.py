"""Trees that a linter may be pointed at: none stops it, hangs it or hides what is beside it."""

import json
import os
import sys
from pathlib import Path

import pytest

from xladoctor.cli.app import main
from xladoctor.errors import UsageError
from xladoctor.lint import contents, discovery, engine, first_look, sources
from xladoctor.lint import run as runner
from xladoctor.lint.run import Plan

BROKEN = "print 'loss'\n"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("beside.py").write_text(BROKEN)


@pytest.fixture
def lint(capfd):
    """Exit code, findings and what else was said; the tree is linted as a whole."""

    def call(*words):
        code = main(["lint", "--no-cache", "--output-format", "concise", *(words or ["."])])
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return call


def beside(out):
    return any(line.startswith("beside.py:1:") and "XLA001" in line for line in out.splitlines())


@pytest.mark.parametrize("line", ["!", "\\", "!\\", "[z-a]"])
def test_lines_of_gitignore_that_git_does_not_take_either(lint, line):
    Path(".git").mkdir()
    Path("left.py").write_text(BROKEN)
    Path(".gitignore").write_text(f"{line}\nleft.py\n")
    code, out, _ = lint()
    assert code == 1
    assert beside(out)
    assert "left.py" not in out  # the other lines hold


@pytest.mark.parametrize("pattern", ["!", "\\", "[z-a]"])
def test_a_pattern_of_the_users_that_is_none_is_named(lint, pattern):
    flag = ["--exclude", pattern, "."]
    for words in (flag, ["--per-file-ignores", f"{pattern}:XLA1", "."]):
        code, out, err = lint(*words)
        assert (code, out) == (2, "")
        assert f"{pattern!r} is no pattern of files" in err
    toml = pattern.replace("\\", "\\\\")
    Path("xladoctor.toml").write_text(f'[lint]\nexclude = ["{toml}"]\n')
    code, _, err = lint()
    assert code == 2
    assert "is no pattern of files" in err


@pytest.mark.parametrize("name", ["undefined", "idna", "punycode", "hex", "utf-7", "no-such"])
def test_codings_that_are_none(lint, name):
    Path("coded.py").write_bytes(f"# coding: {name}\nx = '\xff'\n".encode("latin-1"))
    code, out, _ = lint()
    assert code == 1
    assert beside(out)
    assert "coded.py:1:1: XLA001" in out


def test_an_import_of_five_thousand_parts(lint):
    Path("long.py").write_text("import torch_xla\nimport a" + ".a" * 5000 + "\n")
    code, out, _ = lint()
    assert code == 1
    assert beside(out)


def test_the_name_of_a_module_that_no_file_can_have(lint):
    Path("long.py").write_text(f"import torch_xla\nimport {'a' * 5000}\n")
    code, out, _ = lint()
    assert code == 1
    assert beside(out)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_what_is_no_regular_file(lint):
    os.mkfifo("pipe.py")
    Path("endless.py").symlink_to("/dev/zero")
    os.mkfifo(".gitignore")
    code, out, _ = lint()
    assert (code, beside(out)) == (1, True)
    code, out, _ = lint("pipe.py", "endless.py", "beside.py")
    assert (code, beside(out)) == (1, True)
    for name in ("pipe.py", "endless.py"):
        assert f"{name}:1:1: XLA001 this file cannot be read: it is a pipe or a device" in out


def test_files_that_nobody_writes(lint):
    Path("large.py").write_text("x = 1\n" * 1_000_000)
    cell = {"cell_type": "code", "source": "x = 1\n" * 400_000}
    Path("large.ipynb").write_text(json.dumps({"cells": [cell]}))
    Path("deep.ipynb").write_text("[" * 100_000)
    code, out, _ = lint()
    assert (code, beside(out)) == (1, True)
    assert "large.py:1:1: XLA001 this file cannot be read: it is larger than 2 MB" in out
    assert "large.ipynb:1:1: XLA001 this file holds more than 2 MB of code" in out
    assert "deep.ipynb:1:1: XLA001 this file is not a Jupyter notebook" in out


def test_a_folder_that_cannot_be_looked_into_is_named(lint, monkeypatch):
    Path("closed").mkdir()
    scandir = os.scandir

    def refuse(path):
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)  # root may look anywhere
    code, out, err = lint()
    assert (code, beside(out)) == (1, True)
    assert "warning: closed: this folder was left out: Permission denied" in err


def test_folders_in_folders(tmp_path):
    deepest = tmp_path
    for _ in range(300):
        deepest /= "d"
    deepest.mkdir(parents=True)
    (deepest / "a.py").write_text("")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(250)
    try:
        assert len(discovery.discover([str(tmp_path)], discovery.Search())) == 2
    finally:
        sys.setrecursionlimit(limit)


def test_a_name_longer_than_names_can_be():
    with pytest.raises(UsageError, match="no such file or folder"):
        discovery.discover(["a" * 5000], discovery.Search())


@pytest.mark.parametrize("breaks", ["model", "facts"])
def test_what_breaks_on_one_file_stops_no_other(lint, monkeypatch, breaks):
    Path("evil.py").write_text("import torch_xla\n# evil\n")
    Path("other.py").write_text("import evil, torch_xla\n")

    def broken(text, *_args, **_kwargs):
        if "evil\n" in (text if isinstance(text, str) else text.source.text):
            raise ZeroDivisionError("invented")
        return real(text, *_args, **_kwargs)

    owner, name = {
        "model": (first_look, "look"), "facts": (contents, "imported_modules")
    }[breaks]  # fmt: skip
    real = getattr(owner, name)
    monkeypatch.setattr(owner, name, broken)
    contents._facts_of.cache_clear()  # an earlier test may have asked for the same texts
    code, out, err = lint()
    assert code == 2
    assert beside(out)
    assert "evil.py: internal error" in err
    assert "ZeroDivisionError: invented" in err


def test_rows_are_those_that_python_counts(lint):
    text = "x = 1\n\x0c\n# \u2028 \x85 \x1c\nprint 'loss'\n"
    assert len(sources.rows(text)) == 4
    Path("rows.py").write_text(text, encoding="utf-8")
    assert main(["lint", "--no-cache", "--output-format", "concise", "rows.py"]) == 1
    _, out, _ = lint("--output-format", "full", "rows.py")
    assert "rows.py:4:1: XLA001" in out
    assert " 4 | print 'loss'" in out


def test_results_come_in_the_order_of_the_names():
    for name in ("b.py", "a.py"):
        Path(name).write_text(BROKEN)
    names = [Path("b.py"), Path("a.py")]
    plan = Plan(engine.LintOptions())
    assert [item.filename for item in runner.lint_files(names, plan)] == ["b.py", "a.py"]
