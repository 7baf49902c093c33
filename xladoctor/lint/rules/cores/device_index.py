"""XLA416: a device by its number, which each process counts from 0 for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, OnXla
from xladoctor.lint.model.dotted import string, text_of
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._lightning import devices_of_trainers
from xladoctor.lint.rules._settled import settled
from xladoctor.lint.rules._sources import sources
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Problem

_XLA = "xla:"
_FILLED = frozenset({"xla:%d", "xla:%s", "xla:%i", "xla:{}", "xla:{0}"})

#: What takes devices for its batches: which argument that is.
_DEVICES = {
    "ParallelLoader": (1, "devices"),
    "MpDeviceLoader": (1, "device"),
    "per_device_loader": (0, "device"),
}

#: Words of the number that a core has.
_NUMBERS = frozenset({"rank", "ordinal"})


@rule("XLA416")
def device_index(model: FileModel) -> Iterator[Problem]:
    """Find ``xm.xla_device(1)``, ``torch_xla.device(fold + 1)`` and ``"xla:1"``."""
    if not model.is_xla or model.target < (2, 0):
        return
    for call in model.calls("torch_xla.core.xla_model.xla_device", "torch_xla.device"):
        index = call.argument(0, "index" if call.name == "torch_xla.device" else "n")
        said = _other(model, index) if index is not None else None
        if said is not None:
            yield _problem(model, call.node, said)
    for node in model.nodes(cst.FormattedString, cst.BinaryOperation, cst.Call):
        index = _numbered(model, node)
        if index is not None and (said := _other(model, index)) is not None:
            yield _problem(model, node, said)
    yield from _no_devices(model)
    for node in model.tree.strings:
        text = string(node)
        if not isinstance(text, str) or not text.startswith(_XLA):
            continue
        number = int(text[4:]) if text[4:].isdecimal() else 0
        used = isinstance(model.parent(node), cst.Arg | cst.AssignTarget | cst.Assign)
        if number < 1 or not used or model.on_xla(node) is not OnXla.YES:
            continue
        if "lightning" not in model.frameworks or node not in devices_of_trainers(model):
            yield _problem(model, node, f"device {number} does")


def _no_devices(model: FileModel) -> Iterator[Problem]:
    """What is given as a device and is none.

    ``ParallelLoader(rows, [f"{device}/{rank}"])``: a text with more in it; ``[rank]``: a number.
    """
    told: set[cst.CSTNode] = set()
    for call in model.calls():
        for node in _devices_given(call):
            made = sources(model, node) if isinstance(node, cst.Name | cst.Attribute) else [node]
            if call.last in _DEVICES and _is_number(model, node):
                yield model.problem(
                    node,
                    "a number is no XLA device: torch.device takes it for one of CUDA, and the "
                    "first batch raises RuntimeError (measured on 2.9)",
                    suggestion="torch_xla.device(), which is this core's own",
                )
                continue
            if call.last in _DEVICES and model.value(node).is_loader:
                yield model.problem(
                    node,
                    "a loader is given where the device belongs: torch.device raises TypeError "
                    "(measured on 2.9)",
                    suggestion="torch_xla.device(), which is this core's own",
                )
                continue
            given = isinstance(node, cst.Name) and model.is_parameter(node)  # one caller's alone
            others = [one for one in made or () if not given and _is_other(model, one)]
            if call.last in _DEVICES and others and others == made and others[0] not in told:
                told.add(others[0])
                yield _of_other(model, node, others[0])
            text = next((one for one in made or () if _is_longer(model, one)), None)
            if text is None or text in told:
                continue
            told.add(text)
            yield model.problem(
                node,
                "the text that is given as the device has more in it than a device: "
                "torch.device raises RuntimeError",
                suggestion="give the device itself",
                related=[model.place(text, "the text is made here")],
            )


def _of_other(model: FileModel, given: cst.BaseExpression, made: cst.BaseExpression) -> Problem:
    """``device = torch.device("cuda" if ... else "cpu")`` that a device loader is given."""
    here = model.is_here(made)
    return model.problem(
        made if here else given,
        "a device loader is given this device, which is no XLA device: its first batch raises "
        "RuntimeError, and what is moved to it trains on a GPU or the CPU",
        suggestion="device = torch_xla.device()",
        related=[model.place(given if here else made, "given here" if here else "made here")],
    )


def _is_other(model: FileModel, node: cst.BaseExpression) -> bool:
    """``torch.device("cuda" if torch.cuda.is_available() else "cpu")``: a GPU or the CPU."""
    call = model.file_with(node).call(node) if isinstance(node, cst.Call) else None
    kind = call.argument(0, "type") if call is not None and call.name == "torch.device" else None
    names = settled(model.file_with(node), kind) if kind is not None else ()
    return bool(names) and all(
        isinstance(name, str) and name.partition(":")[0] in {"cuda", "cpu"} for name in names
    )


def _devices_given(call: CallSite) -> Sequence[cst.BaseExpression]:
    """What a call takes for a device, or for several."""
    if call.last not in _DEVICES and call.method != "to" and call.name != "torch.device":
        return ()
    given = call.argument(*_DEVICES.get(call.last, (0, "device")))
    if isinstance(given, cst.List | cst.Tuple):
        return [one.value for one in given.elements]
    return () if given is None else [given]


def _is_number(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether a device is given by its number, or by that of the core."""
    number = model.literal(node)
    if isinstance(number, int) and not isinstance(number, bool):
        return True
    if model.value(node).kind is Kind.CORE_NUMBER:
        return True
    # A parameter that nobody gives anything is taken for what it is given for, so the name counts.
    if not isinstance(node, cst.Name) or _NUMBERS.isdisjoint(words(node.value)):
        return False
    return all(one.kind == "param" for one in model.bindings(node.value, node))


def _is_longer(model: FileModel, node: cst.BaseExpression | None) -> bool:
    """``f"{device}/{rank}"`` and ``"{}/{}".format(device, rank)`` of an XLA device."""
    if isinstance(node, cst.FormattedString) and len(node.parts) > 1:
        first, behind = node.parts[:2]
        device = first.expression if isinstance(first, cst.FormattedStringExpression) else None
        more = behind.value if isinstance(behind, cst.FormattedStringText) else ""
    elif isinstance(node, cst.Call) and node.args and model.call(node).method == "format":
        device, text = node.args[0].value, text_of(model.call(node).receiver) or ""
        more = text.removeprefix("{}").removeprefix("{0}") if text.startswith("{") else ""
    else:
        return False
    if device is None or not more.startswith("/"):
        return False
    held = model.value(device)
    return held.kind is Kind.DEVICE and model.on_xla(device) is not OnXla.NO


def _numbered(model: FileModel, node: cst.CSTNode) -> cst.BaseExpression | None:
    """The number in ``f"xla:{rank}"``, ``"xla:" + str(rank)`` or ``torch.device("xla", rank)``."""
    if isinstance(node, cst.FormattedString):
        parts = node.parts
        if len(parts) == 2 and isinstance(parts[1], cst.FormattedStringExpression):
            first = parts[0]
            said = isinstance(first, cst.FormattedStringText) and first.value == _XLA
            return parts[1].expression if said else None
    elif isinstance(node, cst.BinaryOperation):
        text = text_of(node.left)
        if text == _XLA and isinstance(node.operator, cst.Add) and isinstance(node.right, cst.Call):
            return model.call(node.right).argument(0)
        return node.right if text in _FILLED and isinstance(node.operator, cst.Modulo) else None
    elif isinstance(node, cst.Call):
        call = model.call(node)
        if call.name == "torch.device" and len(call.positional) == 2:
            return call.positional[1] if text_of(call.positional[0]) == "xla" else None
        if call.method == "format" and call.receiver is not None and len(call.positional) == 1:
            return call.positional[0] if text_of(call.receiver) in _FILLED else None
    return None


def _other(model: FileModel, index: cst.BaseExpression) -> str | None:
    """What makes a number that of another device than the first: a literal, or the core's own.

    Through names that are bound once.
    """
    number = model.literal(index)
    if isinstance(number, int) and not isinstance(number, bool):
        return f"device {number} does" if number >= 1 else None
    found = (sources(model, index) if isinstance(index, cst.Name) else None) or [index]
    made = found[0] if len(found) == 1 else index
    return _from_one(model, made) or _own(model, index)


def _from_one(model: FileModel, index: cst.BaseExpression) -> str | None:
    """``fold + 1``: the old runtime counted from 1."""
    if not isinstance(index, cst.BinaryOperation) or not isinstance(index.operator, cst.Add):
        return None
    added = [model.literal(part) for part in (index.left, index.right)]
    if not any(isinstance(x, int) and not isinstance(x, bool) and x >= 1 for x in added):
        return None
    return f"numbers from 1 on ({model.tree.text(index).strip()}) do"


def _own(model: FileModel, index: cst.BaseExpression) -> str | None:
    """``torch_xla.device(rank)`` on every core: a process has its own device alone."""
    if model.value(index).kind is not Kind.CORE_NUMBER or model.on_every_core(index) is None:
        return None
    return f"device {model.tree.text(index).strip()} does, but on the first core,"


def _problem(model: FileModel, node: cst.CSTNode, said: str) -> Problem:
    return model.problem(
        node,
        f"{said} not exist in a process with one device, which is what torch_xla "
        "gives each core: this raises IndexError",
        suggestion="torch_xla.device(), which is this core's own",
    )
