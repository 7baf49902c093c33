"""Durations and shares as people say them: one spelling for messages and every format."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """``45 ms``, ``77.9 s``, ``12 min 5 s``, ``2 h 57 min``; ``<1 ms`` for what is less."""
    if seconds >= 7199.5:
        minutes = round(seconds / 60)
        return f"{minutes // 60} h {minutes % 60} min"
    if seconds >= 119.95:
        return f"{round(seconds) // 60} min {round(seconds) % 60} s"
    if seconds >= 0.9995:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.0005 or seconds == 0 else "<1 ms"


def percent(share: float) -> str:
    """``53%``; ``<1%`` for less, not for nothing."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"
