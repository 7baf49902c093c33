"""``differences.toml``: operations whose results on XLA are not those of PyTorch."""

from __future__ import annotations

import dataclasses
import functools

from xladoctor import catalogue


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """One operation that gives something else.

    Attributes:
        code: An expression that shows it.
        cpu, xla: What it gives there, as text.
        why: What happens.
        write: What to write instead.
    """

    code: str
    cpu: str
    xla: str
    why: str
    write: str


@functools.cache
def differences() -> tuple[Difference, ...]:
    """All of the table, in its order."""
    fields = [field.name for field in dataclasses.fields(Difference)]
    return tuple(
        Difference(**{name: row[name] for name in fields})
        for row in catalogue.table("differences")["difference"]
    )
