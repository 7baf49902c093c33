"""Whether samples, or their numbers, may be those of one core: a part that others do not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, Function, Kind, walk
from xladoctor.lint.rules._cores import differs, tells_core
from xladoctor.lint.rules._shares import SHARES, says_any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel

_SHARDING_WORDS = ("shard", "split_dataset_by_node", "split_by_node", "distributed", "subset")
#: Words in a class that streams: of what shares samples out, or draws them.
_SHARES = (SHARES | {"randn", "env"}) - {"shuffle", "shuffled", "seed", "generator"}
#: Parameters that may be the number of a core, if somebody gives them to such a class.
_NUMBERS = frozenset({"index", "idx"})
#: What shows something, and what names the device that a process has: neither shares data out.
_SHOWS = frozenset({"builtins.print", "torch_xla.core.xla_model.master_print"})
_LOGS = frozenset({"debug", "info", "warning"})
_DEVICES = frozenset({"torch_xla.core.xla_model.xla_device", "torch_xla.device"})
#: What makes tensors of samples.
_AS_TENSORS = frozenset({"torch.from_numpy", "torch.tensor", "torch.as_tensor"})
#: How many assignments before a loader its samples may be shared out.
_DEEP = 3


def streams(model: FileModel, cls: Class) -> bool:
    """Whether a class of the program is an ``IterableDataset``."""
    return any((base or "").endswith("IterableDataset") for base in model.library_bases(cls))


def may_be_a_part(model: FileModel, dataset: cst.BaseExpression) -> bool:
    """Whether samples, or their numbers, may be those of this core."""
    for node in _made_of(model, dataset):
        if differs(model, node):
            return True
        if any(word in model.tree.text(node).lower() for word in _SHARDING_WORDS):
            return True
        if isinstance(node, cst.BaseExpression) and _shards_itself(model, node):
            return True
        if _made_of_a_part(model, node):
            return True
    return False


def _made_of(model: FileModel, dataset: cst.BaseExpression) -> Iterator[cst.CSTNode]:
    """What a dataset is, and what it is made of: ``Rows(lines)`` of ``lines = lines[rank::n]``."""
    seen: dict[cst.CSTNode, None] = {dataset: None}
    last: list[cst.CSTNode] = [dataset]
    for _ in range(_DEEP):
        parts = [part for node in last for part in walk(node)]
        names = [part for part in parts if isinstance(part, cst.Name | cst.Attribute)]
        made: list[cst.CSTNode] = [one for name in names for one in model.assigned_to(name)]
        made += [one for node in last for one in model.made_of(node) if one is not None]
        made += [
            one for node in last for name in _taken(model, node) for one in _handed(model, name)
        ]
        last = [node for node in dict.fromkeys(made) if node not in seen]
        seen.update(dict.fromkeys(last))
    yield from seen


def _taken(model: FileModel, node: cst.CSTNode) -> Iterator[cst.Name]:
    """``columns`` of ``columns``, ``columns[0]``, ``torch.from_numpy(columns[0])``, a tuple."""
    if isinstance(node, cst.Name):
        yield node
    elif isinstance(node, cst.Subscript):
        yield from _taken(model, node.value)
    elif isinstance(node, cst.Tuple):
        for element in node.elements:
            yield from _taken(model, element.value)
    elif isinstance(node, cst.Call) and model.name(node.func) in _AS_TENSORS:
        for argument in node.args[:1]:
            yield from _taken(model, argument.value)


def _handed(model: FileModel, name: cst.Name) -> Iterator[cst.CSTNode]:
    """What callers give a function for a parameter."""
    function = model.with_parameter(name) if model.is_parameter(name) else None
    if function is None:
        return
    given = (call.given_to(function, name.value) for call in model.callers(function))
    yield from (one for one in given if one is not None)


def _made_of_a_part(model: FileModel, node: cst.CSTNode) -> bool:
    """``self.part(files).shuffle()``, where ``part`` asks for the core's number."""
    return any(
        isinstance(call.target, Function) and _takes_core(model, call.target.node)
        for call in model.calls_in(node)
    )


def _takes_core(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether code asks for the core's number, not to show it, nor for the device alone."""
    home = model.file_with(node)
    calls = home.calls_in(node)
    shown = {
        part
        for call in calls
        if call.name in _SHOWS or (call.name is None and call.method in _LOGS)
        for part in walk(call.node)
    }
    return any(
        tells_core(home, call.node) and call.name not in _DEVICES and call.node not in shown
        for call in calls
    )


def _shards_itself(model: FileModel, node: cst.BaseExpression) -> bool:
    """A class of the file that streams, or that asks for the core's number."""
    value = model.value(node)
    cls: Class | None = value.instance.cls if value.instance is not None else None
    if cls is None:
        return value.kind is Kind.LOADER
    if not streams(model, cls):
        return _takes_core(model, cls.node)
    # What streams may share out by any word for it, or draw what it gives.
    maker = model.method(cls, "__init__")
    numbered = maker is not None and not _NUMBERS.isdisjoint(maker.parameters)
    return len(cls.bases) > 1 or numbered or says_any(_code_of(model, cls), _SHARES)


def _code_of(model: FileModel, cls: Class) -> Iterator[cst.CSTNode]:
    """A class that streams, those it stands on, and the functions that make what it gives."""
    yield from (one.node for one in (cls, *model.parents(cls)))
    gives = model.method(cls, "__iter__")
    for site in model.reached(gives.node) if gives is not None else ():
        if isinstance(site.target, Function):
            yield site.target.node
