"""XLA444: shardings that do not fit their mesh, which raises on the device's host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._axes import foreign_axes
from xladoctor.lint.rules._sources import made_in, the_source
from xladoctor.lint.rules._spmd import (
    FSDP,
    MARK,
    MESH,
    SPEC,
    axes_of,
    devices_of,
    product,
    shape_of,
)
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem
    from xladoctor.lint.model.problems import Place
    from xladoctor.lint.rules._spmd import Count

_FSDP_AXIS = "fsdp"
_GLOBAL = (
    "torch_xla.distributed.spmd.set_global_mesh",
    "torch_xla.distributed.spmd.xla_sharding.set_global_mesh",
    "torch_xla.experimental.xla_sharding.set_global_mesh",
)

#: Words of functions that nobody has read and that may set it.
_MAY_SET = frozenset({"mesh", "setup", "init", "initialize", "spmd", "shard", "sharding"})


@rule("XLA444")
def mesh_mismatch(model: FileModel) -> Iterator[Problem]:
    """Find axes that a mesh does not have or that are used twice, and shapes that do not fit."""
    for call in model.calls(*MESH):
        yield from _mesh(model, call)
    for call in model.calls(*MARK, *SPEC):
        place = 1 if call.name in MARK else 0
        yield from _spec(model, call, place)
    for specs, axis, meshes in foreign_axes(model):
        yield model.problem(
            specs[0],
            f"no mesh of this program has an axis '{axis}': marking with it raises ValueError",
            suggestion="name the axes as the mesh does",
            related=[
                *(model.place(one, "named here, too") for one in specs[1:]),
                *(model.place(one, "a mesh is made here") for one in meshes if model.is_here(one)),
            ],
        )
    for call in model.calls(*FSDP):
        mesh = call.argument(1, "mesh") or _of_all(model)
        if mesh is None and not call.has_star and _has_no_mesh(model):
            yield model.problem(
                call.node,
                "FSDPv2 gets no mesh here, and nothing sets one for all: it raises ValueError",
                suggestion="xs.set_global_mesh(mesh) before it, or give it mesh=mesh",
            )
        axes = axes_of(model, mesh)
        if axes is not None and _FSDP_AXIS not in axes:
            yield model.problem(
                call.node,
                f"FSDPv2 shards over an axis named '{_FSDP_AXIS}', which this mesh does not have "
                f"({_named(axes)}): it raises ValueError",
                suggestion=f"name the axis that parameters are sharded over '{_FSDP_AXIS}'",
                related=_made(model, mesh),
            )


def _of_all(model: FileModel) -> cst.BaseExpression | None:
    """The mesh that ``xs.set_global_mesh(mesh)`` makes the one of all that name none."""
    given = [call.argument(0, "mesh") for call in model.calls(*_GLOBAL)]
    return given[0] if len(given) == 1 else None


def _has_no_mesh(model: FileModel) -> bool:
    """Whether nothing in the program may set a mesh for all, as far as it was read.

    A function of another file may, if its name speaks of meshes or of setting something up.
    """
    calls = [call for part in (model, *model.linked) for call in part.calls()]
    return not any(
        call.name in _GLOBAL
        or (
            call.target is None
            and not (call.name or "").startswith(("torch.", "torch_xla.", "builtins."))
            and words(call.last) & _MAY_SET
        )
        for call in calls
    )


def _mesh(model: FileModel, call: CallSite) -> Iterator[Problem]:
    axes = axes_of(model, call.node)
    shape = shape_of(model, call)
    if shape is None:
        return
    written, counts = shape
    if axes is not None and len(axes) != len(counts):
        yield model.problem(
            call.node,
            f"{len(axes)} axis names for a mesh of {len(counts)} dimensions: it raises "
            "AssertionError",
            suggestion="one name for each dimension",
        )
        return
    places, devices = product(counts), devices_of(model, call)
    if places is None or devices is None or places == devices:
        return
    if places.unknown != devices.unknown:
        return  # the machine decides
    yield model.problem(
        written,
        f"the mesh {model.tree.text(written).strip()} has {_times(places)} places for "
        f"{_times(devices)} devices: it raises AssertionError",
        suggestion="sizes whose product is the number of devices, one of them worked out: "
        "(count // 4, 4) with count = xr.global_runtime_device_count()",
        related=[]
        if written is call.argument(1, "mesh_shape")
        else [model.place(call.node, "the mesh is made here")],
    )


def _times(count: Count) -> str:
    if not count.unknown:
        return str(count.factor)
    name = count.unknown.rpartition(".")[2]
    return name if count.factor == 1 else f"{count.factor} x {name}"


def _spec(model: FileModel, call: CallSite, place: int) -> Iterator[Problem]:
    if call.has_star:
        return
    given = call.argument(place, "mesh")
    axes = axes_of(model, given)
    spec = call.argument(place + 1, "partition_spec")
    spec = the_source(model, spec) if spec is not None else None
    if not isinstance(spec, cst.Tuple) or _starred(spec):
        return
    used = [name for name in map(model.literal, _leaves(spec)) if isinstance(name, str)]
    missing = next((name for name in used if axes is not None and name not in axes), None)
    if missing is not None and axes is not None:
        yield model.problem(
            spec,
            f"the mesh has no axis '{missing}' ({_named(axes)}): it raises ValueError",
            suggestion=f"use one of {_named(axes)}",
            related=_made(model, given),
        )
        return
    twice = next((name for name in used if used.count(name) > 1), None)
    if twice is not None:
        yield model.problem(
            spec,
            f"the axis '{twice}' is used for two dimensions: it raises AssertionError",
            suggestion="an axis shards one dimension; None for the others",
        )


def _leaves(spec: cst.Tuple) -> Iterator[cst.BaseExpression]:
    for element in spec.elements:
        if isinstance(element.value, cst.Tuple):
            yield from _leaves(element.value)
        else:
            yield element.value


def _starred(node: cst.Tuple) -> bool:
    return any(isinstance(element, cst.StarredElement) for element in node.elements)


def _named(axes: tuple[str, ...]) -> str:
    return ", ".join(f"'{axis}'" for axis in axes)


def _made(model: FileModel, node: cst.BaseExpression | None) -> list[Place]:
    mesh = None if node is None else made_in(model, node, MESH)
    return [] if mesh is None else [model.place(mesh.node, "the mesh is made here")]
