"""Makes the rows of a plan from what was traced and what the compiler said of it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from xladoctor.planning.row import Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.planning.choices import Choice
    from xladoctor.planning.traced import Traced
    from xladoctor.tpu.compiled import Compiled
    from xladoctor.tpu.targets import Target


def row_of(
    choice: Choice, traced: Traced, target: Target, answers: Sequence[Compiled] | str
) -> Row:
    """Put what is known of one command and one target together.

    Args:
        choice: The command.
        traced: Its step.
        target: The slice.
        answers: The compiler's, one for each of the step's graphs in their order; or why there are
            none.
    """
    row = Row(
        choice.command,
        dict(choice.values),
        target.name,
        memory_limit_bytes=target.memory_bytes,
        samples=traced.samples,
        graphs=len(traced.graphs),
        notes=traced.notes,
    )
    why = traced.error or (answers if isinstance(answers, str) else None)
    if why is not None or isinstance(answers, str):
        return dataclasses.replace(row, error=why)
    refusals = [answer.refusal for answer in answers if answer.refusal is not None]
    other = next((one for one in refusals if one.kind != "memory"), None)
    if other is not None:
        return dataclasses.replace(row, error=other.message.rstrip("."))
    needed = [one.memory.total for one in answers if one.memory is not None]
    needed += [one.used for one in refusals if one.used is not None]
    row = dataclasses.replace(
        row,
        fits=all(answer.fits(target.memory_bytes) for answer in answers),
        memory_bytes=max(needed, default=None),
        memory_limit_bytes=next(
            (one.limit for one in refusals if one.limit is not None), target.memory_bytes
        ),
    )
    if not row.fits:
        return row
    return _with_time(row, target, answers)


def _with_time(row: Row, target: Target, answers: Sequence[Compiled]) -> Row:
    """The times; all graphs of the step have been compiled."""
    seconds = sum(answer.cycles or 0 for answer in answers) / target.clock_hz
    counted = [answer.flops for answer in answers]
    flops = sum(one for one in counted if one is not None) if None not in counted else None
    share = flops / (seconds * target.peak_flops) if flops is not None and seconds else None
    return dataclasses.replace(row, device_seconds=seconds or None, matrix_unit_share=share)
