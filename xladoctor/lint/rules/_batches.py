"""Where what a loop works on comes from: its batch, or what it fetches itself in each round."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Returns
from xladoctor.lint.model import Kind, LoopKind, walk
from xladoctor.lint.model.devices import words
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.knowledge import LOADER_NAME, MOVER
from xladoctor.lint.model.values import element_of, origin
from xladoctor.lint.rules._exact import indices
from xladoctor.lint.rules._moves import moves
from xladoctor.lint.rules._reads import not_here

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Value

    #: A call that moves, what it moves, and the call that its result says it comes from.
    _Moved = tuple[CallSite, cst.BaseExpression, CallSite]

#: Functions of other files that fetch a batch, by their names.
_FETCHES = re.compile(
    r"(^|_)(batch(es)?|fetch|minibatch|next_(data|item|sample))(_|$)", re.IGNORECASE
)
#: Kinds of value that may still be on the host.
_ON_HOST = frozenset({Kind.UNKNOWN, Kind.CPU_TENSOR, Kind.ARRAY, Kind.CONTAINER})


#: What makes a tensor of data, unlike the other functions that make one.
OF_DATA = ("torch.from_numpy", "torch.as_tensor", "torch.tensor")


def moved_by_hand(model: FileModel, loop: Loop) -> CallSite | None:
    """The first call in a loop that moves what was fetched on the host to the device."""
    return next(moves_by_hand(model, loop), None)


def moves_by_hand(model: FileModel, loop: Loop) -> Iterator[CallSite]:
    """The calls in a loop that move what was fetched on the host to the device.

    One for each way through the loop: the first, and the first of each other branch.

    Args:
        model: The file.
        loop: A loop that does not go over a loader whose making is known.
    """
    told: list[CallSite] = []
    batches = Batches(model, loop, fed=_is_fed(model, loop))
    for call, source, made in model.once(_moves_anything):
        moved = model.value(call.node)
        if not moved.holds_device_tensor or origin(moved) is not made.node:
            continue
        if model.hot_loop(call.node) is not loop or not_here(model, call.node):
            continue
        if model.throttled(call.node) or model.in_step_closure(call.node):
            continue
        apart = all(_in_other_branch(model, call.node, one.node) for one in told)
        if apart and (_is_loaded(model, source) or batches.holds(source)):
            told.append(call)
            yield _in_loop(model, loop, call)


def uploads_of_arrays(model: FileModel) -> dict[Loop, list[CallSite]]:
    """The calls in loops that put an array on the device, whatever the loop goes over.

    ``torch.from_numpy(wave).to(device)`` and ``torch.as_tensor(image, device=device)``: what a
    device loader would upload in the background, if the batch had it.
    """
    found: dict[Loop, list[CallSite]] = {}
    for call in _uploads_of_arrays(model):
        loop = model.hot_loop(call.node)
        if loop is None or not_here(model, call.node):
            continue
        if not model.throttled(call.node) and not model.in_step_closure(call.node):
            found.setdefault(loop, []).append(call)
    return found


def _uploads_of_arrays(model: FileModel) -> Iterator[CallSite]:
    for call, source, made in model.once(_moves_anything):
        if origin(model.value(call.node)) is made.node and _is_array(model, source):
            yield call
    for call in model.calls("torch.as_tensor", "torch.tensor"):
        device, data = call.keywords.get("device"), call.argument(0, "data")
        if device is None or data is None or model.value(device).kind is not Kind.DEVICE:
            continue
        if model.value(data).kind is Kind.ARRAY:
            yield call


def _is_array(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether a tensor of the host was made of an array, within the loop."""
    made = _made_here(model, model.value(node))
    if made is None or model.hot_loop(made) is None:
        return False
    call = model.call(made)
    if call.name == "torch.from_numpy":
        return True
    data = call.argument(0, "data")
    return call.name in OF_DATA and data is not None and model.value(data).kind is Kind.ARRAY


def _in_other_branch(model: FileModel, node: cst.CSTNode, other: cst.CSTNode) -> bool:
    """Whether two nodes stand in the two branches of one condition."""
    around, child = set(model.tree.ancestors(other)), node
    for parent in model.tree.ancestors(node):
        if parent in around:
            return (
                isinstance(parent, cst.If)
                and child is not parent.test
                and (parent.test not in around)
            )
        child = parent
    return False


def _moves_anything(model: FileModel) -> list[_Moved]:
    """``x.to(device)`` and ``move_to_device(batch, device)``: call, what it moves, who says so."""
    known = {move.call.node: move for move in moves(model)}
    found: list[_Moved] = []
    for call in model.calls():
        if (move := known.get(call.node)) is not None:
            found.append((call, move.source, move.origin))
        elif call.target is None and MOVER.search(call.last):
            source = call.argument(0)
            if source is not None:
                found.append((call, source, call))
    return found


def _in_loop(model: FileModel, loop: Loop, move: CallSite) -> CallSite:
    """Where a person changes it: the loop's call of a helper that does nothing but move."""
    function = move.function
    if function is None or function is loop.function or not MOVER.search(function.name):
        return move
    calls = (
        call
        for call in model.callers(function)
        if call.function is not function and model.hot_loop(call.node) is loop
    )
    return next(calls, move)


def _is_fed(model: FileModel, loop: Loop) -> bool:
    """Whether a loop may get its batches from the host: no device loader is anywhere near.

    It goes over a loader of another file, or takes steps on what it fetches itself.
    """
    if any(_has_device_loader(other) for other in (model, *model.linked)):
        return False
    if not isinstance(loop.node, cst.For) or loop.kind is LoopKind.STEP:
        return loop.iterates.kind not in {Kind.DEVICE_LOADER, Kind.DEVICE_TENSOR}
    parts = [part for part in walk(loop.node.iter) if isinstance(part, cst.Name | cst.Attribute)]
    return any(
        LOADER_NAME.search((dotted_text(part) or "").rpartition(".")[2])
        and model.value(part).kind is Kind.UNKNOWN
        for part in parts
    )


def _has_device_loader(model: FileModel) -> bool:
    known = model.library
    loaders = known.returning(Returns.DEVICE_LOADER) | known.returning(Returns.PARALLEL_LOADER)
    return any(model.calls(*loaders)) or any(model.methods("per_device_loader"))


def is_handed_in(model: FileModel, loop: Loop) -> bool:
    """Whether a caller that nobody has read gives what the loop goes over."""
    if not isinstance(loop.node, cst.For):
        return False
    sources = list(_names_in(loop.node.iter))
    sources += [part for made in _made_of(model, sources) for part in _names_in(made)]
    return any(
        binding.kind == "param" and _is_uncalled(model, part)
        for part in sources
        if isinstance(part, cst.Name)
        for binding in model.bindings(part.value, part)
    )


def _names_in(node: cst.CSTNode) -> Iterator[cst.Name | cst.Attribute]:
    return (part for part in walk(node) if isinstance(part, cst.Name | cst.Attribute))


def _made_of(model: FileModel, sources: list[cst.Name | cst.Attribute]) -> Iterator[cst.CSTNode]:
    """What is assigned to names, and to attributes that are spelled alike."""
    for part in sources:
        if isinstance(part, cst.Name):
            bindings = model.bindings(part.value, part)
            yield from (binding.node for binding in bindings if binding.kind == "assign")
        else:
            yield from model.assigned.get(dotted_text(part) or "", ())


def _is_uncalled(model: FileModel, node: cst.CSTNode) -> bool:
    function = model.function_of(node)
    return function is not None and not model.callers(function)


def filled_here(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether a factory has filled a tensor of the host (``torch.randn``): no data is in it."""
    made = _made_here(model, model.value(node))
    return made is not None and _fills(model, made)


def _made_here(model: FileModel, value: Value) -> cst.Call | None:
    """The call in this file that has made a tensor of the host."""
    made = value.origin if value.kind is Kind.CPU_TENSOR else None
    return made if isinstance(made, cst.Call) and model.is_here(made) else None


def _fills(model: FileModel, made: cst.Call) -> bool:
    name = model.name(made.func) or ""
    return model.library.returns(name) is Returns.NEW_TENSOR and name not in OF_DATA


def _is_loaded(model: FileModel, node: cst.BaseExpression | None) -> bool:
    """Whether a tensor of the host holds data: what a factory fills is XLA604's matter."""
    if node is None:
        return False
    value = model.value(node)
    if value.kind is Kind.CONTAINER:
        value = element_of(value)
    made = _made_here(model, value)
    if made is None:
        return False
    loads = model.library.returns(model.name(made.func) or "") is Returns.LOADER
    return loads or (not _fills(model, made) and model.hot_loop(made) is not None)


class Batches:
    """Answers for one loop.

    Args:
        model: The file.
        loop: The loop; it goes over nothing that puts its batches on the device.
        fed: Whether what the loop goes over is fetched on the host, as far as anybody can know.
    """

    def __init__(self, model: FileModel, loop: Loop, *, fed: bool) -> None:
        self._model = model
        self._loop = loop
        self._fed = fed
        self._asked: set[cst.CSTNode] = set()

    def holds(self, node: cst.BaseExpression) -> bool:
        """Whether an expression is the batch, a part of it, or made of one."""
        self._asked = set()
        value = self._model.value(node)
        moved = value.made_of_device or any(road.is_device_tensor for road in value.roads)
        return value.kind in _ON_HOST and not moved and self._is_of(node)

    def _is_of(self, node: cst.BaseExpression) -> bool:
        if node in self._asked:
            return False
        self._asked.add(node)
        if isinstance(node, cst.Call):
            return self._call(self._model.call(node))
        if isinstance(node, cst.Subscript) and any(map(self._is_of, indices(node))):
            return True  # ``rows[i]`` of a place that was fetched
        if isinstance(node, cst.Subscript | cst.Attribute):
            return self._is_of(node.value)
        if isinstance(node, cst.Name):
            if self._model.value(node).kind is Kind.NUMBER:
                return False
            return any(self._is_of(source) for source in self._sources(node)) or (
                self._fed and self._is_target(node)
            )
        if isinstance(node, cst.Dict | cst.List | cst.Tuple):
            return any(self._is_of(element.value) for element in node.elements)
        if isinstance(node, cst.DictComp):
            return self._is_of(node.value)
        if isinstance(node, cst.ListComp | cst.GeneratorExp):
            return self._is_of(node.elt)
        return False

    def _call(self, call: CallSite) -> bool:
        if call.name == "builtins.next" or call.method in {"__next__", "next"}:
            source = call.receiver if call.name is None else call.argument(0, "iterator")
            kind = self._model.value(source).kind if source is not None else Kind.UNKNOWN
            return self._fed and kind is not Kind.DEVICE_LOADER
        if call.name is None and call.receiver is not None and self._is_of(call.receiver):
            return True
        if call.target is not None:
            return False  # what it gives back says where it is from
        if call.method in {"get", "get_nowait"} and call.receiver is not None:
            text = dotted_text(call.receiver) or ""
            return self._fed and "queue" in words(text.rpartition(".")[2])
        if _FETCHES.search(call.last) and not (call.name or "").startswith(("torch", "builtins.")):
            return self._fed
        handed = call.name is not None and call.name.startswith(("torch.", "builtins."))
        return handed and any(self._is_of(argument.value) for argument in call.node.args)

    def _is_target(self, node: cst.Name) -> bool:
        return any(
            self._loop.node in self._for_around(binding.node)
            for binding in self._model.bindings(node.value, node)
            if binding.kind == "other"
        )

    def _for_around(self, target: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The loop whose target a name is a part of."""
        child = target
        for parent in self._model.tree.ancestors(target):
            if isinstance(parent, cst.For | cst.CompFor):
                if child is parent.target:
                    yield parent
                return
            if not isinstance(parent, cst.Tuple | cst.List | cst.Element | cst.StarredElement):
                return
            child = parent

    def _sources(self, node: cst.Name) -> Iterator[cst.BaseExpression]:
        """What a name is bound to within the loop."""
        for binding in self._model.bindings(node.value, node):
            at = binding.node
            if binding.kind == "assign" and isinstance(at, cst.BaseExpression):
                if self._model.hot_loop(at) is self._loop:
                    yield at
            elif binding.kind == "other":
                yield from self._unpacked(at)
            elif binding.kind == "param":
                yield from self._given(node)

    def _unpacked(self, target: cst.CSTNode) -> Iterator[cst.BaseExpression]:
        """``x, y = batch``, ``for k, v in batch.items()``."""
        for parent in self._model.tree.ancestors(target):
            if isinstance(parent, cst.Assign):
                if self._model.hot_loop(parent.value) is self._loop:
                    yield parent.value
                return
            if isinstance(parent, cst.For | cst.CompFor):
                if parent is not self._loop.node:
                    yield parent.iter
                return
            if isinstance(parent, cst.BaseStatement):
                return

    def _given(self, node: cst.Name) -> Iterator[cst.BaseExpression]:
        """What the callers give for a parameter."""
        function = self._model.function_of(node)
        if function is None or node.value not in function.parameters:
            return
        bound = function.owner is not None and not function.is_static
        index = function.parameters.index(node.value) - int(bound)
        for call in self._model.callers(function):
            given = call.argument(index, node.value)
            if given is not None:
                yield given
