"""What rules about SPMD share: whether a file runs that way, its meshes and marks."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import OnXla
from xladoctor.lint.rules._constants import constant
from xladoctor.lint.rules._sources import made_in, sources, the_call
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Guard

#: What tells one host of an SPMD program from another.
_HOST = frozenset({"torch_xla.runtime.process_index", "torch_xla.runtime.host_index"})

#: Calls around or instead of a range of device numbers.
_RANGES = frozenset({"numpy.arange", "torch.arange", "builtins.range"})
_AROUND = frozenset({"numpy.array", "numpy.asarray", "builtins.list", "builtins.tuple"})

_MODULES = (
    "torch_xla.distributed.spmd",
    "torch_xla.distributed.spmd.xla_sharding",
    "torch_xla.experimental.xla_sharding",  # until 2.4
)
#: Words of what chooses between one program and one process for each core.
_MODES = frozenset({"spmd", "fsdp", "shard", "sharded", "sharding", "mesh", "parallel", "mp"})
#: What starts a process for each core.
LAUNCHES = ("torch_xla.launch", "torch_xla.distributed.xla_multiprocessing.spawn")
_GROUP = "torch.distributed.init_process_group"
USE_SPMD = ("torch_xla.runtime.use_spmd", "torch_xla.experimental.xla_sharding.use_spmd")


def turned_on(model: FileModel) -> CallSite | None:
    """The call of ``use_spmd()`` that no condition decides about, or None.

    A program that asks (``if args.spmd: xr.use_spmd()``) has both modes, and each line its own; so
    has a file that one script imports with SPMD and another without.
    """
    return next((c for c in model.calls(*USE_SPMD) if not _is_chosen(model, c.node)), None)


def _is_chosen(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a condition decides, other than one that asks for XLA devices (``if HAS_XLA:``)."""
    return any(
        "__name__" not in model.tree.text(guard.test)
        and not (guard.runs is OnXla.YES and not _names_mode(model, guard))
        for guard in model.guards(node)
    )


def process_groups(model: FileModel) -> Iterator[CallSite]:
    """The calls that join torch_xla's process group, in which each core is a process."""
    for call in model.calls(_GROUP):
        backend = call.argument(0, "backend")
        if backend is not None and model.literal(backend) == "xla":
            yield call


def is_mode(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a condition that speaks of SPMD or its like decides about a node (``if args.spmd:``).

    The other branch may start a process for each core.
    """
    return any(_names_mode(model, guard) for guard in model.guards(node))


def _names_mode(model: FileModel, guard: Guard) -> bool:
    return not _MODES.isdisjoint(words(model.tree.text(guard.test)))


def starts_processes(model: FileModel) -> bool:
    """Whether the program starts a process for each core, or joins their group."""
    parts = (model, *model.linked)
    return any(any(part.calls(*LAUNCHES)) or any(process_groups(part)) for part in parts)


def conditional(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a condition decides about a node, other than ``if __name__ == "__main__"``."""
    return any("__name__" not in model.tree.text(guard.test) for guard in model.guards(node))


#: torch_xla's marks and its FSDPv2; the second is what people import it as.
MARK = tuple(f"{module}.mark_sharding" for module in _MODULES)
MESH = tuple(f"{module}.Mesh" for module in _MODULES)
FSDP = (
    "torch_xla.experimental.spmd_fully_sharded_data_parallel.SpmdFullyShardedDataParallel",
    "torch_xla.distributed.spmd.SpmdFullyShardedDataParallel",
)
SPEC = tuple(f"{module}.ShardingSpec" for module in _MODULES)


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
    names = None if given is None else constant(model, given)
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
        return None
    return tuple(names)


def asked_by(model: FileModel, guard: Guard) -> set[str]:
    """The functions that the condition of a guard calls, also through others, by full names."""
    return {call.name for call in model.reached(guard.test) if call.name is not None}


def of_one_host(asked: set[str]) -> bool:
    """Whether a condition that asks these is one of the host's number."""
    return bool(asked & _HOST)


@dataclasses.dataclass(frozen=True, slots=True)
class Count:
    """A number of devices as it is written: a number, times something that is not known.

    Attributes:
        factor: The number.
        unknown: The text of what it is multiplied with, "" for nothing.
    """

    factor: int
    unknown: str = ""


def count_of(model: FileModel, node: cst.BaseExpression) -> Count | None:
    """A number of devices, or of places along an axis; None for sums, quotients and the like."""
    number = model.literal(node)
    if isinstance(number, int) and not isinstance(number, bool):
        return Count(number)
    made = sources(model, node)
    last = made[0] if made is not None and len(made) == 1 else node
    number = model.literal(last)
    if isinstance(number, int) and not isinstance(number, bool):
        return Count(number)
    if isinstance(last, cst.Call) and not last.args:
        return Count(1, model.call(last).name or model.tree.text(last))
    return Count(1, node.value) if isinstance(node, cst.Name) and made is None else None


def shape_of(
    model: FileModel, mesh: CallSite
) -> tuple[cst.BaseExpression, tuple[Count | None, ...]] | None:
    """The shape of a mesh: where it is written, and the places along each axis."""
    given = mesh.argument(1, "mesh_shape")
    found = None if given is None or mesh.has_star else sources(model, given)
    if found is None or len(found) != 1 or not isinstance(found[0], cst.Tuple):
        return None
    elements = found[0].elements
    if any(isinstance(element, cst.StarredElement) for element in elements):
        return None
    return found[0], tuple(count_of(model, element.value) for element in elements)


def devices_of(model: FileModel, mesh: CallSite) -> Count | None:
    """How many device numbers a mesh is given (``np.arange(8)``, ``np.array(range(n))``)."""
    node = mesh.argument(0, "device_ids")
    for _ in range(3):
        call = None if node is None else the_call(model, node)
        if call is None:
            return None
        if len(call.positional) != 1 or call.keywords:
            return None
        if call.name in _RANGES:
            return count_of(model, call.positional[0])
        if call.name not in _AROUND:
            return None
        node = call.positional[0]
    return None


def product(counts: tuple[Count | None, ...]) -> Count | None:
    """The places of a mesh; None where one of its axes is not known, or two are not numbers."""
    factor, unknown = 1, ""
    for one in counts:
        if one is None or (one.unknown and unknown):
            return None
        factor *= one.factor
        unknown = unknown or one.unknown
    return Count(factor, unknown)
