"""One row of a plan."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One command on one target; None where nothing could be measured.

    Attributes:
        command: Its words.
        values: What was chosen for it.
        target: Name of the slice.
        fits: Whether a core's memory is enough.
        memory_bytes: What the step needs of it: of several graphs the one that needs most.
        memory_limit_bytes: What there is.
        device_seconds: Estimated time of one step on the device.
        samples: What one step of one core learns from.
        matrix_unit_share: Floating point operations over what the matrix units can do in that time.
        graphs: How many graphs the step launches.
        notes: What has to be known of the figures.
        error: Why there are none, as one sentence without a full stop.
    """

    command: tuple[str, ...]
    values: dict[str, str]
    target: str
    fits: bool | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    device_seconds: float | None = None
    samples: int | None = None
    matrix_unit_share: float | None = None
    graphs: int = 0
    notes: tuple[str, ...] = ()
    error: str | None = None

    @property
    def samples_per_second(self) -> float | None:
        """Of one core, if the host keeps up."""
        if self.samples is None or not self.device_seconds:
            return None
        return self.samples / self.device_seconds
