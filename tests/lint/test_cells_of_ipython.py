"""Cells that IPython runs and Python alone would not parse, beside those that neither runs."""

from __future__ import annotations

import json

import pytest
from rule_helpers import marks, told

from xladoctor.lint import engine, sources
from xladoctor.lint.fixes import fix

CELLS = {
    "pip install timm": True,
    "pip install -U timm\n": True,
    "\npip install timm": True,
    "   pip install timm": True,
    "pip install timm\n\n": False,
    "# once\npip install timm": False,
    "pip install timm\npip install einops": False,
    "import timm; pip install einops": False,
    "pip = = 3": False,
    "cd folder": True,
    "cd ..": True,
    "cp -a left/. right/": True,
    "mkdir a b": True,
    "matplotlib inline": True,
    "load_ext tensorboard": True,
    "tensorboard --logdir logs": False,
    "git clone https://example.org/x.git": False,
    "python train.py": False,
    "export A=3": False,
    "def train(:": False,
    "+": False,
    " model.eval()": True,
    "  x = 1\n  y = 2\n\n": True,
    "  if x:\n    y\n  z": True,
    "  x = 1\nif x:\n    y": False,
    "  x = 1\n   y = 2": False,
}


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    shells = pytest.importorskip("IPython.core.interactiveshell")
    return shells.InteractiveShell(ipython_dir=str(tmp_path_factory.mktemp("ipython")))


def source_of(*cells):
    document = {"cells": [{"cell_type": "code", "source": text} for text in cells]}
    return sources.from_bytes(json.dumps(document).encode(), "train.ipynb")


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_parses_where_ipython_takes_it(cell, shell):
    source = source_of(cell)
    assert (source.unreadable == ()) is CELLS[cell]
    assert source.text.count("\n") == cell.count("\n") + 1
    if cell.partition(" ")[0].strip() not in {"pip", "matplotlib", "load_ext"}:  # Jupyter's own
        assert (sources.syntax_error(shell.transform_cell(cell)) is None) is CELLS[cell]


def test_what_the_shell_is_told_without_a_sign_is_told_about():
    source = source_of("import torch_xla", "pip install cloud-tpu-client==0.10 torch==1.9.0")
    result = engine.lint(source, engine.LintOptions())
    [found] = [item for item in result.findings if item.code == "XLA716"]
    assert (found.locations[0].cell, found.locations[0].row) == (1, 1)


@pytest.mark.parametrize(
    ("cell", "rows"),
    [
        (
            "WHEEL = 'torch_xla-{}-cp37-cp37m-linux_x86_64.whl'.format(ask())\n!pip install $WHEEL",
            [2],
        ),
        ("tag = '1.9'\nURL = f'https://a.example/torch_xla-{tag}.whl'\n!pip install {URL}", []),
        ("TAG = '1.9'\n!pip install torch_xla==$TAG", [2]),
        ("STORE = 'gs://tpu-pytorch/wheels'\n!gsutil cp \"${STORE}/$NAME\" .", [2]),
        ("TAG = '2.9.0'\n!pip install torch_xla==$TAG", []),
        ("def f():\n    TAG = '1.9'\n!pip install torch_xla==$TAG", []),
    ],
)
def test_a_command_has_what_the_notebook_put_into_its_variables(cell, rows):
    result = engine.lint(source_of("import torch_xla", cell), engine.LintOptions())
    assert [x.locations[0].row for x in result.findings if x.code == "XLA716"] == rows


SCRIPT = """
import os
{use}
WHEEL = "torch_xla-{{}}-cp36-cp36m-linux_x86_64.whl".format(version)
OTHER = "torch-{{}}-cp36-cp36m-linux_x86_64.whl".format(version)
get_ipython().system('pip install "$WHEEL"'){xla}
get_ipython().system('pip install "$OTHER"'){torch}
os.system('pip install "$WHEEL"')
"""


@pytest.mark.parametrize(
    ("use", "torch"), [("import torch_xla", "  # !XLA716"), ("import torch", "")]
)
def test_a_notebook_that_was_made_a_script_fills_its_commands_too(use, torch):
    program = SCRIPT.format(use=use, xla="  # !XLA716", torch=torch)
    assert told("XLA716: all", program) == marks(program)


def test_an_indented_cell_is_told_where_it_stands_and_not_rewritten():
    cells = "import torch_xla.core.xla_model as xm", "  device = xm.xla_device()\n  xm.mark_step()"
    source = source_of(*cells)
    data = json.dumps({"cells": [{"cell_type": "code", "source": x} for x in cells]}).encode()
    result = engine.lint(source, engine.LintOptions())
    told = [item for item in result.findings if item.code == "XLA802"]
    assert [(x.locations[0].row, x.locations[0].column, x.fix) for x in told] == [
        (1, 12, None),
        (2, 3, None),
    ]
    fixed = fix(data, "train.ipynb", lambda one: engine.lint(one, engine.LintOptions()))
    assert fixed.data == data
