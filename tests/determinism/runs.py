"""The same thing many times: at load, kept as it ends, and how often the outcomes differ.

A call that is cut off loses the runs that were under way; the next one makes those that are
missing. Kept runs are JSON lines, so that two processes may add to one file.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import json
import multiprocessing
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence


class Kept:
    """Runs in a file of JSON lines.

    Args:
        path: The file, which may not exist yet; None keeps them in memory.
        load: At which load they are made: runs at another one are not counted.
    """

    def __init__(self, path: Path | None, load: str) -> None:
        self._path, self._load = path, load
        self._lock = threading.Lock()
        text = path.read_text() if path is not None and path.exists() else ""
        self._rows = [json.loads(row) for row in text.splitlines()]

    def of(self, name: str) -> list[Any]:
        """What the runs of that name told."""
        return [
            row["told"] for row in self._rows if (row["name"], row["load"]) == (name, self._load)
        ]

    def put(self, name: str, told: Any) -> None:
        """Keep one run."""
        row = {"name": name, "load": self._load, "told": told}
        with self._lock:
            self._rows.append(row)
            if self._path is not None:
                with self._path.open("a") as file:
                    file.write(json.dumps(row) + "\n")


def repeat(
    names: Sequence[str],
    times: int,
    once: Callable[[str], Any],
    kept: Kept,
    *,
    jobs: int = 1,
    seconds: float = float("inf"),
) -> None:
    """Make the runs that are missing, one name after the other.

    Args:
        names: What to run.
        times: How often each.
        once: Runs one and gives what it told: what JSON can hold.
        kept: Those that there are, and where the new ones go.
        jobs: How many at the same time, which is load too.
        seconds: None is begun later than that.
    """
    end = time.monotonic() + seconds
    missing = [name for name in names for _ in range(len(kept.of(name)), times)]

    def one(name: str) -> None:
        if time.monotonic() < end:
            kept.put(name, once(name))

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, missing))


def tell(names: Sequence[str], times: int, kept: Kept) -> int:
    """Print of each name how many outcomes its runs had, and all of them if they differ.

    Returns:
        How many names had more than one.
    """
    differ = 0
    for name in names:
        told = kept.of(name)
        seen = collections.Counter(json.dumps(one, sort_keys=True) for one in told)
        print(f"{name}: {len(seen)} different in {len(told)} of {times} runs", flush=True)
        if len(seen) > 1:
            differ += 1
            for text, count in seen.most_common():
                print(f"  {count} x {text}", flush=True)
    return differ


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep CPUs busy with that many processes meanwhile."""
    spinning = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(processes)]
    for process in spinning:
        process.start()
    try:
        yield
    finally:
        for process in spinning:
            process.terminate()


def _spin() -> None:
    while True:
        sum(range(1000))


def options(parser: argparse.ArgumentParser) -> None:
    """The options of a suite that can be run many times."""
    own = parser.add_argument_group("the same many times, and whether the outcomes differ")
    own.add_argument("--times", type=int, default=0, metavar="N", help="run each so often")
    own.add_argument("--jobs", type=int, default=1, metavar="N", help="at the same time")
    own.add_argument("--load", type=int, default=0, metavar="N", help="processes beside them")
    own.add_argument("--kept", type=Path, metavar="FILE", help="the runs, read and added to")
    own.add_argument(
        "--seconds", type=float, default=float("inf"), metavar="S", help="begin none later"
    )


def many_times(given: argparse.Namespace, names: Sequence[str], once: Callable[[str], Any]) -> int:
    """Do what :func:`options` were given; 1 if any outcomes differ."""
    kept = Kept(given.kept, f"jobs {given.jobs}, load {given.load}")
    with busy(given.load):
        repeat(names, given.times, once, kept, jobs=given.jobs, seconds=given.seconds)
    return 1 if tell(names, given.times, kept) else 0
