"""Which optimizers are made of a model that another function moves afterwards."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from xladoctor.lint.rules._object_runs import Made, Moved, runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import libcst as cst

    from xladoctor.lint.model import CallSite, FileModel
    from xladoctor.lint.rules._object_runs import Event


def moved_later(model: FileModel) -> Iterator[tuple[CallSite, CallSite]]:
    """Optimizers and the move, in another function, after which they train nothing."""
    told: set[cst.Call] = set()
    for events in runs(model):
        for index, event in enumerate(events):
            if isinstance(event, Made) and event.call.node not in told:
                move = _after(events[:index], event, events[index + 1 :])
                if move is not None:
                    told.add(event.call.node)
                    yield event.call, move


def _after(before: Sequence[Event], made: Made, later: Sequence[Event]) -> CallSite | None:
    """The move that comes too late, if nothing makes another optimizer before the next step."""
    moved = {model for event in before if isinstance(event, Moved) for model in event.models}
    moved |= {one for one in made.models if one.given}
    for index, event in enumerate(later):
        if not isinstance(event, Moved):
            continue
        late = event.models.intersection(made.models) - moved
        if not late:
            continue
        again = (
            item
            for item in itertools.takewhile(lambda item: item is not None, later[index:])
            if isinstance(item, Made)
        )
        if event.call.function is made.function is not None or event.seen is made.call:
            return None  # all in one function, whose own file tells it
        if not event.always:
            continue  # another may come, whatever it decides
        if any(event.models.intersection(item.models) for item in again):
            return None
        return event.call
    return None
