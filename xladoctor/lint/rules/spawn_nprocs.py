"""XLA404: ``xmp.spawn(nprocs=8)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._constants import constant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

#: First release that raises; 2.0 to 2.5 logged a warning and ignored the number.
_RAISES = (2, 6)
_IGNORES = (2, 0)


@rule("XLA404")
def spawn_nprocs(model: FileModel) -> Iterator[Problem]:
    """Find a number of processes other than 1 given to ``xmp.spawn``."""
    if model.target < _IGNORES:
        return
    for call in model.calls("torch_xla.distributed.xla_multiprocessing.spawn"):
        given = call.argument(2, "nprocs")
        if given is None:
            continue
        value = constant(model, given)
        if not isinstance(value, int) or value == 1:
            continue
        what = (
            f"nprocs={value} raises ValueError: since torch_xla 2.6 spawn starts one process per "
            "device and accepts only nprocs=1 or None"
            if model.target >= _RAISES
            else f"nprocs={value} is ignored: with PJRT spawn starts one process per device"
        )
        argument = next(arg for arg in call.node.args if arg.value is given)
        last = call.node.args[-1] is argument
        fix = None
        if argument.keyword is not None or last:
            fix = model.fix("Remove nprocs", model.remove_argument(call.node, given))
        yield model.problem(
            given,
            what,
            suggestion="leave nprocs out, or use torch_xla.launch(fn, args=...); "
            "limit the cores with TPU_NUM_DEVICES",
            fix=fix,
        )
