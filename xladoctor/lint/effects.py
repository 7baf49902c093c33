"""What happens in a program, as rows: reads, ends of graphs, collectives, steps.

The runtime's records and this stream use the same nouns. An event knows where it stands, which
loop runs it and how often, whether it runs on XLA devices and which cores come there; a rule is a
question about events.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.copies import COPIES, copied_to_host
from xladoctor.lint.library import Effect, Equal
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.loops import opposed
from xladoctor.lint.model.parts import literal_parts, names_added
from xladoctor.lint.model.syntax import Function
from xladoctor.lint.model.training import steps_environment
from xladoctor.lint.model.values import Kind
from xladoctor.lint.model.wrappers import meant

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.library import Name
    from xladoctor.lint.model.calls import CallSite
    from xladoctor.lint.model.file import FileModel
    from xladoctor.lint.model.loops import Guard, Loop
    from xladoctor.lint.model.syntax import Class
    from xladoctor.lint.model.values import Value

OPTIMIZER_STEP = "torch_xla.core.xla_model.optimizer_step"
#: Methods of a tensor that hand its content to the host.
_READS = ("item", "cpu", "tolist", "numpy", "is_nonzero")
_CASTS = tuple(f"builtins.{name}" for name in ("float", "int", "bool", "complex", "range"))
_MARK_STEP = f"{know.XM}.mark_step"
_BACKWARD = ("backward", "manual_backward")
_LOADERS = frozenset({"torch.utils.data.DataLoader",
                      "torchdata.stateful_dataloader.StatefulDataLoader"})  # fmt: skip


class Frequency(enum.Enum):
    """How often an event happens."""

    EACH_STEP = "on every step"
    EACH_BATCH = "for every evaluation batch"
    THROTTLED = "once in a while"
    EACH_EPOCH = "once in an epoch"
    ONCE = "once"


class How(enum.Enum):
    """In which way a read is written."""

    METHOD = "a method of the tensor"
    CAST = "a cast to a Python number"
    LIBRARY = "a function that looks at its values"
    STORE = "a store into a CPU tensor"


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Event:
    """One thing that happens when a node runs.

    Attributes:
        effect: What happens.
        node: Where: a call as a rule.
        call: The call, if it is one.
        name: What the library knows of what is called.
        value: Of a read: the device tensor that is read.
        how: Of a read: in which way.
    """

    effect: Effect
    node: cst.CSTNode
    call: CallSite | None = None
    name: Name | None = None
    value: cst.BaseExpression | None = None
    how: How | None = None


class Effects:
    """The events of a file, and the questions that rules ask of them.

    Args:
        model: The file.
    """

    def __init__(self, model: FileModel) -> None:
        self._model = model

    # The stream

    def of(self, *effects: Effect) -> Sequence[Event]:
        """The events of some kinds, in source order."""
        if len(effects) == 1:
            return self._by_effect.get(effects[0], ())
        found = (event for effect in effects for event in self._by_effect.get(effect, ()))
        return sorted(found, key=lambda event: self._model.tree.order[event.node])

    @functools.cached_property
    def _by_effect(self) -> dict[Effect, list[Event]]:
        found: dict[Effect, list[Event]] = {}
        for call in self._model.calls():
            for event in self.by_call(call):
                found.setdefault(event.effect, []).append(event)
        reads = [*found.get(Effect.READ, ()), *self._stores()]
        order = self._model.tree.order
        found[Effect.READ] = sorted(reads, key=lambda event: order[event.node])
        return found

    def read_at(self, node: cst.CSTNode) -> Event | None:
        """The read that a call is by itself, None if it is none."""
        return self._reads.get(node)

    def is_read(self, node: cst.CSTNode) -> bool:
        """Whether the host waits for a value there."""
        return node in self._read_nodes

    @functools.cached_property
    def _read_nodes(self) -> frozenset[cst.CSTNode]:
        return frozenset(event.node for event in self.of(Effect.READ))

    @functools.cached_property
    def _reads(self) -> dict[cst.CSTNode, Event]:
        return {
            event.node: event
            for event in self.of(Effect.READ)
            if event.call is not None and event.value is not None
        }

    def by_call(self, call: CallSite) -> Iterator[Event]:
        """What one call does by itself (not what the functions that it runs do)."""
        name = self.name(call)
        for effect in name.effects if name is not None else ():
            if effect is Effect.READ:
                continue
            if effect is Effect.GRAPH_END and not self._holds(call, name):
                continue
            yield Event(effect, call.node, call, name)
        if call.name is None and call.method in _BACKWARD:
            yield Event(Effect.BACKWARD, call.node, call)
        if self._is_plain_step(call):
            yield Event(Effect.OPTIMIZER_STEP, call.node, call)
        yield from self._read(call, name)

    def name(self, call: CallSite) -> Name | None:
        """What the library knows of what a call calls; of a method by the class of its object."""
        library = self._model.library
        if call.name is not None or call.receiver is None:
            return library.get(call.name)
        value = self._model.value(call.receiver)
        if value.type_name is not None:
            return library.get(f"{value.type_name}.{call.method}")
        if isinstance(call.target, Function):  # the program's own method
            return None
        made = (value.instance.cls,) if value.instance is not None else value.classes
        bases = (base for owner in made for base in self._model.library_bases(owner))
        found = (library.get(f"{base}.{call.method}") for base in bases if base)
        return next((name for name in found if name is not None), None)

    def _holds(self, call: CallSite, name: Name | None) -> bool:
        """Whether the argument that an effect hangs on may be true."""
        if name is None or name.only_if is None:
            return True
        given = call.argument(*name.only_if)
        # What is decided elsewhere may be there.
        return call.has_star or (given is not None and self._model.literal(given) is not False)

    def _is_plain_step(self, call: CallSite) -> bool:
        """``optimizer.step()``, however the optimizer is called."""
        return (
            call.method == "step"
            and call.name is None
            and call.receiver is not None
            and (
                self._model.value(call.receiver).kind is Kind.OPTIMIZER
                or self._is_own_step(call.target)
            )
        )

    def _is_own_step(self, target: Function | Class | None) -> bool:
        """Whether a method is the step of an optimizer that the program writes itself."""
        owner = target.owner if isinstance(target, Function) else None
        return owner is not None and self._model.is_optimizer(owner)

    # Reads

    def _read(self, call: CallSite, name: Name | None) -> Iterator[Event]:
        tensor, how = self._by_method(call), How.METHOD
        if tensor is None and call.name is not None and _is_cast(call.name):
            tensor, how = self._device_tensor(call.positional), How.CAST
        elif tensor is None and call.method in COPIES:
            tensor = copied_to_host(self._model, call)
        elif tensor is None and (given := processed(call)):
            inner = [part for value in given for part in literal_parts(value)]
            tensor, how = self._device_tensor([*given, *inner]), How.LIBRARY
        elif tensor is None and (tells_text(call) or self._looks(call, name)):
            tensor, how = self._by_library(call), How.LIBRARY
        if tensor is not None:
            yield Event(Effect.READ, call.node, call, name, tensor, how)

    def _by_method(self, call: CallSite) -> cst.BaseExpression | None:
        tensor = call.receiver
        if tensor is None or call.method not in {*_READS, "to"}:
            return None
        value = self._model.value(tensor)
        if not value.is_device_tensor or (call.method == "to" and not self._to_cpu(call)):
            return None
        # ``.numpy()`` of what is certainly on the device raises instead.
        return None if call.method == "numpy" and value.certain else tensor

    def _to_cpu(self, call: CallSite) -> bool:
        target = call.argument(0, "device")
        held = self._model.value(target) if target is not None else None
        if held is not None and held.kind is Kind.OTHER_DEVICE and held.certain and not held.roads:
            # ``host = torch.device("cpu")``, and where ``x.is_cuda`` does not hold.
            target = held.origin if isinstance(held.origin, cst.Call) else target
        if isinstance(target, cst.Call) and self._model.name(target.func) == "torch.device":
            target = self._model.call(target).argument(0, "type") or target
        return target is not None and self._model.literal(target) == "cpu"

    def _looks(self, call: CallSite, name: Name | None) -> bool:
        """Whether a call looks at the values of what it is given: it is known to, or says so."""
        if name is not None:
            return Effect.READ in name.effects
        if call.name is None and (
            self._is_writer(call) or self._acts(call) or self._is_log_of_trainer(call)
        ):
            return True
        torchs = call.name is not None and call.name.startswith(("torch.", "torch_xla."))
        return call.target is None and not torchs and bool(know.READER.search(call.last))

    def _acts(self, call: CallSite) -> bool:
        """``env.step(action)`` of a simulation that runs on the host, and looks at the action."""
        if call.target is not None or not steps_environment(call.node):
            return False
        parts = (self._model, *self._model.linked)
        return any(know.SIMULATIONS.match(name) for part in parts for name in part.named)

    def _is_log_of_trainer(self, call: CallSite) -> bool:
        """``self.log({"accuracy": right.mean()})`` of a Trainer, whose callbacks print it.

        Also ``accelerator.log(...)``, whose trackers write it down.
        """
        if call.method != "log" or call.receiver is None or call.target is not None:
            return False
        value = self._model.value(call.receiver)
        if value.type_name == know.ACCELERATOR_CLASS:
            return True
        instance = value.instance
        return instance is not None and not know.TRAINERS.isdisjoint(
            self._model.library_bases(instance.cls)
        )

    def _is_writer(self, call: CallSite) -> bool:
        """A method of a logger, by its name: TensorBoard's writer goes by many names."""
        return call.method in self._model.library.methods(Effect.READ)

    def _by_library(self, call: CallSite) -> cst.BaseExpression | None:
        values = [*call.positional, *call.keywords.values()]
        inner = [part for value in values for part in literal_parts(value)]
        tensor = self._device_tensor([*values, *inner])
        if tensor is not None and call.name == "torch.tensor" and tensor not in inner:
            return None  # torch.tensor(t) of one tensor is a copy on its device
        if tensor is None and call.name == "torch.tensor":
            # Of a list it reads each.
            listed = (self._model.value(node) for node in values[:1])
            tensor = values[0] if any(_lists_device_tensors(value) for value in listed) else None
        return tensor or self._device_tensor([*self._written(values)])

    def _written(self, values: Sequence[cst.BaseExpression]) -> Iterator[cst.BaseExpression]:
        """``wandb.log(logs)`` of a dictionary that is written down before: ``logs = {...}``."""
        for node in values:
            bound = self._model.bindings(node.value, node) if type(node) is cst.Name else ()
            for made in [item.node for item in bound] or [node]:
                if isinstance(made, cst.Call) and self._model.name(made.func) == "builtins.dict":
                    yield from self._model.call(made).keywords.values()
                elif made is not node:
                    yield from literal_parts(made)

    def _device_tensor(self, nodes: Sequence[cst.BaseExpression]) -> cst.BaseExpression | None:
        return next((node for node in nodes if self._model.value(node).is_device_tensor), None)

    def _stores(self) -> Iterator[Event]:
        """``losses[i] = loss`` with ``losses`` on the CPU waits without a word of it."""
        for node in self._model.nodes(cst.Assign):
            if self._model.value(node.value).is_device_tensor and any(
                isinstance(item.target, cst.Subscript) and self._is_cpu_tensor(item.target.value)
                for item in node.targets
            ):
                yield Event(Effect.READ, node, value=node.value, how=How.STORE)

    def _is_cpu_tensor(self, node: cst.BaseExpression) -> bool:
        """Whether something was made as one tensor: a loader's batch may be a dictionary."""
        value = self._model.value(node)
        if value.kind is not Kind.CPU_TENSOR or not isinstance(value.origin, cst.Call):
            return False
        return self._model.name(value.origin.func) not in _LOADERS

    # What is asked of an event

    def frequency(self, node: cst.CSTNode) -> Frequency:
        """How often a node runs, here or through calls; step closures run after the step."""
        model = self._model
        loop = model.hot_loop(node)
        if loop is not None:
            if model.throttled(node):
                return Frequency.THROTTLED
            return Frequency.EACH_STEP if model.step_loop(node) else Frequency.EACH_BATCH
        return Frequency.EACH_EPOCH if model.loop(node) is not None else Frequency.ONCE

    def some_cores(self, node: cst.CSTNode) -> Guard | None:
        """The condition by which not all cores come to a node; None if all may come together."""
        return self._model.core_guard(node) or self._model.master_only(node)

    # Order: the segments between the ends of graphs

    def ends(self, node: cst.CSTNode) -> bool:
        """Whether something in a node, or in the functions that it runs, ends the graph."""
        return any(self.ends_graph(call) for call in self._model.reached(node))

    def ends_graph(self, call: CallSite) -> bool:
        """Whether a call by itself ends the pending graph."""
        name = self.name(call)
        if name is not None and Effect.GRAPH_END in name.effects and self._holds(call, name):
            return True
        return meant(call.name) == _MARK_STEP or self._next_of_device_loader(call)

    def _next_of_device_loader(self, call: CallSite) -> bool:
        """``next(batches)`` of a device loader's iterator ends the step before."""
        given = call.argument(0, "") if call.name == "builtins.next" else None
        if call.method == "__next__" and call.name is None:
            given = call.receiver
        return given is not None and self._model.value(given).kind is Kind.DEVICE_LOADER

    def ran_before(self, node: cst.CSTNode, value: cst.BaseExpression, loop: Loop) -> bool:
        """Whether the graph that computes a value may have ended when a node reads it.

        An end *before* the value is computed is that of the step before: it does not run this one.
        """
        model, function = self._model, self._model.function_of(node)
        order = model.tree.order
        made = self._made_last(value, node, loop)
        for call in model.reached(loop.node):
            if not self.ends_graph(call):
                continue
            places = self._places(call, function, loop)
            if not places:
                return True  # in a function around this one: before or behind, nobody knows
            first = order[made] if made is not None else -1
            between = (place for place in places if first < order[place] < order[node])
            if any(self._has_run(place, node) for place in between):
                return True
        return False

    def _has_run(self, call: cst.CSTNode, node: cst.CSTNode) -> bool:
        """Whether a call may have run: not what ``node`` is given to, nor in the other branch."""
        model = self._model
        inside = call in model.tree.ancestors(node)
        return not inside and not opposed(model.guards(call), model.guards(node))

    def ends_between(
        self, first: cst.CSTNode, second: cst.CSTNode, loop: Loop
    ) -> Sequence[cst.CSTNode]:
        """The calls of a node's function that end the graph between two nodes of one iteration."""
        model, function = self._model, self._model.function_of(second)
        order = model.tree.order
        within = loop.node if loop.function is function or loop.implicit else None
        ends = [call for call in model.reached(loop.node) if self.ends_graph(call)]
        places = {place: None for call in ends for place in self._places(call, function, loop)}
        return [
            place
            for place in sorted(places, key=order.__getitem__)
            if order[first] < order[place] < order[second]
            and (within is None or within in model.tree.ancestors(place))
        ]

    def ends_behind(self, node: cst.CSTNode, loop: Loop) -> bool:
        """Whether something ends the graph behind a node, in the same iteration of a loop."""
        model, function = self._model, self._model.function_of(node)
        order = model.tree.order
        around = set(model.tree.ancestors(node))
        for call in model.reached(loop.node):
            if not self.ends_graph(call):
                continue
            places = self._places(call, function, loop)
            if not places:
                return True  # in a function around this one: before or behind, nobody knows
            if any(
                order[place] > order[node] or self._block_of(place) in around for place in places
            ):
                return True
        return False

    def _block_of(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The ``with`` block that a call opens: ``torch_xla.step()`` ends the graph at its exit."""
        item = self._model.parent(node)
        return self._model.parent(item) if isinstance(item, cst.WithItem) else None

    def _places(
        self, call: CallSite, function: Function | None, loop: Loop
    ) -> Sequence[cst.CSTNode]:
        """The calls that stand in a function, within a loop, and run another call."""
        if call.function is function:
            return [call.node]
        model = self._model
        return [
            other.node
            for other in model.reached(loop.node)
            if other.function is function
            and other.target is not None
            and any(inner is call for inner in model.reached(other.node))
        ]

    def _made_last(
        self, value: cst.BaseExpression, node: cst.CSTNode, loop: Loop
    ) -> cst.CSTNode | None:
        """The last assignment in the loop to the name that a value is, before a node.

        Of a mean that is put together of sums (``mean = (total - before) / 50``), where those were
        last added to: that is what the step computed.
        """
        model = self._model
        while isinstance(value, cst.Call | cst.Attribute) and not isinstance(value, cst.Name):
            inner = value.func if isinstance(value, cst.Call) else value.value
            if not isinstance(inner, cst.BaseExpression):
                return None
            value = inner
        if not isinstance(value, cst.Name):
            return None
        order = model.tree.order
        made = [
            item.node
            for item in model.bindings(value.value, value)
            if (item.kind == "assign" or type(model.parent(item.node)) is cst.AugAssign)
            and item.node in order and order[item.node] < order[node]
            and loop.node in model.tree.ancestors(item.node)
        ]  # fmt: skip
        last = max(made, key=order.__getitem__, default=None)
        parts = [self._made_last(part, last, loop) for part in names_added(last)] if last else []
        known = [part for part in parts if part is not None]
        return max(known, key=order.__getitem__, default=last)

    # Equal on all cores

    def equals(self, call: CallSite, what: Equal) -> bool:
        """Whether a call makes something the same on every core by itself."""
        name = self.name(call)
        return name is not None and name.equal is what


def tells_text(call: CallSite) -> bool:
    """``tokenizer.decode(ids)`` takes the ids to the host, whatever they are on."""
    if call.name is not None or call.method not in know.TELLS_IDS:
        return False
    text = dotted_text(call.receiver) if call.receiver is not None else None
    named = know.TOKENIZER_NAME.search((text or "").rpartition(".")[2])
    return call.method == "batch_decode" or named is not None


def processed(call: CallSite) -> Sequence[cst.BaseExpression]:
    """What ``processor(images=pixels, return_tensors="pt")`` makes arrays of.

    ``tokenizer.pad({"input_ids": ids})`` makes lists of all. Tokenizers that are called take texts
    alone, and a module that is called so takes no such arguments.
    """
    if call.name is not None or call.target is not None:
        return ()
    pads = call.method == "pad" and call.receiver is not None
    text = dotted_text(call.receiver if pads and call.receiver is not None else call.node.func)
    last = (text or "").rpartition(".")[2]
    if know.TOKENIZER_NAME.search(last) is None:
        return ()
    named = [value for key, value in call.keywords.items() if key in know.PROCESSED]
    if pads:
        return [*call.positional, *call.keywords.values()]
    sure = know.PROCESSOR_NAME.search(last) and not know.OF_PROCESSORS.isdisjoint(call.keywords)
    return [*named, *(call.positional if sure else ())]


def _is_cast(name: str) -> bool:
    return name in _CASTS or name.startswith("math.")


def _lists_device_tensors(value: Value) -> bool:
    return value.kind is Kind.CONTAINER and value.holds_device_tensor
