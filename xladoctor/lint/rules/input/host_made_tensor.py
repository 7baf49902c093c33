"""XLA604: a tensor is filled on the CPU and uploaded in every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Returns
from xladoctor.lint.model import Kind, LoopKind, walk
from xladoctor.lint.model.parts import names_bound
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._batches import OF_DATA, is_of_data
from xladoctor.lint.rules._exact import made_by
from xladoctor.lint.rules._filled import computed_of_constants, gets_data, same_numbers
from xladoctor.lint.rules._fixed import is_fixed
from xladoctor.lint.rules._host_draws import HostMade, drawn_array, made_on_host
from xladoctor.lint.rules._host_index import indexed_from_host, operands_of_host
from xladoctor.lint.rules._moves import moves
from xladoctor.lint.rules._new_layers import new_layers
from xladoctor.lint.rules._picked_tensors import is_one_of_several, is_whole
from xladoctor.lint.rules._reads import costly_loop, loop_place, often, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem
    from xladoctor.lint.rules._moves import Move

#: Factories that need nothing of the host, and whether their content is the same on any device.
_FACTORIES = {
    **dict.fromkeys(("zeros", "ones", "full", "arange", "eye", "empty", "linspace"), True),
    **dict.fromkeys(("rand", "randn", "randint", "randperm", "normal"), False),
}


#: What makes a causal mask of a constant.
_MASKS = frozenset({"triu", "tril"})
#: Factories whose arguments are content as well: the position of the first such argument.
_CONTENT = {"full": 1, "arange": 0, "linspace": 0}
#: What makes a tensor of a list of numbers.
_LISTED = frozenset(
    f"torch.{name}" for name in ("tensor", "as_tensor", "Tensor", "FloatTensor", "LongTensor")
)
#: What gives the same numbers once more, in another shape.
_REPEATED = frozenset(
    {"repeat", "expand", "unsqueeze", "view", "reshape", "long", "float", "tile", "squeeze"}
)
_OF_NUMBERS = ("torch.tensor", "torch.as_tensor")
_ARITHMETIC = cst.Add | cst.Subtract | cst.Multiply | cst.Divide


@rule("XLA604")
def host_made_tensor(model: FileModel) -> Iterator[Problem]:
    """Find ``torch.zeros(...).to(device)`` and the like in hot loops."""
    for moved in moves(model):
        move, source = moved.call, moved.source
        device = moved.origin.argument(0, "device") or moved.origin.keywords.get("other")
        if device is None or not _says_device(model, device):
            continue
        made = _factory(model, source) or _factory(model, _plain(source))
        if (loop := costly_loop(model, move.node)) is None:
            continue
        if made is None and (drawn := made_on_host(model, source)) is not None:
            yield _of_host(model, move, drawn, loop)
            continue
        if made is None:
            computed = list(_computed(model, moved, loop)) or list(_numbers(model, moved, loop))
            yield from computed or _kept(model, moved, loop)
            continue
        name = (made.name or "").rpartition(".")[2]
        constant = _constant(model, made, name)
        if (not constant and name != "full") or gets_data(model, _plain(source), made):
            continue
        yield model.problem(
            move.node,
            f"torch.{name} fills this tensor on the CPU and it is uploaded {often(loop)}; the "
            "device can make it itself, inside the graph",
            suggestion=f"torch.{name}(..., device=device)",
            related=[
                loop_place(model, loop),
                *([] if made.node is source else [model.place(made.node, "made here")]),
            ],
            fix=_fix(model, moved, made, device) if constant and _FACTORIES[name] else None,
        )
    yield from _written(model)
    yield from _drawn(model)
    yield from new_layers(model)
    yield from _mixed(model)
    yield from _one_by_one(model)
    yield from indexed_from_host(model)
    yield from operands_of_host(model)


def _says_device(model: FileModel, node: cst.BaseExpression) -> bool:
    """A device, or a tensor on one: ``weights.to(x)``, ``weights.type_as(x)``."""
    return model.value(node).kind is Kind.DEVICE or model.value(node).kind is Kind.DEVICE_TENSOR


def _written(model: FileModel) -> Iterator[Problem]:
    """``torch.tensor([0.48, 0.46, 0.41], device=device)``: the same numbers each time."""
    made = [(call, call.keywords.get("device")) for call in model.calls(*_OF_NUMBERS)]
    made += [(call, call.receiver) for call in model.methods("new_tensor")]
    for call, device in made:
        data = call.argument(0, "data")
        if device is None or data is None or not same_numbers(model, data):
            continue
        loop = costly_loop(model, call.node) if _is_xla(model, device, call) else None
        if loop is not None and loop.kind is not LoopKind.EVAL:
            yield _of_numbers(model, call, loop)
    for call in model.methods("new_tensor"):
        if call.receiver is None or not call.positional:
            continue
        loop = costly_loop(model, call.node)
        if loop is None or loop.kind is LoopKind.EVAL:
            continue
        there = model.value(call.receiver).is_device_tensor
        if there and same_numbers(model, call.positional[0]):
            yield _of_numbers(model, call, loop)


def _drawn(model: FileModel) -> Iterator[Problem]:
    """``torch.tensor(np.random.randn(n, 8), device=device)``."""
    for call in model.calls(*_OF_NUMBERS):
        device, data = call.keywords.get("device"), call.argument(0, "data")
        made = drawn_array(model, data) if device is not None and data is not None else None
        loop = costly_loop(model, call.node) if made is not None else None
        if device is not None and made and loop and _is_xla(model, device, call):
            yield _of_host(model, call, made, loop)


def _of_host(model: FileModel, call: CallSite, made: HostMade, loop: Loop) -> Problem:
    return model.problem(
        call.node,
        f"{snippet(model, made.call.node)} fills this tensor on the CPU and it is uploaded "
        f"{often(loop)}; the device can make it itself, inside the graph",
        suggestion=f"torch.{made.factory}(..., device=device)",
        related=[loop_place(model, loop), model.place(made.call.node, "filled here")],
    )


def _numbers(model: FileModel, moved: Move, loop: Loop) -> Iterator[Problem]:
    """``torch.tensor(self.mean).to(device)``: the same numbers each time."""
    made = made_by(model, _plain(moved.source))
    listed = _LISTED | {"torch.from_numpy"}
    if made is None or made.name not in listed or not made.positional:
        return
    again = costly_loop(model, made.node) is not None and loop.kind is not LoopKind.EVAL
    if again and same_numbers(model, made.positional[0]):
        yield _of_numbers(model, moved.call, loop)


def _of_numbers(model: FileModel, call: CallSite, loop: Loop) -> Problem:
    return model.problem(
        call.node,
        f"the same numbers are put into a tensor on the CPU and uploaded {often(loop)}",
        suggestion="make it once before the loop, or as a buffer of the module",
        related=[loop_place(model, loop)],
    )


def _one_by_one(model: FileModel) -> Iterator[Problem]:
    """``for wave in waves: parts.append(torch.from_numpy(wave).to(device))`` within a step."""
    uploads = [(move.call, made_by(model, _plain(move.source))) for move in moves(model)]
    uploads += [(call, call) for call in model.calls(*OF_DATA) if "device" in call.keywords]
    for call, made in uploads:
        if made is None or not is_of_data(model, made) or not made.positional:
            continue
        device = made.keywords.get("device") or call.argument(0, "device")
        inner = model.loop(call.node)
        if device is None or inner is None or inner.kind is not LoopKind.OTHER:
            continue
        loop = costly_loop(model, call.node)
        if loop is None or not _of_turn(made.positional[0], inner):
            continue
        if _may_be_number(model, made.positional[0]) or _for_numbers(model, call.node):
            continue
        if not _is_xla(model, device, call):
            continue
        yield model.problem(
            call.node,
            f"each turn of this loop uploads a tensor of its own, {often(loop)}: one transfer for "
            "each sample, while the device waits for the last",
            suggestion="put them together on the host (torch.from_numpy(np.stack(...)), in "
            "collate_fn at best) and move them once",
            related=[model.place(inner.node, "one upload in each turn"), loop_place(model, loop)],
        )


def _may_be_number(model: FileModel, node: cst.BaseExpression) -> bool:
    """What has no dimensions costs nothing."""
    value = model.value(node)
    return Kind.NUMBER in {value.kind, *(road.kind for road in value.roads)}


def _for_numbers(model: FileModel, node: cst.CSTNode) -> bool:
    """``x if isinstance(x, torch.Tensor) else torch.tensor(x).to(other)``: a number is left."""
    return any(
        isinstance(around, cst.IfExp)
        and isinstance(around.test, cst.Call)
        and model.name(around.test.func) in {"builtins.isinstance", "torch.is_tensor"}
        for around in model.tree.ancestors(node)
    )


def _plain(node: cst.BaseExpression) -> cst.BaseExpression:
    """``torch.from_numpy(x)`` of ``torch.from_numpy(x).float()``, ``x`` of ``x.repeat(n, 1)``."""
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        named = isinstance(node.func.value, cst.Name) and node.func.attr.value in _REPEATED
        if not named and not isinstance(node.func.value, cst.Call):
            break
        node = node.func.value
    return node


def _repeated(node: cst.BaseExpression) -> cst.BaseExpression:
    """``self.token`` of ``self.token.unsqueeze(0).expand(n, -1)``: the same numbers."""
    kept = node
    while isinstance(kept, cst.Call) and isinstance(kept.func, cst.Attribute):
        if kept.func.attr.value not in _REPEATED:
            return node
        kept = kept.func.value
    return kept


def _of_turn(data: cst.BaseExpression, inner: Loop) -> bool:
    """Whether what is uploaded is another thing in each turn of a loop: of its target, or new."""
    if not isinstance(inner.node, cst.For | cst.CompFor):
        return False
    bound = set(names_bound(inner.node.target))
    body = inner.node.body if isinstance(inner.node, cst.For) else None
    for part in walk(body, into_functions=False) if body is not None else ():
        if isinstance(part, cst.AssignTarget) and isinstance(part.target, cst.Name):
            bound.add(part.target.value)
    return any(isinstance(part, cst.Name) and part.value in bound for part in walk(data))


def _is_xla(model: FileModel, device: cst.BaseExpression, call: CallSite) -> bool:
    """``device``, or ``net.device`` of a model that is on one."""
    if model.value(device).kind is Kind.DEVICE or model.value(call.node).is_device_tensor:
        return True
    holder = device.value if isinstance(device, cst.Attribute) else None
    return (
        isinstance(device, cst.Attribute)
        and device.attr.value == "device"
        and holder is not None
        and model.value(holder).kind in {Kind.MODEL, Kind.DEVICE_TENSOR}
    )


def _computed(model: FileModel, moved: Move, loop: Loop) -> Iterator[Problem]:
    """``torch.exp(-grid.pow(2)).to(device)`` of constants: computed and uploaded each time."""
    factory = computed_of_constants(model, moved.source)
    if factory is None or costly_loop(model, factory) is None:
        return
    yield model.problem(
        moved.call.node,
        f"this tensor is computed of constants on the CPU and uploaded {often(loop)}",
        suggestion="compute it once before the loop, or give the factory device=device",
        related=[loop_place(model, loop), model.place(factory, "made here")],
    )


def _kept(model: FileModel, moved: Move, loop: Loop) -> Iterator[Problem]:
    """``self.weights.to(x.device)`` in a step, of what was made on the host before the loop."""
    source = _repeated(moved.source)
    value = model.value(source)
    if isinstance(source, cst.Subscript):
        if not all(is_whole(model, element) for element in source.slice):
            return  # ``self.images[picked]``: other rows each time
        source = source.value  # ``self.anchors[:, None]``
    if not isinstance(source, cst.Name | cst.Attribute) or value.kind is not Kind.CPU_TENSOR:
        return
    made = value.origin
    if not isinstance(made, cst.Call) or not model.is_here(made):
        return
    name = model.name(made.func) or ""
    new = name.startswith("torch.") and model.library.returns(name) in {None, Returns.NEW_TENSOR}
    if not new or costly_loop(model, made) is not None or model.hot_loop(made) is not None:
        return
    if isinstance(source, cst.Name) and is_one_of_several(model, source, loop):
        return
    yield model.problem(
        moved.call.node,
        f"this tensor was made on the CPU before, and is uploaded {often(loop)} again",
        suggestion="move it once: a buffer of the module (register_buffer), or .to(device) before "
        "the loop",
        related=[loop_place(model, loop), model.place(made, "made here")],
    )


def _mixed(model: FileModel) -> Iterator[Problem]:
    """``device_tensor + torch.ones(8, 8)``: the other operand is uploaded for it."""
    for node in model.nodes(cst.BinaryOperation):
        if not isinstance(node.operator, _ARITHMETIC):
            continue
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if not model.value(one).is_device_tensor or model.value(one).kind is Kind.CPU_TENSOR:
                continue
            made = made_by(model, other)
            if made is None or model.value(other).kind is not Kind.CPU_TENSOR:
                continue
            module, _, name = (made.name or "").rpartition(".")
            loop = costly_loop(model, node)
            if module != "torch" or name not in _FACTORIES or loop is None:
                continue
            if "device" in made.keywords or made.has_star or costly_loop(model, made.node) is None:
                continue
            if name != "full" and not _constant(model, made, name):
                continue
            yield model.problem(
                node,
                f"torch.{name} makes this operand on the CPU, and it is uploaded {often(loop)}; "
                "with a matrix product it would not work at all",
                suggestion=f"torch.{name}(..., device=x.device), or a buffer of the module",
                related=[
                    loop_place(model, loop),
                    *([] if made.node is other else [model.place(made.node, "made here")]),
                ],
            )
            break


def _factory(model: FileModel, node: cst.BaseExpression) -> CallSite | None:
    """The factory call that made what is moved: here, or in the function of the file it calls."""
    call = made_by(model, node) or _made_before(model, node)
    for _ in range(3):
        if call is None:
            return None
        module, _, name = (call.name or "").rpartition(".")
        if module == "torch" and name in _MASKS and call.positional:
            call = made_by(model, call.positional[0])
            continue
        if module == "torch" and name in _FACTORIES:
            place = call.keywords.get("device")
            elsewhere = place is not None and model.literal(place) != "cpu"
            return None if elsewhere or call.has_star else call
        call = _returned(model, call)
    return None


def _made_before(model: FileModel, node: cst.BaseExpression) -> CallSite | None:
    """``noise = torch.randn(2)`` before ``noise = noise.to(device)``: the value knows who made it.

    With anything done to it in between it is another tensor.
    """
    value = model.value(node)
    made = value.origin if value.kind is Kind.CPU_TENSOR and isinstance(node, cst.Name) else None
    if not isinstance(made, cst.Call) or not model.is_here(made):
        return None
    assert isinstance(node, cst.Name)
    return model.call(made) if made in model.assigned_to(node) else None


def _constant(model: FileModel, made: CallSite, name: str) -> bool:
    """Whether the numbers in the tensor are the same each time and on each core.

    So are those of the sizes of the batch, and settings. Made on the device, ``torch.arange(v,
    v + 4)`` is another graph for each ``v``, and
    ``torch.full((4,), v)`` another one where ``v`` is 0 or 1; an uploaded tensor is an input.
    """
    first = _CONTENT.get(name)
    if first is None:
        return True
    # The last number of linspace is its length.
    numbers = made.positional[first : 2 if name == "linspace" else None]
    if name == "arange" and len(numbers) == 1:
        return True  # its length, which is the shape of the uploaded tensor too
    given = [*numbers, *(made.keywords.get(k) for k in ("fill_value", "start", "end", "step"))]
    return all(x is None or is_fixed(model, x) for x in given)


def _returned(model: FileModel, call: CallSite) -> CallSite | None:
    """The call whose result a method of the file returns, if it does nothing else with it."""
    origin = model.value(call.node).origin
    value = model.value(call.node)
    if value.kind is not Kind.CPU_TENSOR or not isinstance(origin, cst.Call):
        return None
    return model.call(origin)


def _fix(model: FileModel, moved: Move, made: CallSite, device: cst.BaseExpression) -> Fix | None:
    move = moved.call
    if moved.origin is not move or model.value(device).kind is not Kind.DEVICE:
        return None  # the helper's own device may not be known here
    if made.node is not move.receiver or len(move.node.args) != 1 or not made.node.args:
        return None
    if "device" in made.keywords or model.value(device).kind is not Kind.DEVICE:
        return None
    text = model.tree.text(made.node).strip().removesuffix(")").rstrip().removesuffix(",")
    written = f"{text}, device={model.tree.text(device).strip()})"
    return model.fix("Make it on the device", model.replace(move.node, written), safe=True)
