from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path  # noqa: TC003  (pytest resolves annotations of fixtures)

import pytest

from xladoctor.capture import launch


class Program:
    """Runs small Python programs with the agent in their environment, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_dir = folder / "run"
        self.run_dir.mkdir()

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def fake_torch_xla(self) -> None:
        """An invented package: only the mechanics of getting in are tested with it."""
        self.write("lib/torch_xla/__init__.py", "READY = True\n")
        self.write("lib/torch/__init__.py", "")

    def environ(self, **more: str) -> dict[str, str]:
        base = {**os.environ, **more}
        base["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(self.folder / "lib"), more.get("PYTHONPATH")])
        )
        return launch.environment(base, self.run_dir)

    def run(self, *words: str, environ: dict[str, str] | None = None, **how: object):
        return subprocess.run(
            [sys.executable, *words],
            env=environ or self.environ(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            **how,
        )


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)
