"""Where code begins that every core runs: ``xmp.spawn``, process groups, launchers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint import family
from xladoctor.lint.model import frameworks, ignite
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.calls import given
from xladoctor.lint.model.dotted import imported, is_name, last_name, string
from xladoctor.lint.model.loops import Entry, OnXla
from xladoctor.lint.model.torchrun import reading
from xladoctor.lint.model.trials import asks_for_script

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from xladoctor.lint.model.callgraph import CallGraph
    from xladoctor.lint.model.devices import Devices
    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.syntax import Class, Function

#: Importing it is what makes the backend "xla" of torch.distributed known.
_XLA_BACKEND = "torch_xla.distributed.xla_backend"
#: What no core can do alone.
_MEETINGS = frozenset(f"{know.XM}.{name}" for name in ("rendezvous", "mesh_reduce", "all_reduce"))
#: What begins the names of functions that bring nobody back to the file.
_LIBRARIES = frozenset({"builtins", "torch", "torch_xla", "torchvision", "transformers"})
#: What holds the settings of optimum-neuron's Trainers.
_OF_NEURON = ("TrainingArguments", "SFTConfig")
#: Packages that read a command line.
_COMMAND_LINES = frozenset(
    {"absl", "argparse", "click", "draccus", "fire", "hydra", "simple_parsing", "typer", "tyro"}
)


class Entries:
    """Where the cores of a program begin.

    Args:
        flow: The program, and the values of its expressions.
        graph: Which function calls which.
        devices: Whether code runs on XLA devices.
    """

    def __init__(self, flow: Flow, graph: CallGraph, devices: Devices) -> None:
        self._tree = flow.tree
        self._names = flow.names
        self._flow = flow
        self._graph = graph
        self._devices = devices

    @functools.cached_property
    def all(self) -> Sequence[Entry]:
        """Where code begins that every core runs."""
        found: list[Entry] = []
        joins: list[cst.Call] = []
        alone: set[cst.Module] = set()  # start one process, which is no other file's either
        for call in self._tree.calls:
            name = self._names.resolve(call.func) or ""
            if call in self.starts:
                function = self.starts[call]
                if self._single(call):
                    alone.add(self._tree.module_of(call))
                elif function is not None:
                    found.append(Entry(function, call))
            elif (by_ignite := self._by_ignite(call)) is not None:
                found.append(Entry(by_ignite, call))
            elif name == "torch.distributed.init_process_group" and self._joins_xla(call):
                joins.append(call)
        # What starts the cores itself is run by one process, whoever joins a group then.
        through = [] if found else [one for call in joins for one in self._joined_through(call)]
        found.extend(Entry(self._graph.home[call], call) for call in joins)
        found.extend(through)
        found = found or self._started_by_others(alone)
        mine = {
            self._tree.module_of(node)
            for entry in found
            if not self._leads_away(entry)
            for node in (entry.call, entry.function.node if entry.function else None)
            if node is not None
        }
        started = self._started_elsewhere(mine | alone)
        return [
            *found,
            *self._of_each_core(found),
            *(Entry(function, None) for function in started),
        ]

    def _started_by_others(self, alone: Collection[cst.Module]) -> list[Entry]:
        """Where the cores begin in a program that does not start them: a launcher does.

        Args:
            alone: Modules that start one process.
        """
        home, calls = self._graph.home, self._tree.calls
        return (
            list(self._of_accelerate())
            # torchrun starts a script that makes XLA's backend known: the Trainer joins the group.
            or [
                Entry(home[call], call)
                for call in calls
                if self._names.resolve(call.func) in frameworks.TRAINERS
                and self._knows_backend(call)
            ]
            # As many processes as a model is split over run the script, too: torchrun starts them.
            or [Entry(home[call], call) for call in calls if self._splits(call)]
            # What transformers' and the XRT examples' launchers call on each core.
            or [
                Entry(function, None)
                for function in self._tree.functions.values()
                if function.name == "_mp_fn"
                and function.outer is None
                and self._tree.module_of(function.node) not in alone
                and function.parameters
                and self._flow.belief.believes(function.node)
            ]
            or list(self._with_accelerator())
        )

    @functools.cached_property
    def starts(self) -> Mapping[cst.Call, Function | None]:
        """Calls that start cores, to the function they start, as far as that is known."""
        found: dict[cst.Call, Function | None] = {}
        for call in self._tree.calls:
            name, place = self._names.resolve(call.func) or "", 0
            if name == know.PARTIAL and call.args:  # ``Thread(target=partial(xmp.spawn, run))``
                name, place = self._names.resolve(call.args[0].value) or "", 1
            if name in know.SPAWNERS:
                target = given(call, place, know.SPAWNERS[name])
                runs = self._flow.classes.runs
                found[call] = (
                    runs(self._flow.value(target)).function if target is not None else None
                )
                if found[call] is None and isinstance(target, cst.Call):
                    # ``xmp.spawn(run())``: meant for the cores
                    found[call] = self._flow.value(target.func).function
        return found

    @functools.cached_property
    def alone(self) -> frozenset[Function]:
        """Functions that are started on one core: ``xmp.spawn(train, nprocs=1)``."""
        started = (one for call, one in self.starts.items() if self._single(call))
        return frozenset(one for one in started if one is not None)

    def _by_ignite(self, call: cst.Call) -> Function | None:
        """``parallel.run(train)`` in a file for XLA devices, unless for another backend."""
        start = ignite.start(call, self._names, self._flow.value)
        if start is None or start.for_others or not self._flow.belief.believes(call):
            return None
        return self._flow.value(start.function).function

    def _leads_away(self, entry: Entry) -> bool:
        """Whether the cores take no step here, but hand what they are given to what is not here.

        ``def _mp_fn(index, args): main(args)``, where another file has ``main`` and comes back.
        """
        if entry.function is None:
            return False
        own = set(entry.function.parameters)
        calls = [*self._graph.reached(entry.function.node)]
        return not any(map(self._steps, calls)) and any(
            isinstance(call.func, cst.Name)
            and not self._flow.targets(call)
            and self._graph.home[call] is entry.function
            and any(isinstance(arg.value, cst.Name) and arg.value.value in own for arg in call.args)
            and (self._names.resolve(call.func) or "").partition(".")[0] not in _LIBRARIES
            for call in calls
        )

    def _steps(self, call: cst.Call) -> bool:
        """``xm.optimizer_step(optimizer)``, ``optimizer.step()``."""
        name = self._names.resolve(call.func)
        return name == f"{know.XM}.optimizer_step" or (
            isinstance(call.func, cst.Attribute) and call.func.attr.value == "step"
        )

    def _of_accelerate(self) -> Iterator[Entry]:
        """``accelerate launch`` starts the whole program on each core.

        Also what calls a function that makes the object (``accelerator = build(config)``), and
        the other methods of an object that keeps it. Made in a script's own lines, it is the whole
        script; a notebook's run in one process.
        """
        calls = [
            call
            for call in self._tree.calls
            if self._names.resolve(call.func) == frameworks.ACCELERATOR_CLASS
            and self._flow.belief.believes(call)
        ]
        begun: dict[Function, cst.Call] = {}
        tops = [call for call in calls if self._graph.home[call] is None]
        yield from (Entry(None, one) for one in tops if self._tree.module_of(one) in self._scripts)
        for call in calls:
            queue = [self._graph.home[call]]
            while queue:
                function = queue.pop()
                if function is None or function in begun:
                    continue
                begun[function] = call
                queue.extend(self._graph.home[caller] for caller in self._flow.callers(function))
        yield from (Entry(function, call) for function, call in begun.items())
        if begun:
            yield from (one for one in self._with_accelerator() if one.function not in begun)

    @functools.cached_property
    def _scripts(self) -> frozenset[cst.Module]:
        """The files that read a command line, or ask whether they are the script."""
        reading = (
            node
            for node in self._tree.imports
            if any(name.partition(".")[0] in _COMMAND_LINES for name in imported(node))
        )
        asking = filter(asks_for_script, self._tree.nodes(cst.If))
        return frozenset(map(self._tree.module_of, (*reading, *asking)))

    def _with_accelerator(self) -> Iterator[Entry]:
        """What has Accelerate's object, which another file makes: that is on each core too.

        Behind ``accelerator = build(config)``, and in functions that nobody here calls and that
        are given one, or whose object keeps one.
        """
        for node in self._tree.nodes(cst.Assign, cst.AnnAssign):
            call = node.value
            home = self._graph.home.get(call) if isinstance(call, cst.Call) else None
            if isinstance(call, cst.Call) and home is not None and self._is_accelerator(node):
                yield Entry(home, call)
        on_it = {call for call in self._tree.calls if self._of_accelerator(call)}
        for function in self._tree.functions.values() if on_it else ():
            uncalled = function.outer is None and not self._flow.callers(function)
            if uncalled and not on_it.isdisjoint(self._graph.reached(function.node)):
                yield Entry(function, None)

    def _is_accelerator(self, node: cst.Assign | cst.AnnAssign) -> bool:
        """Whether an assignment binds Accelerate's object, by its annotation or its name."""
        target = node.target if isinstance(node, cst.AnnAssign) else node.targets[0].target
        written = node.annotation.annotation if isinstance(node, cst.AnnAssign) else None
        named = last_name(target) in frameworks.ACCELERATORS
        typed = written is not None and self._names.resolve(written) == frameworks.ACCELERATOR_CLASS
        return (typed or named) and self._knows_accelerate(node)

    def _of_accelerator(self, call: cst.Call) -> bool:
        """``self.accelerator.backward(loss)``: a method of Accelerate's object, by its name."""
        holder = call.func.value if isinstance(call.func, cst.Attribute) else None
        return (
            holder is not None
            and last_name(holder) in frameworks.ACCELERATORS
            and self._knows_accelerate(call)
        )

    def _knows_accelerate(self, node: cst.CSTNode) -> bool:
        """Whether a node is of a file for XLA devices that imports Accelerate."""
        module = self._tree.module_of(node)
        return self._flow.belief.believes(node) and module in self._accelerated

    @functools.cached_property
    def _accelerated(self) -> frozenset[cst.Module]:
        return frozenset(
            self._tree.module_of(node)
            for node in self._tree.imports
            if any(name.partition(".")[0] == "accelerate" for name in imported(node))
        )

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
        written for several cores, and another file starts them. So are the Trainer and the
        callbacks of such a file, or of one that asks for torch_xla: they run on each core, with all
        that their library calls of them. A class is made on each core too where its ``__init__``
        asks for the device: before the start that raises.
        """
        asking = self._calling(know.ASKS_FOR_CORES) - known
        worded = asking | (self._calling(know.ASKS_FOR_XLA) - known)
        owners: set[Class] = set()
        for function in self._tree.functions.values():
            module, owner = self._tree.module_of(function.node), function.owner
            if function.outer is not None or module not in worded or self._is_called(function):
                continue
            trains = module in asking and any(
                self._reduces(call) for call in self._graph.reached(function.node)
            )
            if trains or (owner is not None and self._is_of_trainers(owner)):
                yield from (function,) if trains else ()
                owners.update((owner,) if owner is not None else ())
        for owner in sorted(owners, key=lambda one: self._tree.order[one.node]):
            yield from self._called_on_each_core(owner)

    def _calling(self, ends: tuple[str, ...]) -> set[cst.Module]:
        """The files that call something whose name has one of these ends."""
        return {
            self._tree.module_of(call)
            for call in self._tree.calls
            if (self._names.resolve(call.func) or "").endswith(ends)
        }

    def _is_of_trainers(self, owner: Class) -> bool:
        """Whether a class is a Trainer of transformers, or a callback for one."""
        hooks = self._flow.hooks
        return hooks.is_trainer(owner) or hooks.inherits(owner, frameworks.TRAINER_CALLBACKS)

    def _is_called(self, function: Function) -> bool:
        """Whether the program calls a function where it may run on XLA devices."""
        searching = self._devices.of_searches
        return any(
            self._devices.asked(call) is not OnXla.NO or self._tree.function_of(call) in searching
            for call in self._flow.callers(function)
        )

    def _called_on_each_core(self, owner: Class) -> Iterator[Function]:
        """Methods of an object that each core has: what makes it there, what a Trainer calls."""
        for name, method in owner.methods.items():
            if name == "__init__":
                calls = self._graph.calls_in(method)
                asked = (self._names.resolve(call.func) or "" for call in calls)
                if any(name.endswith(know.ASKS_FOR_DEVICE) for name in asked):
                    yield method
            elif name in frameworks.NOT_ON_XLA:
                continue
            elif self._is_of_trainers(owner) and not method.decorators:
                yield from () if self._flow.callers(method) else (method,)

    def _reduces(self, call: cst.Call) -> bool:
        """``xm.optimizer_step(optimizer)``, as programs for several cores write it.

        With ``barrier=True`` it may be one core's, but for a file in which cores meet.
        """
        return self._names.resolve(call.func) == f"{know.XM}.optimizer_step" and (
            given(call, 1, "barrier") is None or self._tree.module_of(call) in self._meeting
        )

    @functools.cached_property
    def _meeting(self) -> frozenset[cst.Module]:
        """The files whose cores wait for each other: ``xm.rendezvous("evaluation")``."""
        return frozenset(
            self._tree.module_of(call)
            for call in self._tree.calls
            if self._names.resolve(call.func) in _MEETINGS
        )

    def _joins_xla(self, call: cst.Call) -> bool:
        """Whether a process group is one of XLA's: by its backend, or all that a file has.

        ``backend=args.backend`` in a file that imports XLA's backend and nothing else of it.
        """
        backend = given(call, 0, "backend")
        if isinstance(backend, cst.SimpleString):
            return family.of_backend(str(string(backend))) is not None
        method = given(call, 1, "init_method")
        if isinstance(method, cst.SimpleString):
            return str(string(method)).startswith("xla:")
        return isinstance(backend, cst.Name | cst.Attribute) and self._knows_backend(call)

    def _joined_through(self, join: cst.Call) -> Iterator[Entry]:
        """What calls the function that joins a process group: ``setup()``, and then the training.

        A launcher has started each process with the whole script. A decorator may start the cores
        by itself (``@env.task``): then it is one process that calls the function.
        """
        queue = [self._graph.home[join]]
        seen = set(queue)
        for function in queue:
            if function is None or not all(map(self._is_harmless, function.decorators)):
                continue
            for caller in self._flow.callers(function):
                home = self._graph.home[caller]
                if home not in seen and (
                    home is not None or self._tree.module_of(caller) in self._scripts
                ):
                    seen.add(home)
                    queue.append(home)
                    yield Entry(home, join if home is not None else caller)

    def _is_harmless(self, decorator: cst.BaseExpression) -> bool:
        """``@staticmethod``, ``@torch.no_grad()``: it starts no processes."""
        asked = decorator.func if isinstance(decorator, cst.Call) else decorator
        return (self._names.resolve(asked) or "").partition(".")[0] in {"builtins", "torch"}

    def _knows_backend(self, call: cst.Call) -> bool:
        """Whether the file of a call imports XLA's backend of ``torch.distributed``."""
        module = self._tree.module_of(call)
        return any(
            self._tree.module_of(node) is module and _XLA_BACKEND in imported(node)
            for node in self._tree.imports
        )

    def modules(self) -> set[cst.CSTNode]:
        """The modules in which cores are started, and those of the functions they start in."""
        found: set[cst.CSTNode] = set()
        for entry in self.all:
            nodes = (entry.call, entry.function.node if entry.function else None)
            found.update(self._tree.module_of(node) for node in nodes if node is not None)
        return found

    def _splits(self, call: cst.Call) -> bool:
        """``NeuronTrainingArguments(tensor_parallel_size=2)``, with a part of the model on each.

        Or in a script that asks torchrun's variables which process it is, or of how many.
        """
        name = self._names.resolve(call.func) or ""
        if not name.startswith("optimum.neuron.") or not name.endswith(_OF_NEURON):
            return False
        if self._tree.module_of(call) in self._asking_torchrun:
            return self._flow.belief.believes(call)
        for key in ("tensor_parallel_size", "pipeline_parallel_size"):
            value = given(call, None, key)
            made = self._tree.assigned_once(value) if isinstance(value, cst.Name) else None
            parts = made or value
            if isinstance(parts, cst.Integer) and parts.value not in {"0", "1"}:
                return self._flow.belief.believes(call)
        return False

    @functools.cached_property
    def _asking_torchrun(self) -> frozenset[cst.Module]:
        return reading(self._tree, self._names)

    def _single(self, call: cst.Call) -> bool:
        cores = given(call, 2, "nprocs") or given(call, None, "num_processes")
        debug = given(call, None, "debug_single_process")
        if isinstance(cores, cst.Name):
            cores = self._tree.assigned_once(cores)
        return (isinstance(cores, cst.Integer) and cores.value == "1") or (is_name(debug, "True"))
