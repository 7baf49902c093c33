"""What values hold: the elements of containers and loaders, the tensors in both."""

from __future__ import annotations

import functools
from operator import itemgetter
from typing import TYPE_CHECKING

from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.values import UNKNOWN, Kind, Value, join, joined_elements

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import libcst as cst

    from xladoctor.lint.model.values import Arguments

_DEEPEST = 3
_MOST_PLACES = 16
_MOST_KEYS = 64
#: The key of what a holder has under any other key.
REST = ""
_LOADERS = frozenset({Kind.LOADER, Kind.DEVICE_LOADER, Kind.PARALLEL_LOADER})


def container(element: Value | None, items: tuple[Value, ...] | None = None) -> Value:
    """A list, tuple or dict that holds such elements; deep nesting is cut off."""
    if element is not None and _depth(element) >= _DEEPEST:
        element = UNKNOWN
    if items is not None and (
        len(items) > _MOST_PLACES or any(_depth(v) >= _DEEPEST for v in items)
    ):
        items = None
    return Value(Kind.CONTAINER, certain=True, element=element, items=items)


def dictionary(parts: Iterable[tuple[str | None, Value]]) -> Value:
    """A dictionary that holds values under keys: None for what is put in under unknown ones."""
    entries: dict[str, Value] = {}
    values: list[Value] = []
    known = True
    for key, value in parts:
        if key is not None:
            entries[key] = value
            values.append(value)
        elif value.entries is not None:
            entries.update(value.entries)
            values += [part for _, part in value.entries]
        else:
            values.append(element_of(value))
            known = False
    return _with_entries(functools.reduce(join, values) if values else None, entries, known)


def updated(before: Value, arguments: Arguments) -> Value:
    """``settings.update(device=device)``, ``settings.update({"device": device})``."""
    given = [(None if key == "**" else key, value) for key, value in arguments]
    return dictionary([(None, before), *given])


def with_entry(before: Value, key: str | None, value: Value) -> Value:
    """A container that has been given one more value: ``settings["device"] = device``."""
    inner = joined_elements(before)
    known = key is not None and before.entries is not None
    entries = {**dict(before.entries or ()), **({key: value} if key is not None else {})}
    return _with_entries(value if inner is None else join(inner, value), entries, known)


def with_attribute(holder: Value, name: str, value: Value) -> Value:
    """``args.rank = rank`` of an object whose other attributes it was made with.

    Under :data:`REST` stands what is known of those that nobody set since.
    """
    inner = value if holder.element is None else join(holder.element, value)
    before = holder.entries if holder.entries is not None else ((REST, element_of(holder)),)
    entries = {**dict(before), name: value}
    if len(entries) > _MOST_KEYS or any(_depth(part) >= _DEEPEST for part in entries.values()):
        return holder.but(element=inner, entries=None)
    return holder.but(element=inner, entries=tuple(sorted(entries.items(), key=itemgetter(0))))


def attribute_of(holder: Value, name: str) -> Value:
    """The attribute of such an object."""
    entries = dict(holder.entries or ())
    found = entries.get(name, entries.get(REST))
    return element_of(holder) if found is None else found


def _with_entries(element: Value | None, entries: dict[str, Value], known: bool) -> Value:
    made = container(element)
    deep = any(_depth(value) >= _DEEPEST for value in entries.values())
    if not known or deep or len(entries) > _MOST_KEYS:
        return made
    return made.but(entries=tuple(sorted(entries.items(), key=itemgetter(0))))


def under(holder: Value, key: str | None) -> Value:
    """What a container holds under a key, as far as that is known; any of it otherwise."""
    found = dict(holder.entries or ()).get(key) if key is not None else None
    return element_of(holder) if found is None else found


def spread(arguments: Arguments) -> Arguments:
    """``method(*args, **settings)`` as if what is known of them were written one by one."""
    found: list[tuple[str | None, Value]] = []
    for keyword, value in arguments:
        if keyword == "*" and value.kind is Kind.CONTAINER and value.items is not None:
            found += [(None, item) for item in value.items]
        elif keyword == "**" and value.entries is not None:
            known = [
                (key, part)
                for key, part in value.entries
                if part.kind is not Kind.UNKNOWN and key != REST
            ]
            found += known
            if len(known) < len(value.entries):
                found.append((keyword, value))
        else:
            found.append((keyword, value))
    return found


def under_names(value: Value) -> list[Value]:
    """What ``**value`` holds: a batch (``self.loss(**batch)``) holds tensors as it is one."""
    if value.kind is Kind.DEVICE_TENSOR:
        return [value]
    return [element_of(value)] if value.kind is Kind.CONTAINER else []


def modules(parts: Sequence[Value], *, places: bool, node: cst.CSTNode, name: str) -> Value:
    """A model that holds others (``nn.ModuleList``); deep nesting is cut off.

    Args:
        parts: What it is given.
        places: Whether these are all that it holds, in their order.
        node: What makes it.
        name: The class.
    """
    made = Value(Kind.MODEL, certain=True, origin=node, type_name=name)
    if not parts or any(_deep(part) >= _DEEPEST for part in parts):
        return made
    items = tuple(parts) if places and len(parts) <= _MOST_PLACES else None
    return made.but(element=functools.reduce(join, parts), items=items)


def loader(kind: Kind, over: Value, *, node: cst.CSTNode, alike: bool) -> Value:
    """A loader over a dataset, or around another loader; deep nesting is cut off.

    ``loader = ParallelLoader(loader, [device])`` in a loop over epochs wraps it again each time.
    """
    element = over if _wrapped(over) < _DEEPEST else UNKNOWN
    return Value(kind, certain=True, origin=node, element=element, alike=alike)


def _wrapped(value: Value) -> int:
    """How many loaders stand in each other."""
    roads = value.roads or (value,)
    inner = (road.element for road in roads if road.kind in _LOADERS and road.element is not None)
    return max((1 + _wrapped(item) for item in inner), default=0)


def _deep(value: Value) -> int:
    """How many models of modules stand in each other."""
    within = max((_deep(item) for item in (*value.inner, *value.roads)), default=0)
    return within + (value.kind is Kind.MODEL and value.element is not None)


def _depth(value: Value) -> int:
    if value.roads:
        return max(_depth(road) for road in value.roads)
    if value.kind is not Kind.CONTAINER:
        return 0
    return 1 + max((_depth(item) for item in value.inner), default=0)


def without_places(value: Value) -> Value:
    """A container of which only is known what it holds, not where."""
    return value.but(items=None, entries=None, element=joined_elements(value))


def element_of(value: Value) -> Value:
    """What iterating a value gives."""
    if value.kind is Kind.CONTAINER:
        return joined_elements(value) or UNKNOWN
    if value.kind is Kind.MODEL and value.element is not None:
        return _within(value, value.element)
    if value.kind is Kind.DEVICE_LOADER:
        return Value(Kind.DEVICE_TENSOR, value.certain, value.origin, local=not value.alike)
    if value.kind is Kind.LOADER:
        sample = value.element.element if value.element is not None else None
        if sample is not None and sample.holds_device_tensor:
            return sample  # a dataset on the device: so are the batches that are put together of it
        return Value(Kind.CPU_TENSOR, value.certain, value.origin, local=not value.alike)
    if value.kind in {Kind.DEVICE_TENSOR, Kind.CPU_TENSOR, Kind.ARRAY, Kind.NUMBER}:
        return value
    return Value(made_of_device=True) if value.made_of_device else UNKNOWN


def _within(model: Value, part: Value) -> Value:
    """One of the modules that a model holds: it is where the model is."""
    return part.but(on_device=True) if model.on_device and part.kind is Kind.MODEL else part


def unpack(value: Value, count: int) -> Sequence[Value]:
    """What ``a, b = value`` gives to each of ``count`` names."""
    if value.items is not None and len(value.items) == count:
        return value.items
    return [element_of(value)] * count


def all_moved(value: Value, node: cst.CSTNode) -> Value:
    """``to_device((x, y))``: whatever holds the tensors, a node has put them on the device."""
    if value.kind is Kind.CONTAINER:
        element = all_moved(value.element, node) if value.element is not None else None
        items = tuple(all_moved(item, node) for item in value.items) if value.items else None
        return container(element, items)
    if value.kind in {Kind.UNKNOWN, Kind.CPU_TENSOR, Kind.DEVICE_TENSOR}:
        return Value(Kind.DEVICE_TENSOR, origin=node, local=value.local, boolean=value.boolean)
    return value


def moves_by_name(name: str) -> bool:
    """Whether a function that nobody has read moves what it is given, or makes a tensor of it."""
    return bool(know.MOVER.search(name) or know.MAKES_TENSOR.search(name))


def moved_by_name(name: str, given: Sequence[Value], node: cst.CSTNode) -> Value | None:
    """``to_device(batch, device)`` and ``to_tensor(rows, device)`` of what nobody has read."""
    to_device = moves_by_name(name) and any(one.kind is Kind.DEVICE for one in given)
    return all_moved(given[0], node) if to_device else None


def prepared(arguments: Arguments) -> Value:
    """``accelerator.prepare(...)`` hands back its arguments; loaders then move their batches."""
    items = []
    for _, value in arguments:
        if value.kind is Kind.LOADER:
            value = value.but(kind=Kind.DEVICE_LOADER, alike=False)
        elif value.kind is Kind.MODEL:
            value = value.but(on_device=True)
        items.append(value)
    return items[0] if len(items) == 1 else container(None, tuple(items))


def origin(value: Value) -> cst.CSTNode | None:
    """The node that made a tensor, or what a container holds."""
    if value.kind is not Kind.CONTAINER:
        return value.origin
    best = _on_device_in(value)
    return origin(best) if best is not None else None


def as_output(result: Value, node: cst.CSTNode) -> Value:
    """What a model of the program gives back: what it makes of device tensors is one.

    Its method was followed, and somewhere in it something was not: ``y, kept = self.layers(x)``.
    """
    if result.kind is Kind.UNKNOWN and result.made_of_device:
        return Value(Kind.DEVICE_TENSOR, origin=node, local=result.local)
    if result.kind is not Kind.CONTAINER:
        return result
    items = result.items and tuple(as_output(item, node) for item in result.items)
    inner = result.element and as_output(result.element, node)
    return result if (items, inner) == (result.items, result.element) else container(inner, items)


def is_of_one_core(value: Value) -> bool:
    """Whether a value differs from core to core, or holds what does, also in lists of lists."""
    for _ in range(_DEEPEST):
        if value.local:
            return True
        if value.kind is not Kind.CONTAINER:
            return False
        value = element_of(value)
    return value.local


def any_on_device(values: Sequence[Value]) -> bool:
    """Whether one of some values is a tensor on the device, or holds one."""
    return any(value.holds_device_tensor for value in values)


def first_origin(values: Sequence[Value]) -> cst.CSTNode | None:
    """Where the first tensor on the device of some values was put there."""
    return next((flat(value).origin for value in values if value.holds_device_tensor), None)


def flat(value: Value) -> Value:
    """The tensor in a container that counts for all of it, a value that is none as it is."""
    if value.kind is not Kind.CONTAINER:
        return value
    return flat(_on_device_in(value) or next(iter(value.inner), UNKNOWN))


def _on_device_in(value: Value) -> Value | None:
    """The first in a container that is, or holds, a tensor on the device."""
    return next((item for item in value.inner if item.holds_device_tensor), None)


def together(value: Value) -> Value:
    """What is the same on all cores, as are the parts of a tuple or dictionary."""
    element = together(value.element) if value.element is not None else None
    items = tuple(map(together, value.items)) if value.items is not None else None
    entries = [(key, together(one)) for key, one in value.entries or ()]
    return value.but(
        local=False,
        element=element,
        items=items,
        entries=tuple(entries) if value.entries is not None else None,
    )
