"""The value of a call of a library, by what the tables say of its name, or by the name itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Returns
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.contained import (
    all_moved,
    any_on_device,
    container,
    element_of,
    first_origin,
    loader,
    modules,
    moved_by_name,
)
from xladoctor.lint.model.dotted import dotted_text, is_name, last_name
from xladoctor.lint.model.elements import ASKS_ENVIRONMENT, of_environment
from xladoctor.lint.model.hooks import is_library_model
from xladoctor.lint.model.python_functions import FOLDS, PythonFunctions
from xladoctor.lint.model.records import FIELD
from xladoctor.lint.model.syntax import walk
from xladoctor.lint.model.tensor_functions import TensorFunctions
from xladoctor.lint.model.values import NUMBER, UNKNOWN, Arguments, Kind, Value, any_local, likely
from xladoctor.lint.model.wrappers import meant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.lint.model.called_back import CalledBack
    from xladoctor.lint.model.callvalue import CallEvaluator
    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.frames import Frame

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
_LOADERS = {
    Returns.LOADER: Kind.LOADER,
    Returns.DEVICE_LOADER: Kind.DEVICE_LOADER,
    Returns.PARALLEL_LOADER: Kind.PARALLEL_LOADER,
}
#: A partial of a partial of a partial, in a loop, must come to an end.
_MOST_BOUND = 8


class LibraryCalls:
    """Evaluates calls of libraries.

    Args:
        calls: Evaluates calls of functions of the program, which libraries call too.
        back: Runs what libraries call back.
        flow: The run that the calls belong to.
    """

    def __init__(self, calls: CallEvaluator, back: CalledBack, flow: Flow) -> None:
        self._back = back
        self._flow = flow
        self._tensors = TensorFunctions(flow.names)
        self._python = PythonFunctions(calls, flow)

    def named(self, node: cst.Call, name: str, arguments: Arguments, frame: Frame) -> Value:
        """What a call of a dotted name of a library gives back."""
        values = [value for _, value in arguments]
        first = values[0] if values else UNKNOWN
        if name.startswith("builtins.") or name == FOLDS:
            return self._python.evaluate(node, name, arguments)
        if name in ASKS_ENVIRONMENT and node.args:
            return of_environment(node, node.args[0].value)
        if name in know.PICKS or (name == _PICK and element_of(first).kind in _CALLED):
            picked = element_of(first)
            return picked if name.endswith(".choice") else container(picked)
        if name in know.REDUCES:
            return self._tensors.reduced(node, name, values, frame)
        if name in know.GRADIENT_NORMS and (self._flow.belief.steps() or any_on_device(values)):
            return Value(Kind.DEVICE_TENSOR, origin=node)
        if name in know.DATASETS:
            return _dataset(node, name, values)
        returned = self._flow.library.returns(meant(name) or name)
        if returned is not None:
            return self._returned(node, returned, name, arguments)
        if name.startswith("torch_xla"):
            return self._torch_xla(node, name, arguments)
        if name == "functools.partial" or name in know.TRANSFORMS:
            return _of_function(name, first, arguments)
        if name.startswith("torch."):
            return self._of_torch(node, name, arguments)
        if name == FIELD:
            return self._back.field(node, arguments)
        self._back.given_to(name, arguments)
        return self._library(node, name, values)

    def _of_torch(self, node: cst.Call, name: str, arguments: Arguments) -> Value:
        """What a function of torch gives that the library says nothing of."""
        if name == "torch.device":
            return self._tensors.device(node, [value for _, value in arguments])
        tensor = self._tensors.evaluate(node, arguments, made_here=False)
        asked = name.removeprefix("torch.") in know.ASKS_OF_TENSORS
        if asked and tensor.kind is Kind.UNKNOWN and self._flow.belief.believes():
            # ``torch.isfinite(reward)``: wherever that comes from, it is a tensor, and in a program
            # for XLA devices nearly all that is asked so has been computed there.
            tensor = Value(Kind.DEVICE_TENSOR, origin=node, local=tensor.local)
        tensor = self._tensors.typed(tensor, name, node, arguments)
        return container(tensor) if name in know.GIVES_PARTS else tensor

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
                return self._tensors.filled(node, what, name, arguments)
            case Returns.BESIDE:
                return likely(self._tensors.evaluate(node, arguments, made_here=False))
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

    def _torch_xla(self, node: cst.Call, name: str, arguments: Arguments) -> Value:
        if name in know.SPAWNERS:
            self._back.spawned(name, arguments)
            return UNKNOWN
        if name.endswith("add_step_closure"):
            self._back.closure(arguments)
        # ``torch_xla.runtime.get_ordinal()``: a name that it never had means what it says.
        asked = _asks_for_core(name.rpartition(".")[2])
        if asked is not None:
            return Value(asked, origin=node, local=True)
        # What no table knows computes on the device what it is given there (new kernels).
        values = [value for _, value in arguments]
        if name == know.SENDS and values:
            return all_moved(values[0], node)
        tensors = any(value.is_device_tensor for value in values)
        return Value(Kind.DEVICE_TENSOR, origin=node) if tensors else UNKNOWN

    def _library(self, node: cst.Call, name: str, values: Sequence[Value]) -> Value:
        last = name.rpartition(".")[2]
        parts = name.split(".")
        if last in {"from_pretrained", "from_config"}:
            owner = parts[-2] if len(parts) > 1 else ""
            if know.NOT_MODELS.search(owner):
                return UNKNOWN
            return Value(Kind.MODEL, origin=node, type_name=name)
        if name == know.NAMED_TUPLE:
            return Value(Kind.OBJECT, certain=True, type_name=name)
        if (moved := moved_by_name(last, values, node)) is not None:
            return moved
        if self._flow.belief.believes() and (asked := _asks_for_core(last)) is not None:
            return Value(asked, origin=node, local=True)
        if last[:1].isupper() and _trains_parameters(node):
            return Value(Kind.OPTIMIZER, origin=node)
        if last[:1].isupper() and know.AVERAGE_NAME.search(last) and _is_model(values):
            return _wrapped(values, node, name)
        if last[:1].isupper():
            kind = Kind.LOSS if last.endswith(("Loss", "Criterion")) else Kind.OBJECT
            if kind is Kind.OBJECT and is_library_model(name):
                kind = Kind.MODEL
            return Value(kind, certain=True, origin=node, type_name=name)
        local = any_local(values) and last not in know.NAMED_REDUCES
        given = any_on_device(values) or any(value.made_of_device for value in values)
        if given and know.LOSS_FUNCTION.search(last):
            return Value(Kind.DEVICE_TENSOR, origin=first_origin(values), local=local)
        return Value(local=local, made_of_device=given)


def _of_function(name: str, first: Value, arguments: Arguments) -> Value:
    """``partial(run, net)`` and ``vmap(run)``: another function."""
    if name in know.TRANSFORMS:
        return Value(Kind.OBJECT, certain=True, type_name=name)
    more = (*first.bound, *arguments[1:])
    fits = (first.kind is Kind.FUNCTION or first.makes) and len(more) <= _MOST_BOUND
    return first.but(bound=more) if fits else first


def _parameter(node: cst.Call, given: Value) -> Value:
    """A tensor that is moved with the module that it is kept in."""
    kind = given.kind if given.is_device_tensor else Kind.CPU_TENSOR
    return Value(kind, given.certain, node, given.local, type_name=know.PARAMETER)


def _asks_for_core(last: str) -> Kind | None:
    """``misc.is_main_process()`` and ``dist_utils.get_rank()`` of files that nobody has read."""
    if know.ASKS_MASTER.match(last):
        return Kind.IS_MASTER
    return Kind.CORE_NUMBER if know.ASKS_RANK.match(last) else None


def _same_batches(node: cst.Call, dataset: Value) -> bool:
    """``DataLoader(dataset, batch_size=8)``: every core goes over all of it, in the same order.

    The dataset itself may be one core's part, where it was made with the core's number.
    """
    given = {x.keyword.value: x.value for x in node.args if x.keyword is not None}
    shuffle = given.pop("shuffle", None)
    ordered = shuffle is None or is_name(shuffle, "False")
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


def makes_optimizer(node: cst.Call) -> bool:
    """``opt_class(net.parameters(), **settings)``: of a class that a setting names."""
    made = node.func.value if isinstance(node.func, cst.Subscript) else node.func
    if isinstance(made, cst.Call) and dotted_text(made.func) == "getattr" and made.args:
        return (dotted_text(made.args[0].value) or "").endswith("optim")
    # ``filter(trained, net.parameters())``, ``[{"params": net.parameters()}]``
    first = walk(node.args[0].value) if node.args else ()
    asked = (part.func for part in first if isinstance(part, cst.Call))
    if not any(isinstance(x, cst.Attribute) and x.attr.value == "parameters" for x in asked):
        return False
    last = last_name(made)
    return know.OPTIMIZER_CLASS_NAME.search(last) is not None


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
