"""Durations, shares and sizes as people say them: one spelling for messages and every format."""

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


def size(count: float) -> str:
    """Bytes: ``512 B``, ``9.5 MiB``, ``15.5 GiB``, in powers of 1024 and named so.

    As libtpu ("of 15.48G hbm") and torch_xla ("4.66GB") count them, and as ``--max-hbm`` reads
    them: in "GB" of 1000 a limit that is typed from a report would be another one.
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def device_time(seconds: float) -> str:
    """``1.23 s``, ``1.2 ms``, ``427 us``: steps and operations of a device are short."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 0.9995e-3 else f"{seconds * 1e6:.3g} us"
