"""Suppressions that suppress nothing: what is judged, what is not, and what the fix leaves."""

from __future__ import annotations

import json

import pytest

from xladoctor.lint import engine, fixes, sources
from xladoctor.lint import rules as registry
from xladoctor.lint.engine import LintOptions
from xladoctor.lint.sources import Source

HEAD = "import torch\nimport torch_xla\nimport torch_xla.core.xla_model as xm\n"


def unused(text, codes=None):
    result = engine.lint(Source("x.py", HEAD + text), LintOptions(codes=codes))
    assert result.failures == ()
    return [item.message for item in result.findings if item.code == "XLA002"]


def fixed(text):
    def lint(source):
        return engine.lint(source)

    def wanted(finding):
        return finding.code == "XLA002"

    done = fixes.fix((HEAD + text).encode(), "x.py", lint, fixable=wanted)
    assert done.stable
    return done.data.decode().removeprefix(HEAD)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 1  # noqa: XLA101\n", "x = 1\n"),
        ("x = 1  # noqa: XLA101, XLA102\n", "x = 1\n"),
        ("x = 1  # noqa: E501, XLA101, F401\n", "x = 1  # noqa: E501, F401\n"),
        ("x = 1  # noqa: XLA101  # why not\n", "x = 1  # why not\n"),
        ("x = 1  # why not # noqa: XLA101\n", "x = 1  # why not\n"),
        ("x = 1  # noqa: XLA101 it is meant so\n", "x = 1\n"),
        ("x = 1  # xladoctor: ignore[XLA101] it is meant so\n", "x = 1\n"),
        ("x = 1  # xladoctor: ignore[XLA1, ACME101]\n", "x = 1  # xladoctor: ignore[ACME101]\n"),
        ("# xladoctor: file-ignore[XLA401]\nx = 1\n", "x = 1\n"),
        ("# flake8: noqa: XLA101\nx = 1\n", "x = 1\n"),
        ("x = 1  # noqa: XLA999\n", "x = 1\n"),
        ("d = xm.xla_device()  # noqa: XLA802, XLA101\n", "d = xm.xla_device()  # noqa: XLA802\n"),
    ],
)
def test_what_the_fix_leaves(before, after):
    assert len(unused(before)) == 1
    assert fixed(before) == after
    assert unused(after) == []


@pytest.mark.parametrize(
    "text",
    [
        "x = 1  # noqa\n",
        "x = 1  # noqa: E501\n",
        "x = 1  # noqa: ACME101\n",
        "x = 1  # noqa: XLA002, XLA101\n",
        "x = 1  # noqa: XLA411\n",  # only a run can find it
        "x = 1  # noqa: XLA\n",
        "text = '# noqa: XLA101'\n",
        "d = xm.xla_device()  # noqa: XLA8\n",
        "# xladoctor: file-ignore[XLA802]\nd = xm.xla_device()\n",
        "def f(x):\n    return x.item()  # noqa: XLA101\n",
        "def g(x):\n    return x  # noqa: XLA101\n\ndef f(x):\n    return g(x)\n",
        "class A:\n    def f(self):\n        return self.x.item()  # noqa: XLA101\n",
        "# xladoctor: file-ignore[XLA1]\ndef f(x):\n    return x\n",
    ],
)
def test_what_is_not_judged(text):
    assert unused(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    return x  # noqa: XLA101\n\nf(1)\n",
        "def f():\n    return 1  # noqa: XLA101\n",
        "def f(i):\n    return i  # noqa: XLA101\n\ntorch_xla.launch(f)\n",
    ],
)
def test_inside_functions_that_are_known(text):
    assert unused(text) == ["XLA101 is silenced here, but nothing of the kind is found"]


def test_codes_that_were_not_asked_are_not_judged():
    text = "x = 1  # noqa: XLA101\n"
    assert unused(text, frozenset({"XLA002", "XLA102"})) == []
    assert unused(text, frozenset({"XLA101"})) == []
    assert len(unused(text, frozenset({"XLA002", "XLA101"}))) == 1
    family = frozenset(code for code in registry.rules() if code.startswith("XLA1"))
    assert len(unused("x = 1  # noqa: XLA1\n", family | {"XLA002"})) == 1
    assert unused("x = 1  # noqa: XLA1\n", family - {"XLA101"} | {"XLA002"}) == []


def test_a_file_that_is_not_for_xla_is_not_judged():
    source = Source("x.py", "def helper(x):\n    return x\n\nhelper(1)  # noqa: XLA101\n")
    assert engine.lint(source).findings == ()


def test_a_notebook_keeps_its_cells():
    cells = [HEAD, "x = 1\ny = 2  # noqa: XLA101\n"]
    document = {"cells": [{"cell_type": "code", "source": cell} for cell in cells]}
    data = json.dumps(document).encode()
    [finding] = engine.lint(sources.from_bytes(data, "n.ipynb")).findings
    assert (finding.code, finding.locations[0].cell, finding.locations[0].row) == ("XLA002", 1, 2)
    done = fixes.fix(data, "n.ipynb", engine.lint)
    assert json.loads(done.data)["cells"][1]["source"] in ("x = 1\ny = 2\n", ["x = 1\n", "y = 2\n"])
