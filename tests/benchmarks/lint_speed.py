"""What linting costs: beside parsing alone, for many files, from the cache, for one huge file.

    python tests/benchmarks/lint_speed.py [FILE ...]

Lints files for XLA devices (the samples by default) and parses the same texts with LibCST: a ratio
does not depend on the machine, and grows when a rule walks more than it should. Then a project of
500 such files, with an empty and with a full cache, and a made-up file of 50,000 lines that is all
step loops; seconds are those of the processor.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import libcst as cst

from xladoctor.lint import engine, run, sources
from xladoctor.lint.cache import Cache
from xladoctor.lint.engine import LintOptions

ROUNDS = 5
FILES = 500
LINES = 50_000
SAMPLES = Path(__file__).resolve().parents[2] / "sample_runs"
HEAD = "import torch\nimport torch_xla\nimport torch_xla.core.xla_model as xm\n"
BLOCK = """

def train_{n}(model, loader, optimizer, device):
    total = 0.0
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optimizer)
        total += loss.item()
        if step % 50 == 0:
            print("loss", loss)
    return total / len(loader)


class Meter_{n}:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value, n=1):
        self.total += value * n
        self.count += n
"""


def main() -> None:
    names = sys.argv[1:] or sorted(str(path) for path in SAMPLES.glob("*/*.py"))
    files = [source for name in names if "xla" in (source := sources.read(Path(name))).text]
    engine.lint(files[0])  # loads rules and tables
    beside_parsing(files)
    many(files)
    huge()


def beside_parsing(files: list[sources.Source]) -> None:
    ratios = []
    for _ in range(ROUNDS):
        parsing = seconds(lambda: [cst.parse_module(source.text) for source in files])
        ratios.append(seconds(lambda: [engine.lint(source) for source in files]) / parsing)
    lines = sum(source.text.count("\n") for source in files)
    print(
        f"{len(files)} files, {lines} lines: linting takes {statistics.median(ratios):.1f} times "
        f"as long as parsing ({min(ratios):.1f} to {max(ratios):.1f})"
    )


def many(files: list[sources.Source]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        paths = [Path(f"file{number:03}.py") for number in range(FILES)]
        for number, path in enumerate(paths):
            path.write_text(files[number % len(files)].text, encoding="utf-8")
        lines = sum(path.read_bytes().count(b"\n") for path in paths)

        def lint() -> None:
            plan = run.Plan(LintOptions())
            list(run.lint_files(paths, plan, jobs=1, cache=Cache(Path("cache"), 1, b"")))

        cold, warm = seconds(lint), seconds(lint)
        paths[0].write_text(files[1].text + "\nx = 1\n", encoding="utf-8")
        one = seconds(lint)
        os.chdir("/")
    print(
        f"{FILES} files, {lines} lines, one process: {cold:.1f} s; again from the cache "
        f"{warm:.2f} s; after a change of one file {one:.2f} s"
    )


def huge() -> None:
    blocks = [BLOCK.replace("{n}", str(n)) for n in range(LINES // BLOCK.count("\n") + 1)]
    for share in (10, 1):
        text = HEAD + "".join(blocks[: len(blocks) // share])
        taken = seconds(lambda text=text: engine.lint(sources.Source("huge.py", text)))
        lines = text.count("\n")
        print(f"one file of {lines} lines: {taken:.1f} s, {taken / lines * 1e6:.0f} us a line")


def seconds(work: object) -> float:
    assert callable(work)
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    main()
