"""Flags by which a program tells the Trainer of transformers to stop, on one core alone.

Each process of the Trainer looks at its own ``TrainerControl`` (transformers 5.23, trainer.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import is_name, last_name
from xladoctor.lint.model.frameworks import CALLBACKS, TRAINERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Guard

_FLAGS = frozenset({"should_training_stop", "should_epoch_stop"})
_OF_TRAINER = TRAINERS | CALLBACKS


def stops_alone(model: FileModel) -> Iterator[tuple[cst.Assign, Guard]]:
    """``if loss > 10: control.should_training_stop = True`` of a loss of this core, and the test.

    What the Trainer gives its callbacks (``metrics``, ``logs``, ``state``) is gathered before.
    """
    for node in model.nodes(cst.Assign):
        assert isinstance(node, cst.Assign)
        target = node.targets[0].target
        flag = last_name(target)
        if flag not in _FLAGS or not is_name(node.value, "True"):
            continue
        function = model.function_of(node)
        owner = function.owner if function is not None else None
        if owner is None or _OF_TRAINER.isdisjoint(model.library_bases(owner)):
            continue
        guard = model.core_guard(node)
        if guard is not None:
            yield node, guard
