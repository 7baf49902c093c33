"""``xladoctor lint`` as people call it: flags, exit codes, what goes to which stream."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from xladoctor import catalogue
from xladoctor.cli.app import main
from xladoctor.lint import engine
from xladoctor.lint import rules as registry
from xladoctor.lint import run as runner

ROOT = Path(__file__).resolve().parents[2]
BROKEN = "print 'loss'\n"


def nprocs(model):
    """An invented rule: ``nprocs`` is reported and can be removed."""
    for call in model.calls("torch_xla.distributed.xla_multiprocessing.spawn"):
        value = call.argument(2, "nprocs")
        if value is not None:
            yield model.problem(
                value,
                "nprocs is given",
                suggestion="leave it out",
                related=[model.place(call.node, "the cores start here")],
                fix=model.fix("Remove nprocs", model.remove_argument(call.node, value), safe=True),
            )


CODE = """\
import torch_xla.distributed.xla_multiprocessing as xmp

def run(index):
    pass

xmp.spawn(run, nprocs=8)
"""


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """An empty folder, and only the invented rule (under the one code that needs no other page)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "rules", lambda: {"XLA001": nprocs})
    return tmp_path


@pytest.fixture
def lint(capsys):
    def call(*arguments):
        code = main(["lint", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_clean_folder(lint, project):
    (project / "a.py").write_text("x = 1\n")
    assert lint() == (0, "", "All checks passed!\n")


def test_findings_on_stdout_the_rest_on_stderr(lint, project):
    (project / "a.py").write_text(CODE)
    code, out, err = lint("a.py", "--output-format", "concise")
    assert (code, out) == (1, "a.py:6:23: XLA001 [*] nprocs is given\n")
    assert err == "Found 1 finding: 1 error. 1 can be fixed with --fix.\n"


def test_full_shows_the_code_and_why(lint, project):
    (project / "a.py").write_text(CODE)
    _, out, _ = lint()
    assert out == (
        "a.py:6:23: XLA001 [unparsable-source] nprocs is given\n"
        "   |\n"
        " 4 |     pass\n"
        " 5 | \n"
        " 6 | xmp.spawn(run, nprocs=8)\n"
        "   |                       ^\n"
        "    because: line 6: the cores start here\n"
        "    help: leave it out\n"
        "    fix: Remove nprocs\n"
        "\n"
    )


def test_json_has_the_promised_form(lint, project):
    (project / "a.py").write_text(CODE)
    code, out, err = lint("a.py", "--output-format", "json")
    [element] = json.loads(out)
    promised = {
        "code", "name", "severity", "message", "url", "filename", "cell", "location",
        "end_location", "fix",
    }  # fmt: skip
    assert promised <= set(element)
    assert (code, err) == (1, "")
    assert element["cell"] is None
    assert element["filename"] == "a.py"
    assert element["location"] == {"row": 6, "column": 23}
    assert element["end_location"] == {"row": 6, "column": 24}
    assert element["fix"]["applicability"] == "safe"
    assert element["fix"]["edits"][0]["content"] == ""
    assert element["fix"]["edits"][0]["location"] == {"row": 6, "column": 14}


def test_json_of_nothing_is_an_empty_array(lint, project):
    (project / "a.py").write_text("x = 1\n")
    assert lint("--output-format", "json") == (0, "[]\n", "")


def test_github_form(lint, project):
    (project / "a.py").write_text(CODE)
    _, out, _ = lint("--output-format", "github")
    assert out.startswith("::error title=xladoctor (XLA001),file=a.py,line=6,endLine=6,col=23")


def test_one_broken_file_does_not_stop_the_others(lint, project):
    (project / "a.py").write_text(BROKEN)
    (project / "b.py").write_bytes(b"\xff\xff")
    (project / "c.py").write_text(CODE)
    code, out, _ = lint("--output-format", "concise")
    assert code == 1
    assert [line.split(":")[0] for line in out.splitlines()] == ["a.py", "b.py", "c.py"]


def test_a_path_that_does_not_exist(lint):
    assert lint("nope.py") == (2, "", "xladoctor: nope.py: no such file or folder\n")


def test_an_empty_folder(lint):
    code, out, err = lint(".")
    assert (code, out) == (0, "")
    assert "warning: no Python files found under ." in err


def test_a_rule_that_breaks_is_our_fault(lint, project, monkeypatch):
    def broken(model):
        raise KeyError("oops")
        yield

    monkeypatch.setattr(registry, "rules", lambda: {"XLA001": broken})
    (project / "a.py").write_text(CODE)
    (project / "b.py").write_text(BROKEN)
    code, out, err = lint("--output-format", "concise")
    assert code == 2
    assert "a.py: internal error in XLA001: KeyError: 'oops'" in err
    assert out.startswith("b.py:1:")
    assert "Traceback" not in err


def test_a_rule_that_breaks_on_what_cannot_be_written_down(lint, project, monkeypatch):
    """A KeyError writes its key, which may be a node that was made of Python's parser."""

    def broken(model):
        raise KeyError(model.tree.module.body[0].body[0].names[0])
        yield

    monkeypatch.setattr(registry, "rules", lambda: {"XLA001": broken})
    (project / "a.py").write_text("import b\nimport torch_xla\n")
    (project / "b.py").write_text("import torch_xla\n")
    code, _, err = lint()
    assert code == 2
    assert "a.py: internal error in XLA001: KeyError of ImportAlias" in err
    assert "b.py: internal error in XLA001" in err


def test_what_breaks_for_files_together_is_said_beside_what_each_gives(lint, project, monkeypatch):
    together = engine.lint_together

    def breaking(members, *others):
        if len(members) > 1:
            raise ValueError("no end")
        return together(members, *others)

    monkeypatch.setattr(engine, "lint_together", breaking)
    (project / "a.py").write_text(f"import b\n{CODE}")
    (project / "b.py").write_text("import torch_xla\n\nSIZE = 3\n")
    code, out, err = lint("--output-format", "concise")
    assert code == 2
    assert "internal error in linting it with the files that it imports: ValueError: no end" in err
    assert "a.py:" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--select", "XLA777"], "no rule has the code XLA777"),
        (["--select", "E501"], "--select: 'E501' is an unknown code: write ALL"),
        (["--select", "Host-Sync-In-Step"], "is a rule's name: write its code, XLA101"),
        (["--ignore", "host-sync-step"], "did you mean XLA101 (host-sync-in-step)?"),
        (["--extend-select", "XLAl01"], "did you mean XLA101 (host-sync-in-step)?"),
        (["--fix", "--fixable", "XL101"], "did you mean XLA101 (host-sync-in-step)?"),
        (["--per-file-ignores", "*.py:XLA777"], "no rule has the code XLA777"),
        (["--per-file-ignores", "XLA1"], "write it as PATTERN:CODES"),
        (["--target-torch-xla", "new"], "is no torch_xla version"),
        (["--config", "gone.toml"], "gone.toml: no such configuration file"),
        (["--isolated", "--config", "x"], "exclude each other"),
        (["--baseline", "gone.json"], "no such baseline"),
        (["--wrong"], "No such option"),
        (["--output-format", "xml"], "xml"),
        (["--output-file", "no/such/folder"], "--output-file no/such/folder: No such file"),
    ],
)
def test_what_cannot_be_used_is_one_sentence_and_code_2(lint, project, arguments, says):
    (project / "a.py").write_text(CODE)
    code, out, err = lint("a.py", *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert "Traceback" not in err


def test_selection(lint, project):
    (project / "a.py").write_text(CODE)
    assert lint("--ignore", "XLA0")[0] == 0
    assert lint("--ignore", "XLA")[0] == 0
    assert lint("--ignore", "XLA", "--extend-select", "XLA001")[0] == 1  # the longer one wins
    assert lint("--select", "ALL")[0] == 1
    assert lint("--per-file-ignores", "a.py:XLA001")[0] == 0
    assert lint("--per-file-ignores", "b.py:XLA001")[0] == 1


def test_settings_of_the_project_and_flags_that_beat_them(lint, project):
    (project / "pyproject.toml").write_text(
        '[tool.xladoctor]\noutput-format = "concise"\n[tool.xladoctor.lint]\nignore = ["XLA001"]\n'
        '[tool.xladoctor.lint.per-file-ignores]\n"sub/**" = ["XLA001"]\n'
    )
    (project / "a.py").write_text(CODE)
    assert lint()[0] == 0
    assert lint("--select", "XLA0")[0] == 1
    assert lint("--isolated")[0] == 1
    (project / "sub").mkdir()
    (project / "sub" / "b.py").write_text(CODE)
    code, out, _ = lint("--select", "XLA")
    assert (code, out.count("\n")) == (1, 1)


def test_a_wrong_key_says_what_was_meant(lint, project):
    (project / "xladoctor.toml").write_text("[lint]\nignroe = ['XLA1']\n")
    code, _, err = lint()
    assert code == 2
    assert "unknown key lint.ignroe: did you mean 'ignore'?" in err
    assert err.count("\n") == 1


def test_fix_writes_and_diff_does_not(lint, project):
    path = project / "a.py"
    path.write_text(CODE)
    code, out, err = lint("--diff")
    assert (code, err) == (1, "Would fix 1 finding.\n")
    assert "-xmp.spawn(run, nprocs=8)\n+xmp.spawn(run)\n" in out
    assert path.read_text() == CODE
    assert lint("--fix", "--exit-non-zero-on-fix")[0] == 1
    assert path.read_text() == CODE.replace(", nprocs=8", "")
    assert lint("--fix") == (0, "", "All checks passed!\n")
    assert lint("--diff") == (0, "", "No fixes.\n")


def test_fix_only_says_what_it_did_and_nothing_else(lint, project):
    path = project / "a.py"
    path.write_text(CODE)
    code, out, err = lint("--fix-only", "--show-fixes")
    assert (code, out) == (0, "")
    assert err.splitlines() == [
        "a.py:",
        "  1 x XLA001 unparsable-source: Remove nprocs",
        "Fixed 1 finding.",
    ]
    assert path.read_text() == CODE.replace(", nprocs=8", "")


def test_unfixable_findings_stay_and_are_reported(lint, project):
    path = project / "a.py"
    path.write_text(CODE)
    code, out, _ = lint("--fix", "--unfixable", "XLA0")
    assert code == 1
    assert "XLA001" in out
    assert path.read_text() == CODE
    assert lint("--fix", "--fixable", "XLA001")[0] == 0
    assert lint("--fix", "--unfixable", "XLA9999")[0] == 2


def test_a_file_that_changes_meanwhile_is_left_alone(lint, project, monkeypatch):
    path = project / "a.py"
    path.write_text(CODE)
    (project / "b.py").write_text(CODE)
    files = runner.lint_files

    def slow(*arguments):
        results = list(files(*arguments))
        path.write_text(CODE + "# typed just now\n")
        return results

    monkeypatch.setattr(runner, "lint_files", slow)
    code, _, err = lint("--fix")
    assert code == 2
    assert "a.py: changed while it was linted" in err
    assert path.read_text() == CODE + "# typed just now\n"
    assert "nprocs=8" not in (project / "b.py").read_text()


def test_a_read_only_file_is_left_alone(lint, project):
    path = project / "a.py"
    path.write_text(CODE)
    path.chmod(0o444)
    code, _, err = lint("--fix")
    assert (code, path.read_text()) == (2, CODE)
    assert err == "xladoctor: a.py: the fixes cannot be written: the file is read-only\n"


def test_stdin(lint, monkeypatch):
    class Input:
        buffer = io.BytesIO(CODE.encode())

    monkeypatch.setattr(sys, "stdin", Input)
    code, out, _ = lint("-", "--stdin-filename", "pkg/x.py", "--output-format", "concise")
    assert (code, out) == (1, "pkg/x.py:6:23: XLA001 [*] nprocs is given\n")


def test_statistics_exit_zero_and_show_files(lint, project):
    (project / "a.py").write_text(CODE)
    code, out, _ = lint("--statistics", "--exit-zero")
    assert (code, out) == (0, "1  XLA001  [*] unparsable-source\n")
    assert lint("--show-files") == (0, "a.py\n", "")
    assert "rules = ['XLA001'" in lint("--show-settings")[1]


def test_output_file(lint, project):
    (project / "a.py").write_text(CODE)
    code, out, _ = lint("--output-format", "json", "--output-file", "found.json")
    assert (code, out) == (1, "")
    assert json.loads((project / "found.json").read_text())[0]["code"] == "XLA001"


def test_noqa_is_added(lint, project):
    (project / "a.py").write_text(CODE)
    assert lint("--add-noqa")[2] == "Added 1 noqa comment.\n"
    assert "nprocs=8)  # noqa: XLA001\n" in (project / "a.py").read_text()
    assert lint()[0] == 0


def test_a_baseline_hides_what_is_known_and_shows_what_is_new(lint, project):
    path = project / "a.py"
    path.write_text(CODE)
    assert lint("--write-baseline", "known.json")[0] == 0
    path.write_text("\n\n" + CODE)
    code, out, err = lint("--baseline", "known.json")
    assert (code, out) == (0, "")
    assert "hides 1 finding." in err
    path.write_text(CODE + "xmp.spawn(run, nprocs=4)\nxmp.spawn(run, nprocs=8)\n")
    code, out, _ = lint("--baseline", "known.json", "--output-format", "concise")
    assert [line.split(":")[1] for line in out.splitlines()] == ["7", "8"]
    path.write_text("x = 1\n")
    assert "1 of its entries no longer occur" in lint("--baseline", "known.json")[2]


def test_a_notebook_names_its_cell(lint, project):
    cells = [
        {"cell_type": "markdown", "source": "text"},
        {"cell_type": "code", "source": "!pip install torch_xla\n"},
        {"cell_type": "code", "source": CODE},
    ]
    (project / "n.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
    code, out, _ = lint("--output-format", "concise")
    assert (code, out) == (1, "n.ipynb:cell 3:6:23: XLA001 [*] nprocs is given\n")
    element = json.loads(lint("--output-format", "json")[1])[0]
    assert (element["cell"], element["location"]["row"]) == (2, 6)
    assert "xmp.spawn(run, nprocs=8)\n" in lint()[1]
    assert lint("--fix")[0] == 0
    assert "nprocs" not in json.loads((project / "n.ipynb").read_text())["cells"][2]["source"]


def test_colours_fit_eighty_columns(project, monkeypatch):
    from rich.console import Console

    from xladoctor.lint import engine, sources
    from xladoctor.report import lint_text

    del project
    code = CODE.replace("nprocs=8", "nprocs=8, args=(" + "1, " * 40 + ")")
    found = engine.lint(sources.from_bytes(code.encode(), "a" * 50 + ".py")).findings
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, color_system="truecolor")
    lint_text.full(found, lambda _name, _cell: code.splitlines(), console)
    assert "\x1b[" in stream.getvalue()
    plain = io.StringIO()
    console = Console(file=plain, force_terminal=True, width=80, no_color=True, color_system=None)
    lint_text.full(found, lambda _name, _cell: code.splitlines(), console)
    assert max(len(line) for line in plain.getvalue().splitlines()) <= 80


def test_help_names_every_promised_flag(lint):
    _, out, _ = lint("--help")
    promised = (
        "--fix --unsafe-fixes --diff --select --ignore --extend-select --per-file-ignores "
        "--output-format --output-file --statistics --show-files --show-settings --add-noqa "
        "--exclude --force-exclude --config --isolated --no-cache --cache-dir --stdin-filename "
        "--exit-zero --exit-non-zero-on-fix --watch --jobs --baseline --write-baseline "
        "--target-torch-xla"
    )
    assert [flag for flag in promised.split() if flag not in out] == []


def test_processes_give_the_same_in_the_same_order(project):
    for number in range(30):
        (project / f"f{number:02}.py").write_text(BROKEN if number % 2 else "x = 1\n")
    outputs = [
        subprocess.run(
            [sys.executable, "-m", "xladoctor", "lint", "--output-format", "concise", "-j", jobs],
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(ROOT), "PATH": ""},
            check=False,
        )
        for jobs in ("1", "2")
    ]
    assert outputs[0].returncode == outputs[1].returncode == 1
    assert outputs[0].stdout == outputs[1].stdout
    assert len(outputs[0].stdout.splitlines()) == 15


def test_lint_needs_neither_torch_nor_pandas(project):
    (project / "a.py").write_text("import torch_xla\n")
    code = (
        "import sys; from xladoctor.cli.app import main; main(['lint', 'a.py']);"
        "print([name for name in ('torch', 'torch_xla', 'pandas', 'numpy') if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert run.stdout == "[]\n"


def test_the_page_of_the_code_exists():
    assert catalogue.page("XLA001").url.endswith("XLA001-unparsable-source.md")
