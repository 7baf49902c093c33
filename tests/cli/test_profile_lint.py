"""What ``profile`` takes from the linter: the same as ``lint`` says, by the project's settings."""

from __future__ import annotations

import io
import json
import textwrap

import pytest
from rich.console import Console

from xladoctor.cli import run_findings
from xladoctor.cli.app import main

TRAIN = """
    import torch
    import torch_xla
    import torch_xla.core.xla_model as xm
    from tools import accuracy

    device = xm.xla_device()
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in [(torch.ones(2, 4), torch.ones(2))]:
        out = model(x.to(device))
        out.sum().backward()
        xm.optimizer_step(optimizer, barrier=True)
        accuracy(out)
"""
TOOLS = """
    def accuracy(output):
        return output.mean().item()
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAIN))
    (tmp_path / "tools.py").write_text(textwrap.dedent(TOOLS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(project, words):
    """What the linter adds to a run that went through all files (places as the agent records)."""
    folder = project / "run" / "p1-1"
    folder.mkdir(parents=True, exist_ok=True)
    frames = [[str(project / name), 2, "f"] for name in ("train.py", "tools.py")]
    (folder / "events.jsonl").write_text(json.dumps({"e": "site", "id": 1, "frames": frames}))
    said = io.StringIO()
    findings = run_findings.lint_of(project / "run", words, Console(file=said))
    return [(item.locations[0].filename, item.code) for item in findings], said.getvalue()


def test_it_links_the_files_as_lint_does(project, capsys):
    codes, said = found(project, ["python", "train.py"])
    assert ("tools.py", "XLA101") in codes
    assert said == ""
    main(["lint", "tools.py", "train.py", "--output-format", "json"])
    elements = json.loads(capsys.readouterr().out)
    assert codes == [(item["filename"], item["code"]) for item in elements]


def test_it_obeys_the_settings_of_the_project(project):
    (project / "pyproject.toml").write_text('[tool.xladoctor.lint]\nignore = ["XLA1"]\n')
    codes, _ = found(project, ["python", "train.py"])
    assert codes
    assert not [code for _, code in codes if code.startswith("XLA1")]


def test_a_slip_in_the_settings_does_not_cost_the_run_its_report(project):
    (project / "xladoctor.toml").write_text("ignroe = []\n")
    codes, said = found(project, ["python", "train.py"])
    assert codes == []
    assert "the code was not linted" in said
    assert "did you mean 'ignore'?" in said.replace("\n", " ")
