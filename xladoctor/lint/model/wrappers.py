"""A program's own functions around torch_xla that nobody has read: ``tpu_utils.mark_step()``."""

from __future__ import annotations

import re

from xladoctor.lint.model import knowledge as know

#: Modules that say that they are about XLA devices: ``tpu_utils``, ``common.xla``.
_ABOUT_XLA = re.compile(r"(^|[._])(xla|tpu|neuron)s?([._]|$)", re.IGNORECASE)
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


def meant(dotted: str | None) -> str | None:
    """The function of torch_xla that an imported name of the program's own stands for, if any.

    Args:
        dotted: The name as the imports spell it in full ("tpu_utils.get_xla_device").
    """
    module, _, name = (dotted or "").rpartition(".")
    if name not in _MEANT or not module or dotted is None or dotted.startswith(_OTHERS):
        return None
    # ``get_xla_device`` and the like say it by themselves.
    return _MEANT[name] if "xla" in name or _ABOUT_XLA.search(module) else None
