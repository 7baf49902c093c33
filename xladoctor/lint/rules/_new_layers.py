"""Layers that a step makes anew: ``nn.Linear(x.shape[1], 128).to(x.device)``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import LoopKind, OnXla
from xladoctor.lint.rules._moves import moves
from xladoctor.lint.rules._reads import costly_loop, loop_place, often

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

#: Layers of torch that have weights.
_WITH_WEIGHTS = re.compile(
    r"^torch\.nn\.(modules\.\w+\.)?(Linear|Bilinear|Conv\w+|Embedding\w*|LSTM|GRU|RNN"
    r"|MultiheadAttention|Transformer\w*)$"
)


def new_layers(model: FileModel) -> Iterator[Problem]:
    """Layers that are made and moved on each step, and on no condition."""
    for moved in moves(model):
        made = moved.source
        if not isinstance(made, cst.Call) or not _WITH_WEIGHTS.match(model.name(made.func) or ""):
            continue
        loop = costly_loop(model, made)
        if loop is None or loop.kind is not LoopKind.STEP:
            continue
        if any(guard.runs is not OnXla.YES for guard in model.guards(made)):
            continue  # ``if self.head is None:`` is so once
        yield model.problem(
            moved.call.node,
            f"a layer is made anew {often(loop)}: its weights are drawn on the CPU and uploaded "
            "each time, and no step ever trains them",
            suggestion="make it once, in the model's constructor",
            related=[loop_place(model, loop)],
        )
