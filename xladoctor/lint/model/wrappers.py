"""A program's own functions around torch_xla that nobody has read: ``tpu_utils.mark_step()``."""

from __future__ import annotations

import re

from xladoctor.lint.model import knowledge as know

#: Modules that say that they are about XLA devices: ``tpu_utils``, ``common.xla``.
_ABOUT_XLA = re.compile(r"(^|[._])(xla|tpu|neuron)s?([._]|$)", re.IGNORECASE)
_OF_HPUS = re.compile(r"habana|hpu|gaudi|lazy", re.IGNORECASE)
#: Libraries whose modules of such names are something else.
_OTHERS = (
    "torch_xla.",
    "torch.",
    "tensorflow.",
    "jax.",
    "lightning.",
    "accelerate.",
    "transformers.",
)
#: What functions mean by their names in such modules.
_MEANT = {
    "mark_step": f"{know.XM}.mark_step",
    "xla_mark_step": f"{know.XM}.mark_step",
    "optimizer_step": f"{know.XM}.optimizer_step",
    "xla_optimizer_step": f"{know.XM}.optimizer_step",
    "xla_device": f"{know.XM}.xla_device",
    "get_xla_device": f"{know.XM}.xla_device",
    "get_tpu_device": f"{know.XM}.xla_device",
}
#: What wrappers of these do: they end the graph, or may do so.
_ENDS = frozenset({f"{know.XM}.mark_step", f"{know.XM}.optimizer_step"})
_SYNCS = frozenset({"sync", "step", "synchronize"})


def meant(dotted: str | None) -> str | None:
    """The function of torch_xla that an imported name of the program's own stands for, if any.

    Args:
        dotted: The name as the imports spell it in full ("tpu_utils.get_xla_device").
    """
    module, _, name = (dotted or "").rpartition(".")
    if name not in _MEANT or not module or dotted is None or dotted.startswith(_OTHERS):
        return None
    # ``get_xla_device`` and the like say it by themselves; HPUs have a ``mark_step``, too.
    says = "xla" in name or (name == "mark_step" and _OF_HPUS.search(module) is None)
    return _MEANT[name] if says or _ABOUT_XLA.search(module) else None


def may_end_graph(dotted: str | None) -> bool:
    """Whether an imported name of the program's own may stand for what ends the step's graph.

    Wrappers of ``xm.optimizer_step`` commonly end it too, and so do those that are called ``sync``.

    Args:
        dotted: The name as the imports spell it in full ("xla_compat.optimizer_step").
    """
    if meant(dotted) in _ENDS:
        return True
    module, _, name = (dotted or "").rpartition(".")
    ours = bool(module) and not (dotted or "").startswith(_OTHERS)
    return ours and name in _SYNCS and _ABOUT_XLA.search(module) is not None
