"""Which optimizers are made, which models are moved, and of which objects, in the order of a run.

A run of the program's functions in the order of their statements that knows objects alone: what a
name, an attribute of an object, a parameter and a result are the same object as. It begins where
nothing in the program calls: in a function, at the top of a file, or with an object of a class
that is made, and then asked for one of its methods.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias

import libcst as cst

from xladoctor.lint.library import Returns
from xladoctor.lint.model import Class, Function, Kind, OnXla, walk
from xladoctor.lint.model.knowledge import SPAWNERS
from xladoctor.lint.model.syntax import children
from xladoctor.lint.rules._protocol import makes_optimizer, takes_step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel

#: How deep calls are followed, and how many of them from one beginning.
_DEPTH = 5
_MOST = 300
#: Moves what it wraps to the device by itself.
FSDP = "torch_xla.distributed.fsdp.XlaFullyShardedDataParallel"
#: What gives out the parameters of a model, and what holds them as they come.
PARAMETERS = frozenset(
    {
        *("parameters", "named_parameters", "trainable_parameters", "get_parameters"),
        *("get_trainable_parameters", "learnable_parameters", "optim_parameters"),
    }
)
HOLDERS = frozenset(
    {
        *("builtins.list", "builtins.tuple", "builtins.filter", "builtins.iter", "builtins.sorted"),
        *("itertools.chain", "builtins.set", "builtins.dict"),
    }
)
_DEFINITIONS = cst.FunctionDef | cst.ClassDef | cst.Lambda
#: Starts a function without the number of its core.
_NO_NUMBER = "notebook_launcher"


@dataclasses.dataclass(eq=False, slots=True)
class Thing:
    """An object of the run, with the objects that its attributes are.

    ``taken``: the models whose parameters it is, or holds (``list(net.parameters())``).
    ``given``: another file has made it, and may have moved it. ``cls``: what it is an object of.
    """

    owned: dict[str, Thing] = dataclasses.field(default_factory=dict)
    items: tuple[Thing, ...] = ()
    taken: tuple[Thing, ...] = ()
    given: bool = False
    cls: Class | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """An optimizer, and the models whose parameters it has taken.

    ``call`` is what is seen of it from here: another file may make it, in ``function``.
    """

    call: CallSite
    function: Function | None
    models: tuple[Thing, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Moved:
    """Models that were moved to the device at once; ``always``: no condition decides about it.

    ``seen`` is what is seen of the move from here.
    """

    call: CallSite
    seen: CallSite
    models: frozenset[Thing]
    always: bool


Event: TypeAlias = "Made | Moved | None"  # None: a step of an optimizer


def runs(model: FileModel) -> Iterator[Sequence[Event]]:
    """What happens from each place on where a run begins."""
    top = _Run(model)
    top.module()
    yield top.events
    for function in model.functions:
        if function.outer is not None or function.owner is not None:
            continue
        callers = model.callers(function)
        if not any(model.is_here(caller.node) for caller in callers):
            run = _Run(model)
            names = function.parameters if callers else ()
            run.enter(function, {name: Thing(given=True) for name in names}, Thing())
            yield run.events
    for owner in model.classes:
        first = owner.methods.get("__init__")
        if first is None:
            continue
        for method in owner.methods.values():
            if method is first or any(
                caller.function is not None and caller.function.owner is owner
                for caller in model.callers(method)
            ):
                continue  # a part of another method
            run, made = _Run(model), Thing(cls=owner)
            run.enter(first, {}, made)
            run.enter(method, {}, made)
            yield run.events


class _Run:
    """One run.

    Args:
        model: The file.
    """

    def __init__(self, model: FileModel) -> None:
        self._model = model
        self.events: list[Event] = []
        self._module: dict[str, Thing] = {}
        self._depth = 0
        self._calls: list[CallSite] = []
        self._count = 0
        self._sure = True

    def module(self) -> None:
        """Run the file's own lines: their names are known in the functions that they call."""
        self.body(self._model.tree.module, self._module)

    def enter(self, function: Function, given: dict[str, Thing], bound: Thing | None) -> Thing:
        """Run a function; what it gives back, or a new object if that is not one thing."""
        names = {name: given.get(name) or Thing() for name in function.parameters}
        if function.is_bound and function.parameters:
            names[function.parameters[0]] = bound or Thing()
        if isinstance(function.node, cst.Lambda):
            return Thing()
        return self.body(function.node.body, names)

    def body(self, node: cst.CSTNode, names: dict[str, Thing]) -> Thing:
        """Run statements in their order, the branches of conditions one after the other."""
        result = Thing()
        for part in _statements(node):
            if isinstance(part, cst.Assign):
                value = self._value(part.value, names)
                for target in part.targets:
                    self._bind(target.target, value, names)
            elif isinstance(part, cst.AugAssign) and isinstance(part.target, cst.Name):
                more = self._value(part.value, names).taken
                names[part.target.value] = Thing(taken=(*self._taken(part.target, names), *more))
            elif isinstance(part, cst.Return):
                if part.value is not None:
                    result = self._value(part.value, names)
            else:
                for call in _calls(part):
                    self._call(call, names)
        return result

    def _bind(self, target: cst.CSTNode, value: Thing, names: dict[str, Thing]) -> None:
        if isinstance(target, cst.Name):
            names[target.value] = value
        elif isinstance(target, cst.Attribute):
            self._value(target.value, names).owned[target.attr.value] = value
        elif isinstance(target, cst.Tuple | cst.List):
            fits = len(value.items) == len(target.elements)
            for index, element in enumerate(target.elements):
                self._bind(element.value, value.items[index] if fits else Thing(), names)

    def _value(self, node: cst.BaseExpression, names: dict[str, Thing]) -> Thing:
        if isinstance(node, cst.Name):
            return self._named(node.value, names) or names.setdefault(node.value, Thing())
        if isinstance(node, cst.Attribute):
            holder = self._value(node.value, names)
            return holder.owned.setdefault(node.attr.value, Thing(given=holder.given))
        if isinstance(node, cst.Tuple):
            return Thing(items=tuple(self._value(x.value, names) for x in node.elements))
        if isinstance(node, cst.Call):
            return self._call(node, names)
        for call in _calls(node):
            self._call(call, names)
        return Thing(taken=self._taken(node, names))

    def _named(self, name: str, names: dict[str, Thing]) -> Thing | None:
        """What a name is: the function's own, or one of the file."""
        return names.get(name) or self._module.get(name)

    def _call(self, node: cst.Call, names: dict[str, Thing]) -> Thing:
        call = self._model.call(node)
        if takes_step(self._model, call):
            self.events.append(None)
        if makes_optimizer(self._model, call) and not isinstance(call.target, Function):
            models = tuple(x for item in node.args for x in self._taken(item.value, names))
            if models:
                self.events.append(Made(self._seen_from_here(call), call.function, models))
                return Thing()
        given = [self._value(argument.value, names) for argument in node.args]
        held = self._held(call, names)
        if call.method == "to" and call.name is None and held is not None:
            device = call.argument(0, "device")
            if device is not None and self._is_xla(device, call.function, len(self._calls)):
                sure = self._sure and self._is_sure(node)
                # Parts of a module go with it; those of what has a ``to`` of its own may not.
                parts = held.owned.values() if call.target is None else ()
                gone = frozenset((held, *parts))
                self.events.append(Moved(call, self._seen_from_here(call), gone, sure))
            return held
        if call.name == FSDP:
            wrapped = Thing()
            gone = frozenset((wrapped,))
            self.events.append(Moved(call, self._seen_from_here(call), gone, always=True))
            return wrapped
        if call.method in PARAMETERS:
            return Thing(taken=self._taken(node, names))
        if call.name in SPAWNERS:
            return self._start(call, given)
        if self._target(call, held) is None:
            first = self._model.library.returns(call.name or "") is Returns.FIRST
            if first and given:
                return given[0]
            holds = call.name in HOLDERS
            return Thing(taken=self._taken(node, names) if holds else ())
        return self._run(call, given, held)

    def _held(self, call: CallSite, names: dict[str, Thing]) -> Thing | None:
        """What a method is called on; of ``super().__init__(net)`` the object itself."""
        function = call.function
        if call.receiver is None:
            return None
        if self._model.is_super(call.receiver) and function is not None and function.parameters:
            return names.get(function.parameters[0])
        return self._value(call.receiver, names)

    def _is_xla(self, device: cst.BaseExpression, function: Function | None, depth: int) -> bool:
        """Whether a device is one of XLA, by what the calls of this run give for a parameter."""
        caller = self._calls[depth - 1] if depth else None
        if function is None or caller is None or caller.target is not function:
            return self._model.value(device).kind is Kind.DEVICE
        if isinstance(device, cst.Name) and self._model.is_parameter(device):
            given = caller.given_to(function, device.value)
            if given is not None:
                return self._is_xla(given, caller.function, depth - 1)
            device = function.default(device.value) or device
        return self._model.value(device).kind is Kind.DEVICE

    def _start(self, call: CallSite, given: Sequence[Thing]) -> Thing:
        """``xmp.spawn(train, args=(net,))``: each core runs the function, after its number."""
        started = call.argument(0, SPAWNERS[str(call.name)])
        function = self._model.value(started).function if started is not None else None
        passed = call.argument(1, "args")
        if function is None or self._depth == _DEPTH or function.owner is not None:
            return Thing()
        items = next(
            (
                value.items
                for argument, value in zip(call.node.args, given, strict=True)
                if argument.value is passed
            ),
            (),
        )
        first = 0 if str(call.name).endswith(_NO_NUMBER) else 1
        self._depth += 1
        self._calls.append(call)
        self.enter(function, dict(zip(function.parameters[first:], items, strict=False)), None)
        self._calls.pop()
        self._depth -= 1
        return Thing()

    def _run(self, call: CallSite, given: Sequence[Thing], held: Thing | None) -> Thing:
        target, made = self._target(call, held), held
        if isinstance(target, Class):
            made = Thing(cls=target)
            target = self._model.method(target, "__init__")
        self._count += 1
        starred = any(argument.star for argument in call.node.args)
        if target is None or self._depth == _DEPTH or self._count > _MOST or starred:
            return made if isinstance(call.target, Class) and made is not None else Thing()
        places = list(target.arguments)
        taken: dict[str, Thing] = {}
        for argument, value in zip(call.node.args, given, strict=True):
            if argument.keyword is not None:
                taken[argument.keyword.value] = value
            elif places:
                taken[places.pop(0)] = value
        sure = self._sure
        self._sure = sure and (self._is_sure(call.node) or self._trains(target))
        self._depth += 1
        self._calls.append(call)
        result = self.enter(target, taken, made if target.is_bound else None)
        self._calls.pop()
        self._depth -= 1
        self._sure = sure
        return made if isinstance(call.target, Class) and made is not None else result

    def _target(self, call: CallSite, held: Thing | None) -> Function | Class | None:
        """What a call runs: of an object that this run has made, the method of its own class."""
        if call.method is None or held is None or held.cls is None:
            return call.target
        above = self._model.is_super(call.receiver)
        own = None if above else self._model.method(held.cls, call.method)
        return own or call.target

    def _taken(self, node: cst.CSTNode, names: dict[str, Thing]) -> tuple[Thing, ...]:
        """The models that an expression asks for their parameters, itself or by its names."""
        found: list[Thing] = []
        for part in walk(node):
            if isinstance(part, cst.Name):
                one = self._named(part.value, names)
                found += one.taken if one is not None else ()
            elif isinstance(part, cst.Attribute) and isinstance(part.value, cst.Name):
                holder = self._named(part.value.value, names)
                owned = holder.owned.get(part.attr.value) if holder is not None else None
                found += owned.taken if owned is not None else ()
            elif (
                isinstance(part, cst.Call)
                and isinstance(part.func, cst.Attribute)
                and part.func.attr.value in PARAMETERS
            ):
                found.append(self._value(part.func.value, names))
        return tuple(dict.fromkeys(found))

    def _seen_from_here(self, made: CallSite) -> CallSite:
        """A call, or the one of this file that leads to it in another one."""
        return next(
            (one for one in (made, *reversed(self._calls)) if self._model.is_here(one.node)), made
        )

    def _trains(self, function: Function) -> bool:
        """Whether a function takes steps: who decides that it runs decides about the training."""
        return any(takes_step(self._model, call) for call in self._model.reached(function.node))

    def _is_sure(self, node: cst.Call) -> bool:
        """Whether no condition of its function decides about a call, but one that asks for XLA.

        Nor for a device at all: ``if device is not None: net.to(device)`` of a device of XLA.
        """
        asked = {f"{self._model.tree.text(item.value).strip()} is not None" for item in node.args}
        return all(
            guard.runs is OnXla.YES
            or (guard.when and self._model.tree.text(guard.test).strip() in asked)
            for guard in self._model.guards(node)
        )


def _statements(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The small statements of a body in order, and the heads of those that hold others."""
    if isinstance(node, cst.Module | cst.IndentedBlock):
        for statement in node.body:
            yield from _statements(statement)
    elif isinstance(node, cst.SimpleStatementLine | cst.SimpleStatementSuite):
        yield from node.body
    elif isinstance(node, _DEFINITIONS):
        return
    else:
        for part in children(node):
            is_block = isinstance(part, cst.BaseSuite | cst.Else | cst.If | cst.Finally)
            if is_block or isinstance(part, cst.ExceptHandler):
                yield from _statements(part)
            elif isinstance(part, cst.BaseExpression | cst.WithItem):
                yield part


def _calls(node: cst.CSTNode) -> Iterator[cst.Call]:
    """The outermost calls in a node: each looks into its own arguments."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, cst.Call):
            yield part
        elif not isinstance(part, _DEFINITIONS):
            waiting.extend(reversed(children(part)))
