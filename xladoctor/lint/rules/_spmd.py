"""What rules about SPMD share: whether a file runs that way, its meshes and marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules._sources import made_in

if TYPE_CHECKING:
    import libcst as cst

    from xladoctor.lint.model import CallSite, FileModel

_SHARDING = "torch_xla.distributed.spmd.xla_sharding"
USE_SPMD = ("torch_xla.runtime.use_spmd", "torch_xla.experimental.xla_sharding.use_spmd")


def turned_on(model: FileModel) -> CallSite | None:
    """The call of ``use_spmd()`` that no condition decides about, or None.

    A program that asks (``if args.spmd: xr.use_spmd()``) has both modes, and each line its own; so
    has a file that one script imports with SPMD and another without.
    """
    return next((c for c in model.calls(*USE_SPMD) if not conditional(model, c.node)), None)


def conditional(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a condition decides about a node, other than ``if __name__ == "__main__"``."""
    return any("__name__" not in model.tree.text(guard.test) for guard in model.guards(node))


#: torch_xla's marks and its FSDPv2; the second is what people import it as.
MARK = ("torch_xla.distributed.spmd.mark_sharding", f"{_SHARDING}.mark_sharding")
MESH = ("torch_xla.distributed.spmd.Mesh", f"{_SHARDING}.Mesh")
FSDP = (
    "torch_xla.experimental.spmd_fully_sharded_data_parallel.SpmdFullyShardedDataParallel",
    "torch_xla.distributed.spmd.SpmdFullyShardedDataParallel",
)
SPEC = ("torch_xla.distributed.spmd.ShardingSpec", f"{_SHARDING}.ShardingSpec")


def axes_of(model: FileModel, node: cst.BaseExpression | None) -> tuple[str, ...] | None:
    """The names of a mesh's axes, if they are written down in the program.

    Args:
        model: The file.
        node: What is given as the mesh: the call of ``Mesh``, or what holds one.

    Returns:
        None where they are not known.
    """
    mesh = None if node is None else made_in(model, node, MESH)
    if mesh is None or mesh.has_star:
        return None
    given = mesh.argument(2, "axis_names")
    names = None if given is None else model.literal(given)
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
        return None
    return tuple(names)
