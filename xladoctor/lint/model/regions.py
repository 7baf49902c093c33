"""Where code runs: loops and what they are for, entry points of the cores, step closures."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeAlias

import libcst as cst

from xladoctor.lint import family
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.dotted import imported, string
from xladoctor.lint.model.guards import Guards
from xladoctor.lint.model.loopkinds import Loops
from xladoctor.lint.model.loops import HOT, Entry, Loop, LoopKind, OnXla
from xladoctor.lint.model.rarity import Rarity
from xladoctor.lint.model.syntax import Class, Function, walk
from xladoctor.lint.model.trials import asks_for_script

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.loops import Guard
    from xladoctor.lint.model.names import LinkedNames, Names
    from xladoctor.lint.model.syntax import LoopNode, Tree

#: Importing it is what makes the backend "xla" of torch.distributed known.
_XLA_BACKEND = "torch_xla.distributed.xla_backend"
_DEPTH = 3
#: How many calls deep a node may stand in what a loop runs.
_CHAIN = 6
#: A loop, or a function (None: the module) outside of its loops; a kind of loop; a depth.
_Place: TypeAlias = "tuple[LoopNode | Function | None, LoopKind, int]"


class Regions:
    """Regions of a file, or of several linked ones.

    Args:
        tree: The syntax.
        names: What its names are bound to.
        flow: The values of its expressions.
    """

    def __init__(self, tree: Tree, names: Names | LinkedNames, flow: Flow) -> None:
        self._tree = tree
        self._names = names
        self._flow = flow
        self._guards = Guards(tree, names, flow, self._run_by)
        self._rarity = Rarity(tree, names, flow, self._guards)
        #: Whether code runs on XLA devices.
        self.devices = self._guards.devices
        self._home = {call: tree.function_of(call) for call in tree.calls}
        self._loops = Loops(tree, names, flow)
        self._reach: dict[cst.CSTNode, Sequence[cst.Call]] = {}
        self._hottest: dict[_Place, Loop | None] = {}
        self._only_closures: dict[tuple[Function, int], bool] = {}

    @functools.cached_property
    def entries(self) -> Sequence[Entry]:
        """Where code begins that every core runs."""
        found: list[Entry] = []
        alone: set[cst.Module] = set()  # start one process, which is no other file's either
        for call in self._tree.calls:
            name = self._names.resolve(call.func) or ""
            if name in know.SPAWNERS:
                target = self._argument(call, 0, know.SPAWNERS[name])
                function = self._flow.value(target).function if target is not None else None
                if self._single(call):
                    alone.add(self._tree.module_of(call))
                elif function is not None:
                    found.append(Entry(function, call))
            elif name == "torch.distributed.init_process_group" and self._joins_xla(call):
                found.append(Entry(self._home[call], call))
        if not found:
            # ``accelerate launch`` starts the whole program on each core.
            found.extend(
                Entry(self._home[call], call)
                for call in self._tree.calls
                if self._names.resolve(call.func) == know.ACCELERATOR_CLASS
                and self._home[call] is not None
                and self._flow.believes(call)
            )
        if not found:
            # What transformers' and the XRT examples' launchers call on each core.
            found.extend(
                Entry(function, None)
                for function in self._tree.functions.values()
                if function.name == "_mp_fn"
                and function.outer is None
                and self._tree.module_of(function.node) not in alone
                and function.parameters
                and self._flow.believes(function.node)
            )
        mine = {
            self._tree.module_of(node)
            for entry in found
            for node in (entry.call, entry.function.node if entry.function else None)
            if node is not None
        }
        started = self._started_elsewhere(mine | alone)
        return [
            *found,
            *self._of_each_core(found),
            *(Entry(function, None) for function in started),
        ]

    def _of_each_core(self, found: Sequence[Entry]) -> Iterator[Entry]:
        """What others call of a file that joins the cores as it is read: each core reads it."""
        whole = {
            self._tree.module_of(entry.call): entry.call
            for entry in found
            if entry.function is None and entry.call is not None
        }
        for function in self._tree.functions.values() if whole else ():
            call = whole.get(self._tree.module_of(function.node))
            if call is not None and function.outer is None and not self._flow.callers(function):
                yield Entry(function, call)

    def _started_elsewhere(self, known: set[cst.Module]) -> Iterator[Function]:
        """Training that nobody here calls, in files that ask for the other cores.

        A function that reduces gradients and ends no graph (``xm.optimizer_step(optimizer)``) is
        written for several cores, and another file starts them. A class is made on each core too
        where its ``__init__`` asks for the device: before the start that raises.
        """
        asking = {
            self._tree.module_of(call)
            for call in self._tree.calls
            if (self._names.resolve(call.func) or "").endswith(know.ASKS_FOR_CORES)
        } - known
        owners: set[Class] = set()
        for function in self._tree.functions.values():
            if (
                function.outer is None
                and self._tree.module_of(function.node) in asking
                and not self._flow.callers(function)
                and any(self._reduces(call) for call in self.reached(function.node))
            ):
                yield function
                if function.owner is not None:
                    owners.add(function.owner)
        for made in (owner.methods.get("__init__") for owner in owners):
            asked = (self._names.resolve(call.func) or "" for call in self._loops.calls_in(made))
            if made is not None and any(name.endswith(know.ASKS_FOR_DEVICE) for name in asked):
                yield made

    def _reduces(self, call: cst.Call) -> bool:
        """``xm.optimizer_step(optimizer)``, as programs for several cores write it."""
        return (
            self._names.resolve(call.func) == f"{know.XM}.optimizer_step"
            and self._argument(call, 1, "barrier") is None
        )

    def _joins_xla(self, call: cst.Call) -> bool:
        """Whether a process group is one of XLA's: by its backend, or all that a file has.

        ``backend=args.backend`` in a file that imports XLA's backend and nothing else of it.
        """
        backend = self._argument(call, 0, "backend")
        if isinstance(backend, cst.SimpleString):
            return family.of_backend(str(string(backend))) is not None
        method = self._argument(call, 1, "init_method")
        if isinstance(method, cst.SimpleString):
            return str(string(method)).startswith("xla:")
        module = self._tree.module_of(call)
        return isinstance(backend, cst.Name | cst.Attribute) and any(
            self._tree.module_of(node) is module and _XLA_BACKEND in imported(node)
            for node in self._tree.imports
        )

    def entry_modules(self) -> set[cst.CSTNode]:
        """The modules in which cores are started, and those of the functions they start in."""
        found: set[cst.CSTNode] = set()
        for entry in self.entries:
            nodes = (entry.call, entry.function.node if entry.function else None)
            found.update(self._tree.module_of(node) for node in nodes if node is not None)
        return found

    def _single(self, call: cst.Call) -> bool:
        cores = self._argument(call, 2, "nprocs") or self._argument(call, None, "num_processes")
        debug = self._argument(call, None, "debug_single_process")
        return (isinstance(cores, cst.Integer) and cores.value == "1") or (
            isinstance(debug, cst.Name) and debug.value == "True"
        )

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

    def hot(self, node: cst.CSTNode, kind: LoopKind) -> Loop | None:
        """The loop of a kind that runs a node in every iteration, here or through calls."""
        return self._hot(node, kind, _CHAIN)

    def _hot(self, node: cst.CSTNode, kind: LoopKind, depth: int) -> Loop | None:
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
        if function is None or self._is_closure(function):
            return None
        if function.node in self._loops.by_node:
            loop = self._loops.by_node[function.node]
            return loop if loop.kind is kind else None
        if depth == 0:
            return None
        inside = self._loops.innermost(node) is not None
        fed = self._fed_by(function, kind) if inside or function.name == "__next__" else None
        if fed is not None:
            return fed
        through = (
            self._hot(call, kind, depth - 1)
            for call in self._callers(function)
            if self._tree.module_of(call) not in self._for_gpus
        )
        return next((loop for loop in through if loop is not None), None)

    @functools.cached_property
    def _generators(self) -> frozenset[Function | None]:
        """The functions that yield."""
        return frozenset(map(self._tree.function_of, self._tree.by_type.get(cst.Yield, ())))

    def _fed_by(self, function: Function, kind: LoopKind) -> Loop | None:
        """The loop that goes over a generator of the program: it runs what the generator loops.

        Also over an object whose ``__iter__`` or ``__next__`` it is.
        """
        if function not in self._generators and function.name != "__next__":
            return None
        for node in (*self._callers(function), *self._flow.iterations(function)):
            child: cst.CSTNode = node
            for parent in self._tree.ancestors(node):
                if isinstance(parent, cst.For) and child is parent.iter:
                    loop = self._loops.by_node.get(parent)
                    if loop is not None and loop.kind is kind:
                        return loop
                if not isinstance(parent, cst.Call | cst.Arg):
                    break  # ``enumerate(batches(loader))`` is gone over all the same
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
            found.update(name.partition(".")[0] for name in imported(node))
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

    def _run_by(self, function: Function) -> Sequence[cst.Call]:
        """The calls of a function, and those that give it to ``add_step_closure``."""
        return [*self._flow.callers(function), *self._closures.get(function, ())]

    def callers(self, function: Function) -> Sequence[cst.Call]:
        """The calls of a function, but for those of scripts for other devices that share it."""
        found, others = self._flow.callers(function), self.devices.elsewhere
        if not others or self._tree.module_of(function.node) in others:
            return found
        return [call for call in found if self._tree.module_of(call) not in others]

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

    def guards(self, node: cst.CSTNode) -> Sequence[Guard]:
        """The conditions around a node within its function."""
        return self._guards.around(node)

    def master_only(self, node: cst.CSTNode) -> Guard | None:
        """The guard that lets only the master core through, here or in all callers."""
        return self._through_callers(node, self._guards.master, every=True, depth=_DEPTH)

    def core_guard(self, node: cst.CSTNode) -> Guard | None:
        """The guard that may differ from core to core, here or in any caller."""
        return self._through_callers(node, self._guards.differs, every=False, depth=_DEPTH)

    def _through_callers(
        self,
        node: cst.CSTNode,
        ask: functools.partial[Guard | None] | object,
        *,
        every: bool,
        depth: int,
    ) -> Guard | None:
        assert callable(ask)
        guard: Guard | None = ask(node)
        function = self._tree.function_of(node)
        if guard is not None or function is None or depth == 0:
            return guard
        found = [
            self._through_callers(call, ask, every=every, depth=depth - 1)
            for call in (*self._callers(function), *self._closures.get(function, ()))
        ]
        if every and not all(found):
            return None
        return next((item for item in found if item is not None), None)

    # Step closures and cores

    @functools.cached_property
    def _closures(self) -> Mapping[Function, Sequence[cst.Call]]:
        """The functions that are given to ``add_step_closure``, and the calls that give them."""
        found: dict[Function, list[cst.Call]] = {}
        for call in self._tree.calls:
            if self._names.resolve(call.func) in know.STEP_CLOSURES:
                closure = self._argument(call, 0, "closure")
                function = self._flow.value(closure).function if closure is not None else None
                if function is not None:
                    found.setdefault(function, []).append(call)
        return found

    def _is_closure(self, function: Function, depth: int = _DEPTH) -> bool:
        if not self._closures:
            return False
        asked = (function, depth)
        if asked not in self._only_closures:
            self._only_closures[asked] = self._find_closure(function, depth)
        return self._only_closures[asked]

    def _find_closure(self, function: Function, depth: int) -> bool:
        if function in self._closures:
            return True
        callers = self._flow.callers(function)
        return (
            bool(callers)
            and depth > 0
            and all(
                (home := self._home[call]) is not None and self._is_closure(home, depth - 1)
                for call in callers
            )
        )

    def closure_calls(self, function: Function) -> Sequence[cst.Call]:
        """The calls of ``add_step_closure`` that are given a function."""
        return self._closures.get(function, ())

    def in_step_closure(self, node: cst.CSTNode) -> bool:
        """Whether a node is in a function given to ``add_step_closure``, or only called by one."""
        function = self._tree.function_of(node)
        while function is not None:
            if self._is_closure(function):
                return True
            function = function.outer
        return False

    @functools.cached_property
    def _reached(self) -> dict[Function | cst.Module, Entry]:
        """What the cores run: functions, and modules whose own lines they run."""
        found: dict[Function | cst.Module, Entry] = {}
        for entry in self.entries:
            queue = [*self._begun(entry)]
            while queue:
                place = queue.pop()
                if place in found:
                    continue
                found[place] = entry
                queue.extend(self._next(place))
        return found

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
            yield from self._loops.calls_in(place)
            return
        for call in self._loops.calls_in(None):
            if self._tree.module_of(call) is place:
                yield call

    def _next(self, function: Function | cst.Module) -> Iterator[Function]:
        closures = {call: given for given, calls in self._closures.items() for call in calls}
        for call in self._calls_in(function):
            given = closures.get(call)
            targets = self._flow.targets(call) or ((given,) if given is not None else ())
            if targets and self.devices.runs(call) is OnXla.NO:
                continue
            for target in targets:
                if isinstance(target, Class):
                    yield from target.methods.values()
                else:
                    yield target
        for inner in self._tree.functions.values():
            if inner.outer is function and inner.owner is None:
                yield inner

    def on_every_core(self, node: cst.CSTNode) -> Entry | None:
        """Where the cores start that all run a node; None where only other devices come."""
        entry = self._reached.get(self._tree.function_of(node) or self._tree.module_of(node))
        return None if entry is None or self.devices.runs(node) is OnXla.NO else entry

    # Helpers

    def reached(self, node: cst.CSTNode) -> Sequence[cst.Call]:
        """The calls in a node, and in the functions of the file that they run."""
        if node not in self._reach:
            self._reach[node] = self._find_reached(node)
        return self._reach[node]

    def _find_reached(self, node: cst.CSTNode) -> Sequence[cst.Call]:
        dead = self._tree.unreached
        found = {part: None for part in walk(node) if type(part) is cst.Call and part not in dead}
        frontier = list(found)
        seen: set[Function] = set()
        for _ in range(_CHAIN):
            targets = {target for call in frontier for target in self._loops.runs(call)} - seen
            frontier = [call for target in targets for call in self._loops.calls_in(target)]
            found.update(dict.fromkeys(frontier))
            seen |= targets
        return sorted(found, key=self._tree.order.__getitem__)

    def _argument(
        self, call: cst.Call, index: int | None, keyword: str
    ) -> cst.BaseExpression | None:
        place = 0
        for argument in call.args:
            if argument.keyword is not None and argument.keyword.value == keyword:
                return argument.value
            if argument.keyword is None and not argument.star:
                if place == index:
                    return argument.value
                place += 1
        return None


def _owner(tree: Tree, loop: LoopNode) -> cst.CSTNode:
    """For a comprehension's ``for``: the comprehension, which is what stands in the outer loop."""
    if not isinstance(loop, cst.CompFor):
        return loop
    node: cst.CSTNode = loop
    while isinstance(node, cst.CompFor):
        node = tree.parents[node]
    return node
