"""What people call the ways."""

from __future__ import annotations


def way_words(way: str) -> str:
    """As "cpu" is called "plain PyTorch", "xla" "one XLA core", "xla-8" "8 XLA cores"."""
    if way == "cpu":
        return "plain PyTorch"
    if way == "xla":
        return "one XLA core"
    return f"{way.rpartition('-')[2]} XLA cores"


def in_way(way: str) -> str:
    """Where a program runs: "in plain PyTorch", "on 8 XLA cores"."""
    return f"in {way_words(way)}" if way == "cpu" else f"on {way_words(way)}"
