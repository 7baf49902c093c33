"""The value of a call of a library: Python's own, PyTorch, torch_xla, and others by their names."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint import family
from xladoctor.lint.library import Returns
from xladoctor.lint.model import booleans
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.contained import (
    all_moved,
    any_on_device,
    container,
    element_of,
    first_origin,
    flat,
    loader,
    modules,
    without_places,
)
from xladoctor.lint.model.dotted import dotted_text, string
from xladoctor.lint.model.iterators import iterated
from xladoctor.lint.model.values import (
    NUMBER,
    UNKNOWN,
    Arguments,
    Kind,
    Value,
    any_local,
    join,
    likely,
    on_device,
)
from xladoctor.lint.model.wrappers import meant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.lint.model.callvalue import CallEvaluator
    from xladoctor.lint.model.evaluate import Evaluator
    from xladoctor.lint.model.frames import Frame
    from xladoctor.lint.model.syntax import Function

#: What the library says that a call gives back: objects that it makes, what tells cores apart,
#: what loops go over.
_MADE = {
    Returns.DEVICE: Kind.DEVICE,
    Returns.SAMPLER: Kind.SAMPLER,
    Returns.OPTIMIZER: Kind.OPTIMIZER,
    Returns.SCHEDULER: Kind.SCHEDULER,
    Returns.MODEL: Kind.MODEL,
    Returns.LOSS: Kind.LOSS,
    Returns.OBJECT: Kind.OBJECT,
}
#: NumPy's dice, and what is called, of which they may pick one.
_PICK = "numpy.random.choice"
_CALLED = frozenset({Kind.MODEL, Kind.LOSS, Kind.FUNCTION})
_OF_CORES = {Returns.CORE_NUMBER: Kind.CORE_NUMBER, Returns.IS_MASTER: Kind.IS_MASTER}
_ABOUT_CORES = frozenset({Kind.CORE_NUMBER, Kind.IS_MASTER, Kind.NOT_MASTER})
_LOADERS = {
    Returns.LOADER: Kind.LOADER,
    Returns.DEVICE_LOADER: Kind.DEVICE_LOADER,
    Returns.PARALLEL_LOADER: Kind.PARALLEL_LOADER,
}
#: What goes over its arguments, of Python's own functions.
_GO_OVER = frozenset({"builtins.enumerate", "builtins.zip", "builtins.iter", "builtins.next"})
#: A partial of a partial of a partial, in a loop, must come to an end.
_MOST_BOUND = 8


class LibraryCalls:
    """Evaluates calls of libraries.

    Args:
        calls: Evaluates calls of functions of the program, which libraries call too.
        evaluator: Evaluates everything else.
    """

    def __init__(self, calls: CallEvaluator, evaluator: Evaluator) -> None:
        self._calls = calls
        self._evaluator = evaluator
        self._flow = evaluator.flow

    def named(self, node: cst.Call, name: str, arguments: Arguments, frame: Frame) -> Value:
        """What a call of a dotted name of a library gives back."""
        values = [value for _, value in arguments]
        first = values[0] if values else UNKNOWN
        if name.startswith("builtins."):
            return self._builtin(name, self._gone_over(name, node, arguments))
        if name in know.PICKS or (name == _PICK and element_of(first).kind in _CALLED):
            picked = element_of(first)
            return picked if name.endswith(".choice") else container(picked)
        if name in know.REDUCES:
            return self._reduced(node, name, values, frame)
        if name in know.GRADIENT_NORMS and (self._flow.steps() or any_on_device(values)):
            return Value(Kind.DEVICE_TENSOR, origin=node)
        if name in know.DATASETS:
            return _dataset(node, name, values)
        returned = self._flow.library.returns(meant(name) or name)
        if returned is not None:
            return self._returned(node, returned, name, arguments)
        if name.startswith("torch_xla"):
            return self._torch_xla(name, arguments)
        if name == "functools.partial":
            more = (*first.bound, *arguments[1:])
            fits = (first.kind is Kind.FUNCTION or first.makes) and len(more) <= _MOST_BOUND
            return first.but(bound=more) if fits else first
        if name == "torch.device":
            return self._torch_device(node, values)
        if name.startswith("torch."):
            tensor = self._tensor_function(node, arguments, made_here=False)
            tensor = self._typed(tensor, name, node, arguments)
            return container(tensor) if name in know.GIVES_PARTS else tensor
        if name in {know.IGNITE_TRAINER, know.IGNITE_EVALUATOR}:
            self._ignite(arguments)
        return self._library(node, name, values)

    def _returned(self, node: cst.Call, what: Returns, name: str, arguments: Arguments) -> Value:
        """What the library says that a call gives back."""
        values = [value for _, value in arguments]
        first = values[0] if values else UNKNOWN
        local = any(value.local or element_of(value).local for value in values)
        if what in _MADE:
            return Value(_MADE[what], certain=True, origin=node, type_name=name)
        if what in _OF_CORES:
            return Value(_OF_CORES[what], certain=True, origin=node, local=True)
        if what in _LOADERS:
            alike = first.alike if what is not Returns.LOADER else _same_batches(node, first)
            return loader(_LOADERS[what], first, node=node, alike=alike)
        match what:
            case Returns.MODULES:
                return _holds(node, name, arguments)
            case Returns.NEW_TENSOR | Returns.ARRAY:
                return self._filled(node, what, name, arguments)
            case Returns.BESIDE:
                return likely(self._tensor_function(node, arguments, made_here=False))
            case Returns.PARAMETER:
                return _parameter(node, first)
            case Returns.NUMBER:
                return NUMBER.but(local=local)
            case Returns.FACT:
                return NUMBER
            case Returns.FIRST | Returns.ITERATED:
                return first.but(type_name=name)
            case Returns.PLACED:
                return first.but(on_device=True)
            case _:
                return UNKNOWN

    def _filled(self, node: cst.Call, what: Returns, name: str, arguments: Arguments) -> Value:
        """A new tensor or array."""
        local = any(value.local or element_of(value).local for _, value in arguments)
        if what is Returns.ARRAY:
            made = Value(Kind.ARRAY, certain=True, local=local)
        elif name == "torch.from_numpy":
            # Whatever is believed of what it is given: that is an array, on the host.
            made = Value(Kind.CPU_TENSOR, certain=True, origin=node, local=local)
        else:
            made = self._tensor_function(node, arguments, made_here=True)
        return self._typed(made, name, node, arguments)

    def _typed(self, tensor: Value, name: str, node: cst.Call, arguments: Arguments) -> Value:
        """What a function of torch or NumPy makes, and whether it holds booleans."""
        if tensor.kind not in booleans.TENSORS:
            return tensor
        boolean = booleans.of_function(name, node, arguments, self._flow.names.resolve)
        return tensor if tensor.boolean is boolean else tensor.but(boolean=boolean)

    def _gone_over(self, name: str, node: cst.Call, arguments: Arguments) -> Arguments:
        """What ``enumerate`` and the like are given, where they go over objects of the program."""
        if name not in _GO_OVER:
            return arguments
        return [
            (keyword, iterated(self._flow, given.value, value))
            for (keyword, value), given in zip(arguments, node.args, strict=True)
        ]

    def _builtin(self, name: str, arguments: Arguments) -> Value:
        values = [value for _, value in arguments]
        first = values[0] if values else UNKNOWN
        local = any(value.local or element_of(value).local for value in values)
        if first.kind in _ABOUT_CORES and name in {"builtins.int", "builtins.bool"}:
            return first
        match self._flow.library.returns(name):
            case Returns.ITERATED:
                return without_places(first) if values else container(None)
            case Returns.NUMBER:
                return NUMBER.but(local=local)
            case Returns.FACT:
                return NUMBER
        if name == "builtins.range":
            return container(NUMBER)
        if name == "builtins.enumerate":
            return container(container(None, (NUMBER, element_of(first))))
        if name == "builtins.zip":
            return container(container(None, tuple(element_of(value) for value in values)))
        if name in {"builtins.next", "builtins.sum", "builtins.filter"}:
            inner = element_of(values[-1] if name == "builtins.filter" else first)
            return container(inner) if name == "builtins.filter" else inner
        if name in {"builtins.max", "builtins.min", "builtins.abs"}:
            parts = [element_of(v) if v.kind is Kind.CONTAINER else v for v in values]
            return functools.reduce(join, parts) if parts else UNKNOWN
        if name == "builtins.map" and first.function is not None:
            given = [(None, element_of(value)) for value in values[1:]]
            return container(self._calls.enter(None, first.function, first, given))
        return dictionary(arguments) if name == "builtins.dict" else UNKNOWN

    def _reduced(self, node: cst.Call, name: str, values: Sequence[Value], frame: Frame) -> Value:
        """Afterwards every core holds the same: also in place, in the tensors of a list."""
        for argument in node.args:
            parts = (
                [element.value for element in argument.value.elements]
                if isinstance(argument.value, cst.List)
                else [argument.value]
            )
            for part in parts:
                text = dotted_text(part)
                if text is not None and text in frame.env:
                    frame.env[text] = frame.env[text].but(local=False)
        if name.endswith(".mesh_reduce"):
            return NUMBER
        tensors = [value for value in values if value.holds_device_tensor]
        if tensors:
            return tensors[0].but(local=False)
        # They are given a device tensor, wherever it is from, and give back a new one.
        place = {f"{know.XM}.all_reduce": 1, f"{know.XM}.all_gather": 0}.get(name, len(values))
        one = place < len(values) and values[place].kind is Kind.UNKNOWN
        return Value(Kind.DEVICE_TENSOR, origin=node) if one else UNKNOWN

    def _torch_xla(self, name: str, arguments: Arguments) -> Value:
        if name in know.SPAWNERS:
            self._spawned(name, arguments)
            return UNKNOWN
        if name.endswith("add_step_closure"):
            self._closure(arguments)
        return UNKNOWN

    def _spawned(self, name: str, arguments: Arguments) -> None:
        """The function gets the number of its core first, then ``args``."""
        keywords = {key: value for key, value in arguments if key is not None}
        positional = [value for key, value in arguments if key is None]
        function = keywords.get(know.SPAWNERS[name], positional[0] if positional else UNKNOWN)
        extra = keywords.get("args", positional[1] if len(positional) > 1 else container(None))
        if function.function is None:
            return
        core = Value(Kind.CORE_NUMBER, certain=True, local=True)
        given: list[tuple[str | None, Value]] = [(None, core)]
        if name.endswith("notebook_launcher") or _forgets_core(function.function, extra):
            given = []
        given.extend((None, item) for item in extra.items or ())
        self._calls.enter(None, function.function, function, given)

    def started(self, arguments: Arguments) -> None:
        """``mp.Process(target=train, args=(model, device))``, or a thread: it gets ``args``."""
        keywords = {key: value for key, value in arguments if key is not None}
        function, given = keywords.get("target", UNKNOWN), keywords.get("args", UNKNOWN)
        if function.function is not None and given.kind is Kind.CONTAINER:
            bound = [(None, item) for item in given.items or ()]
            self._calls.enter(None, function.function, function, bound)

    def data_parallel(self, arguments: Arguments) -> Value:
        """``model_parallel(train_loop_fn, loader)``: the function gets what belongs to its core.

        Its model, a device loader, its device, and an object that keeps what the core had before.
        """
        positional = [value for key, value in arguments if key is None]
        if len(positional) < 2 or positional[0].function is None:
            return UNKNOWN
        given = (
            Value(Kind.MODEL, on_device=True),
            Value(Kind.DEVICE_LOADER, element=positional[1], type_name=know.DATA_PARALLEL),
            Value(Kind.DEVICE, certain=True),
            UNKNOWN,
        )
        bound = [(None, value) for value in given]
        return container(self._calls.enter(None, positional[0].function, positional[0], bound))

    def _closure(self, arguments: Arguments) -> None:
        positional = [value for key, value in arguments if key is None]
        keywords = {key: value for key, value in arguments if key is not None}
        function = positional[0] if positional else keywords.get("closure", UNKNOWN)
        extra = keywords.get("args", positional[1] if len(positional) > 1 else UNKNOWN)
        if function.function is not None and extra.items:
            given = [(None, item) for item in extra.items]
            self._calls.enter(None, function.function, function, given)

    def _torch_device(self, node: cst.Call, values: Sequence[Value]) -> Value:
        argument = node.args[0].value if node.args else None
        if isinstance(argument, cst.SimpleString):
            xla = family.of_device(str(string(argument))) is not None
            return Value(Kind.DEVICE if xla else Kind.OTHER_DEVICE, certain=True, origin=node)
        if isinstance(argument, cst.IfExp):
            # ``"cuda" if torch.cuda.is_available() else "cpu"``
            named = [
                family.of_device(str(string(part))) is not None
                for part in (argument.body, argument.orelse)
                if isinstance(part, cst.SimpleString)
            ]
            if len(named) == 2 and not any(named):
                return Value(Kind.OTHER_DEVICE, certain=True, origin=node)
        if values and values[0].kind in {Kind.DEVICE, Kind.OTHER_DEVICE}:
            return values[0]
        return UNKNOWN

    def _tensor_function(self, node: cst.Call, arguments: Arguments, *, made_here: bool) -> Value:
        values = [value for _, value in arguments]
        local = any(value.local for value in values)
        device = next((value for key, value in arguments if key == "device"), None)
        written = _written_device(node)
        if written is not None:
            return on_device(Value(written, certain=True), node, local=local)
        if device is not None:
            return on_device(device, node, local=local)
        known = [value for value in values if value.holds_device_tensor]
        if known:
            certain = any(value.certain for value in known)
            return Value(Kind.DEVICE_TENSOR, certain, first_origin(known), local=local)
        if made_here:
            return Value(Kind.CPU_TENSOR, certain=True, origin=node, local=local)
        tensors = [flat(value) for value in values if value.kind is not Kind.NUMBER]
        if tensors and all(value.kind is Kind.CPU_TENSOR for value in tensors):
            return Value(Kind.CPU_TENSOR, certain=True, origin=node, local=local)
        given = (flat(value).made_of_device for value in values)
        return Value(local=local, made_of_device=any(given))

    def _ignite(self, arguments: Arguments) -> None:
        """``create_supervised_trainer(..., output_transform=f)`` hands ``f`` the step's tensors."""
        function = dict(arguments).get("output_transform", UNKNOWN)
        if function.function is not None and self._flow.believes():
            given = [(None, Value(Kind.DEVICE_TENSOR, local=True))] * 4
            self._calls.enter(None, function.function, function, given)

    def _library(self, node: cst.Call, name: str, values: Sequence[Value]) -> Value:
        last = name.rpartition(".")[2]
        parts = name.split(".")
        if last in {"from_pretrained", "from_config"}:
            owner = parts[-2] if len(parts) > 1 else ""
            if know.NOT_MODELS.search(owner):
                return UNKNOWN
            return Value(Kind.MODEL, origin=node, type_name=name)
        if know.MOVER.search(last) and any(value.kind is Kind.DEVICE for value in values):
            return all_moved(values[0], node)
        if self._flow.believes() and (asked := _asks_for_core(last)) is not None:
            return Value(asked, origin=node, local=True)
        if last[:1].isupper() and _trains_parameters(node):
            return Value(Kind.OPTIMIZER, origin=node)
        if last[:1].isupper() and know.AVERAGE_NAME.search(last) and _is_model(values):
            return _wrapped(values, node, name)
        if last[:1].isupper():
            kind = Kind.LOSS if last.endswith(("Loss", "Criterion")) else Kind.OBJECT
            return Value(kind, certain=True, origin=node, type_name=name)
        local = any_local(values)
        given = any_on_device(values) or any(value.made_of_device for value in values)
        if given and know.LOSS_FUNCTION.search(last):
            return Value(Kind.DEVICE_TENSOR, origin=first_origin(values), local=local)
        return Value(local=local, made_of_device=given)


def _parameter(node: cst.Call, given: Value) -> Value:
    """A tensor that is moved with the module that it is kept in."""
    kind = given.kind if given.is_device_tensor else Kind.CPU_TENSOR
    return Value(kind, given.certain, node, given.local, type_name=know.PARAMETER)


def _asks_for_core(last: str) -> Kind | None:
    """``misc.is_main_process()`` and ``dist_utils.get_rank()`` of files that nobody has read."""
    if know.ASKS_MASTER.match(last):
        return Kind.IS_MASTER
    return Kind.CORE_NUMBER if know.ASKS_RANK.match(last) else None


def _written_device(node: cst.Call) -> Kind | None:
    """The device that ``device="cpu"`` or ``device="xla"`` says, None if it is no such text."""
    for argument in node.args:
        text = argument.value
        named = argument.keyword is not None and argument.keyword.value == "device"
        if named and isinstance(text, cst.SimpleString):
            kind = str(string(text)).partition(":")[0]
            return {"xla": Kind.DEVICE, "cpu": Kind.OTHER_DEVICE}.get(kind)
    return None


def _same_batches(node: cst.Call, dataset: Value) -> bool:
    """``DataLoader(dataset, batch_size=8)``: every core goes over all of it, in the same order.

    The dataset itself may be one core's part, where it was made with the core's number.
    """
    given = {x.keyword.value: x.value for x in node.args if x.keyword is not None}
    shuffle = given.pop("shuffle", None)
    ordered = shuffle is None or (isinstance(shuffle, cst.Name) and shuffle.value == "False")
    few = sum(x.keyword is None for x in node.args) <= 2 and not any(x.star for x in node.args)
    return ordered and few and not dataset.local and not {"sampler", "batch_sampler"} & given.keys()


def _dataset(node: cst.Call, name: str, values: Sequence[Value]) -> Value:
    """``TensorDataset(x, y)``, whose samples are where its tensors are, and parts of it."""
    first = values[0] if values else UNKNOWN
    if name.endswith(".random_split"):
        return container(first)
    if name.endswith(".Subset"):
        return first
    local = any_local(values)
    sample = container(None, tuple(values))
    return Value(Kind.OBJECT, True, node, local=local, element=sample, type_name=name)


def _forgets_core(function: Function, extra: Value) -> bool:
    """``def main(args)`` that is spawned with ``args=(args,)``: XLA408 says enough of it."""
    parameters = function.node.params
    taken = len(function.parameters) - int(function.owner is not None and not function.is_static)
    return (
        extra.items is not None
        and 0 < len(extra.items) == taken
        and not isinstance(parameters.star_arg, cst.Param)
    )


def _is_model(values: Sequence[Value]) -> bool:
    return bool(values) and values[0].kind is Kind.MODEL


def _wrapped(values: Sequence[Value], node: cst.CSTNode, name: str) -> Value:
    """A copy of a model, or a model around it: where the first is, it is too."""
    on = values[0].on_device if _is_model(values) else False
    return Value(Kind.MODEL, certain=True, origin=node, on_device=on, type_name=name)


def _trains_parameters(node: cst.Call) -> bool:
    """``Lion(model.parameters(), lr=1e-4)``: an optimizer, whoever's it is."""
    rate = any(
        x.keyword is not None and x.keyword.value in {"lr", "learning_rate"} for x in node.args
    )
    if not rate or not node.args:
        return False
    first = node.args[0].value
    method = first.func if isinstance(first, cst.Call) else None
    if isinstance(method, cst.Attribute):
        return method.attr.value == "parameters"
    return isinstance(first, cst.Name) and "param" in first.value.lower()


def _holds(node: cst.Call, name: str, arguments: Arguments) -> Value:
    """``nn.ModuleList([a, b])``, ``nn.Sequential(*layers)``: a model of those that it is given."""
    parts: list[Value] = []
    places = True
    for keyword, value in arguments:
        if value.kind is not Kind.CONTAINER:
            parts.append(value)
        elif value.items is not None:
            parts.extend(value.items)
        else:
            parts.append(element_of(value))
            places = False
        places = places and keyword is None
    return modules(parts, places=places, node=node, name=name)


def _second_of(pair: Value) -> Value:
    """``dict([(name, optimizer) for ...])`` and ``dict(zip(names, optimizers))``: the values."""
    return pair.items[1] if pair.items is not None and len(pair.items) == 2 else pair


def dictionary(arguments: Arguments) -> Value:
    """``dict(loss=loss)``, and ``dict(facts, step=3)`` and ``**facts`` hold what these hold."""
    parts = [
        _second_of(element_of(value))
        if key is None
        else element_of(value)
        if key == "**"
        else value
        for key, value in arguments
    ]
    return container(functools.reduce(join, parts) if parts else None)
