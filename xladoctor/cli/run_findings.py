"""What is found in a recorded run: by the linter in the files it went through, and by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from xladoctor.capture import rundir
from xladoctor.errors import XladoctorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from xladoctor.findings import Finding


def lint_of(run_dir: Path, words: Sequence[str], console: Console) -> list[Finding]:
    """What 'xladoctor lint' says of the user's files that the run went through."""
    from xladoctor.cli import lint_plans
    from xladoctor.lint import run as runner

    names = _files(run_dir, words)
    if not names:
        return []
    request = lint_plans.Request(tuple(names))
    try:
        settings = lint_plans.settings_of(request)
        lint_plans.load_plugins(request, settings)
        paths, plans = lint_plans.plans_of(request, settings, [Path(name) for name in names])
    except XladoctorError as error:
        # The run is measured: a slip in the settings must not cost its report.
        console.print(f"xladoctor: the code was not linted: {error}", soft_wrap=True)
        return []
    results = runner.lint_files(paths, plans, jobs=1)
    return [finding for result in results for finding in result.result.findings]


def findings_of(run_dir: Path, words: Sequence[str], console: Console) -> Sequence[Finding]:
    """What the linter says of a run's sources and the diagnosis of the run itself, joined.

    Raises:
        XladoctorError: The run cannot be read.
    """
    from xladoctor import diagnosis, readings

    rundir.write_lint(run_dir, lint_of(run_dir, words, console))
    return diagnosis.diagnose(readings.load([run_dir])).findings


def _files(run_dir: Path, words: Sequence[str]) -> list[str]:
    """Files below the current folder that the run went through, as paths relative to it."""
    here = Path.cwd()
    seen = {word for word in words if word.endswith(".py")}
    for folder in rundir.processes(run_dir):
        for row in rundir.rows(folder):
            if row.get("e") == "site":
                seen |= {frame[0] for frame in row.get("frames", ())}
    files = set()
    for name in seen:
        path = (here / name).resolve()
        if path.suffix == ".py" and path.is_file() and path.is_relative_to(here):
            relative = path.relative_to(here)
            if "site-packages" not in relative.parts and "dist-packages" not in relative.parts:
                files.add(str(relative))
    return sorted(files)
