"""Where what a loop works on comes from: its batch, or what it fetches itself in each round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Returns
from xladoctor.lint.model import Kind, LoopKind, walk
from xladoctor.lint.model.contained import element_of, moves_by_name, origin
from xladoctor.lint.model.dotted import dotted_text, is_name, last_name
from xladoctor.lint.model.knowledge import LOADER_NAME, MAKES_TENSOR, MOVER
from xladoctor.lint.model.parts import names_bound
from xladoctor.lint.rules._fetched import Batches, is_loaded_for, makes_device_loader
from xladoctor.lint.rules._filled import gets_data, is_constant
from xladoctor.lint.rules._loaders import DATA_LOADER
from xladoctor.lint.rules._moves import moves
from xladoctor.lint.rules._reads import not_here

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Value

    #: A call that moves, what it moves, and the call that its result says it comes from.
    _Moved = tuple[CallSite, cst.BaseExpression, CallSite]

#: What makes a tensor of data, unlike the other functions that make one.
OF_DATA = (
    *("torch.from_numpy", "torch.as_tensor", "torch.tensor"),
    *(f"torch.{kind}Tensor" for kind in ("", "Float", "Double", "Half", "Int", "Long", "Bool")),
)


def moved_by_hand(model: FileModel, loop: Loop) -> CallSite | None:
    """The first call in a loop that moves what was fetched on the host to the device."""
    return next(moves_by_hand(model, loop), None)


def moves_by_hand(model: FileModel, loop: Loop) -> Iterator[CallSite]:
    """The calls in a loop that move what was fetched on the host to the device.

    One for each way through the loop: the first, the first of each other branch, and of each
    other function that the loop calls.

    Args:
        model: The file.
        loop: A loop that does not go over a loader whose making is known.
    """
    told: list[CallSite] = []
    batches = Batches(model, loop, fed=_is_fed(model, loop))
    for call, source in model.once(_moves_by_loop).get(loop, ()):
        if filled_here(model, source) or is_constant(model, source):
            continue  # XLA604's matter
        if model.throttled(call.node) or model.in_step_closure(call.node):
            continue
        apart = all(
            call.function is not one.function or _in_other_branch(model, call.node, one.node)
            for one in told
        )
        makes = call.name in OF_DATA or bool(MAKES_TENSOR.search(call.last))
        if apart and (
            _is_loaded(model, source)
            or batches.holds(source, makes=makes)
            or _feeds(model, loop, call, source)
        ):
            told.append(call)
            yield _in_loop(model, loop, call)


def _feeds(model: FileModel, loop: Loop, call: CallSite, source: cst.BaseExpression) -> bool:
    """``torch.tensor(rows, device=device)`` of rows made anew in what gives ``next(batches)``.

    No call of the loop leads there: a generator, or the ``__next__`` of an object, feeds it.
    """
    if call.name not in OF_DATA or not isinstance(source, cst.Name):
        return False
    if call.function is loop.function or call in model.reached(loop.node):
        return False
    if model.value(source).kind not in {Kind.UNKNOWN, Kind.CONTAINER, Kind.ARRAY}:
        return False
    made = list(model.assigned_to(source))
    return bool(made) and all(
        model.function_of(one) is call.function and model.hot_loop(one) is loop for one in made
    )


def moves_its_batch(model: FileModel, loop: Loop) -> bool:
    """``for x in stream(rows): net(x.to(device))``, or ``x = next(rows)`` in an endless loop.

    What a loop itself moves comes from the host, whoever gives it: no device loader is anywhere.
    """
    if is_loaded_for(model):
        return False
    if not isinstance(loop.node, cst.For):
        return moved_by_hand(model, loop) is not None
    names = set(names_bound(loop.node.target))
    return any(
        isinstance(move.source, cst.Name)
        and move.source.value in names
        and model.value(move.call.node).is_device_tensor
        and model.loop(move.call.node) is loop
        for move in moves(model)
    )


def loops_that_call(model: FileModel) -> Iterator[Loop]:
    """The loops of other files that run what moves something here: ``sampler.next_batch()``."""
    found = (model.hot_loop(call.node) for call, *_ in model.once(_moves_anything))
    others = (loop for loop in found if loop is not None and not model.is_here(loop.node))
    yield from dict.fromkeys(others)


def uploads_of_arrays(model: FileModel) -> dict[Loop, list[CallSite]]:
    """The calls in loops that put an array on the device, whatever the loop goes over.

    ``torch.from_numpy(wave).to(device)`` and ``torch.as_tensor(image, device=device)``: what a
    device loader would upload in the background, if the batch had it. Also what a helper fills
    with such data: ``tokenized(texts).to(device)``.
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
        if origin(model.value(call.node)) is made.node and (
            _is_array(model, source) or _is_filled_with_data(model, source)
        ):
            yield call
    for call in model.calls("torch.as_tensor", "torch.tensor"):
        device, data = call.keywords.get("device"), call.argument(0, "data")
        if device is None or data is None or model.value(device).kind is not Kind.DEVICE:
            continue
        if model.value(data).kind is Kind.ARRAY or _is_fetched(model, data):
            yield call


def _is_fetched(model: FileModel, data: cst.BaseExpression) -> bool:
    """``torch.tensor(ids, device=device)`` of what the loop has fetched in this turn."""
    loop = model.hot_loop(data)
    if loop is None or loop.iterates.kind.uploads:
        return False
    if model.value(data).kind not in {Kind.UNKNOWN, Kind.CONTAINER}:
        return False
    if not isinstance(data, cst.Name | cst.Subscript):
        return False
    return Batches(model, loop, fed=_is_fed(model, loop)).holds(data)


def _is_array(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether a tensor of the host was made of an array, within the loop."""
    made = _made_here(model, model.value(node))
    if made is None or model.hot_loop(made) is None:
        return False
    call = model.call(made)
    if call.name == "torch.from_numpy":
        return True
    data = call.argument(0, "data")
    return is_of_data(model, call) and data is not None and model.value(data).kind is Kind.ARRAY


def _is_filled_with_data(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether a tensor of the host was made empty within the loop, and got the turn's data."""
    value = model.value(node)
    made = value.origin if value.kind is Kind.CPU_TENSOR else None
    return (
        isinstance(made, cst.Call)
        and _fills(model, made)
        and model.hot_loop(made) is not None
        and gets_data(model, node, model.call(made))
    )


def is_of_data(model: FileModel, call: CallSite) -> bool:
    """Whether a call makes a tensor of data: ``torch.FloatTensor(8, 4)`` gets its sizes alone."""
    if call.name not in OF_DATA:
        return False
    if call.name.endswith("Tensor"):
        given = call.positional
        return len(given) == 1 and model.value(given[0]).kind is not Kind.NUMBER
    return True


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


def _moves_by_loop(model: FileModel) -> dict[Loop, list[tuple[CallSite, cst.BaseExpression]]]:
    """The calls that move something each turn and what they move, by the loop whose turns."""
    found: dict[Loop, list[tuple[CallSite, cst.BaseExpression]]] = {}
    for call, source, made in model.once(_moves_anything):
        moved = model.value(call.node)
        if not moved.holds_device_tensor or origin(moved) is not made.node:
            continue
        loop = model.hot_loop(call.node)
        if loop is not None and not not_here(model, call.node):
            found.setdefault(loop, []).append((call, source))
    return found


def _moves_anything(model: FileModel) -> list[_Moved]:
    """``x.to(device)`` and ``move_to_device(batch, device)``: call, what it moves, who says so."""
    known = {move.call.node: move for move in moves(model)}
    found: list[_Moved] = []
    for call in model.calls():
        if (move := known.get(call.node)) is not None:
            found.append((call, move.source, move.origin))
        elif call.target is None and moves_by_name(call.last):
            source = call.argument(0)
            if source is not None:
                found.append((call, source, call))
        elif call.name in OF_DATA and "device" in call.keywords and call.positional:
            found.append((call, call.positional[0], call))
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


def _over_plain(loop: Loop) -> bool:
    """A loop over a plain loader, though others of the program go over device loaders."""
    kinds = {loop.iterates.kind, *(road.kind for road in loop.iterates.roads)}
    return Kind.LOADER in kinds and not any(kind.uploads for kind in kinds)


def _is_fed(model: FileModel, loop: Loop) -> bool:
    """Whether a loop may get its batches from the host: no device loader is anywhere near.

    It goes over a loader of another file, or takes steps on what it fetches itself.
    """
    if is_loaded_for(model):
        return _over_plain(loop)
    if _is_kept_by_others(model, loop) and makes_device_loader(model):
        return False
    if loop.over is None or isinstance(loop.node, cst.While) or loop.kind is LoopKind.STEP:
        return loop.iterates.kind not in {Kind.DEVICE_LOADER, Kind.DEVICE_TENSOR}
    parts = [part for part in walk(loop.over) if isinstance(part, cst.Name | cst.Attribute)]
    values = [model.value(part) for part in parts]
    lists = [element_of(value) for value in values if value.kind is Kind.CONTAINER]
    if any(value.kind is Kind.LOADER for value in values) or any(
        batch.kind is Kind.CPU_TENSOR for batch in lists
    ):
        return True  # a list of batches that were made before, too
    return any(
        LOADER_NAME.search(last_name(part)) and model.value(part).kind is Kind.UNKNOWN
        for part in parts
    )


def _is_kept_by_others(model: FileModel, loop: Loop) -> bool:
    """Whether a loop goes over ``self.loader`` that no line of the program sets.

    In a class that is put together of several, another one's method does.
    """
    if loop.over is None:
        return False
    parts = (part for part in walk(loop.over) if isinstance(part, cst.Attribute))
    return any(
        is_name(part.value, "self")
        and model.value(part).kind is Kind.UNKNOWN
        and LOADER_NAME.search(part.attr.value)
        and not model.kept_in(part)
        for part in parts
    )


def is_handed_in(model: FileModel, loop: Loop) -> bool:
    """Whether a caller that nobody has read gives what the loop goes over.

    Not what it declares to be a loader of torch, where it asks for the device itself: who gives it
    that has no device yet.
    """
    if loop.over is None or is_given_plain(model, loop):
        return False
    sources = list(_names_in(loop.over))
    # ``DataLoader(rows, args.batch_size)`` is plain, whoever gives its settings.
    made = [x for x in _made_of(model, sources) if not _is_called(model, x, DATA_LOADER)]
    sources += [part for node in made for part in _names_in(node)]
    return any(
        binding.kind == "param"
        and _is_uncalled(model, part)
        and not _is_declared_plain(model, binding.node)
        for part in sources
        if isinstance(part, cst.Name)
        for binding in model.bindings(part.value, part)
    )


def _is_called(model: FileModel, node: cst.CSTNode, name: str) -> bool:
    """Whether a node is a call of this name."""
    return isinstance(node, cst.Call) and model.call(node).name == name


def _names_in(node: cst.CSTNode) -> Iterator[cst.Name | cst.Attribute]:
    return (part for part in walk(node) if isinstance(part, cst.Name | cst.Attribute))


def _made_of(model: FileModel, sources: list[cst.Name | cst.Attribute]) -> Iterator[cst.CSTNode]:
    """What is assigned to names, and to attributes that are spelled alike."""
    for part in sources:
        if isinstance(part, cst.Name):
            yield from model.assigned_to(part)
        else:
            yield from model.assigned.get(dotted_text(part) or "", ())


def is_known(value: Value) -> bool:
    """Whether what a loop goes over is known, also within ``enumerate``."""
    if value.kind is not Kind.CONTAINER:
        return value.kind is not Kind.UNKNOWN
    if value.items:
        return all(is_known(item) for item in value.items)
    return value.element is not None and is_known(value.element)


def is_given_plain(model: FileModel, loop: Loop) -> bool:
    """Whether a loop goes over ``self.loader``, of nothing but a parameter of such a kind."""
    if loop.over is None:
        return False
    made = [*_made_of(model, list(_names_in(loop.over)))]
    bound = [
        binding.node
        for one in made
        for binding in (model.bindings(one.value, one) if isinstance(one, cst.Name) else ())
    ]
    named = all(isinstance(one, cst.Name) for one in made)
    return named and bool(bound) and all(_is_declared_plain(model, node) for node in bound)


def _is_declared_plain(model: FileModel, node: cst.CSTNode) -> bool:
    """``loader: DataLoader`` of a function or class that asks for the XLA device itself."""
    function = model.function_of(node)
    if not isinstance(node, cst.Param) or node.annotation is None or function is None:
        return False
    name = model.name(node.annotation.annotation) or ""
    if not (name.startswith("torch.utils.data.") and name.endswith("DataLoader")):
        return False
    asks = model.library.returning(Returns.DEVICE)
    return any(
        home is function or (home.owner is not None and home.owner is function.owner)
        for call in model.calls()
        if call.name in asks and (home := call.function) is not None
    )


def _is_uncalled(model: FileModel, node: cst.CSTNode) -> bool:
    function = model.function_of(node)
    return function is not None and not model.callers(function)


def filled_here(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether a factory has filled a tensor of the host (``torch.randn``): no data is in it."""
    made = _made_here(model, model.value(node))
    if made is None or not _fills(model, made):
        return False
    # ``self.states[places]``: made once as a store, of which each turn takes another part.
    return not isinstance(node, cst.Subscript) or model.hot_loop(made) is not None


def _made_here(model: FileModel, value: Value) -> cst.Call | None:
    """The call in this file that has made a tensor of the host."""
    made = value.origin if value.kind is Kind.CPU_TENSOR else None
    return made if isinstance(made, cst.Call) and model.is_here(made) else None


def _fills(model: FileModel, made: cst.Call) -> bool:
    call = model.call(made)
    new = model.library.returns(call.name or "") is Returns.NEW_TENSOR
    return new and not is_of_data(model, call)


def _is_loaded(model: FileModel, node: cst.BaseExpression | None) -> bool:
    """Whether a tensor of the host holds data: what a factory fills is XLA604's matter."""
    if node is None:
        return False
    value = model.value(node)
    if value.kind is Kind.CONTAINER:
        value = element_of(value)
    made = value.origin if value.kind is Kind.CPU_TENSOR else None
    if not isinstance(made, cst.Call):
        return False
    home = model.file_with(made)  # of a loader that is made elsewhere, too
    if home.library.returns(home.name(made.func) or "") is Returns.LOADER:
        return True
    return home is model and not _fills(model, made) and model.hot_loop(made) is not None
