"""Kinds of value: what an expression evaluates to, as far as the model knows.

Values form a lattice. ``NOTHING`` is its bottom: no run has given the expression a value yet, which
is not the same as ``UNKNOWN``, a value that could be anything. ``join`` goes up: it keeps every
kind that some road gives (``Value.roads``), so it does not matter in which order roads come
together. What a value *counts as* (``Value.kind``) is read off all its roads at once, by
``_counts_as``.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import operator
from typing import TYPE_CHECKING, Any, TypeAlias

from xladoctor.lint.model.syntax import Class, Function

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from dataclasses import dataclass as made_often

    import libcst as cst
else:

    def made_often(*, frozen: bool, slots: bool) -> object:
        """A dataclass that mypy alone holds to be frozen: else it takes thrice the time to make."""
        return dataclasses.dataclass(slots=slots, unsafe_hash=frozen)


class Kind(enum.Enum):
    """What sort of thing a value is; ``UNKNOWN`` is an honest answer."""

    NOTHING = "nothing yet"
    UNKNOWN = "unknown"
    DEVICE_TENSOR = "device tensor"
    CPU_TENSOR = "CPU tensor"
    NUMBER = "Python number"  # also strings, booleans and None: what the host can read for nothing
    ARRAY = "NumPy array"
    CONTAINER = "container"  # list, tuple, dict, set: see Value.element and Value.items
    LOADER = "loader"  # plain DataLoader
    DEVICE_LOADER = "device loader"  # moves batches to the device and marks steps
    PARALLEL_LOADER = "parallel loader"  # ParallelLoader before .per_device_loader()
    SAMPLER = "sampler"
    OPTIMIZER = "optimizer"
    SCHEDULER = "learning rate scheduler"
    MODEL = "model"
    LOSS = "loss function"
    DEVICE = "XLA device"
    OTHER_DEVICE = "other device"
    CORE_NUMBER = "number of this core"
    IS_MASTER = "whether this is the master core"
    NOT_MASTER = "whether this is not the master core"
    FUNCTION = "function"
    OBJECT = "object"

    # Each is itself alone: Enum's own, by name and in Python, is asked millions of times.
    __hash__ = object.__hash__

    @property
    def uploads(self) -> bool:
        """Whether it is a loader of torch_xla, which moves batches to the device itself."""
        return self is Kind.DEVICE_LOADER or self is Kind.PARALLEL_LOADER


@made_often(frozen=True, slots=True)
class Instance:
    """An object of a class of this file, told apart by the call that made it (None: any)."""

    cls: Class
    call: cst.CSTNode | None


@made_often(frozen=True, slots=True)
class Value:
    """What is known about an expression.

    Attributes:
        kind: What it is.
        certain: False if the model had to guess (a name that says so, a model's output, only one
            of two branches); see ``origin`` for why.
        origin: The node that made it so: the ``.to(device)`` call, the loop over the device
            loader, the constructor.
        local: Whether its content may differ from core to core: the core's number, a tensor or
            number computed from this core's batch. Cleared by ``all_reduce`` and ``mesh_reduce``.
        alike: For a loader: all cores go over the same batches in the same order.
        on_device: For a model: it has been moved to the XLA device.
        element: For a container, a loader or a model of modules: what iterating or indexing gives.
        items: For a tuple or a model of modules of known length: what each place holds.
        entries: For a dictionary whose keys are all written as texts: what stands under each.
        instance: For an object (or model) of a class of this file.
        classes: For an object (or model) that is one of several: the classes of this file that it
            may be of. Empty where ``instance`` says it.
        function: For a function of this file that is passed around.
        functions: For a function that is one of several (``STEPS[kind]``): which. Empty where
            ``function`` says it.
        makes: For a class of this file that is passed around: which it may be.
        type_name: Dotted name of the library class or function that made it ("tqdm.tqdm",
            "torch.optim.Adam"), where that says more than the kind.
        made_of_device: For an unknown value: it came out of a model, or of a function of another
            package that was given device tensors. Who calls ``.cpu()`` of it thinks it is there.
        boolean: For a tensor or array: its elements are certainly booleans.
        bound: For a function: arguments that ``functools.partial`` has given it already, as
            (keyword or None, value).
        roads: Where different roads give different kinds: one value for each kind, in the order of
            ``Kind``. Empty for a value of one kind.
    """

    kind: Kind = Kind.UNKNOWN
    certain: bool = False
    origin: cst.CSTNode | None = dataclasses.field(default=None, compare=False)
    local: bool = False
    alike: bool = False
    on_device: bool = False
    element: Value | None = None
    items: tuple[Value, ...] | None = None
    entries: tuple[tuple[str, Value], ...] | None = None
    instance: Instance | None = None
    classes: frozenset[Class] = frozenset()
    function: Function | None = None
    functions: frozenset[Function] = frozenset()
    makes: frozenset[Class] = frozenset()
    type_name: str | None = None
    made_of_device: bool = False
    boolean: bool = False
    bound: tuple[tuple[str | None, Value], ...] = ()
    roads: tuple[Value, ...] = ()

    def but(self, **changes: Any) -> Value:
        """The same value with other attributes: of one kind, the one that it counts as."""
        known = dict(zip(_NAMES, _fields(self), strict=True))
        return Value(**{**known, "roads": (), **changes})

    @property
    def is_device_tensor(self) -> bool:
        """A tensor on the XLA device, certain or likely."""
        return self.kind is Kind.DEVICE_TENSOR

    @property
    def each_function(self) -> frozenset[Function]:
        """The functions that it may be: the one that it is, or those that it is one of."""
        return self.functions if self.function is None else frozenset({self.function})

    @property
    def inner(self) -> list[Value]:
        """What it is known to hold, at places and elsewhere."""
        return [*(self.items or ()), *([self.element] if self.element is not None else [])]

    @property
    def holds_device_tensor(self) -> bool:
        """A device tensor, or a container of them, on each road that says something."""
        if self.kind is Kind.UNKNOWN and self.roads:
            telling = [road for road in self.roads if not road.is_blank]
            return bool(telling) and all(road.holds_device_tensor for road in telling)
        if self.kind is Kind.CONTAINER:
            return any(value.holds_device_tensor for value in self.inner)
        return self.is_device_tensor

    @property
    def is_blank(self) -> bool:
        """Says nothing beside other roads: unknown, a number, a container of what is unknown."""
        if self.kind is Kind.CONTAINER:
            return bool(self.inner) and all(value == UNKNOWN for value in self.inner)
        return self.kind in _SAYS_NOTHING

    @property
    def is_loader(self) -> bool:
        """A plain or a device loader."""
        return self.kind in {Kind.LOADER, Kind.DEVICE_LOADER}


_NAMES = [field.name for field in dataclasses.fields(Value)]
#: What a value is, in the order in which one is made.
_fields = operator.attrgetter(*_NAMES)

NOTHING = Value(Kind.NOTHING)
UNKNOWN = Value()
NUMBER = Value(Kind.NUMBER, certain=True)


#: What a call gives: (keyword or None, value); starred ones as "*" and "**".
Arguments: TypeAlias = "Sequence[tuple[str | None, Value]]"


def defined(definition: Function | Class) -> Value:
    """A function or class as a value."""
    if isinstance(definition, Function):
        return Value(Kind.FUNCTION, certain=True, function=definition)
    return Value(Kind.FUNCTION, certain=True, makes=frozenset({definition}))


def likely(value: Value) -> Value:
    """The same value, less sure."""
    return value.but(certain=False) if value.certain else value


def join(one: Value, other: Value) -> Value:
    """What is known of a value that is one or the other (two branches, two callers).

    Commutative, associative, idempotent and monotone, with ``NOTHING`` as its neutral element; only
    ``origin``, a witness that no comparison asks for, depends on the order.
    """
    if one is other or other.kind is Kind.NOTHING:
        return one
    if one.kind is Kind.NOTHING:
        return other
    if one.kind is other.kind:
        if one == other:
            return one
        if not one.roads and not other.roads:
            return _join_same(one, other)
    by_kind: dict[Kind, Value] = {}
    for value in (*(one.roads or (one,)), *(other.roads or (other,))):
        before = by_kind.get(value.kind)
        by_kind[value.kind] = value if before is None else _join_same(before, value)
    if len(by_kind) == 1:
        return by_kind.popitem()[1]
    roads = tuple(by_kind[kind] for kind in sorted(by_kind, key=_RANK.__getitem__))
    if len(roads) == len(one.roads) and all(map(operator.is_, roads, one.roads)):
        return one
    return _counts_as(roads)


#: What made a tensor of the host that holds one number, as it is written.
STANDS_IN = "a number as a tensor"
#: Roads stand in the order of ``Kind``.
_RANK = {kind: rank for rank, kind in enumerate(Kind)}


def _counts_as(roads: tuple[Value, ...]) -> Value:
    """What a value of several kinds counts as, for those who ask for one.

    A device tensor on one of the roads and a number or something unknown on the others is *likely*
    a device tensor: the read happens on that road. With a CPU tensor on another road it is unknown:
    code that serves both is often right. But for ``torch.tensor(0.0)``, which stands in for a
    result where there is nothing to compute.
    """
    local = any(road.local for road in roads)
    telling = [
        road for road in roads if road.kind not in _SAYS_NOTHING and road.type_name != STANDS_IN
    ]
    kinds = {road.kind for road in telling}
    for better, worse in _STRONGER:
        if kinds == {better, worse}:
            telling = [road for road in telling if road.kind is better]
    if len(telling) == 1 and telling[0].kind in _KEPT:
        return dataclasses.replace(telling[0], certain=False, local=local, roads=roads)
    return Value(local=local, roads=roads)


#: Beside these a known road is believed: ``sampler = None`` before ``if ...: sampler = ...``.
_SAYS_NOTHING = frozenset({Kind.UNKNOWN, Kind.NUMBER})
#: Of two kinds the one that counts, where programs choose between them by what they run on.
_STRONGER = ((Kind.DEVICE, Kind.OTHER_DEVICE), (Kind.DEVICE_LOADER, Kind.LOADER))
#: Kinds that one known road is enough to believe in: device tensors, since that road is taken; the
#: others, since nothing is reported for the kind alone.
_KEPT = frozenset(
    {
        Kind.DEVICE_TENSOR,
        Kind.LOADER,
        Kind.DEVICE_LOADER,
        Kind.PARALLEL_LOADER,
        Kind.SAMPLER,
        Kind.OPTIMIZER,
        Kind.SCHEDULER,
        Kind.MODEL,
        Kind.LOSS,
        Kind.DEVICE,
        Kind.OBJECT,
        Kind.FUNCTION,
        Kind.CORE_NUMBER,
        Kind.IS_MASTER,
        Kind.NOT_MASTER,
    }
)


def _join_same(one: Value, other: Value) -> Value:
    """The join of two values of one and the same kind, attribute by attribute."""
    items: tuple[Value, ...] | None = None
    if one.items is not None and other.items is not None and len(one.items) == len(other.items):
        items = tuple(join(a, b) for a, b in zip(one.items, other.items, strict=True))
        elements = [one.element, other.element]
    else:
        # The places are lost, what stands in them is not.
        elements = [joined_elements(one), joined_elements(other)]
    known = [element for element in elements if element is not None]
    joined = (
        one.kind,
        one.certain and other.certain,
        one.origin or other.origin,
        one.local or other.local,
        one.alike and other.alike,
        one.on_device or other.on_device,
        functools.reduce(join, known) if known else None,
        items,
        _joined_entries(one.entries, other.entries),
        one.instance if one.instance == other.instance else None,
        _either(one, other),
        one.function if one.function is other.function else None,
        _any_of(one, other),
        one.makes | other.makes,
        one.type_name if one.type_name == other.type_name else None,
        one.made_of_device and other.made_of_device,
        one.boolean and other.boolean,
        one.bound if one.bound == other.bound else (),
        (),
    )
    # Mostly the other one adds nothing; what is asked of the same object again is answered at once.
    return one if joined == _fields(one) else Value(*joined)


def _joined_entries(
    one: tuple[tuple[str, Value], ...] | None, other: tuple[tuple[str, Value], ...] | None
) -> tuple[tuple[str, Value], ...] | None:
    """What stands under each key of one dictionary or another; who asks for a key finds it."""
    if one is None or other is None:
        return None
    found = dict(one)
    for key, value in other:
        found[key] = join(found[key], value) if key in found else value
    return tuple(sorted(found.items(), key=operator.itemgetter(0)))


def _either(one: Value, other: Value) -> frozenset[Class]:
    """The classes of two values, where these are not one and the same object."""
    if one.instance is not None and one.instance == other.instance:
        return frozenset()
    return _classes(one) | _classes(other)


def _any_of(one: Value, other: Value) -> frozenset[Function]:
    """The functions that two values may be, where these are not one and the same."""
    if one.function is not None and one.function is other.function:
        return frozenset()
    found = one.functions | other.functions
    return found | {value.function for value in (one, other) if value.function is not None}


def _classes(value: Value) -> frozenset[Class]:
    """The classes of this file that a value may be an object of, as far as they are known."""
    return value.classes if value.instance is None else frozenset({value.instance.cls})


def joined_elements(value: Value) -> Value | None:
    """All that a container holds as one value; None if nothing is known to be in it."""
    inner = value.inner
    return functools.reduce(join, inner) if inner else None


def where_it_trains(value: Value) -> Value:
    """What a method of a model is given: on the device, if anybody gives it that.

    The constructor may try the same method with zeros on the host, to count what comes out.
    """
    kinds = {road.kind for road in value.roads}
    if value.kind is Kind.UNKNOWN and {Kind.DEVICE_TENSOR, Kind.CPU_TENSOR} <= kinds:
        trained = (road for road in value.roads if road.kind is not Kind.CPU_TENSOR)
        return likely(functools.reduce(join, trained))
    return value


def of_type(value: Value, *, tensor: bool) -> Value:
    """What a value of several kinds is where it is known to be a tensor, or to be none."""
    tensors = {Kind.DEVICE_TENSOR, Kind.CPU_TENSOR}
    left = (
        road
        for road in value.roads
        if road.kind is Kind.UNKNOWN or (road.kind in tensors) is tensor
    )
    return functools.reduce(join, left, NOTHING)


def on_device(device: Value, node: cst.CSTNode, *, local: bool = False) -> Value:
    """A tensor that was put on a device (or beside a tensor) by a node."""
    if device.kind in {Kind.DEVICE, Kind.DEVICE_TENSOR}:
        return Value(Kind.DEVICE_TENSOR, device.certain, node, local)
    if device.kind in {Kind.OTHER_DEVICE, Kind.CPU_TENSOR}:
        return Value(Kind.CPU_TENSOR, device.certain, node, local)
    return Value(local=local)


def any_local(values: Iterable[Value]) -> bool:
    """Whether something that differs from core to core goes into a call whose code nobody has read.

    Whether this is the master core is asked to print or not: ``build(cfg, verbose=is_master)``.
    A list of such values differs too: ``roc_auc_score(labels, scores)`` of what a loop gathered.
    """
    flags = {Kind.IS_MASTER, Kind.NOT_MASTER}
    return any(
        value.kind not in flags and (value.local or (value.element is not None and _kept(value)))
        for value in values
    )


def _kept(value: Value) -> bool:
    """Whether a list holds numbers or arrays that were read from this core's batches."""
    element = value.element
    return (
        value.kind is Kind.CONTAINER
        and element is not None
        and element.local
        and element.kind in {Kind.NUMBER, Kind.ARRAY}
    )
