"""XLA417: ``xm.mesh_reduce`` cannot unpickle NumPy values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import made_by
from xladoctor.lint.rules._reads import snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_MESH_REDUCE = "torch_xla.core.xla_model.mesh_reduce"
#: The release whose ``torch.load`` reads weights only, unless asked otherwise.
_SINCE = (2, 6)
_SCALARS = frozenset(
    f"numpy.{name}" for name in ("mean", "sum", "max", "min", "median", "std", "var", "float64")
)


@rule("XLA417")
def mesh_reduce_payload(model: FileModel) -> Iterator[Problem]:
    """Find NumPy scalars and arrays that are given to ``xm.mesh_reduce``."""
    if model.target < _SINCE:
        return
    for call in model.calls(_MESH_REDUCE):
        data = call.argument(1, "data")
        if data is None:
            continue
        made = made_by(model, data)
        scalar = made is not None and made.name in _SCALARS and len(made.node.args) == 1
        array = made is not None and made.method == "numpy" and model.value(data).kind is Kind.ARRAY
        if not scalar and not array:
            continue
        fix = None
        if scalar and isinstance(data, cst.Name | cst.Call):
            written = f"float({model.tree.text(data).strip()})"
            fix = model.fix("Make it a Python number", model.replace(data, written))
        yield model.problem(
            data,
            f"{snippet(model, data)} is a NumPy value: xm.mesh_reduce reads it back with "
            "torch.load, which refuses all but weights since torch 2.6 (UnpicklingError)",
            suggestion="give float(value), or torch.from_numpy(array)",
            fix=fix,
        )
