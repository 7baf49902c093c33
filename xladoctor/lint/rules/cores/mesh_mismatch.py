"""XLA444: shardings that do not fit their mesh, which raises on the device's host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._sources import made_in
from xladoctor.lint.rules._spmd import FSDP, MARK, MESH, SPEC, axes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem
    from xladoctor.lint.model.file import Place

_FSDP_AXIS = "fsdp"


@rule("XLA444")
def mesh_mismatch(model: FileModel) -> Iterator[Problem]:
    """Find axes that a mesh does not have, axes used twice, names that do not fit its shape."""
    for call in model.calls(*MESH):
        yield from _mesh(model, call)
    for call in model.calls(*MARK, *SPEC):
        place = 1 if call.name in MARK else 0
        yield from _spec(model, call, place)
    for call in model.calls(*FSDP):
        axes = axes_of(model, call.keywords.get("mesh"))
        if axes is not None and _FSDP_AXIS not in axes:
            yield model.problem(
                call.node,
                f"FSDPv2 shards over an axis named '{_FSDP_AXIS}', which this mesh does not have "
                f"({_named(axes)}): it raises ValueError",
                suggestion=f"name the axis that parameters are sharded over '{_FSDP_AXIS}'",
                related=_made(model, call.keywords.get("mesh")),
            )


def _mesh(model: FileModel, call: CallSite) -> Iterator[Problem]:
    axes = axes_of(model, call.node)
    shape = call.argument(1, "mesh_shape")
    if axes is None or not isinstance(shape, cst.Tuple) or _starred(shape):
        return
    if len(axes) != len(shape.elements):
        yield model.problem(
            call.node,
            f"{len(axes)} axis names for a mesh of {len(shape.elements)} dimensions: it raises "
            "AssertionError",
            suggestion="one name for each dimension",
        )


def _spec(model: FileModel, call: CallSite, place: int) -> Iterator[Problem]:
    if call.has_star:
        return
    given = call.argument(place, "mesh")
    axes = axes_of(model, given)
    spec = call.argument(place + 1, "partition_spec")
    if spec is None or not isinstance(spec, cst.Tuple) or _starred(spec):
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
