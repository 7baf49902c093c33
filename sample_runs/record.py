"""Record the runs that lie in the samples' `recorded/` folders; see README.md.

    python sample_runs/record.py              # all of them
    python sample_runs/record.py ct_slices    # those of one sample

Needs xladoctor with the xla extra. Each run is recorded for real, by `xladoctor profile`; then the
path of this checkout becomes `/project` and that of the interpreter `python`, so that the files do
not depend on the machine they were made on. Nothing else is changed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

SAMPLES = Path(__file__).resolve().parent
ROOT = SAMPLES.parent
RUNS = [
    "kfold_images/treated",
    "unet_mask_depth/treated",
    "ct_slices/runnable",
    "ct_slices/treated",
]
LIMIT = 200_000  # bytes of a recorded run


def record(run: str) -> None:
    """Record one run and make its files independent of this machine."""
    sample, _, form = run.partition("/")
    folder = SAMPLES / sample / "recorded" / form
    script = f"sample_runs/{sample}/{form}.py"
    command = [sys.executable, "-m", "xladoctor", "profile", "--simulate-cores", "8"]
    command += ["--detail", "low"]  # the graphs themselves would make the folder too large
    command += ["--force", "--output", str(folder), "--output-format", "concise", "--"]
    subprocess.run([*command, sys.executable, script, "--small"], cwd=ROOT, check=True)
    (folder / ".gitignore").unlink(missing_ok=True)
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_file() and not path.stat().st_size:
            path.unlink()  # git would keep an empty file of no use
        elif path.is_file():
            text = path.read_text(encoding="utf-8")
            text = text.replace(sys.executable, "python").replace(str(ROOT), "/project")
            path.write_text(text, encoding="utf-8")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if size > LIMIT:
        shutil.rmtree(folder)
        sys.exit(f"{run} has {size} bytes: too large to keep in a repository")
    print(f"{folder.relative_to(ROOT)}: {size} bytes")


if __name__ == "__main__":
    wanted = sys.argv[1:] or [""]
    for run in RUNS:
        if any(run.startswith(name) for name in wanted):
            record(run)
