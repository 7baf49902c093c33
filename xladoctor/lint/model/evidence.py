"""What a file says of a name by what it does with it, where its value cannot be followed.

A loss that comes out of a function of another package is a device tensor all the same if its
backward pass belongs to a step that ``xm.optimizer_step`` takes, or is one that Accelerate makes;
what has ``.parameters()`` is a model, whatever made it.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, TypeAlias

import libcst as cst

from xladoctor.lint.model import frameworks
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.dotted import dotted_text, string
from xladoctor.lint.model.fed import fed
from xladoctor.lint.model.helpers import losses_in
from xladoctor.lint.model.parts import index_of
from xladoctor.lint.model.syntax import Function
from xladoctor.lint.model.taken import names_set
from xladoctor.lint.model.wrappers import meant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Class, Tree

Home: TypeAlias = "Function | cst.Module"

_OPTIMIZER_STEP = f"{know.XM}.optimizer_step"
#: Calls that take or end a step on the device.
STEPS = frozenset(
    {
        _OPTIMIZER_STEP, f"{know.XM}.reduce_gradients", f"{know.XM}.mark_step",
        "torch_xla.sync", "torch_xla.step",
    }
)  # fmt: skip
#: Loaders that take a device of the family, and the method that hands out one device's.
_DEVICE_LOADERS = frozenset({"MpDeviceLoader", "ParallelLoader", "PerDeviceLoader"})
_OF_PARALLEL = "per_device_loader"
#: Methods that only modules have, and those that of what was moved to a device only modules have.
_OF_MODULES = frozenset({"parameters", "named_parameters", "eval"})
_OF_MOVED = frozenset({"state_dict", "load_state_dict", "zero_grad"})
#: What of all that has it only modules are called with a batch, too: a Trainer's starts it.
_OF_CALLED = "train"
#: What together only optimizers have.
_OF_OPTIMIZERS = frozenset({"zero_grad", "step"})
_TELLING = _OF_MODULES | _OF_MOVED | _OF_OPTIMIZERS | {_OF_CALLED}
#: Terms of a loss that are losses themselves ("kl_loss", "l_gan"), and what they are weighed with.
_TERM = re.compile(r"(^|_)loss(_|\d|$)|^l_|loss$", re.IGNORECASE)
_WEIGHT = re.compile(r"weight|coef|scale|ratio|lambda|factor|alpha|beta|fn$|func", re.IGNORECASE)
#: Dictionaries of losses.
_LOSSES = re.compile(r"(^|_)loss(es)?(_|$)", re.IGNORECASE)
#: The method of a Trainer whose first result is differentiated.
_COMPUTES = "compute_loss"
_SUMS = cst.Add | cst.Subtract | cst.Multiply | cst.Divide


class Evidence:
    """Looks for what code does with names.

    Args:
        tree: The syntax of the file or files.
        names: What their names are bound to.
    """

    def __init__(self, tree: Tree, names: Names | LinkedNames) -> None:
        self._tree = tree
        self._names = names

    def stepped(self, home: Home, name: str) -> cst.Call | None:
        """The call that takes the step for which a name of a function is differentiated."""
        names = self._differentiated.get(home)
        return None if names is None or name not in names else self._step(home)

    def holds_losses(self, home: Home, name: str) -> cst.CSTNode | None:
        """What takes the loss out of a dictionary of losses that a function calls so.

        ``losses = criterion(...)``, ``loss = losses["total"]``, ``loss.backward()``: where one of
        them is on the device, all are.
        """
        return self._held.get(home, {}).get(name) if _LOSSES.search(name) else None

    def fed(self, home: Home, name: str) -> cst.CSTNode | None:
        """The call of a model that takes a batch as it came, of which a name is a part."""
        return self._fed.get(home, {}).get(name)

    @functools.cached_property
    def _fed(self) -> Mapping[Home, Mapping[str, cst.CSTNode]]:
        return fed(self._tree, self._home)

    def is_model(self, home: Home, text: str, *, moved: bool) -> bool:
        """Whether a function asks a name (or dotted text) for what only modules have.

        Args:
            home: The function, or the module outside of functions.
            text: The name.
            moved: It holds what ``.to(device)`` gave back: no optimizer, no schedule.
        """
        holder = _holder_of(home, text)
        asked = self._asked.get(holder, {}).get(text, set())
        if _OF_CALLED in asked and text in self._calls.get(holder, ()):
            return True
        asked = asked - {_OF_CALLED, "step"}
        return bool(asked) and (moved or not asked <= _OF_MOVED)

    def is_optimizer(self, home: Home, text: str) -> bool:
        """Whether a name (or dotted text) takes steps as only optimizers do, or is given to one.

        ``xm.optimizer_step(opt_g)``; ``disc.zero_grad()`` and ``disc.step()``.
        """
        holder = _holder_of(home, text)
        if text in self._optimized.get(holder, ()):
            return True
        return self._asked.get(holder, {}).get(text, set()) >= _OF_OPTIMIZERS

    @functools.cached_property
    def _optimized(self) -> dict[Home | Class, set[str]]:
        """What ``xm.optimizer_step`` takes the steps of, by who binds it."""
        found: dict[Home | Class, set[str]] = {}
        for call in self._tree.calls:
            name = self._names.resolve(call.func)
            given = call.args[0].value if call.args else None
            if given is None or (meant(name) or name) != _OPTIMIZER_STEP:
                continue
            text = dotted_text(given)
            if text is not None:
                found.setdefault(_holder_of(self._holder(given), text), set()).add(text)
        return found

    def given_as_device(self, home: Home, text: str) -> cst.Call | None:
        """The device loader that is given what a function calls so as the device of its batches.

        Whatever the default says (``device="cuda"``): no other device has such a loader.
        """
        return self._devices.get((_holder_of(home, text), text))

    def takes_steps(self, module: cst.Module) -> bool:
        """Whether a module takes steps on the device itself."""
        return module in self._with_steps

    def _home(self, node: cst.CSTNode) -> Home:
        return self._tree.function_of(node) or self._tree.module_of(node)

    def _holder(self, node: cst.BaseExpression) -> Home:
        """Where a name (or what a dotted text begins with) is bound that is used at a node.

        ``def evaluate(): net.eval()`` within ``def main():`` says something of ``main``'s ``net``.
        """
        first = node
        while isinstance(first, cst.Attribute):
            first = first.value
        here = self._home(node)
        if not isinstance(first, cst.Name):
            return here
        scope = self._tree.scopes[first].holder(first.value)
        if scope is None or not isinstance(scope.node, cst.Module | cst.FunctionDef | cst.Lambda):
            return here
        return (
            scope.node if isinstance(scope.node, cst.Module) else self._tree.functions[scope.node]
        )

    @functools.cached_property
    def _devices(self) -> dict[tuple[Home | Class, str], cst.Call]:
        found: dict[tuple[Home | Class, str], cst.Call] = {}
        for call in self._tree.calls:
            name = self._names.resolve(call.func) or ""
            method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
            if name.rpartition(".")[2] not in _DEVICE_LOADERS and method != _OF_PARALLEL:
                continue
            home = self._home(call)
            for node in _devices_in(call, 0 if method == _OF_PARALLEL else 1):
                text = dotted_text(node) or ""
                holder = _holder_of(home, text) if "." in text else self._holder(node)
                found.setdefault((holder, text), call)
        return found

    @functools.cached_property
    def _takes_steps(self) -> dict[Home | Class, cst.Call]:
        found: dict[Home | Class, cst.Call] = {}
        for call in self._tree.calls:
            name = self._names.resolve(call.func)
            if (meant(name) or name) in STEPS:
                home = self._home(call)
                found.setdefault(home, call)
                if isinstance(home, Function) and home.owner is not None:
                    found.setdefault(home.owner, call)
        return found

    @functools.cached_property
    def _with_steps(self) -> frozenset[cst.Module]:
        return frozenset(self._tree.module_of(call) for call in self._takes_steps.values())

    def _step(self, home: Home) -> cst.Call | None:
        step = self._takes_steps.get(home)
        if step is None and isinstance(home, Function) and home.owner is not None:
            step = self._takes_steps.get(home.owner)
        return step or self._accelerated.get(home)

    @functools.cached_property
    def _accelerated(self) -> dict[Home, cst.Call]:
        """The backward passes that Accelerate makes, of what its model gave."""
        found: dict[Home, cst.Call] = {}
        for call in self._tree.calls:
            if isinstance(call.func, cst.Attribute) and call.func.attr.value == "backward":
                holder = dotted_text(call.func.value) or ""
                if call.args and holder.rpartition(".")[2] in frameworks.ACCELERATORS:
                    found.setdefault(self._home(call), call)
        return found

    @functools.cached_property
    def _differentiated(self) -> dict[Home, frozenset[str]]:
        found: dict[Home, set[str]] = {}
        for call in self._tree.calls:
            if isinstance(call.func, cst.Attribute) and call.func.attr.value == "backward":
                home = self._home(call)
                if self._step(home) is not None:
                    found.setdefault(home, set()).update(_backward_of(call))
        for node in self._tree.nodes(cst.Assign, cst.AugAssign) if found else ():
            # Reads that stand before ``loss = a_loss + b_loss`` are of the step before.
            names = found.get(self._home(node))
            if names is not None and names & names_set(node):
                names.update(_terms(node.value))
        return {home: frozenset(names) for home, names in found.items()}

    @functools.cached_property
    def _held(self) -> dict[Home, dict[str, cst.CSTNode]]:
        found: dict[Home, dict[str, cst.CSTNode]] = {}
        for node in self._tree.nodes(cst.Assign):
            assert isinstance(node, cst.Assign)
            home = self._home(node)
            names = {*self._differentiated.get(home, ()), *self._returned.get(home, ())}
            held = _dictionary(node.value) if names & names_set(node) else None
            if held is not None:
                found.setdefault(home, {})[held] = node.value
        return found

    @functools.cached_property
    def _returned(self) -> dict[Home, frozenset[str]]:
        """What ``compute_loss`` of a Trainer gives back: it is differentiated there."""
        found: dict[Home, set[str]] = {}
        for node in self._tree.nodes(cst.Return):
            assert isinstance(node, cst.Return)
            home, given = self._home(node), node.value
            if not isinstance(home, Function) or home.name != _COMPUTES or home.owner is None:
                continue
            losses = losses_in(given) if given is not None else ()
            names = (loss.value for loss in losses if isinstance(loss, cst.Name))
            found.setdefault(home, set()).update(names)
        return {home: frozenset(names) for home, names in found.items()}

    @functools.cached_property
    def _asked(self) -> dict[Home | Class, dict[str, set[str]]]:
        found: dict[Home | Class, dict[str, set[str]]] = {}
        for call in self._tree.calls:
            if not isinstance(call.func, cst.Attribute):
                continue
            method, text = call.func.attr.value, dotted_text(call.func.value)
            if text is None:
                continue
            # A tensor is not moved in place, and nobody calls one.
            home = _holder_of(self._holder(call.func.value), text)
            moved = (
                method == "to"
                and not _to_host(call)
                and (self._alone(call) or text in self._calls.get(home, ()))
            )
            if moved or method in _TELLING:
                found.setdefault(home, {}).setdefault(text, set()).add(method)
        return found

    def _alone(self, call: cst.Call) -> bool:
        """Whether a call is a statement of its own: what it gives back is dropped."""
        return isinstance(next(self._tree.ancestors(call), None), cst.Expr)

    @functools.cached_property
    def _calls(self) -> dict[Home | Class, set[str]]:
        """The names of each function that are called, and those that each class binds."""
        found: dict[Home | Class, set[str]] = {}
        for call in self._tree.calls:
            text = dotted_text(call.func)
            if text is not None:
                found.setdefault(_holder_of(self._holder(call.func), text), set()).add(text)
        return found


def _devices_in(call: cst.Call, place: int) -> Iterator[cst.BaseExpression]:
    """The devices that a loader is given by a name: ``device``, ``[self.device]``."""
    named = [x.value for x in call.args if x.keyword is not None and "device" in x.keyword.value]
    given = [x.value for x in call.args if x.keyword is None]
    for node in (*named, *given[place : place + 1]):
        inside = [x.value for x in node.elements] if isinstance(node, cst.List) else [node]
        yield from (one for one in inside if dotted_text(one) is not None)


def _backward_of(call: cst.Call) -> Iterator[str]:
    """``loss.backward()``, ``scaler.scale(loss).backward()`` and ``fabric.backward(loss)``."""
    assert isinstance(call.func, cst.Attribute)
    given = [argument.value for argument in call.args if argument.keyword is None]
    source = given[0] if given else call.func.value
    if isinstance(source, cst.Call) and source.args:
        source = source.args[0].value
    elif isinstance(source, cst.BinaryOperation):
        source = source.left
    if isinstance(source, cst.Name):
        yield source.value


def _dictionary(value: cst.BaseExpression) -> str | None:
    """``losses`` of ``losses["total"]`` and ``losses.pop("total")``."""
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.args:
        taken = value.func.attr.value in {"pop", "get"}
        held, key = value.func.value, value.args[0].value if taken else None
    elif isinstance(value, cst.Subscript):
        held, key = value.value, index_of(value)
    else:
        return None
    return dotted_text(held) if isinstance(key, cst.SimpleString) else None


def _terms(node: cst.BaseExpression) -> Iterator[str]:
    """The names of losses that an expression adds up, weighed or not."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, _SUMS):
        yield from _terms(node.left)
        yield from _terms(node.right)
    elif isinstance(node, cst.Name) and _TERM.search(node.value) and not _WEIGHT.search(node.value):
        yield node.value


def _to_host(call: cst.Call) -> bool:
    """``out.to("cpu")``: a read of a tensor, done for nothing but its wait."""
    given = call.args[0].value if call.args else None
    return isinstance(given, cst.SimpleString) and string(given) == "cpu"


def _holder_of(home: Home, text: str) -> Home | Class:
    """Whose ``self.device`` it is: the class's, also in a function within one of its methods."""
    if not isinstance(home, Function) or not text.startswith("self."):
        return home
    return next((one.owner for one in home.around if one.owner is not None), home)
