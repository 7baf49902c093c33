"""Chrome's trace format as Perfetto's importer takes it, held sentence by sentence."""

from __future__ import annotations

import collections
import math
from typing import Any

#: Keys of an event by phase: those that it needs, and those that it may have.
NEEDED = {"M": {"name", "ph", "pid", "args"}, "X": {"name", "ph", "pid", "tid", "ts", "dur"},
          "i": {"name", "ph", "pid", "tid", "ts", "s"}}  # fmt: skip
KNOWN = {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args", "s"}
#: Names of metadata events to their one argument.
METADATA = {"process_name": ("name", str), "process_sort_index": ("sort_index", int),
            "thread_name": ("name", str)}  # fmt: skip


def slices(document: dict[str, Any]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """The complete events of each thread in the order of the file, once all rules hold."""
    assert isinstance(document["traceEvents"], list)
    assert document["displayTimeUnit"] in ("ms", "ns")
    threads = collections.defaultdict(list)
    for event in document["traceEvents"]:
        assert NEEDED[event["ph"]] <= set(event) <= KNOWN, event
        assert isinstance(event["name"], str)
        assert isinstance(event.get("args", {}), dict)
        for key in ("pid", "tid"):
            assert type(event.get(key, 0)) is int
        if event["ph"] == "M":
            key, kind = METADATA[event["name"]]
            assert isinstance(event["args"][key], kind)
            continue
        for key in ("ts", "dur"):
            assert math.isfinite(event.get(key, 0))
            assert event.get(key, 0) >= 0
        assert event.get("s", "p") in ("g", "p", "t")
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(event)
    for events in threads.values():
        nests(events)
    return dict(threads)


def nests(events: list[dict[str, Any]]) -> None:
    """A slice ends before the one that it began in; nothing overlaps half."""
    open_until: list[float] = []
    for event in sorted(events, key=lambda one: (one["ts"], -one["dur"])):
        begin, end = event["ts"], event["ts"] + event["dur"]
        while open_until and open_until[-1] <= begin + 1e-3:
            open_until.pop()
        assert not open_until or end <= open_until[-1] + 2e-3, event
        open_until.append(end)
