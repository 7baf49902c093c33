"""What ``lint`` shows of notebooks, and of kernels that were saved as Python."""

from __future__ import annotations

import json

from xladoctor.cli.app import main


def shown(capsys, *arguments):
    main(["lint", *arguments])
    return capsys.readouterr().out


def test_shell_lines_of_a_notebook_are_shown_as_they_are_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    script = "https://raw.githubusercontent.com/pytorch/xla/master/contrib/scripts/env-setup.py"
    install = ["!curl " + script + " -o setup.py\n", "!python setup.py --version 1.5"]
    cells = [
        {"cell_type": "code", "source": install},
        {"cell_type": "code", "source": ["import torch_xla"]},
    ]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
    out = shown(capsys, "n.ipynb")
    assert f" 1 | !curl {script} -o setup.py\n   | {'^' * len(install[0].strip())}\n" in out
    assert "pass" not in out
    out = shown(capsys, "--diff", "--unsafe-fixes", "n.ipynb")
    assert f"-!curl {script} -o setup.py\n" in out
    (tmp_path / "kernel.py").write_text("import torch_xla\n" + "".join(install) + "\n")
    out = shown(capsys, "kernel.py")
    assert f" 2 | !curl {script} -o setup.py\n" in out
