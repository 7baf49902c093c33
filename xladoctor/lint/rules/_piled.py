"""What an evaluation loop keeps on the device while it reads something else.

A read runs the graph of the tensor that is read, and of that alone: a loss that is added up
beside it, or outputs that are put into a list, wait with the model's whole forward pass of every
batch. Measured on torch_xla 2.9: after ``.cpu()`` or ``.tolist()`` the tensor itself has its value,
for what is computed of it from then on; after ``.item()``, ``float()`` or an ``if`` not even that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.model.syntax import children

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Loop

_DEPTH = 3
#: Reads after which the tensor has its value.
_KEEPS = frozenset({"cpu", "tolist", "numpy", "to"})


def piled_up(model: FileModel, loop: Loop, calls: Sequence[CallSite]) -> cst.CSTNode | None:
    """The line that keeps what no read of the loop runs; None if there is none.

    Args:
        model: The file.
        loop: An evaluation loop in which nothing ends the graph.
        calls: The calls that it makes, in functions too.
    """
    read = dict(_read(model, loop, calls))
    for node, value in _kept(model, loop):
        target = model.tree.text(node.target).strip() if isinstance(node, cst.AugAssign) else None
        if (
            model.value(value).is_device_tensor
            and (target is None or target not in read)
            and _asks_model(model, value, loop, read, _DEPTH)
        ):
            return node
    return None


def _kept(model: FileModel, loop: Loop) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
    """``total += loss`` and ``outputs.append(out)``, each with what is kept."""
    for node in walk(loop.node, into_functions=False):
        if isinstance(node, cst.AugAssign) and isinstance(node.operator, cst.AddAssign):
            yield node, node.value
        elif isinstance(node, cst.Call) and len(node.args) == 1:
            call = model.call(node)
            if call.name is None and call.method == "append":
                yield node, node.args[0].value


def _read(model: FileModel, loop: Loop, calls: Sequence[CallSite]) -> Iterator[tuple[str, int]]:
    """What has its value once it is read, as written in the loop, and where in the file that is.

    What a function gets that reads, or may, counts from the start.
    """
    for call in calls:
        if call.function is not loop.function:
            continue
        event = model.effects.read_at(call.node)
        if event is not None and event.value is not None:
            if call.method in _KEEPS:
                yield model.tree.text(event.value).strip(), model.tree.order[call.node]
        elif _may_read(model, call):
            yield from ((model.tree.text(item.value).strip(), -1) for item in call.node.args)


def _may_read(model: FileModel, call: CallSite) -> bool:
    """Whether a call hands what it is given to a read, as far as can be seen."""
    if call.target is not None:
        return any(model.effects.is_read(inner.node) for inner in model.reached(call.node))
    if call.name is not None:
        return not call.name.startswith(("torch.", "torch_xla.", "builtins."))
    if model.value(call.node.func).kind in {Kind.MODEL, Kind.LOSS} or call.method == "append":
        return False
    return call.receiver is None or not model.value(call.receiver).is_device_tensor


def _asks_model(
    model: FileModel, value: cst.CSTNode, loop: Loop, read: dict[str, int], depth: int
) -> bool:
    """Whether a value is computed by a model, on a road on which the loop reads nothing."""
    if isinstance(value, cst.BaseExpression):
        since = read.get(model.tree.text(value).strip())
        if since is not None and since < model.tree.order[value]:
            return False
    if isinstance(value, cst.Call):
        call = model.call(value)
        inner = model.reached(value) if call.target is not None else [call]
        if any(model.value(one.node.func).kind is Kind.MODEL for one in inner):
            return True
    if isinstance(value, cst.Name):
        return depth > 0 and any(
            _asks_model(model, made, loop, read, depth - 1) for made in _made(model, value, loop)
        )
    return any(_asks_model(model, part, loop, read, depth) for part in _parts(value))


def _parts(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """What an expression is put together of: of ``out.loss`` and ``loss(x, weight=w)`` no names."""
    if isinstance(node, cst.Attribute | cst.Arg):
        yield node.value
    else:
        yield from children(node)


def _made(model: FileModel, name: cst.Name, loop: Loop) -> Iterator[cst.BaseExpression]:
    """What the loop assigns to a name, also one of several: ``out, state = net(x)``."""
    for made in model.made_of(name):
        if made is not None and loop.node in model.tree.ancestors(made):
            yield made
