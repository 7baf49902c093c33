"""Which loop runs a node, how often, and who gets through: here, and through calls."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeAlias

import libcst as cst

from xladoctor.lint.model.callgraph import CallGraph
from xladoctor.lint.model.calls import given
from xladoctor.lint.model.closures import StepClosures
from xladoctor.lint.model.entries import Entries
from xladoctor.lint.model.every_core import EveryCore
from xladoctor.lint.model.guards import Guards
from xladoctor.lint.model.helpers import calls_of_given
from xladoctor.lint.model.iterators import held_as, is_next
from xladoctor.lint.model.loopkinds import Loops
from xladoctor.lint.model.loops import HOT, Loop, LoopKind
from xladoctor.lint.model.modes import Modes
from xladoctor.lint.model.rarity import Rarity
from xladoctor.lint.model.switches import Switches
from xladoctor.lint.model.syntax import Function
from xladoctor.lint.model.turns import is_head
from xladoctor.lint.model.unit_tests import UnitTests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.loops import Guard
    from xladoctor.lint.model.switches import Road
    from xladoctor.lint.model.syntax import LoopNode, Tree

_DEPTH = 3
#: How many calls deep a node may stand in what a loop runs.
_CHAIN = 6
#: Decorators that keep what a function gave for these arguments.
_KEPT = frozenset({"functools.cache", "functools.lru_cache"})
#: A loop, or a function (None: the module) outside of its loops; a kind of loop; a depth.
_Place: TypeAlias = "tuple[LoopNode | Function | None, LoopKind, int]"


class Regions:
    """Regions of a file, or of several linked ones.

    Args:
        flow: The program, and the values of its expressions.
    """

    def __init__(self, flow: Flow) -> None:
        self._tree = flow.tree
        self._names = flow.names
        self._flow = flow
        self.graph = CallGraph(flow)
        self.closures = StepClosures(flow, self.graph)
        self.guards = Guards(flow, self.closures.run_by)
        self._modes = Modes(flow, self.guards.around)
        self._rarity = Rarity(flow, self.guards, self._is_within)
        #: Whether code runs on XLA devices.
        self.devices = self.guards.devices
        self.entries = Entries(flow, self.graph, self.devices)
        self.cores = EveryCore(flow, self.graph, self.entries, self.closures, self.guards)
        #: What stands in unit tests.
        self.tests = UnitTests(flow)
        self._loops = Loops(flow, self.graph, self.tests)
        #: What runs without gradients.
        self.without_gradients = self._loops.without
        self._hottest: dict[_Place, Loop | None] = {}
        self._switches = Switches(flow.tree, self.guards.around)
        #: The calls of what a decorator is given.
        self._given_to = functools.cache(lambda wraps: tuple(calls_of_given(wraps)))

    # Loops

    @property
    def loops(self) -> Sequence[Loop]:
        """All loops, and the methods that a framework calls once per batch."""
        return self._loops.all

    def loop(self, node: cst.CSTNode) -> Loop | None:
        """The innermost loop around a node in the same function."""
        found = self._loops.innermost(node)
        return self._loops.by_node[found] if found is not None else None

    def loop_at(self, node: cst.CSTNode) -> Loop | None:
        """The loop that a node is."""
        return self._loops.by_node.get(node)

    def _is_within(self, node: cst.CSTNode) -> bool:
        """Whether a loop is one of no batches and epochs, which runs whole in each step."""
        loop = self.loop_at(node)
        other = loop is not None and loop.kind is LoopKind.OTHER
        return other and any(self.hot(node, kind) is not None for kind in HOT)

    def hot(self, node: cst.CSTNode, kind: LoopKind) -> Loop | None:
        """The loop of a kind that runs a node in every iteration, here or through calls."""
        return self._hot(node, kind, _CHAIN)

    def _hot(self, node: cst.CSTNode, kind: LoopKind, depth: int) -> Loop | None:
        if kind is LoopKind.STEP and self._modes.evaluates(node):
            return None
        # All nodes of one loop, or of a function's code outside of loops, have one answer.
        place = (self._loops.innermost(node) or self._tree.function_of(node), kind, depth)
        if place not in self._hottest:
            self._hottest[place] = self._find_hot(node, kind, depth)
        return self._hottest[place]

    def _find_hot(self, node: cst.CSTNode, kind: LoopKind, depth: int) -> Loop | None:
        for loop in self._loops_around(node):
            if loop.kind in HOT:
                return loop if loop.kind is kind else None
            if loop.kind is LoopKind.EPOCH:
                return None
        function = self._tree.function_of(node)
        if function is None or self.closures.is_closure(function):
            return None
        if self._runs_once(function, kind, depth):
            return None
        if function.node in self._loops.by_node:
            loop = self._loops.by_node[function.node]
            return loop if loop.kind is kind else None
        if depth == 0:
            return None
        inside = self._loops.innermost(node) is not None
        feeds = inside or function.name == "__next__"
        fed = self._fed_by(function, kind, depth - 1) if feeds else None
        if fed is not None:
            return fed
        through = (
            self._hot(call, kind, depth - 1)
            for call in self._callers(function)
            if self._tree.module_of(call) not in self._for_gpus
        )
        return next((loop for loop in through if loop is not None), None)

    def _runs_once(self, function: Function, kind: LoopKind, depth: int) -> bool:
        """Whether what a property gives, or a function without arguments, is kept from then on.

        A property once for each object: not where the loop makes these.
        """
        called = (x.func if isinstance(x, cst.Call) else x for x in function.decorators)
        names = [self._names.resolve(one) for one in called]
        if not _KEPT.isdisjoint(names) and not function.parameters:
            return True
        if "functools.cached_property" not in names:
            return False
        made = [x for x in self._tree.calls if self._flow.target(x) is function.owner]
        return bool(made) and depth > 0 and not any(self._hot(x, kind, depth - 1) for x in made)

    @functools.cached_property
    def _generators(self) -> frozenset[Function | None]:
        """The functions that yield."""
        return frozenset(map(self._tree.function_of, self._tree.by_type.get(cst.Yield, ())))

    def _fed_by(self, function: Function, kind: LoopKind, depth: int) -> Loop | None:
        """The loop that goes over a generator of the program: it runs what the generator loops.

        Also over an object whose ``__iter__`` or ``__next__`` it is, and ``next(batches)``.
        """
        if function not in self._generators and function.name != "__next__":
            return None
        made = (held for call in self._callers(function) for held in held_as(self._flow, call))
        for node in (*made, *self._flow.iterations(function)):
            child: cst.CSTNode = node
            for parent in self._tree.ancestors(node):
                if is_head(parent, child):
                    loop = self._loops.by_node.get(parent)
                    if loop is not None and loop.kind is kind:
                        return loop
                if not isinstance(parent, cst.Call | cst.Arg):
                    break  # ``enumerate(batches(loader))`` is gone over all the same
                if is_next(self._names, parent):
                    loop = self._hot(parent, kind, depth)
                    if loop is not None:
                        return loop
                child = parent
        return None

    @functools.cached_property
    def _for_gpus(self) -> frozenset[cst.CSTNode]:
        """The modules that train on GPUs alone: Apex, and no torch_xla; beside one that does not.

        ``train.py`` and ``train_xla.py`` of a program share their model: what it does for every
        batch of the first is nothing for XLA devices.
        """
        roots: dict[cst.CSTNode, set[str]] = {}
        for node in self._tree.imports:
            found = roots.setdefault(self._tree.module_of(node), set())
            # ``apex.normalization`` has layers, of models that run without it too.
            named = (
                name
                for name in self._names.foreign(node)
                if not name.startswith("apex.normalization")
            )
            found.update(name.partition(".")[0] for name in named)
        return frozenset(
            module
            for module, found in roots.items()
            if "apex" in found and "torch_xla" not in found
        )

    def _loops_around(self, node: cst.CSTNode) -> Iterator[Loop]:
        current = self._loops.innermost(node)
        while current is not None:
            yield self._loops.by_node[current]
            current = self._loops.innermost(_owner(self._tree, current))

    def callers(self, function: Function) -> Sequence[cst.Call]:
        """The calls of a function, but for those of scripts for other devices that share it."""
        found = self._flow.callers(function)
        if self.devices.is_for_gpus(function.node):
            return found
        return [call for call in found if not self.devices.is_for_gpus(call)]

    def _callers(self, function: Function) -> Sequence[cst.Call]:
        """The calls of a function; a lambda or inner function counts as called where it stands."""
        found = self.callers(function)
        if not found and isinstance(function.node, cst.Lambda):
            call = next(
                (p for p in self._tree.ancestors(function.node) if isinstance(p, cst.Call)), None
            )
            return [call] if call is not None else []
        return found

    # Guards

    def throttled(self, node: cst.CSTNode, *, of_batches: bool = False) -> bool:
        """Whether a node runs only every so many steps of the loop that runs it, or batches."""
        return self._throttled(node, _CHAIN, of_batches)

    def holds_step(self, guard: Guard) -> bool:
        """Whether the optimizer steps under a condition alone: it is true once for each step."""
        return self._rarity.holds_step(guard)

    def _throttled(self, node: cst.CSTNode, depth: int, of_batches: bool) -> bool:
        if self._rarity.rare(node, of_batches=of_batches):
            return True
        for loop in self._loops_around(node):  # ``for name, x in ...`` within ``if step % 50 == 0``
            if loop.kind is not LoopKind.OTHER:
                break
            owner = _owner(self._tree, loop.node)  # type: ignore[arg-type]
            if self._rarity.rare(owner, of_batches=of_batches):
                return True
        if any(loop.kind in HOT for loop in self._loops_around(node)):
            return False
        function = self._tree.function_of(node)
        if function is None or depth == 0 or function.node in self._loops.by_node:
            return False
        hot = [
            call
            for call in self._callers(function)
            if any(self._hot(call, kind, depth - 1) for kind in HOT)
        ]
        return bool(hot) and all(self._throttled(call, depth - 1, of_batches) for call in hot)

    def master_only(self, node: cst.CSTNode) -> Guard | None:
        """The guard that lets only the master core through, here or in all callers."""
        return self._through_callers((node,), self.guards.master, every=True)

    def core_guard(self, node: cst.CSTNode, *, every: bool = False) -> Guard | None:
        """The guard that may differ from core to core, here or in any caller (in all of them)."""
        return self._through_callers((node,), self.guards.differs, every=every)

    def _through_callers(
        self,
        road: Road,
        ask: Callable[[cst.CSTNode], Guard | None],
        *,
        every: bool,
        run_as: tuple[str, Function] | None = None,
    ) -> Guard | None:
        """A guard around a node or a call that leads there: in all callers, or in any.

        Args:
            road: The node, and the calls that lead to it.
            ask: What says which guard there is around a node.
            every: Whether all callers have to have one.
            run_as: The parameter by which the last function runs another one, and which.
        """
        guard: Guard | None = ask(road[-1])
        function = self._tree.function_of(road[-1])
        if guard is None and function is not None:
            guard = next(filter(None, map(ask, self._wrapping(function))), None)
        if guard is not None or function is None or len(road) > _DEPTH:
            return guard
        first: Guard | None = None
        for call in (*self._callers(function), *self.closures.calls(function)):
            if run_as is not None and self._gives_another(call, function, *run_as):
                continue
            if self._switches.off((*road, call)):
                continue
            as_function = self._run_as(call, function, run_as)
            found = self._through_callers((*road, call), ask, every=every, run_as=as_function)
            if (found is None) is every:
                return found
            first = first or found
        return first

    def _run_as(
        self, call: cst.Call, function: Function, before: tuple[str, Function] | None
    ) -> tuple[str, Function] | None:
        """The parameter by whose name a call runs a function: ``gather(x)`` in ``apply(gather)``.

        ``apply(gather, x)`` within ``apply`` itself hands it on.
        """
        home = self._tree.function_of(call)
        if before is not None and home is function:
            return before
        name = call.func.value if isinstance(call.func, cst.Name) else None
        return (name, function) if name and home and home.place(name) is not None else None

    def _gives_another(
        self, call: cst.Call, function: Function, parameter: str, wanted: Function
    ) -> bool:
        """Whether a call gives a parameter another function than the wanted one."""
        argument = given(call, function.place(parameter), parameter)
        if isinstance(argument, cst.Lambda):
            return argument is not wanted.node
        said = None if argument is None else self._names.definition(argument)
        return isinstance(said, Function) and said is not wanted

    def _wrapping(self, function: Function) -> Iterator[cst.Call]:
        """The calls by which decorators of the program run a function: ``@on_master``."""
        for decorator in function.decorators:
            made = decorator.func if isinstance(decorator, cst.Call) else decorator
            wraps = self._names.definition(made)
            if isinstance(wraps, Function):
                yield from self._given_to(wraps)


def _owner(tree: Tree, loop: LoopNode) -> cst.CSTNode:
    """For a comprehension's ``for``: the comprehension, which is what stands in the outer loop."""
    if not isinstance(loop, cst.CompFor):
        return loop
    node: cst.CSTNode = loop
    while isinstance(node, cst.CompFor):
        node = tree.parents[node]
    return node
