"""Where code runs: loops and what they are for, entry points of the cores, step closures."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.guards import Guards
from xladoctor.lint.model.loops import Entry, Loop, LoopKind
from xladoctor.lint.model.names import dotted_text
from xladoctor.lint.model.syntax import Class, Function
from xladoctor.lint.model.values import UNKNOWN, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.loops import Guard
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import LoopNode, Tree
    from xladoctor.lint.model.values import Value

_DEPTH = 3
_FRAMEWORKS = {
    "lightning": "lightning",
    "pytorch_lightning": "lightning",
    "accelerate": "accelerate",
    "transformers": "transformers",
}


def is_xla(tree: Tree, names: Names) -> bool:
    """Whether a file is for XLA devices: imports torch_xla, or a framework and asks for TPU cores."""
    roots = {name.partition(".")[0] for name in names.imported()}
    if "torch_xla" in roots:
        return True
    if not roots & set(_FRAMEWORKS):
        return False
    words = {"tpu", "PJRT_DEVICE", "XLA_USE_BF16", "xla"}
    return any(literal.evaluated_value in words for literal in tree.strings) or any(
        argument.keyword is not None and argument.keyword.value == "tpu_cores"
        for call in tree.calls
        for argument in call.args
    )


class Regions:
    """Regions of a file.

    Args:
        tree: The file's syntax.
        names: What its names are bound to.
        flow: The values of its expressions.
    """

    def __init__(self, tree: Tree, names: Names, flow: Flow) -> None:
        self._tree = tree
        self._names = names
        self._flow = flow
        self._guards = Guards(tree, names, flow)
        self.is_xla = flow.is_xla
        roots = {name.partition(".")[0] for name in names.imported()}
        self.frameworks = frozenset(_FRAMEWORKS[root] for root in roots if root in _FRAMEWORKS)
        self._home = {call: tree.function_of(call) for call in tree.calls}
        self._around = {node: self._inner_loop(node) for node in (*tree.calls, *tree.loops)}

    # The file

    @functools.cached_property
    def spmd(self) -> bool:
        """Whether it runs as one program over all devices."""
        called = (self._names.resolve(call.func) or "" for call in self._tree.calls)
        return any(
            name.endswith((".use_spmd", ".mark_sharding", ".xla_sharding.Mesh", ".spmd.Mesh"))
            and name.startswith("torch_xla")
            for name in called
        ) or any(literal.evaluated_value == "XLA_USE_SPMD" for literal in self._tree.strings)

    @functools.cached_property
    def entries(self) -> Sequence[Entry]:
        """Where code begins that every core runs."""
        found: list[Entry] = []
        for call in self._tree.calls:
            name = self._names.resolve(call.func) or ""
            if name in know.SPAWNERS:
                target = self._argument(call, 0, know.SPAWNERS[name])
                function = self._flow.value(target).function if target is not None else None
                if function is not None and not self._single(call):
                    found.append(Entry(function, call))
            elif name == "torch.distributed.init_process_group":
                backend = self._argument(call, 0, "backend")
                if isinstance(backend, cst.SimpleString) and backend.evaluated_value == "xla":
                    found.append(Entry(self._home[call], call))
        if not found and self.is_xla:
            # What transformers' and the XRT examples' launchers call on each core.
            found.extend(
                Entry(function, None)
                for function in self._tree.functions.values()
                if function.name == "_mp_fn" and function.outer is None and function.parameters
            )
        return found

    def _single(self, call: cst.Call) -> bool:
        cores = self._argument(call, 2, "nprocs") or self._argument(call, None, "num_processes")
        debug = self._argument(call, None, "debug_single_process")
        return (isinstance(cores, cst.Integer) and cores.value == "1") or (
            isinstance(debug, cst.Name) and debug.value == "True"
        )

    # Loops

    @functools.cached_property
    def loops(self) -> Sequence[Loop]:
        """All loops, and the methods that a framework calls once per batch."""
        found = [
            Loop(node, self._kinds[node], self._tree.function_of(node), self._iterates(node))
            for node in self._tree.loops
        ]
        for function in self._tree.functions.values():
            kind = self._implicit(function)
            if kind is not None:
                found.append(Loop(function.node, kind, function, UNKNOWN, implicit=True))
        return found

    @functools.cached_property
    def _by_node(self) -> dict[cst.CSTNode, Loop]:
        return {loop.node: loop for loop in self.loops}

    @functools.cached_property
    def _kinds(self) -> dict[LoopNode, LoopKind]:
        steps = {
            loop
            for call in self._tree.calls
            if (loop := self._around[call]) is not None and self._trains(call, _DEPTH)
        }
        kinds: dict[LoopNode, LoopKind] = {}
        for node in self._tree.loops:
            if node in steps:
                kinds[node] = LoopKind.STEP
            else:
                kinds[node] = self._batch_loop(node)
        for node in self._tree.loops:
            if kinds[node] is LoopKind.OTHER and self._holds_steps(node, kinds):
                kinds[node] = LoopKind.EPOCH
        return kinds

    def _holds_steps(self, node: LoopNode, kinds: dict[LoopNode, LoopKind]) -> bool:
        step_loops = [loop for loop, kind in kinds.items() if kind is LoopKind.STEP]
        if any(node in self._tree.ancestors(loop) for loop in step_loops):
            return True
        with_steps = {self._tree.function_of(loop) for loop in step_loops} - {None}
        return any(
            self._reaches(call, with_steps, _DEPTH)
            for call in self._tree.calls
            if node in self._tree.ancestors(call)
        )

    def _reaches(self, call: cst.Call, wanted: set[Function | None], depth: int) -> bool:
        target = self._function(call)
        if target is None or depth == 0:
            return False
        return target in wanted or any(
            self._reaches(inner, wanted, depth - 1) for inner in self._calls_in(target)
        )

    def _trains(self, call: cst.Call, depth: int) -> bool:
        """Whether a call makes an optimizer step or a backward pass, not within a loop of its own."""
        if self._is_training(call):
            return True
        target = self._function(call)
        if target is None or depth == 0 or target is self._home[call]:
            return False
        return any(
            self._around[inner] is None and self._trains(inner, depth - 1)
            for inner in self._calls_in(target)
        )

    def _is_training(self, call: cst.Call) -> bool:
        name = self._names.resolve(call.func)
        if name is not None:
            return name in {f"{know.XM}.optimizer_step", f"{know.XM}.reduce_gradients"}
        if not isinstance(call.func, cst.Attribute) or self._flow.target(call) is not None:
            return False
        method = call.func.attr.value
        if method in {"backward", "manual_backward"}:
            return True
        if method != "step":
            return False
        holders = [call.func.value, *(argument.value for argument in call.args[:1])]
        return any(self._flow.value(holder).kind is Kind.OPTIMIZER for holder in holders)

    def _batch_loop(self, node: LoopNode) -> LoopKind:
        """The kind of a loop that does not train itself, by what it goes over."""
        if isinstance(node, cst.While):
            return LoopKind.OTHER
        over = list(self._sources(node.iter))
        loader = any(self._flow.value(item).is_loader for item in over)
        texts = [text for item in over if (text := dotted_text(item))]
        named = any(know.LOADER_NAME.search(text.rpartition(".")[2]) for text in texts)
        uses_model = isinstance(node, cst.For) and any(
            node in self._tree.ancestors(call) and self._flow.value(call.func).kind is Kind.MODEL
            for call in self._tree.calls
        )
        if not (loader or named):
            return LoopKind.EVAL if uses_model and self._no_grad(node) else LoopKind.OTHER
        if self._no_grad(node):
            return LoopKind.EVAL
        if uses_model and any(know.EVAL_NAME.search(text) for text in texts):
            return LoopKind.EVAL
        return LoopKind.OTHER

    def _no_grad(self, node: cst.CSTNode) -> bool:
        names = {"torch.no_grad", "torch.inference_mode"}
        for parent in self._tree.ancestors(node):
            if isinstance(parent, cst.With):
                items = (_called(item.item) for item in parent.items)
                if any(self._names.resolve(item) in names for item in items):
                    return True
            elif isinstance(parent, cst.FunctionDef):
                decorators = (_called(item.decorator) for item in parent.decorators)
                if any(self._names.resolve(item) in names for item in decorators):
                    return True
                return self._eval_before(node, parent)
        return False

    def _eval_before(self, node: cst.CSTNode, function: cst.FunctionDef) -> bool:
        """Whether the last ``.train()`` or ``.eval()`` before a node is ``.eval()``."""
        row = self._tree.row(node)
        last: str | None = None
        for call in self._tree.calls:
            if (
                isinstance(call.func, cst.Attribute)
                and call.func.attr.value in {"train", "eval"}
                and self._home[call] is self._tree.functions[function]
                and self._tree.row(call) < row
            ):
                last = call.func.attr.value
        return last == "eval"

    def _sources(self, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
        """What a loop goes over, within ``enumerate(tqdm(...))`` and the like."""
        yield node
        if isinstance(node, cst.Call):
            for argument in node.args:
                if argument.keyword is None and not argument.star:
                    yield from self._sources(argument.value)

    def _iterates(self, node: LoopNode) -> Value:
        if isinstance(node, cst.While):
            return UNKNOWN
        values = [self._flow.value(item) for item in self._sources(node.iter)]
        return next((value for value in values if value.is_loader), values[0])

    def _implicit(self, function: Function) -> LoopKind | None:
        owner = function.owner
        if owner is None or not self.is_xla:
            return None
        if self._flow.inherits(owner, know.LIGHTNING_MODULES):
            if function.name in know.LIGHTNING_STEPS:
                return LoopKind.STEP
            if function.name in know.LIGHTNING_EVALS:
                return LoopKind.EVAL
        trainer = self._flow.inherits(owner, frozenset({"transformers.Trainer"}))
        if trainer and function.name in {"compute_loss", "training_step"}:
            return LoopKind.STEP
        is_forward = function.name == "forward" and self._flow.is_module(owner)
        return LoopKind.STEP if is_forward and not self._flow.callers(function) else None

    def _inner_loop(self, node: cst.CSTNode) -> LoopNode | None:
        """The innermost loop of the same function that runs a node again and again."""
        child = node
        for parent in self._tree.ancestors(node):
            if isinstance(parent, cst.FunctionDef | cst.Lambda | cst.ClassDef):
                return None
            if isinstance(parent, cst.For) and child is parent.body:
                return parent
            if isinstance(parent, cst.While) and child in {parent.body, parent.test}:
                return parent
            if isinstance(parent, cst.ListComp | cst.SetComp | cst.GeneratorExp | cst.DictComp):
                if child is not parent.for_in:
                    return parent.for_in
            child = parent
        return None

    def loop(self, node: cst.CSTNode) -> Loop | None:
        """The innermost loop around a node in the same function."""
        found = self._inner_loop(node)
        return self._by_node[found] if found is not None else None

    def hot(self, node: cst.CSTNode, kind: LoopKind) -> Loop | None:
        """The loop of a kind that runs a node in every iteration, here or through calls."""
        return self._hot(node, kind, _DEPTH)

    def _hot(self, node: cst.CSTNode, kind: LoopKind, depth: int) -> Loop | None:
        for loop in self._loops_around(node):
            if loop.kind in {LoopKind.STEP, LoopKind.EVAL}:
                return loop if loop.kind is kind else None
            if loop.kind is LoopKind.EPOCH:
                return None
        function = self._tree.function_of(node)
        if function is None or self._is_closure(function):
            return None
        if function.node in self._by_node:
            loop = self._by_node[function.node]
            return loop if loop.kind is kind else None
        if depth == 0:
            return None
        through = (self._hot(call, kind, depth - 1) for call in self._callers(function))
        return next((loop for loop in through if loop is not None), None)

    def _loops_around(self, node: cst.CSTNode) -> Iterator[Loop]:
        current = self._inner_loop(node)
        while current is not None:
            yield self._by_node[current]
            current = self._inner_loop(_owner(self._tree, current))

    def _callers(self, function: Function) -> Sequence[cst.Call]:
        """The calls of a function; a lambda or inner function counts as called where it stands."""
        found = self._flow.callers(function)
        if not found and isinstance(function.node, cst.Lambda):
            call = next(
                (p for p in self._tree.ancestors(function.node) if isinstance(p, cst.Call)), None
            )
            return [call] if call is not None else []
        return found

    # Guards

    def throttled(self, node: cst.CSTNode) -> bool:
        """Whether a node runs only every so many iterations of the loop that runs it."""
        return self._throttled(node, _DEPTH)

    def _throttled(self, node: cst.CSTNode, depth: int) -> bool:
        if self._guards.rare(node):
            return True
        if any(loop.kind in {LoopKind.STEP, LoopKind.EVAL} for loop in self._loops_around(node)):
            return False
        function = self._tree.function_of(node)
        if function is None or depth == 0 or function.node in self._by_node:
            return False
        hot = [
            call
            for call in self._callers(function)
            if self._hot(call, LoopKind.STEP, depth - 1)
            or self._hot(call, LoopKind.EVAL, depth - 1)
        ]
        return bool(hot) and all(self._throttled(call, depth - 1) for call in hot)

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
            for call in self._callers(function)
        ]
        if every and not all(found):
            return None
        return next((item for item in found if item is not None), None)

    # Step closures and cores

    @functools.cached_property
    def _closures(self) -> frozenset[Function]:
        found = set()
        for call in self._tree.calls:
            if self._names.resolve(call.func) in know.STEP_CLOSURES:
                closure = self._argument(call, 0, "closure")
                function = self._flow.value(closure).function if closure is not None else None
                if function is not None:
                    found.add(function)
        return frozenset(found)

    def _is_closure(self, function: Function, depth: int = _DEPTH) -> bool:
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

    def in_step_closure(self, node: cst.CSTNode) -> bool:
        """Whether a node is in a function given to ``add_step_closure``, or only called by one."""
        function = self._tree.function_of(node)
        while function is not None:
            if self._is_closure(function):
                return True
            function = function.outer
        return False

    @functools.cached_property
    def _reached(self) -> dict[Function | None, Entry]:
        found: dict[Function | None, Entry] = {}
        for entry in self.entries:
            queue: list[Function | None] = [entry.function]
            while queue:
                function = queue.pop()
                if function in found:
                    continue
                found[function] = entry
                queue.extend(self._next(function))
        return found

    def _next(self, function: Function | None) -> Iterator[Function]:
        for call in self._calls_in(function):
            target = self._flow.target(call)
            if isinstance(target, Class):
                yield from target.methods.values()
            elif target is not None:
                yield target
        for inner in self._tree.functions.values():
            if function is not None and inner.outer is function and inner.owner is None:
                yield inner

    def on_every_core(self, node: cst.CSTNode) -> Entry | None:
        """Where the cores start that all run a node."""
        return self._reached.get(self._tree.function_of(node))

    # Helpers

    @functools.cached_property
    def _by_home(self) -> dict[Function | None, list[cst.Call]]:
        found: dict[Function | None, list[cst.Call]] = {}
        for call, home in self._home.items():
            found.setdefault(home, []).append(call)
        return found

    def _calls_in(self, function: Function | None) -> Sequence[cst.Call]:
        return self._by_home.get(function, ())

    def _function(self, call: cst.Call) -> Function | None:
        target = self._flow.target(call)
        if isinstance(target, Class):
            return self._flow.method(target, "__init__")
        return target

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


def _called(node: cst.BaseExpression) -> cst.BaseExpression:
    return node.func if isinstance(node, cst.Call) else node
