"""What the README shows is what the commands it names print."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: A command in brackets, the end of its sentence, and what it prints, perhaps only the first lines.
SHOWN = re.findall(
    r"\(`(xladoctor [^`]+)`[^\n]*:\n\n```\n(.*?)^```$",
    (ROOT / "README.md").read_text(),
    re.DOTALL | re.MULTILINE,
)


def test_the_readme_shows_a_linted_file():
    assert [shlex.split(command)[1] for command, _ in SHOWN] == ["lint"]


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=["lint"])
def test_the_readme_shows_what_the_command_prints(command, shown):
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr or "Found" in done.stderr, done.stderr
    lines = shown.splitlines()
    assert done.stdout.splitlines()[: len(lines)] == lines
