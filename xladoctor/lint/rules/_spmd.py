"""What rules about SPMD share: whether a file certainly runs that way."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import libcst as cst

    from xladoctor.lint.model import CallSite, FileModel

USE_SPMD = ("torch_xla.runtime.use_spmd", "torch_xla.experimental.xla_sharding.use_spmd")


def turned_on(model: FileModel) -> CallSite | None:
    """The call of ``use_spmd()`` that no condition decides about, or None.

    A program that asks (``if args.spmd: xr.use_spmd()``) has both modes, and each line its own.
    """
    return next((c for c in model.calls(*USE_SPMD) if not conditional(model, c.node)), None)


def conditional(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a condition decides about a node, other than ``if __name__ == "__main__"``."""
    return any("__name__" not in model.tree.text(guard.test) for guard in model.guards(node))
