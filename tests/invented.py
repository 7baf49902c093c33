"""Invented run directories, written in the form that docs/run-directory.md fixes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

FILE = "/home/user/project/train.py"
PARTS = ("compile", "execute", "input_wait", "host_sync", "trace", "fallback", "other")


class InventedRun:
    """Builds a run of one process; every method adds rows."""

    def __init__(self, cores: int = 2, **manifest: Any) -> None:
        self.cores = cores
        self.manifest: dict[str, Any] | None = {
            "schema_version": 1, "xladoctor": "0.1.0", "command": ["python", "train.py"],
            "cwd": "/home/user/project", "started": 1763670000.0, "ended": 1763670060.0,
            "exit_code": 0, "signal": None, "simulated_cores": cores, "complete": True, **manifest,
        }  # fmt: skip
        self.rows: list[dict[str, Any]] = [
            {"e": "process", "version": 1, "pid": 5, "ppid": 1, "argv": ["train.py"],
             "python": "3.11.9", "torch": "2.9.0", "torch_xla": "2.9.0", "device": "CPU",
             "simulated_cores": cores, "t": 0.0, "time": 1763670000.0},
        ]  # fmt: skip
        self.metrics = ""
        self._sites: dict[tuple[str, int], int] = {}
        self._clock = dict.fromkeys(range(cores), 1.0)
        for core in range(cores):
            self.rows.append({"e": "core-start", "core": core, "t": 1.0})

    def site(self, row: int, file: str = FILE) -> int:
        if (file, row) not in self._sites:
            number = self._sites[(file, row)] = len(self._sites)
            self.rows.append(
                {"e": "site", "id": number, "frames": [[file, row, "train"], [FILE, 99, "main"]]}
            )
        return self._sites[(file, row)]

    def step(
        self,
        core: int,
        first: int | None,
        last: int | None = None,
        *,
        syncs: list | None = None,
        fallbacks: list | None = None,
        **parts: float,
    ) -> None:
        """A stretch of steps; ``syncs`` are (line, what, count, seconds, compiled [, kinds])."""
        values = {part: parts.get(part, 0.0) for part in PARTS} | {
            "execute": parts.get("execute", 0.5)
        }
        start = self._clock[core]
        self._clock[core] += sum(values.values())
        self.rows.append(
            {"e": "step", "core": core, "first": first, "last": first if last is None else last,
             "t0": start, "t1": self._clock[core], "parts": values,
             "syncs": [[self.site(line), *rest] for line, *rest in syncs or ()],
             "fallbacks": [[self.site(line), *rest] for line, *rest in fallbacks or ()],
             "launches": [[self.site(40), "step", 1, values["execute"]]],
             "transfers": {"to_device": 1, "from_device": 0}}
        )  # fmt: skip

    def steps(self, count: int, **step: Any) -> None:
        """The same steps on all cores."""
        for core in range(self.cores):
            for number in range(1, count + 1):
                self.step(core, number, **step)

    def compilation(self, core: int, step: int, **facts: Any) -> None:
        row = {
            "e": "compilation", "core": core, "step": step,
            "site": self.site(facts.pop("line", 40)),
            "trigger": "step", "seconds": 1.5, "graph": None, "reused": False,
            "executions": step - 1, "inputs": 3, "outputs": 2,
            "cause": {"kind": "first-graph", "detail": "", "site": None}, **facts,
        }  # fmt: skip
        self.rows.append(row)

    def end(self) -> None:
        for core in range(self.cores):
            last = [r["last"] or 0 for r in self.rows if r["e"] == "step" and r["core"] == core]
            self.rows.append(
                {"e": "core-end", "core": core, "t": self._clock[core],
                 "steps": max(last, default=0), "failed": False}
            )  # fmt: skip
        self.rows.append({"e": "end", "t": 100.0})

    def write(self, path: Path) -> Path:
        folder = path / "p5-1"
        folder.mkdir(parents=True)
        if self.manifest is not None:
            (path / "manifest.json").write_text(json.dumps(self.manifest), encoding="utf-8")
        text = "".join(json.dumps(row) + "\n" for row in self.rows)
        (folder / "events.jsonl").write_text(text, encoding="utf-8")
        if self.metrics:
            (folder / "metrics.txt").write_text(self.metrics, encoding="utf-8")
        return path
