"""XLA422: ``MpDeviceLoader`` has none of the attributes of the loader it wraps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, OnXla
from xladoctor.lint.model.dotted import text_of
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import assigned
from xladoctor.lint.rules._loaders import DATA_LOADER
from xladoctor.lint.rules._sources import of_parameter
from xladoctor.lint.rules._tolerated import tolerated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Function, Guard, Problem

_MISSING = frozenset({"sampler", "batch_sampler", "dataset", "batch_size", "collate_fn"})
#: What Accelerate's wrapper has of it (``MpDeviceLoaderWrapper`` of accelerate 1.15).
_KEPT = frozenset({"batch_sampler"})
_LOADERS = frozenset({Kind.LOADER, Kind.DEVICE_LOADER})
_MAKERS = "torch_xla.distributed.parallel_loader."


@rule("XLA422")
def device_loader_attribute(model: FileModel) -> Iterator[Problem]:
    """Find attributes of the wrapped loader that are asked of the device loader."""
    for node in model.nodes(cst.Attribute):
        if node.attr.value not in _MISSING:
            continue
        made = (
            _maker(model, node.value)
            or _given(model, node.value)
            or _one_way(model, node)
            or _prepared(model, node)
        )
        if made is None:
            continue
        if isinstance(model.parent(node), cst.AssignTarget) or tolerated(model, node):
            continue
        if _is_refused(model, node):
            continue
        yield model.problem(
            node,
            f"a device loader has no attribute {node.attr.value}: this raises AttributeError",
            suggestion="keep the DataLoader or its sampler in a name of its own, and ask that",
            related=[model.place(made, "the device loader is made here")],
        )


def _is_refused(model: FileModel, node: cst.Attribute) -> bool:
    """``assert hasattr(loader, "dataset"), "needs a dataset"``: refused before it is asked."""
    written = model.tree.text(node.value).strip()
    place = model.tree.statement(node)
    lines = () if place is None else getattr(place.block, "body", ())[: place.index]
    tests = (
        part.test
        for line in lines
        for part in (line.body if isinstance(line, cst.SimpleStatementLine) else ())
        if isinstance(part, cst.Assert)
    )
    return any(
        isinstance(test, cst.Call)
        and model.name(test.func) == "builtins.hasattr"
        and len(test.args) == 2
        and text_of(test.args[1].value) == node.attr.value
        and model.tree.text(test.args[0].value).strip() == written
        for test in tests
    )


def _maker(model: FileModel, node: cst.BaseExpression) -> cst.Call | None:
    """The call of torch_xla that has certainly made what an expression holds."""
    value = model.value(node)
    made = value.origin
    if not value.kind.uploads or not value.certain:
        return None
    if not isinstance(made, cst.Call) or not (model.name(made.func) or "").startswith(_MAKERS):
        return None
    return made


def _prepared(model: FileModel, node: cst.Attribute) -> cst.Call | None:
    """``loader = accelerator.prepare(DataLoader(...))``, which Accelerate wraps on XLA devices."""
    value = model.value(node.value)
    made = value.origin if value.kind is Kind.DEVICE_LOADER and value.certain else None
    if value.roads or not isinstance(made, cst.Call) or node.attr.value in _KEPT:
        return None
    if "accelerate" not in model.frameworks or "lightning" in model.frameworks:
        return None
    return made if model.name(made.func) == DATA_LOADER else None


def _given(model: FileModel, node: cst.BaseExpression) -> cst.Call | None:
    """The same for a parameter, of which a script for other devices gives a plain loader."""
    if not isinstance(node, cst.Name) or assigned(model, node):
        return None
    makers = [_maker(model, given) for given in of_parameter(model, node) or ()]
    return makers[0] if makers and None not in makers else None


def _one_way(model: FileModel, node: cst.Attribute) -> cst.Call | None:
    """The same where a program wraps its plain loader for XLA devices alone.

    ``if on_tpu: loader = MpDeviceLoader(loader, device)``, and then ``loader.sampler`` of either,
    if nothing says that it is asked elsewhere.
    """
    ways = model.value(node.value).roads
    if not ways or not all(way.certain and way.kind in _LOADERS for way in ways):
        return None
    made = next((way.origin for way in ways if way.kind is Kind.DEVICE_LOADER), None)
    if not isinstance(made, cst.Call) or model.on_xla(node) is OnXla.NO:
        return None
    home = model.file_with(made)
    around = home.guards(made)
    if not (home.name(made.func) or "").startswith(_MAKERS) or not all(map(_is_device, around)):
        return None
    asked = {(home.tree.text(guard.test).strip(), guard.when) for guard in around}
    return made if _comes_there(model, node, asked) else None


def _is_device(guard: Guard) -> bool:
    """``if on_tpu:``, and no more than that."""
    return guard.runs is OnXla.YES and not isinstance(guard.test, cst.BooleanOperation)


def _comes_there(model: FileModel, node: cst.Attribute, asked: set[tuple[str, bool]]) -> bool:
    """Whether the wrapped loader comes to a node, by the conditions here and at the calls.

    Those of the kind of device, of the core, and those that the loader was wrapped under.
    """
    places: list[cst.CSTNode] = [node]
    function = model.function_of(node)
    if function is not None and _from_outside(model, node.value, function):
        places += [call.node for call in model.callers(function)]
    return all(
        guard.runs is OnXla.YES
        or guard.master is not None
        or (model.file_with(place).tree.text(guard.test).strip(), guard.when) in asked
        for place in places
        for guard in model.file_with(place).guards(place)
    )


def _from_outside(model: FileModel, held: cst.BaseExpression, function: Function) -> bool:
    """Whether a name holds what callers of its function give: itself, or in a list."""
    if not isinstance(held, cst.Name):
        return True
    ways = [*model.made_of(held), held]
    names = (part for way in ways if way is not None for part in model.within(way, cst.Name))
    return any(name.value in function.parameters for name in names)
