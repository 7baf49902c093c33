"""The documentation shows what is true: commands that exist, links, pictures, a rule that runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from xladoctor import catalogue
from xladoctor.cli.app import cli
from xladoctor.lint import rules
from xladoctor.lint.model import FileModel

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))

import pictures  # noqa: E402

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def name(path: Path) -> str:
    """A page, for the names of tests."""
    return path.relative_to(ROOT).as_posix()


def commands(page: Path) -> list[str]:
    """The commands of ours that a page shows in blocks."""
    return [
        line.partition("    #")[0].partition("  #")[0].strip()
        for _, language, block in _FENCED.findall(page.read_text())
        if language in ("", "bash", "console")
        for line in block.splitlines()
        if line.startswith(("xladoctor ", "$ xladoctor "))
    ]


SHOWN = [(page, command) for page in PAGES for command in commands(page)]


def test_commands_are_shown() -> None:
    assert len(SHOWN) > 20


@pytest.mark.parametrize(("page", "command"), SHOWN, ids=lambda value: str(value)[-60:])
def test_what_is_shown_is_a_command(page: Path, command: str) -> None:
    """Each option of it exists, and takes what it is given; nothing is run."""
    words = shlex.split(command.replace("$(hostname)", "host").removeprefix("$ "))[1:]
    # As the program starts them: a command keeps the help option that it is first asked for.
    top = click.Context(cli, info_name="xladoctor", **cli.context_settings)
    found: click.Command | None = cli.get_command(top, words[0])
    assert found is not None, command
    if isinstance(found, click.Group) and len(words) > 1:
        found, words = found.get_command(top, words[1]) or found, words[1:]
    for option in [param for param in found.params if isinstance(param, click.Option)]:
        # Files of examples need not be there; nothing that is eager (--version) may run.
        option.is_eager, option.callback = False, None
    try:
        found.make_context(words[0], words[1:], parent=top, resilient_parsing=False)
    except click.UsageError as error:
        if "does not exist" not in error.message:
            pytest.fail(f"{name(page)}: {command}: {error.message}")


def test_the_workflow_for_github_is_one_and_its_commands_exist() -> None:
    yaml = pytest.importorskip("yaml")
    text = (ROOT / "docs" / "guides" / "ci.md").read_text()
    (block,) = [block for _, language, block in _FENCED.findall(text)
                if language == "yaml" and "runs-on" in block]  # fmt: skip
    (job,) = yaml.safe_load(block)["jobs"].values()
    ours = [step["run"] for step in job["steps"] if step.get("run", "").startswith("xladoctor ")]
    assert [shlex.split(command)[1] for command in ours] == ["lint", "profile"]
    for command in ours:
        test_what_is_shown_is_a_command(ROOT / "docs" / "guides" / "ci.md", command)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link, _ in _LINK.findall(page.read_text()):
        if "://" not in link and not link.startswith("mailto:"):
            assert (page.parent / link).exists(), f"{name(page)}: {link}"


@pytest.mark.parametrize("picture", pictures.PICTURES)
def test_pictures_are_what_is_printed(picture: str) -> None:
    """python docs/pictures.py makes them anew."""
    kept = (ROOT / "docs" / "images" / picture).read_text()
    assert texts(kept) == texts(pictures.picture(picture))


def texts(svg: str) -> list[str]:
    """What stands in a picture."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_the_reference_is_what_help_prints() -> None:
    """python docs/reference.py writes it anew; click remembers the help options of other tests."""
    done = subprocess.run(
        [sys.executable, "-c", "import reference; print(reference.reference(), end='')"],
        cwd=ROOT / "docs",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (ROOT / "docs" / "commands.md").read_text() == done.stdout


def test_the_rule_of_the_ten_minutes_works(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "contributing.md").read_text()
    source = next(block for _, kind, block in _FENCED.findall(text) if kind == "python")
    lines = [line.removeprefix("    ") for line in source.splitlines()]
    monkeypatch.setattr(rules, "_registry", {})
    space: dict[str, object] = {}
    exec("\n".join(lines).replace("from __future__ import annotations", ""), space)
    rule = rules._registry["XLA999"]
    assert "XLA999" not in catalogue.pages()
    model = FileModel(
        "import torch_xla.core.xla_model as xm\n"
        "def train(loader, optimizer, loss_of):\n"
        "    for batch in loader:\n"
        "        loss_of(batch).backward()\n"
        "        xm.optimizer_step(optimizer)\n"
        "        xm.rendezvous('step')\n"
        "    xm.rendezvous('end')\n"
    )
    assert [problem.place.start.row for problem in rule(model)] == [6]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) < 620


def test_the_site_builds(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for code in ("XLA101", "XLA446"):
        page = catalogue.page(code)
        stem = page.url.rpartition("/")[2].removesuffix(".md")
        assert page.name in (tmp_path / "site" / "rules" / stem / "index.html").read_text()
