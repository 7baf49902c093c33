"""Axes that specs name and no mesh of the program has, wherever the specs are chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.rules._sources import the_source
from xladoctor.lint.rules._spmd import MARK, MESH, SPEC, axes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

_DEPTH = 8
_GLOBAL = frozenset({"get_global_mesh"})


def foreign_axes(
    model: FileModel,
) -> Iterator[tuple[list[cst.Tuple], str, list[cst.Call]]]:
    """Specs of a program that makes its own meshes, with an axis that none of these has.

    ``def spec_for(name): ...`` and tables of specs. Only where the axes of all meshes are written
    down, and one of them comes to the mark.

    Yields:
        The specs of one function with the axis, the axis, and the calls that make the meshes.
    """
    meshes: dict[cst.Tuple, list[cst.Call]] = {}
    axes: dict[cst.Tuple, set[str]] = {}
    for part in (model, *model.linked):
        marks = part.calls(*MARK, *SPEC)
        known = _meshes(part) if marks else None
        if known is None:
            continue
        for call in marks:
            for spec in dict.fromkeys(_chosen_specs(part, call, [*known])):
                if model.is_here(spec):
                    meshes[spec] = [*known]
                    axes.setdefault(spec, set()).update(*known.values())
    found: dict[tuple[Function | None, str], list[cst.Tuple]] = {}
    for spec in sorted(axes, key=model.tree.order.__getitem__):
        missing = next((name for name in _names(model, spec) if name not in axes[spec]), None)
        if missing is not None:
            found.setdefault((model.function_of(spec), missing), []).append(spec)
    for (_, axis), specs in found.items():
        yield specs, axis, meshes[specs[0]]


def _meshes(model: FileModel) -> dict[cst.Call, tuple[str, ...]] | None:
    """The meshes of a file and of those around it, with their axes; None if any is not known."""
    found: dict[cst.Call, tuple[str, ...]] = {}
    for part in (model, *model.linked):
        for call in part.calls(*MESH):
            axes = axes_of(part, call.node)
            if axes is None:
                return None
            found[call.node] = axes
    return found or None


def _chosen_specs(model: FileModel, call: CallSite, made: list[cst.Call]) -> Iterator[cst.Tuple]:
    """The specs that a mark with a mesh of the program may be given."""
    place = 1 if call.name in MARK else 0
    mesh, spec = call.argument(place, "mesh"), call.argument(place + 1, "partition_spec")
    if call.has_star or mesh is None or spec is None:
        return
    if isinstance(the_source(model, spec), cst.Tuple) and axes_of(model, mesh) is not None:
        return  # one spec and one mesh
    if any(_is_mesh(model, one, made) for one in _ways(model, mesh)):
        yield from (one for one in _ways(model, spec) if isinstance(one, cst.Tuple))


def _is_mesh(model: FileModel, node: cst.BaseExpression, made: list[cst.Call]) -> bool:
    if node in made:
        return True
    return isinstance(node, cst.Call) and model.call(node).last in _GLOBAL


def _names(model: FileModel, spec: cst.Tuple) -> Iterator[str]:
    for element in spec.elements:
        if isinstance(element.value, cst.Tuple):
            yield from _names(model, element.value)
            continue
        name = model.literal(element.value)
        if isinstance(name, str):
            yield name


def _ways(
    model: FileModel,
    node: cst.BaseExpression,
    depth: int = _DEPTH,
    seen: set[cst.CSTNode] | None = None,
) -> Iterator[cst.BaseExpression]:
    """All that an expression may be, as far as it is to be seen: by names, calls and tables."""
    seen = set() if seen is None else seen
    if depth == 0 or node in seen:
        return
    seen.add(node)
    further: list[cst.BaseExpression] = []
    if isinstance(node, cst.Name | cst.Attribute):
        further += model.assigned_to(node)
        function = model.with_parameter(node) if isinstance(node, cst.Name) else None
        if function is not None and isinstance(node, cst.Name):
            given = (call.given_to(function, node.value) for call in model.callers(function))
            further += [one for one in given if one is not None]
    elif isinstance(node, cst.IfExp):
        further += [node.body, node.orelse]
    elif isinstance(node, cst.Subscript):
        further += _listed(model, node.value)
    elif isinstance(node, cst.Call):
        call = model.call(node)
        if isinstance(call.target, Function):
            further += returned(call.target)
        elif call.method == "get" and call.receiver is not None:
            further += [*_listed(model, call.receiver), *call.positional[1:]]
        else:
            yield node
    else:
        yield node
    for one in further:
        yield from _ways(model, one, depth - 1, seen)


def _listed(model: FileModel, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What stands in a dictionary that is looked up in."""
    made = [node] if isinstance(node, cst.Dict) else model.assigned_to(node)
    for one in made:
        if isinstance(one, cst.Dict):
            yield from (part.value for part in one.elements)
