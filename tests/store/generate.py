"""Large runs made from a small recorded one: marked as generated, wherever they are read.

Every host's part is the recorded run of 8 cores with its steps repeated, its times scaled by a
little noise, and its process renamed; of some hosts one core lags, or builds another graph.
"""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDED = Path(__file__).parents[2] / "sample_runs/ct_slices/recorded/treated"

#: Where hosts stop having a row for each step, as the recorder does.
_EACH = 1_000


@dataclasses.dataclass(frozen=True)
class Large:
    """What to generate.

    Attributes:
        hosts: Each with the cores of the recorded run (8).
        steps: Optimizer steps of each core.
        lagging: Hosts whose first core works so much longer in each step, in seconds.
        divergent: Hosts whose second core builds a graph that nobody else builds.
        seed: Of the noise.
    """

    hosts: int
    steps: int
    lagging: dict[int, float] = dataclasses.field(default_factory=dict)
    divergent: tuple[int, ...] = ()
    seed: int = 0


def write(large: Large, folder: Path) -> Path:
    """Write the run as the hosts would have, without a digest or columns."""
    source = next(RECORDED.glob("p*/events.jsonl"))
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    manifest = json.loads((RECORDED / "manifest.json").read_text())
    for host in range(large.hosts):
        part = folder / f"hosts/{host}/{int(manifest['started'] * 1000)}-{100 + host}"
        inside = part / f"p{100 + host}-1"
        inside.mkdir(parents=True)
        facts = {
            "schema_version": 1, "run": "generated", "host": str(host), "hosts": large.hosts,
            "local": None, "restart": None, "launcher": "generated", "hostname": f"node-{host}",
            "started": manifest["started"], "flushed": manifest["ended"], "ended": True,
            "xladoctor": manifest["xladoctor"],
        }  # fmt: skip
        (part / "part.json").write_text(json.dumps(facts))
        command = ["generated-from", "sample_runs/ct_slices/recorded/treated"]
        (part / "manifest.json").write_text(json.dumps(manifest | {"command": command}))
        with (inside / "events.00000.jsonl").open("w") as out:
            encode = json.JSONEncoder(separators=(",", ":")).encode
            for row in _host(large, host, rows):
                out.write(encode(row) + "\n")
    return folder


def _host(large: Large, host: int, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    noise = random.Random(large.seed * 100_003 + host)
    cores = sorted({row["core"] for row in rows if row["e"] == "core-start"})
    typical = {
        core: [row for row in rows if row["e"] == "step" and row["core"] == core
               and (row["first"] or 0) > 3]
        for core in cores
    }  # fmt: skip
    for row in rows:
        if row["e"] in ("process", "site", "core-start"):
            yield row
        elif row["e"] == "compilation":
            odd = host in large.divergent and row["core"] == cores[1] and row["trigger"] == "step"
            yield row | ({"graph": f"odd-{host}"} if odd else {})
    slowest = max(large.lagging.values(), default=0.0)
    clocks = {core: 1000.0 + noise.random() for core in cores}
    for first, last in _rows(large.steps):
        for core in cores:
            late = large.lagging.get(host, 0.0) if core == cores[0] else 0.0
            one = typical[core][first % len(typical[core])]
            yield _step(one, first, last, clocks, core, noise, late, slowest - late)
    for core in cores:
        yield {"e": "core-end", "core": core, "t": clocks[core], "steps": large.steps,
               "failed": False}  # fmt: skip
    yield {"e": "end", "t": max(clocks.values())}


def _step(
    one: dict[str, Any], first: int, last: int, clocks: dict[int, float], core: int,
    noise: random.Random, late: float, waits: float,
) -> dict[str, Any]:  # fmt: skip
    steps = last - first + 1
    factor = noise.uniform(0.95, 1.05)
    parts = {part: round(seconds * factor * steps, 7) for part, seconds in one["parts"].items()}
    parts["trace"] = round(parts["trace"] + late * steps, 7)
    # In the collectives of a step all wait for the last.
    parts["core_wait"] = round(parts["core_wait"] + waits * steps, 7)
    begin = clocks[core]
    clocks[core] = begin + sum(parts.values())
    row = one | {"first": first, "last": last, "t0": begin, "t1": clocks[core], "parts": parts}
    row["launches"] = [[site, what, count * steps, seconds * steps]
                       for site, what, count, seconds in one["launches"]]  # fmt: skip
    if steps > 1:
        each = (clocks[core] - begin) / steps
        row |= {"fastest": each * 0.9, "slowest": each * 1.2}
    return row


def _rows(steps: int) -> Iterator[tuple[int, int]]:
    """Which steps share a row: as the recorder has it, rows of 10 and 100 after the first 1,000."""
    first = 1
    while first <= steps:
        size = 1 if first <= _EACH else 10 ** (len(str((first - 1) // _EACH)))
        yield first, min(steps, first + size - 1)
        first += size
