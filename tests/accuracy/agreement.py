"""How far two people who label the same files, each alone, mark the same problems.

    python -m tests.accuracy.agreement

``tests/accuracy/unseen/SET/second.jsonl`` holds the labels of a second person, who saw the files of
a set and none of its labels. Counted are problems of high and medium severity. The other has one
too where a problem of his stands on one of its lines, of the same family or of one that the same
codes may find; what he calls a trap, or leaves open, is none. Where two people agree on little, a
recall on the labels of one of them says little as well.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.accuracy import lint

SETS = Path(__file__).resolve().parent / "unseen"
_WEIGHTY = frozenset({"high", "medium"})


def main() -> None:
    """A line for each set that two people labelled, and one for all."""
    total = [0, 0, 0, 0]
    print(f"{'set':6}{'first':>12}{'second':>12}   (also marked by the other, of those marked)")
    for second in sorted(SETS.glob("*/second.jsonl")):
        first = read(second.with_name("labels.jsonl"))
        counts = [*shared(first, read(second)), *shared(read(second), first)]
        total = [a + b for a, b in zip(total, counts, strict=True)]
        print(_row(second.parent.name, counts))
    print(_row("all", total))


def read(file: Path) -> list[dict[str, Any]]:
    """The labels of a file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]


def shared(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> tuple[int, int]:
    """How many of our problems of weight they have too, and how many we have."""
    weighty = [one for one in ours if one["label"] == "problem" and one["sev"] in _WEIGHTY]
    problems = [one for one in theirs if one["label"] == "problem"]
    return sum(any(is_same(one, other) for other in problems) for one in weighty), len(weighty)


def is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two labels may be of one problem: a line and a family, or codes, in common."""
    if any(one[key] != other[key] for key in ("repo", "commit", "path")):
        return False
    families = one["family"], other["family"]
    codes = [set(lint.CODES.get(family, ())) for family in families]
    lines = [{label["line"], *label["alt_lines"]} for label in (one, other)]
    return bool((families[0] == families[1] or codes[0] & codes[1]) and lines[0] & lines[1])


def _row(name: str, counts: list[int]) -> str:
    first, second = (f"{a}/{b} ({a / b:.2f})" for a, b in (counts[:2], counts[2:]))
    return f"{name:6}{first:>14}{second:>14}"


if __name__ == "__main__":
    main()
