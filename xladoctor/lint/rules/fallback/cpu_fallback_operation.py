"""XLA501: an operation that XLA does not lower, in the step loop."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint import family
from xladoctor.lint.model import Kind, LoopKind
from xladoctor.lint.model.knowledge import SEQUENTIAL
from xladoctor.lint.rewrites.formulas import equal_formula_fix
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import costly_loop, loop_place, often

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem, Value


#: The tables of what was measured on torch_xla, and on TorchTPU.
_XLA, _TPU = "ops", "ops_torch_tpu"


@functools.cache
def _by(what: str, table: str) -> dict[str, list[dict[str, Any]]]:
    """Rows of a table by the functions, methods or modules that they name."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in catalogue.rows(table, "call"):
        for name in row.get(what, ()):
            found.setdefault(name, []).append(row)
    return found


@functools.cache
def _fallbacks(measured: str) -> tuple[str, ...]:
    """The operations that ran on the CPU in a measured idiom."""
    for row in catalogue.table("ops")["measured"]:
        if row["name"] == measured:
            return tuple(row["fallback"])
    return ()


@rule("XLA501")
def cpu_fallback_operation(model: FileModel) -> Iterator[Problem]:
    """Find calls on device tensors of operations that were measured to run on the CPU."""
    if not model.is_xla:
        return
    table = _XLA if family.TORCH_XLA in model.members else _TPU
    told: set[cst.CSTNode] = set()
    for call in model.calls():
        row = (
            _function(model, call, table)
            or _method(model, call, table)
            or _module(model, call, table)
        )
        if row is None:
            continue
        loop = costly_loop(model, call.node)
        if loop is None or (row.get("backward") and loop.kind is not LoopKind.STEP):
            continue
        if table == _TPU:
            yield _without_kernel(model, call, row, loop)
            continue
        operations = sorted({op for name in row["measured"] for op in _fallbacks(name)})
        place = _given_by(model, call, row)
        if place in told:
            continue
        told.add(place)
        run = [] if place is call.node else [model.place(call.node, "the layer runs here")]
        yield model.problem(
            place,
            f"XLA does not lower this ({', '.join(operations)}): {often(loop)} the tensor goes "
            "to the "
            "host, is computed there and comes back, and the graph is cut",
            suggestion=row["instead"]
            or "do it in the Dataset, on the host, or outside of the step loop",
            related=[loop_place(model, loop), *run],
            fix=equal_formula_fix(model, call),
        )


def _given_by(model: FileModel, call: CallSite, row: dict[str, Any]) -> cst.CSTNode:
    """Where a person changes it: ``weight_norm(Conv1d(8, 8))`` of the layer that is called.

    Also of one of the layers of an ``nn.Sequential``, and ``weight_norm(layer)`` of a name.
    """
    called = model.value(call.node.func)
    layers = (called.items or ()) if called.type_name == SEQUENTIAL else (called,)
    made = {layer.origin for layer in layers if layer.origin is not None}
    for around in model.calls(*row.get("modules", ())):
        given = around.argument(0, "module")
        if given is not None and (given in made or model.value(given).origin in made):
            return around.node
    return call.node


def _without_kernel(model: FileModel, call: CallSite, row: dict[str, Any], loop: Loop) -> Problem:
    """An operation that TorchTPU does not have: it runs on the CPU only where that is asked."""
    missing = catalogue.table(_TPU)["missing"]
    operations = sorted({missing[name] for name in row["measured"]})
    return model.problem(
        call.node,
        f"TorchTPU has no kernel for this ({', '.join(operations)}): it raises RuntimeError, or, "
        f"where CPU fallbacks are enabled, the tensor goes to the host and back {often(loop)}",
        suggestion=row["instead"]
        or "do it in the Dataset, on the host, or outside of the step loop",
        related=[loop_place(model, loop)],
    )


def _function(model: FileModel, call: CallSite, table: str) -> dict[str, Any] | None:
    for row in _by("functions", table).get(call.name or "", ()):
        if _holds(model, call, row) and _first_on_device(model, call) and not _sized(call):
            return row
    return None


def _method(model: FileModel, call: CallSite, table: str) -> dict[str, Any] | None:
    if call.name is not None or call.receiver is None:
        return None
    for row in _by("methods", table).get(call.method or "", ()):
        if not _holds(model, call, row):
            continue
        if model.value(call.receiver).is_device_tensor and not _sized(call):
            return row
    return None


def _module(model: FileModel, call: CallSite, table: str) -> dict[str, Any] | None:
    """The call of a layer or loss that was made from a class of ``torch.nn``."""
    if call.name is not None or not _first_on_device(model, call):
        return None
    called = model.value(call.node.func)
    if called.type_name == SEQUENTIAL:
        rows = (_of_layer(model, layer, table) for layer in called.items or ())
        return next(filter(None, rows), None)
    return _of_layer(model, called, table)


def _of_layer(model: FileModel, called: Value, table: str) -> dict[str, Any] | None:
    maker = called.origin
    if not isinstance(maker, cst.Call):
        return None
    # ``weight_norm(nn.Linear(8, 8))`` is the layer still, and known by what it was given to.
    names = (called.type_name or "", model.name(maker.func) or "")
    rows = (row for name in names for row in _by("modules", table).get(name, ()))
    return next((row for row in rows if _holds(model, model.call(maker), row)), None)


def _first_on_device(model: FileModel, call: CallSite) -> bool:
    """Whether the call computes on the device: its first or second operand says so, or device=."""
    operands = [*call.positional[:2], *call.keywords.values()]
    return any(
        model.value(item).is_device_tensor
        or (model.value(item).kind is Kind.CONTAINER and model.value(item).holds_device_tensor)
        for item in operands
    ) or ("device" in call.keywords and model.value(call.node).is_device_tensor)


def _sized(call: CallSite) -> bool:
    """``bincount`` without ``minlength`` has a data-dependent size: XLA201 reports it."""
    name = call.method or (call.name or "").rpartition(".")[2]
    return name == "bincount" and "minlength" not in call.keywords


def _holds(model: FileModel, call: CallSite, row: dict[str, Any]) -> bool:
    """Whether the literal arguments under which the operation falls back are given."""
    wanted: dict[str, object] = row.get("when", {})
    for keyword, value in wanted.items():
        given = call.keywords.get(keyword)
        if given is None or not (model.literal(given) == value or _named(model, given, value)):
            return False
    over: dict[str, Any] = row.get("over", {})
    if over:
        asked = call.argument(over["position"], over["name"])
        number = model.literal(asked) if asked is not None else None
        if not isinstance(number, int | float) or number <= over["number"]:
            return False
    unless: dict[str, object] = row.get("unless", {})
    return not any(
        given is not None and (model.literal(given) == value or _named(model, given, value))
        for given, value in ((call.keywords.get(key), value) for key, value in unless.items())
    )


def _named(model: FileModel, given: cst.BaseExpression, value: object) -> bool:
    """``InterpolationMode.NEAREST``, ``torch.int32``: by the last part of its name."""
    name = model.name(given) or ""
    return isinstance(value, str) and "." in name and name.rpartition(".")[2] == value
