"""What lint and report write for other tools is what those tools demand."""

from __future__ import annotations

import copy
import json
import textwrap

import pytest
from shapes import check_github, check_gitlab, check_junit, check_sarif
from test_formats import ALL

from xladoctor.cli.app import main
from xladoctor.report import render

TRAIN = """
    import torch
    import torch_xla
    import torch_xla.core.xla_model as xm
    from tools import accuracy

    device = xm.xla_device()
    for step in range(10):
        loss = torch.ones(1, device=device)
        loss.backward()
        torch_xla.sync()
        print(loss.item())
        accuracy(loss)
        accuracy(loss)
"""
TOOLS = "def accuracy(value):\n    return value.item(), value.item()\n"


@pytest.fixture
def lint(tmp_path, monkeypatch, capsys):
    """The linter's output in a format, over odd names, a notebook and a broken file."""
    monkeypatch.chdir(tmp_path)
    cells = [{"cell_type": "code", "source": textwrap.dedent(TRAIN)}]
    odd = tmp_path / "a b" / "träin, 100%: x.py"
    odd.parent.mkdir()
    odd.write_text(textwrap.dedent(TRAIN))
    (tmp_path / "a b" / "tools.py").write_text(TOOLS)
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "broken.py").write_text("import torch_xla\nprint 'x'\n")

    def call(output_format):
        assert main(["lint", "--no-cache", "--output-format", output_format]) == 1
        return capsys.readouterr().out

    return call


def test_sarif_of_lint(lint):
    log = json.loads(lint("sarif"))
    check_sarif(log)
    [run] = log["runs"]
    related = [item for item in run["results"] if item.get("relatedLocations")]
    notes = {p["message"]["text"] for item in related for p in item["relatedLocations"]}
    assert "the step loop" in notes
    assert any(item.get("fixes") for item in run["results"])
    # A place in another file is named with it.
    [helper] = [i for i in related if i["locations"][0]["physicalLocation"]["artifactLocation"]
                ["uri"].endswith("tools.py")][:1]  # fmt: skip
    uris = {p["physicalLocation"]["artifactLocation"]["uri"] for p in helper["relatedLocations"]}
    assert any("100%25" in uri for uri in uris)


def test_gitlab_of_lint(lint):
    check_gitlab(json.loads(lint("gitlab")))


def test_junit_of_lint(lint):
    check_junit(lint("junit"))


def test_github_of_lint(lint):
    check_github(lint("github"))


def test_full_text_says_why(lint):
    text = lint("full")
    assert "because: line 8: the step loop" in text
    assert "100%: x.py line 8: the step loop" in text  # from tools.py


@pytest.mark.parametrize("report", ALL, ids=["full", "empty", "evil"])
def test_formats_of_report(report):
    check_sarif(json.loads(render(report, "sarif")))
    check_junit(render(report, "junit"))
    check_github(render(report, "github"))


def region(log):
    """The first region of a log."""
    place = log["runs"][0]["results"][0]["locations"][0]
    return place["physicalLocation"]["region"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda log: log.update(version="2.0.0"),
        lambda log: log.update(other=1),
        lambda log: log["runs"][0]["results"][0].update(level="info"),
        lambda log: log["runs"][0]["results"][0].pop("message"),
        lambda log: log["runs"][0]["results"][0].update(ruleIndex=10_000),
        lambda log: log["runs"][0]["results"][0]["locations"][0]["physicalLocation"][
            "region"
        ].update(startLine=0),
    ],
)
def test_the_check_sees_what_is_wrong(lint, spoil):
    log = json.loads(lint("sarif"))
    check_sarif(copy.deepcopy(log))
    spoil(log)
    with pytest.raises((AssertionError, IndexError)):
        check_sarif(log)
