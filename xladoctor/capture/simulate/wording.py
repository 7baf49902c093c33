"""Words that the messages of the simulation share."""

from __future__ import annotations


def names(numbers: list[int]) -> str:
    """Cores in words: "core 3", "cores 0, 2 and 5" or "cores 0 to 6"."""
    if len(numbers) == 1:
        return f"core {numbers[0]}"
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"cores {numbers[0]} to {numbers[-1]}"
    return f"cores {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
