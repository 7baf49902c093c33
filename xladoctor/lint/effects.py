"""What happens in a program, as rows: reads, ends of graphs, collectives, steps.

The runtime's records and this stream use the same nouns. An event knows where it stands, which
loop runs it and how often, whether it runs on XLA devices and which cores come there; a rule is a
question about events.
"""

from __future__ import annotations

import enum
import functools
from typing import TYPE_CHECKING

from xladoctor.lint.events import Event
from xladoctor.lint.library import Effect, Equal
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.syntax import Function
from xladoctor.lint.model.values import Kind
from xladoctor.lint.model.wrappers import meant
from xladoctor.lint.reading import Reads
from xladoctor.lint.segments import Segments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import libcst as cst

    from xladoctor.lint.library import Name
    from xladoctor.lint.model.calls import CallSite
    from xladoctor.lint.model.file import FileModel
    from xladoctor.lint.model.loops import Guard, Loop
    from xladoctor.lint.model.syntax import Class

OPTIMIZER_STEP = "torch_xla.core.xla_model.optimizer_step"
_MARK_STEP = f"{know.XM}.mark_step"
_BACKWARD = ("backward", "manual_backward")


class Frequency(enum.Enum):
    """How often an event happens."""

    EACH_STEP = "on every step"
    EACH_BATCH = "for every evaluation batch"
    THROTTLED = "once in a while"
    EACH_EPOCH = "once in an epoch"
    ONCE = "once"


class Effects:
    """The events of a file, and the questions that rules ask of them.

    Args:
        model: The file.
    """

    def __init__(self, model: FileModel) -> None:
        self._model = model
        self._what_reads = Reads(model)
        self._segments = Segments(model, self.ends_graph)

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
        reads = [*found.get(Effect.READ, ()), *self._what_reads.stores()]
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
        yield from self._what_reads.of_call(call, name)

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
        """See :meth:`Segments.ran_before`."""
        return self._segments.ran_before(node, value, loop)

    def made_behind(
        self, node: cst.CSTNode, value: cst.BaseExpression, loop: Loop, within: cst.CSTNode
    ) -> bool:
        """See :meth:`Segments.made_behind`."""
        return self._segments.made_behind(node, value, loop, within)

    def ends_between(
        self, first: cst.CSTNode, second: cst.CSTNode, loop: Loop
    ) -> Sequence[cst.CSTNode]:
        """See :meth:`Segments.ends_between`."""
        return self._segments.ends_between(first, second, loop)

    def ends_behind(self, node: cst.CSTNode, loop: Loop) -> bool:
        """See :meth:`Segments.ends_behind`."""
        return self._segments.ends_behind(node, loop)

    # Equal on all cores

    def equals(self, call: CallSite, what: Equal) -> bool:
        """Whether a call makes something the same on every core by itself."""
        name = self.name(call)
        return name is not None and name.equal is what
