"""What a profiled command is doing, while it does it; on a terminal only."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.status import Status

#: Seconds after the start at which a line is printed when the program shares the terminal.
_LINES_AT = (5.0, 15.0, 30.0, 60.0)


class Tail:
    """Follows the rows of a run directory as they are written."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._read: dict[Path, int] = {}
        self._steps: dict[Any, int] = {}
        self._compilations: dict[Any, int] = {}

    def look(self) -> None:
        """Take in what has been written since the last look."""
        for path in self._run_dir.glob("p*/events*.jsonl"):
            if not path.is_file():
                continue
            try:
                with path.open("rb") as file:
                    file.seek(self._read.get(path, 0))
                    data = file.read()
            except OSError:
                continue
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            for line in whole.splitlines():
                if line.startswith((b'{"e":"step"', b'{"e":"compilation"', b'{"e":"core-start"')):
                    self._take(json.loads(line))

    def _take(self, row: dict[str, Any]) -> None:
        core = row["core"]
        self._steps.setdefault(core, 0)
        if row["e"] == "compilation":
            self._compilations[core] = self._compilations.get(core, 0) + 1
        elif row["e"] == "step" and row["last"]:
            self._steps[core] = max(self._steps[core], row["last"])
        elif row["e"] == "step":
            self._steps[core] += row.get("iterations", 0)

    def __str__(self) -> str:
        if not self._steps:
            return "no core has started yet"
        cores = len(self._steps)
        return (
            f"{cores} core{'s' if cores != 1 else ''}, step {max(self._steps.values())}, "
            f"{max(self._compilations.values(), default=0)} compilations"
        )


class Progress:
    """A live line when the terminal is ours alone, now and then a whole line when it is shared.

    Args:
        console: On stderr.
        run_dir: The run to follow.
        shared: Whether the program prints to the same terminal: a live line would tear its output.
    """

    def __init__(self, console: Console, run_dir: Path, *, shared: bool) -> None:
        self._console = console
        self._tail = Tail(run_dir)
        self._began = self._last = time.monotonic()
        self._status: Status | None = None
        self._lines = iter(_LINES_AT)
        self._next: float = next(self._lines)
        if console.is_terminal and not shared:
            self._status = console.status("xladoctor: starting", spinner="dots")
            self._status.start()

    def __call__(self) -> None:
        """Show how far the run is; called often, works once a second at most."""
        now = time.monotonic()
        if not self._console.is_terminal or now - self._last < 1.0:
            return
        self._last = now
        if self._status is not None:
            self._tail.look()
            self._status.update(f"xladoctor: {self._tail}")
        elif now - self._began >= self._next:
            self._next = next(self._lines, self._next + _LINES_AT[-1])
            self._tail.look()
            self._console.print(f"xladoctor: {self._tail}", style="dim", highlight=False)

    def stop(self) -> None:
        """Take the live line away."""
        if self._status is not None:
            self._status.stop()
