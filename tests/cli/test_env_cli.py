from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from xladoctor import __version__
from xladoctor.cli.app import main

ROOT = Path(__file__).resolve().parents[2]


def test_json_names_versions_and_what_works(capsys):
    assert main(["env", "--output-format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["xladoctor"] == __version__
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["works"]["lint"] is True
    assert set(facts) >= {"platform", "packages", "environment", "problems"}


def test_torch_without_torch_xla_is_a_problem_with_a_remedy(capsys, monkeypatch):
    from xladoctor.cli import env

    found = {"torch": "2.9.0", "libcst": "1.8"}
    monkeypatch.setattr(env, "_version", found.get)
    assert main(["env"]) == 0
    out = capsys.readouterr().out
    assert 'pip install "torch_xla==2.9.*"' in out
    assert "no   profile --simulate-cores" in out


def test_torch_is_not_imported():
    code = (
        "import sys; from xladoctor.cli.app import main; main(['env']); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "False"
