"""What the loops of a file are for: steps, evaluation, epochs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Returns
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.loops import Loop, LoopKind
from xladoctor.lint.model.syntax import Class, walk
from xladoctor.lint.model.values import UNKNOWN, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.names import LinkedNames, Names
    from xladoctor.lint.model.syntax import Function, LoopNode, Tree
    from xladoctor.lint.model.values import Value

_DEPTH = 3
_NO_GRAD = frozenset({"torch.no_grad", "torch.inference_mode"})
#: What gives the elements of what it is given, beside others.
_PASS_ON = frozenset({"builtins.enumerate", "builtins.zip"})
#: Asked by type, for most nodes are neither, and LibCST's abstract classes make isinstance slow.
_DEFINITIONS = frozenset([cst.FunctionDef, cst.Lambda, cst.ClassDef])
_REPEATING = frozenset(
    [
        cst.For, cst.While, cst.CompFor, cst.GeneratorExp, cst.ListComp, cst.SetComp, cst.DictComp,
    ]
)  # fmt: skip


class Loops:
    """The loops of a file and their kinds.

    Args:
        tree: The file's syntax.
        names: What its names are bound to.
        flow: The values of its expressions.
    """

    def __init__(self, tree: Tree, names: Names | LinkedNames, flow: Flow) -> None:
        self._tree = tree
        self._names = names
        self._flow = flow
        self._home = {call: tree.function_of(call) for call in tree.calls}
        self._innermost: dict[cst.CSTNode, LoopNode | None] = {}
        self._outside: dict[cst.CSTNode, tuple[LoopNode, ...]] = {}
        self._given_back: dict[Function, set[str]] = {}
        self._nearby: dict[Function, set[Function]] = {}
        self._called_in: dict[Function, set[Function]] = {}
        self._around = {node: self.innermost(node) for node in (*tree.calls, *tree.loops)}

    @functools.cached_property
    def all(self) -> Sequence[Loop]:
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
    def by_node(self) -> dict[cst.CSTNode, Loop]:
        """The loops by their nodes."""
        return {loop.node: loop for loop in self.all}

    @functools.cached_property
    def _inside(self) -> dict[LoopNode, dict[cst.CSTNode, None]]:
        """The calls and loops that stand in each loop, in order."""
        found: dict[LoopNode, dict[cst.CSTNode, None]] = {loop: {} for loop in self._tree.loops}
        if not found:
            return found
        for node in (*self._tree.calls, *self._tree.loops):
            for loop in self._loops_around(node):
                found[loop][node] = None
        return found

    def _loops_around(self, node: cst.CSTNode) -> tuple[LoopNode, ...]:
        """The loops around a node, those of other functions too."""
        known = self._outside
        passed: list[cst.CSTNode] = []
        current: cst.CSTNode | None = node
        while current is not None and current not in known:
            passed.append(current)
            current = self._tree.parents.get(current)
        around = known[current] if current is not None else ()
        for current in reversed(passed):
            parent = self._tree.parents.get(current)
            if type(parent) in _REPEATING:
                if isinstance(parent, cst.For | cst.While | cst.CompFor):
                    around = (parent, *around)
                elif isinstance(parent, cst.BaseComp) and current is not parent.for_in:
                    around = (parent.for_in, *around)
            known[current] = around
        return around

    @functools.cached_property
    def _kinds(self) -> dict[LoopNode, LoopKind]:
        steps = {
            loop
            for call in self._tree.calls
            if (loop := self._around[call]) is not None and self._trains(call, _DEPTH)
        }
        kinds: dict[LoopNode, LoopKind] = {}
        for node in self._tree.loops:
            if node in steps and not self._repeats_an_epoch(node, steps):
                kinds[node] = LoopKind.STEP
            else:
                kinds[node] = self._batch_loop(node)
        for node in self._tree.loops:
            # ``teacher.eval()`` before a loop over epochs says nothing of it.
            over = kinds[node] is LoopKind.EVAL and not self._over_batches(node)
            if kinds[node] is not LoopKind.STEP and self._is_rollout(node):
                kinds[node] = LoopKind.ROLLOUT
            elif (over or kinds[node] is LoopKind.OTHER) and self._holds_steps(node, kinds):
                kinds[node] = LoopKind.EPOCH
        return kinds

    def _is_rollout(self, node: LoopNode) -> bool:
        """``action = policy(state)``, ``state = env.step(action)``, both in each turn."""
        inside = (inner for inner in self._inside[node] if isinstance(inner, cst.Call))
        calls = [call for call in inside if self._around[call] is node]
        return any(steps_environment(call) for call in calls) and any(
            self._asks_model(call, _DEPTH) for call in calls
        )

    def _repeats_an_epoch(self, node: LoopNode, steps: set[LoopNode]) -> bool:
        """A loop around one over batches, that makes the last step of an epoch by itself.

        Both may stand in a function that it calls for each epoch.
        """
        if self._over_batches(node):
            return False
        batches = {loop for loop in steps if self._over_batches(loop)} - {node}
        homes = {self._tree.function_of(loop) for loop in batches} - {None}
        return any(
            self._reaches(inner, homes) if isinstance(inner, cst.Call) else inner in batches
            for inner in self._inside[node]
        )

    def _over_batches(self, node: LoopNode) -> bool:
        if isinstance(node, cst.While):
            return False
        return any(
            self._flow.value(item).is_loader
            or know.LOADER_NAME.search((dotted_text(item) or "").rpartition(".")[2])
            for item in self._sources(node.iter)
        )

    def _holds_steps(self, node: LoopNode, kinds: dict[LoopNode, LoopKind]) -> bool:
        step_loops = [loop for loop, kind in kinds.items() if kind is LoopKind.STEP]
        if any(loop in self._inside[node] for loop in step_loops):
            return True
        with_steps = {self._tree.function_of(loop) for loop in step_loops} - {None}
        return any(
            isinstance(inner, cst.Call) and self._reaches(inner, with_steps)
            for inner in self._inside[node]
        )

    def _reaches(self, call: cst.Call, wanted: set[Function | None]) -> bool:
        """Whether a call runs one of some functions, by itself or a few calls further on."""
        target = self.called(call)
        return target is not None and not wanted.isdisjoint(self._near(target))

    def _near(self, function: Function) -> set[Function]:
        """A function, those that it calls, and so on."""
        if function not in self._nearby:
            found = frontier = {function}
            for _ in range(_DEPTH - 1):
                frontier = {inner for one in frontier for inner in self._callees(one)} - found
                found = found | frontier
            self._nearby[function] = found
        return self._nearby[function]

    def _callees(self, function: Function) -> set[Function]:
        if function not in self._called_in:
            called = (self.called(call) for call in self.calls_in(function))
            self._called_in[function] = {one for one in called if one is not None}
        return self._called_in[function]

    def _trains(self, call: cst.Call, depth: int) -> bool:
        """Whether a call makes a backward pass or an optimizer step, in no loop of its own."""
        if self._is_training(call):
            return True
        target = self.called(call)
        if target is None or depth == 0 or target is self._home[call]:
            return False
        return any(
            self._around[inner] is None and self._trains(inner, depth - 1)
            for inner in self.calls_in(target)
        )

    def _is_training(self, call: cst.Call) -> bool:
        name = self._names.resolve(call.func)
        if name is not None:
            return name in {f"{know.XM}.optimizer_step", f"{know.XM}.reduce_gradients"}
        if self._flow.target(call) is not None:
            return False
        if self._scales(call):
            return True
        if not isinstance(call.func, cst.Attribute):
            return False
        method = call.func.attr.value
        if method in {"backward", "manual_backward"}:
            return True
        if method != "step":
            return False
        holders = [call.func.value, *(argument.value for argument in call.args[:1])]
        return any(self._flow.value(holder).kind is Kind.OPTIMIZER for holder in holders)

    def _scales(self, call: cst.Call) -> bool:
        """``loss_scaler(loss, optimizer)``: an object that goes backward and steps (timm)."""
        name = (dotted_text(call.func) or "").rpartition(".")[2]
        return bool(know.SCALER_NAME.search(name)) and any(
            self._flow.value(argument.value).kind is Kind.OPTIMIZER for argument in call.args
        )

    def _batch_loop(self, node: LoopNode) -> LoopKind:
        """The kind of a loop that does not train itself, by what it goes over."""
        if _runs_once(node) or self._over_modules(node) or self._asks_a_person(node):
            return LoopKind.OTHER
        named = self._over_batches(node)
        if not named and any(
            self._over_batches(inner)
            for inner in self._inside[node]
            if isinstance(inner, cst.For | cst.While | cst.CompFor)
        ):
            return LoopKind.OTHER  # of epochs: ``model.eval()`` before it says nothing of them
        calls = [inner for inner in self._inside[node] if isinstance(inner, cst.Call)]
        uses_model = any(self._asks_model(call, _DEPTH) for call in calls)
        if named and self._no_grad(node):
            return LoopKind.EVAL
        if not uses_model:
            return LoopKind.OTHER
        if named or self._no_grad(node) or self._looks_at_each(node, calls):
            # A loop that clears gradients trains, in a function that nobody has read.
            cleared = any(_method(call) == "zero_grad" for call in calls)
            return LoopKind.STEP if cleared else LoopKind.EVAL
        return LoopKind.OTHER

    def _asks_a_person(self, node: LoopNode) -> bool:
        """``while True: question = input(); ...``: as slow as somebody writes."""
        return isinstance(node, cst.While) and any(
            isinstance(inner, cst.Call) and self._names.resolve(inner.func) == "builtins.input"
            for inner in self._inside[node]
        )

    def _looks_at_each(self, node: LoopNode, calls: Sequence[cst.Call]) -> bool:
        """``for name in images: with torch.no_grad(): out = model(read(name))``.

        Also in a notebook's own lines, behind ``model.eval()``.
        """
        runs = [
            call
            for call in calls
            if self._around[call] is node and self._flow.value(call.func).kind is Kind.MODEL
        ]
        if not runs:
            return False
        if self._tree.function_of(node) is None and self._eval_before(node, None):
            return True
        return all(
            any(self._is_no_grad(item) for item in self._tree.ancestors(call)) for call in runs
        )

    def _is_no_grad(self, node: cst.CSTNode) -> bool:
        return isinstance(node, cst.With) and any(
            self._names.resolve(_called(item.item)) in _NO_GRAD for item in node.items
        )

    def _over_modules(self, node: LoopNode) -> bool:
        """``for layer in self.layers``: the layers of one model."""
        return not isinstance(node, cst.While) and any(
            self._flow.value(item).kind is Kind.MODEL for item in self._sources(node.iter)
        )

    def _asks_model(self, call: cst.Call, depth: int) -> bool:
        """Whether a call runs a model forward, by itself or in a function of the file."""
        if self._flow.value(call.func).kind is Kind.MODEL:
            return True
        target = self.called(call)
        if target is None:
            method = _method(call)
            return (
                bool(know.FORWARD_METHODS.search(method))
                and self._flow.value(call.func.value).kind is Kind.MODEL  # type: ignore[attr-defined]
            )
        if depth == 0 or target is self._home[call]:
            return False
        return any(self._asks_model(inner, depth - 1) for inner in self.calls_in(target))

    def _no_grad(self, node: cst.CSTNode) -> bool:
        for parent in self._tree.ancestors(node):
            if self._is_no_grad(parent):
                return True
            if isinstance(parent, cst.FunctionDef):
                decorators = (_called(item.decorator) for item in parent.decorators)
                if any(self._names.resolve(item) in _NO_GRAD for item in decorators):
                    return True
                return self._eval_before(node, parent)
        return False

    def _eval_before(self, node: cst.CSTNode, function: cst.FunctionDef | None) -> bool:
        """Whether the last ``.train()`` or ``.eval()`` before a node is ``.eval()``."""
        order = self._tree.order
        last: str | None = None
        home = self._tree.module_of(node)
        for call in (
            self.calls_in(self._tree.functions[function])
            if function is not None
            else (x for x in self._tree.calls if self._home[x] is None)
        ):
            if function is None and self._tree.module_of(call) is not home:
                continue
            if (
                isinstance(call.func, cst.Attribute)
                and call.func.attr.value in {"train", "eval"}
                and order[call] < order[node]
            ):
                last = call.func.attr.value
        return last == "eval"

    def _sources(
        self, node: cst.BaseExpression, depth: int = _DEPTH
    ) -> Iterator[cst.BaseExpression]:
        """What a loop goes over, within ``enumerate(tqdm(...))`` and the like."""
        yield node
        if isinstance(node, cst.Name) and depth:
            for made in self._passed_on(node):
                yield from self._sources(made, depth - 1)
        if isinstance(node, cst.IfExp):  # ``tqdm(batches) if verbose else batches``
            yield from self._sources(node.body, depth)
            yield from self._sources(node.orelse, depth)
        elif isinstance(node, cst.Call):
            for argument in node.args:
                named = argument.keyword is not None and argument.keyword.value != "iterable"
                if not named and not argument.star:
                    yield from self._sources(argument.value, depth)

    def _passed_on(self, name: cst.Name) -> Iterator[cst.BaseExpression]:
        """``batches = enumerate(loader)``, ``with tqdm(loader) as batches``: what it is made of."""
        bindings = self._names.lookup(name.value, self._tree.scopes[name]) or ()
        order = self._tree.order
        before = [item for item in bindings if order.get(item.node, 0) < order[name]]
        for binding in before[-1:]:  # of a name that is used again, the last one
            node: cst.CSTNode | None = binding.node
            if binding.kind == "other":  # the target of ``with ... as name``
                around = self._tree.parents.get(binding.node)
                item = self._tree.parents.get(around) if around is not None else None
                node = item.item if isinstance(item, cst.WithItem) else None
            ways = [node.body, node.orelse] if isinstance(node, cst.IfExp) else [node]
            for made in ways:
                if isinstance(made, cst.Call) and self._passes_on(made):
                    yield made

    def _passes_on(self, call: cst.Call) -> bool:
        """Whether a call gives what it is given, one by one."""
        name = self._names.resolve(call.func) or ""
        return name in _PASS_ON or self._flow.library.returns(name) is Returns.ITERATED

    def _iterates(self, node: LoopNode) -> Value:
        if isinstance(node, cst.While):
            return UNKNOWN
        values = [self._flow.value(item) for item in self._sources(node.iter)]
        loaders = [value for value in values if value.is_loader]
        on_device = (value for value in loaders if value.kind is Kind.DEVICE_LOADER)
        return next(on_device, loaders[0] if loaders else values[0])

    @functools.cached_property
    def _handed(self) -> dict[Function, LoopKind]:
        """Functions that Ignite's engines call for every batch."""
        found: dict[Function, LoopKind] = {}
        for call in self._tree.calls:
            name = self._names.resolve(call.func)
            given = {x.keyword.value if x.keyword else "": x.value for x in reversed(call.args)}
            if name in know.IGNITE_ENGINES:
                node = given.get("process_function", given.get(""))
            elif name in {know.IGNITE_TRAINER, know.IGNITE_EVALUATOR}:
                node = given.get("output_transform")
            else:
                continue
            function = self._flow.value(node).function if node is not None else None
            if function is not None and self._flow.believes(function.node):
                trains = any(self._trains(inner, _DEPTH) for inner in self.calls_in(function))
                is_step = name == know.IGNITE_TRAINER or trains
                found[function] = LoopKind.STEP if is_step else LoopKind.EVAL
        return found

    def _implicit(self, function: Function) -> LoopKind | None:
        if function in self._handed:
            return self._handed[function]
        if not self._flow.believes(function.node):
            return LoopKind.STEP if self._is_own_step(function) else None
        if self._is_lone_step(function) or self._feeds_lone_step(function):
            return LoopKind.STEP
        hooks = self._flow.hooks
        hook = hooks.hook(function)
        if hook is not None or self._flow.callers(function):
            return hook
        agents = self._of_agent(function)
        if agents is not None:
            return agents
        called = hooks.is_of_model(function) or hooks.is_step(function)
        return LoopKind.STEP if called else None

    def _is_own_step(self, function: Function) -> bool:
        """The step of the program's own optimizer, in a file that names no device itself."""
        return self._flow.hooks.is_step(function) and function.owner in self._made

    @functools.cached_property
    def _made(self) -> set[Class]:
        """The classes of the program that it makes objects of."""
        targets = (self._flow.target(call) for call in self._tree.calls)
        return {target for target in targets if isinstance(target, Class)}

    def _is_lone_step(self, function: Function) -> bool:
        """``train_step(batch)``, which another file calls for every batch.

        Or what a function gives back that puts a step together: ``step = make_step(model, opt)``.
        """
        named = know.STEP_NAME.search(function.name) or self._is_given_back(function)
        if not named or self._flow.callers(function):
            return False
        calls = self.calls_in(function)
        return bool(function.parameters) and any(
            self._around[call] is None and self._trains(call, 1) for call in calls
        )

    def _of_agent(self, function: Function) -> LoopKind | None:
        """``act(state)`` and ``learn()`` of an agent that another file lets act and learn."""
        if function.owner is None:
            return None
        methods = function.owner.methods.values()
        calls = self.calls_in(function)
        if know.ACT_NAME.search(function.name):
            learns = any(self._trains(call, 1) for one in methods for call in self.calls_in(one))
            acts = learns and any(self._asks_model(call, _DEPTH) for call in calls)
            return LoopKind.ROLLOUT if acts else None
        if not know.LEARN_NAME.search(function.name):
            return None
        acts = any(know.ACT_NAME.search(one.name) for one in methods)
        learns = any(self._around[call] is None and self._trains(call, 1) for call in calls)
        return LoopKind.STEP if acts and learns else None

    def _feeds_lone_step(self, function: Function) -> bool:
        """``feed_data(batch)`` of an object whose ``optimize_parameters()`` takes the step."""
        if function.owner is None or not know.FEED_NAME.search(function.name):
            return False
        return not self._flow.callers(function) and any(
            self._is_lone_step(method) for method in function.owner.methods.values()
        )

    def _is_given_back(self, function: Function) -> bool:
        outer = function.outer
        if outer is None or not isinstance(function.node, cst.FunctionDef):
            return False
        if outer not in self._given_back:
            self._given_back[outer] = {
                part.value.value
                for part in walk(outer.node, into_functions=False)
                if type(part) is cst.Return and type(part.value) is cst.Name
            }
        return function.name in self._given_back[outer]

    def innermost(self, node: cst.CSTNode) -> LoopNode | None:
        """The innermost loop of the same function that runs a node again and again."""
        found: LoopNode | None = None
        passed: list[cst.CSTNode] = []  # up to a loop, a function or what is known already
        current: cst.CSTNode | None = node
        while current is not None and found is None:
            if current in self._innermost:
                found = self._innermost[current]
                break
            passed.append(current)
            parent = self._tree.parents.get(current)
            if type(parent) in _REPEATING:
                found = _repeating(parent, current)
            current = None if type(parent) in _DEFINITIONS else parent
        self._innermost.update(dict.fromkeys(passed, found))
        return found

    @functools.cached_property
    def _by_home(self) -> dict[Function | None, list[cst.Call]]:
        found: dict[Function | None, list[cst.Call]] = {}
        for call, home in self._home.items():
            found.setdefault(home, []).append(call)
        return found

    def calls_in(self, function: Function | None) -> Sequence[cst.Call]:
        """The calls that stand in a function (None: in the module), not in functions within it."""
        return self._by_home.get(function, ())

    def runs(self, call: cst.Call) -> Iterator[Function]:
        """The functions of the file that a call may run, of a class its ``__init__``."""
        for target in self._flow.targets(call):
            function = (
                self._flow.method(target, "__init__") if isinstance(target, Class) else target
            )
            if function is not None:
                yield function

    def called(self, call: cst.Call) -> Function | None:
        """The function of the file that a call runs; of a class, its ``__init__``."""
        target = self._flow.target(call)
        if isinstance(target, Class):
            return self._flow.method(target, "__init__")
        return target


def _method(call: cst.Call) -> str:
    return call.func.attr.value if isinstance(call.func, cst.Attribute) else ""


def steps_environment(call: cst.Call) -> bool:
    """``env.step(action)``, ``self.envs.step(actions)``."""
    if _method(call) != "step" or not call.args:
        return False
    holder = dotted_text(call.func.value) or ""  # type: ignore[attr-defined]
    return bool(know.ENVIRONMENT_NAME.search(holder.rpartition(".")[2]))


def _called(node: cst.BaseExpression) -> cst.BaseExpression:
    return node.func if isinstance(node, cst.Call) else node


def _runs_once(node: LoopNode) -> bool:
    """``for batch in loader: ...; break``: a look at the first batch alone."""
    if not isinstance(node, cst.For) or not node.body.body:
        return False
    last = node.body.body[-1]
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    return isinstance(last, cst.Break | cst.Return) and not any(
        isinstance(part, cst.Continue) for part in walk(node.body, into_functions=False)
    )


def _repeating(parent: cst.CSTNode | None, child: cst.CSTNode) -> LoopNode | None:
    """The loop that a node is, or holds, if it runs what stands right in it again and again."""
    if isinstance(parent, cst.For) and child is parent.body:
        return parent
    if isinstance(parent, cst.While) and child in {parent.body, parent.test}:
        return parent
    if isinstance(parent, cst.BaseComp) and child is not parent.for_in:
        return parent.for_in
    return None
