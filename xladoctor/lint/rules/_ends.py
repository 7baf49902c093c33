"""Calls of functions that nobody has read which may end the graph, and those that run it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel

#: Names of functions that may end the graph.
_ENDS = re.compile(r"sync|mark|barrier|step|flush|callback", re.IGNORECASE)
_READS = frozenset({"item", "cpu", "tolist", "numpy"})


def may_end(model: FileModel, call: CallSite) -> bool:
    """Whether nobody has read what is called, and its name sounds like the end of a graph."""
    return call.target is None and bool(_ENDS.search(_last(model, call))) and not _is_torchs(call)


def fetches(model: FileModel, call: CallSite, *, sure: bool = False) -> bool:
    """``x.cpu()`` and ``x.to("cpu")``, which run what they need.

    ``sure``: only of what is known to be on the device.
    """
    if call.method != "to" or call.receiver is None:
        return call.method in _READS
    if sure and not model.value(call.receiver).is_device_tensor:
        return False
    to = call.argument(0, "device")
    made = to.args[0].value if isinstance(to, cst.Call) and to.args else to  # torch.device("cpu")
    return made is not None and model.literal(made) == "cpu"


def _last(model: FileModel, call: CallSite) -> str:
    return (call.name or "").rpartition(".")[2] or call.method or model.tree.text(call.node.func)


def _is_torchs(call: CallSite) -> bool:
    """``optimizer.step()``, ``scheduler.step()`` and torch's own functions end nothing."""
    return call.method == "step" or (call.name or "").startswith(
        ("torch.", "torch_xla.", "builtins.")
    )
