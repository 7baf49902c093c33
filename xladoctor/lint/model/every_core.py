"""What every core runs: functions and modules, from where the cores begin."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import gpu_programs
from xladoctor.lint.model.dotted import is_name, last_name
from xladoctor.lint.model.loops import Entry, OnXla
from xladoctor.lint.model.parts import literal_parts
from xladoctor.lint.model.started_if import StartedIf
from xladoctor.lint.model.syntax import Class, Function
from xladoctor.lint.model.trials import asks_for_script

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xladoctor.lint.model.callgraph import CallGraph
    from xladoctor.lint.model.closures import StepClosures
    from xladoctor.lint.model.entries import Entries
    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.guards import Guards

_WAITS = frozenset({"rendezvous", "xla_rendezvous", "barrier", "wait_for_everyone"})


class EveryCore:
    """What the cores run, from where they begin.

    Args:
        flow: The program, and the values of its expressions.
        graph: Which function calls which.
        entries: Where the cores begin.
        closures: What is run after steps.
        guards: The conditions around nodes.
    """

    def __init__(
        self, flow: Flow, graph: CallGraph, entries: Entries, closures: StepClosures, guards: Guards
    ) -> None:
        self._tree = flow.tree
        self._flow = flow
        self._graph = graph
        self._entries = entries
        self._closures = closures
        self._devices = guards.devices
        self._around = guards.around
        self._started = StartedIf(flow.tree, guards.around)

    def entry(self, node: cst.CSTNode) -> Entry | None:
        """Where the cores start that all run a node; None where only other devices come."""
        entry = self._reached.get(self._tree.function_of(node) or self._tree.module_of(node))
        if entry is None or self._devices.runs(node) is OnXla.NO:
            return None
        return None if self._started.excludes(node, self._entries.all) else entry

    @functools.cached_property
    def _reached(self) -> dict[Function | cst.Module, Entry]:
        """What the cores run: functions, and modules whose own lines they run."""
        found: dict[Function | cst.Module, Entry] = {}
        for entry in self._entries.all:
            queue = [*self._begun(entry)]
            while queue:
                place = queue.pop()
                if place in found:
                    continue
                found[place] = entry
                queue.extend(self._next(place))
        for root, own in self._asking.items():
            for one in own:
                found.setdefault(one, Entry(root, None))
        return found

    def _own(self, root: Function) -> Sequence[Function]:
        """A function, and the methods of its own object that it calls: ``self.validate()``."""
        found = [root]
        for function in found:
            for call in self._graph.calls_in(function):
                found.extend(
                    target
                    for target in self._flow.targets(call)
                    if isinstance(target, Function) and target.owner is root.owner is not None
                    if target not in found
                )
        return found

    @property
    def _asking(self) -> Mapping[Function, Sequence[Function]]:
        """What other files call, and asks which core it is: ``if not self.is_master: return``.

        With the methods of its own object that it calls, which may ask for it (``_own``). Who asks
        is one of several, but for a Trainer, which asks everywhere. In a file that starts the
        cores, nobody runs it.
        """
        started = {self._tree.module_of(call) for call in self._entries.starts}
        return {
            function: own
            for function in self._tree.functions.values()
            if function.outer is None
            and self._tree.module_of(function.node) not in started
            and function not in self._entries.alone
            and not self._flow.callers(function)
            and self._flow.belief.believes(function.node)
            and (function.owner is None or not self._flow.hooks.is_trainer(function.owner))
            and any(map(self._asks, own := self._own(function)))
        }

    def _asks(self, function: Function) -> bool:
        """Whether a function does something on the master core alone, and is for XLA devices.

        Not if it also waits for the others: it lets one go first, after which they find the work
        done.
        """
        calls = self._graph.calls_in(function)
        return (
            any(guard.master is not None for call in calls for guard in self._around(call))
            and not any(map(_waits, calls))
            and self._on_gpus.isdisjoint(calls)
        )

    @functools.cached_property
    def _on_gpus(self) -> frozenset[cst.Call]:
        """The calls that need a GPU whatever is asked before."""
        found = gpu_programs.uses_gpu(self._tree, self._flow.names)
        return frozenset(call for call in found if gpu_programs.is_always(self._tree, call))

    def _begun(self, entry: Entry) -> Iterator[Function | cst.Module]:
        """Where each core begins: in a function, or with a script and the modules it imports.

        Another script of the same program is started by itself.
        """
        if entry.function is not None or entry.call is None:
            yield from (entry.function,) if entry.function is not None else ()
            return
        home = self._tree.module_of(entry.call)
        scripts = {self._tree.module_of(node) for node in self._script_guards}
        yield from (part for part in self._tree.modules if part is home or part not in scripts)

    @functools.cached_property
    def _script_guards(self) -> Sequence[cst.If]:
        """``if __name__ == "__main__":``, wherever it stands."""
        return [node for node in self._tree.nodes(cst.If) if asks_for_script(node)]

    def _calls_in(self, place: Function | cst.Module) -> Iterator[cst.Call]:
        """The calls of a function, or of the lines of a module outside of functions."""
        if not isinstance(place, cst.Module):
            yield from self._graph.calls_in(place)
            return
        for call in self._graph.calls_in(None):
            if self._tree.module_of(call) is place:
                yield call

    def _next(self, function: Function | cst.Module) -> Iterator[Function]:
        closures = {
            call: given for given, calls in self._closures.given_by.items() for call in calls
        }
        for call in self._calls_in(function):
            given = closures.get(call)
            targets = self._flow.targets(call) or ((given,) if given is not None else ())
            if targets and self._devices.runs(call) is OnXla.NO:
                continue
            if targets and self._started.excludes(call, self._entries.all):
                continue
            for target in targets:
                if isinstance(target, Class):
                    yield from self._of_object(target)
                elif target.owner not in self._alone or target.name == "__init__":
                    yield target
            for cls in self._made_for(call):
                yield from self._of_object(cls)
        for inner in self._tree.functions.values():
            if inner.outer is function and inner.owner is None:
                yield inner

    def _made_for(self, call: cst.Call) -> Iterator[Class]:
        """The classes in ``callbacks=[Saver]``, of which transformers' Trainer makes objects."""
        given = (arg.value for arg in call.args if is_name(arg.keyword, "callbacks"))
        for one in (part for value in given for part in literal_parts(value)):
            if isinstance(one, cst.Name):
                yield from self._flow.classes.in_order(self._flow.value(one).makes)

    def _of_object(self, cls: Class) -> Iterator[Function]:
        """What making an object runs, and may: what nobody here calls, others may call."""
        for method in cls.methods.values():
            called = cls in self._alone or self._flow.callers(method)
            if method.name == "__init__" or not called:
                yield method

    @functools.cached_property
    def _alone(self) -> frozenset[Class]:
        """Classes of which one core alone has objects: ``if rank == 0: hooks.append(Saver())``."""
        made: dict[Class, bool] = {}
        for call in self._tree.calls:
            for cls in self._flow.targets(call):
                if isinstance(cls, Class):
                    alone = any(guard.master is not None for guard in self._around(call))
                    made[cls] = made.get(cls, True) and alone
        return frozenset(cls for cls, alone in made.items() if alone)


def _waits(call: cst.Call) -> bool:
    """``xm.rendezvous("data")``, ``accelerator.wait_for_everyone()``."""
    return last_name(call.func) in _WAITS
