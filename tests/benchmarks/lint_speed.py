"""What linting costs: beside parsing alone, for many files, from the cache, for one huge file.

    python tests/benchmarks/lint_speed.py [FILE ...]
    python tests/benchmarks/lint_speed.py --tree FOLDER FILE [TORCHFIX]

Lints files for XLA devices (the samples by default) and parses the same texts with LibCST: a ratio
does not depend on the machine, and grows when a rule walks more than it should. Then a project of
500 such files, with an empty and with a full cache, and a made-up file of 50,000 lines that is all
step loops; seconds are those of the processor.

With ``--tree``: the command on a folder of other people's files (say pytorch/xla's) and on one file
of it, each a process of its own, beside processes that import LibCST and parse: the files of the
folder that mention torch_xla, and the one. On a busy machine the second figure counts, the ratio of
processor time. Then the folder again with a full cache, after an edit of that file (in a copy of
the folder) and of one of its largest group, and, if its program is named, TorchFix on the folder.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import libcst as cst

from xladoctor.lint import engine, linking, looked, run, sources
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


PARSE = """
import sys, libcst
for name in sys.argv[1:]:
    with open(name, encoding="utf-8") as stream:
        libcst.parse_module(stream.read())
"""
LINT = (sys.executable, "-m", "xladoctor", "lint", "--isolated", "--output-format", "json")


def main() -> None:
    if sys.argv[1:2] == ["--tree"]:
        tree(*sys.argv[2:])
        return
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


def tree(given: str, file: str, torchfix: str | None = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(given, Path(folder, "tree"), symlinks=True)
        os.chdir(Path(folder, "tree"))
        names = [str(path) for path in sorted(Path().rglob("*.py")) if path.is_file()]
        ours = [name for name in names if b"torch_xla" in Path(name).read_bytes()]
        python = (sys.executable, "-c", PARSE)
        cached = (*LINT, "--cache-dir", str(Path(folder, "cache")), ".")
        run_apart(*LINT, "--no-cache", file)  # bytecode is written, as in any installation
        one = min(run_apart(*python, file) for _ in range(ROUNDS))
        many = run_apart(*python, *ours)
        alone = min(run_apart(*LINT, "--no-cache", file) for _ in range(ROUNDS))
        cold = run_apart(*cached)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        warm = min(run_apart(*cached) for _ in range(ROUNDS))
        edited = after_edit(file, cached)
        largest = max(linking.groups(names), key=lambda group: len(group.names))
        linked = after_edit(largest.given[0], cached)
        print(f"{len(names)} files, {len(ours)} mention torch_xla; wall and processor time")
        print(f"parsing {file}: {one}; linting it without a cache: {alone}, {alone / one}")
        print(f"parsing those of torch_xla: {many}; linting all: {cold}, {cold / many}")
        print(f"  at most {peak:.0f} MB a process")
        print(f"from the cache: {warm}, linting all takes {cold / warm}")
        print(f"after an edit of {file}: {edited}, linting all takes {cold / edited}")
        print(f"  of {largest.given[0]}, linked with {len(largest.names) - 1} files: {linked}")
        if torchfix is not None:
            other = run_apart(torchfix, "--select", "ALL", ".")
            print(f"TorchFix: {other}, {other / cold} what linting all takes")


def after_edit(file: str, lint: tuple[str, ...]) -> Taken:
    """What linting takes after an edit; the run before it saw all files long after they changed."""
    time.sleep(looked.COARSEST / 1e9)
    run_apart(*lint)
    with Path(file).open("a", encoding="utf-8") as stream:
        stream.write("\n_edited = 1\n")
    return run_apart(*lint)


class Taken(NamedTuple):
    """Seconds of a process: on the wall clock, and of the processor with its own processes."""

    wall: float
    used: float

    def __truediv__(self, other: Taken) -> str:
        return f"{self.wall / other.wall:.1f} and {self.used / other.used:.2f} times"

    def __str__(self) -> str:
        return f"{self.wall:.2f} s and {self.used:.2f} s"


def run_apart(*command: str) -> Taken:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    # Without bytecode each process compiles all modules: an installation that runs has it.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(
        command, check=False, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Taken(wall, used)


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
