"""Rules of a project, tested and run like our own; in processes, as rules register for good."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

RULE = """
    from xladoctor.lint.rules import rule


    @rule("ACME101", name="own-loader")
    def own_loader(model):
        '''Loaders come from acme.data.

        ```py bad
        import torch_xla
        from torch.utils.data import DataLoader
        loader = DataLoader([])  # error: [ACME101]
        ```

        ```py good
        import torch_xla
        from acme.data import make_loader
        loader = make_loader([])
        ```
        '''
        for call in model.calls("torch.utils.data.DataLoader"):
            yield model.problem(call.node, "a bare DataLoader", suggestion="use acme.data")
"""
TRAIN = """
    import torch_xla
    from torch.utils.data import DataLoader
    loader = DataLoader([])
"""


#: The user's list of trusted folders, and the folder that it is in.
USER = ".user"
TRUSTED = f"{USER}/xladoctor/trusted.toml"


def environment(project, path):
    return {
        "PYTHONPATH": str(path), "PATH": "/usr/bin:/bin", "XDG_CONFIG_HOME": str(project / USER),
    }  # fmt: skip


@pytest.fixture
def project(tmp_path):
    """A project with a rule and a file that breaks it."""

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")

    write("tools/xla_rules.py", RULE)
    write("pyproject.toml", '[tool.xladoctor.lint]\nplugins = ["tools.xla_rules"]\n')
    write("train.py", TRAIN)
    write(TRUSTED, f'folders = ["{tmp_path}"]\n')
    return tmp_path


@pytest.fixture
def run(project):
    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "xladoctor", *arguments],
            cwd=project,
            env=environment(project, ROOT),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    return run


def test_a_rule_of_the_project_is_asked_like_ours(run):
    done = run("lint", "train.py", "--output-format", "json")
    assert done.returncode == 1, done.stderr
    [found] = json.loads(done.stdout)
    assert (found["code"], found["name"], found["location"]["row"]) == ("ACME101", "own-loader", 4)


@pytest.mark.parametrize(
    ("flags", "count"),
    [
        (["--ignore", "ACME1"], 0),
        (["--select", "XLA1"], 0),
        (["--select", "ACME"], 1),
        (["--select", "ALL"], 1),
    ],
)
def test_it_is_selected_and_ignored_by_its_code(run, flags, count):
    done = run("lint", "train.py", "--output-format", "json", *flags)
    codes = [item["code"] for item in json.loads(done.stdout)]
    assert codes.count("ACME101") == count


def test_it_is_silenced_by_a_comment(project, run):
    (project / "train.py").write_text(
        textwrap.dedent(TRAIN).replace("DataLoader([])", "DataLoader([])  # noqa: ACME101")
    )
    assert run("lint", "train.py").returncode == 0


def test_explain_and_rules_know_it(run):
    assert "own-loader (ACME101)" in run("explain", "ACME101").stdout
    assert "ACME101" in run("rules").stdout


def test_sarif_has_its_help(run):
    log = json.loads(run("lint", "train.py", "--output-format", "sarif").stdout)
    [rule] = log["runs"][0]["tool"]["driver"]["rules"]
    assert rule["id"] == "ACME101"
    assert "acme.data" in rule["help"]["markdown"]
    assert "helpUri" not in rule


def test_its_page_is_its_test(run):
    done = run("rules", "test")
    assert (done.returncode, done.stdout) == (0, "ok      ACME101 own-loader\n")


def test_a_page_that_promises_something_else_fails(project, run):
    wrong = textwrap.dedent(RULE).replace("from acme.data import make_loader", "x = 1  # nothing")
    wrong = wrong.replace(
        "loader = make_loader([])", "from torch.utils.data import DataLoader as D"
    )
    wrong = wrong.replace("  # error: [ACME101]", "\n    loader = 3  # error: [ACME101]")
    (project / "tools" / "xla_rules.py").write_text(wrong)
    done = run("rules", "test")
    assert done.returncode == 1
    assert "is not found" in done.stdout
    assert "is found and must not be" in done.stdout


def test_ours_pass_too(run):
    done = run("rules", "test", "XLA101", "XLA404")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("ok") == 2


@pytest.mark.parametrize(
    ("plugins", "said"),
    [
        ('["tools.missing"]', "ModuleNotFoundError"),
        ('["tools/missing.py"]', "there is no file"),
        ('["tools/broken.py"]', "SyntaxError"),
        ('["tools/taken.py"]', "cannot be a plugin's code"),
        ('["tools.xla_rules", "tools/again.py"]', "two rules claim ACME101"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_one_sentence(project, run, plugins, said):
    (project / "tools" / "broken.py").write_text("def (:\n")
    ours = textwrap.dedent(RULE).replace('"ACME101"', '"XLA955"')
    (project / "tools" / "taken.py").write_text(ours)
    (project / "tools" / "again.py").write_text(textwrap.dedent(RULE))
    (project / "pyproject.toml").write_text(f"[tool.xladoctor.lint]\nplugins = {plugins}\n")
    done = run("lint", "train.py")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_file_as_plugin_and_several_processes(project, run):
    (project / "pyproject.toml").write_text(
        '[tool.xladoctor.lint]\nplugins = ["tools/xla_rules.py"]\n'
    )
    for number in range(4):
        (project / f"train{number}.py").write_text(textwrap.dedent(TRAIN))
    done = run("lint", ".", "--jobs", "2", "--output-format", "json", "--select", "ACME")
    assert [item["filename"] for item in json.loads(done.stdout)] == [
        "train.py",
        *(f"train{number}.py" for number in range(4)),
    ]


@pytest.fixture
def installed(project):
    """A distribution that offers its rules, as pip would leave it in a folder of sys.path."""
    site = project / "site"
    (site / "acme_rules.py").parent.mkdir()
    (site / "acme_rules.py").write_text(textwrap.dedent(RULE))
    info = site / "acme_rules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rules\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[xladoctor.rules]\nacme = acme_rules\n")
    (project / "pyproject.toml").write_text("[tool.xladoctor]\n")

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "xladoctor", *arguments],
            cwd=project,
            env=environment(project, f"{ROOT}:{site}"),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    return run


def test_an_installed_distribution_offers_its_rules(installed):
    done = installed("lint", "train.py", "--output-format", "json")
    assert done.returncode == 1, done.stderr
    assert [item["code"] for item in json.loads(done.stdout)] == ["ACME101"]
    again = installed("lint", "train.py", "--output-format", "json")
    assert (again.returncode, again.stdout) == (1, done.stdout)  # from the cache
    assert "ACME101" in installed("rules").stdout
    assert installed("lint", "train.py", "--ignore", "ACME").returncode == 0


def test_changed_rules_of_a_distribution_are_asked_anew(installed, project):
    assert installed("lint", "train.py").returncode == 1
    path = project / "site" / "acme_rules.py"
    path.write_text(path.read_text().replace("torch.utils.data.DataLoader", "torch.nothing"))
    assert installed("lint", "train.py").returncode == 0


def test_rules_of_a_distribution_reach_every_process(installed, project):
    for number in range(4):
        (project / f"train{number}.py").write_text(textwrap.dedent(TRAIN))
    done = installed(
        "lint", "--jobs", "2", "--output-format", "json", "--no-cache", "--exclude", "site"
    )
    codes = [item["code"] for item in json.loads(done.stdout)]
    assert (done.returncode, codes.count("ACME101")) == (1, 5)


def test_a_broken_distribution_is_named_in_one_sentence(installed, project):
    (project / "site" / "acme_rules.py").write_text("import nothing_of_the_kind\n")
    done = installed("lint", "train.py")
    assert done.returncode == 2
    assert "entry point acme = acme_rules cannot be loaded (ModuleNotFoundError" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_closest_settings_count_for_each_file(project, run):
    project.joinpath("old").mkdir()
    (project / "old" / "xladoctor.toml").write_text('ignore = ["ACME101"]\n')
    (project / "old" / "train.py").write_text(textwrap.dedent(TRAIN))
    done = run("lint", ".", "--output-format", "json", "--select", "ACME")
    assert len(json.loads(done.stdout)) == 2  # a selection on the command line starts afresh
    done = run("lint", ".", "--output-format", "json")
    assert [item["filename"] for item in json.loads(done.stdout)] == ["train.py"]


EVIL = """
    from pathlib import Path
    Path("ran").write_text("")
"""


@pytest.fixture
def clone(project):
    """A project that nobody trusts, with a plugin that leaves a trace where it runs."""
    (project / TRUSTED).unlink()
    (project / "evil.py").write_text(textwrap.dedent(EVIL))
    (project / "pyproject.toml").write_text(
        '[tool.xladoctor.lint]\nplugins = ["evil.py"]\nextend-select = ["ACME101", "XLA1"]\n'
    )
    return project


@pytest.mark.parametrize(
    "words",
    [
        ["lint", "."],
        ["lint", "train.py"],
        ["lint", "-"],
        ["lint", "--jobs", "2", "."],
        ["lint", "--show-settings"],
        ["lint", "--show-files"],
        ["lint", "--config", "pyproject.toml", "."],
        ["rules"],
        ["rules", "test", "XLA101"],
        ["explain", "XLA101"],
        ["profile", "--", sys.executable, "train.py"],
    ],
    ids=" ".join,
)
def test_plugins_of_a_clone_run_nowhere(clone, run, words):
    done = run(*words)
    assert not (clone / "ran").exists()
    if words[0] != "profile":  # whose program needs torch_xla, which is not what is asked here
        assert done.returncode == 0, done.stderr
    if not words[-1].startswith("--show"):
        assert "(evil.py) were not run" in done.stderr
        assert "--allow-plugins" in done.stderr
        assert TRUSTED in done.stderr


def test_nor_those_of_a_folder_inside(clone, run):
    (clone / "pyproject.toml").unlink()
    (clone / "sub").mkdir()
    (clone / "sub" / "xladoctor.toml").write_text('plugins = ["../evil.py"]\n')
    (clone / "sub" / "a.py").write_text("")
    done = run("lint", ".")
    assert not (clone / "ran").exists()
    assert "(../evil.py) were not run" in done.stderr
    allowed = run("lint", "--allow-plugins", ".")
    assert allowed.returncode == 2
    assert "../evil.py leads out of" in allowed.stderr
    assert not (clone / "ran").exists()


@pytest.mark.parametrize("words", [["lint", "."], ["rules"], ["explain", "XLA101"]])
def test_plugins_run_when_the_user_says_so(clone, run, words):
    done = run(*words, "--allow-plugins")
    assert (clone / "ran").exists()
    assert "not run" not in done.stderr


@pytest.mark.parametrize("flag", ["--show-settings", "--show-files"])
def test_showing_runs_no_plugin_even_of_a_trusted_folder(clone, run, flag):
    (clone / TRUSTED).write_text(f'folders = ["{clone}"]\n')
    done = run("lint", flag, "--allow-plugins")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert not (clone / "ran").exists()
    assert flag == "--show-files" or "plugins = ('evil.py',)" in done.stdout


def test_a_list_of_trusted_folders_that_is_none(clone, run):
    for text in ("folders = 3\n", 'folders = ["here"]\n', "folders = [\n", "other = 1\n"):
        (clone / TRUSTED).write_text(text)
        done = run("lint", ".")
        assert done.returncode == 2
        assert TRUSTED in done.stderr
        assert not (clone / "ran").exists()
