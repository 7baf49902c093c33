"""Makes the pictures of the documentation from what the commands print.

``python docs/pictures.py`` writes them; ``tests/test_docs.py`` holds that they are what is printed.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent

#: Picture to the command that it shows, and how many lines of its output.
PICTURES = {
    "report.svg": (("report", "sample_runs/ct_slices/recorded/runnable"), 45),
}
_COLUMNS = 100


def picture(name: str) -> str:
    """The terminal with a command and what it prints, as SVG.

    Args:
        name: One of :data:`PICTURES`.
    """
    words, most = PICTURES[name]
    done = subprocess.run(
        [sys.executable, "-m", "xladoctor", *words],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": str(_COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"},
        capture_output=True,
        text=True,
        check=False,
    )
    console = Console(
        record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True, legacy_windows=False
    )
    console.print(Text(f"$ xladoctor {' '.join(words)}", style="bold"))
    console.print(Text.from_ansi("\n".join(done.stdout.splitlines()[:most])))
    return console.export_svg(title="xladoctor", unique_id=Path(name).stem)


if __name__ == "__main__":
    for each in PICTURES:
        (ROOT / "docs" / "images" / each).write_text(picture(each))
