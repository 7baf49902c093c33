"""XLA504: a tensor of the host in an operation with one on the XLA device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, OnXla, walk
from xladoctor.lint.model.knowledge import SENDS
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import assigned
from xladoctor.lint.rules._reads import snippet
from xladoctor.lint.rules._unmoved_batches import unmoved

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Problem

_F = "torch.nn.functional."
#: Measured on torch_xla 2.9.0, either side on the host: "Expected XLA tensor". Arithmetic does not
#: raise, nor do ``l1_loss``, ``huber_loss``, ``kl_div`` and ``binary_cross_entropy_with_logits``.
_LOSSES = {
    "cross_entropy": "CrossEntropyLoss",
    "nll_loss": "NLLLoss",
    "mse_loss": "MSELoss",
    "smooth_l1_loss": "SmoothL1Loss",
    "binary_cross_entropy": "BCELoss",
}
_FUNCTIONS = frozenset(
    {
        *(_F + name for name in (*_LOSSES, "linear", "embedding", "scaled_dot_product_attention")),
        *("torch.matmul", "torch.mm", "torch.bmm", "torch.dot", "torch.where", "torch.gather"),
        *("torch.index_select", "torch.maximum", "torch.minimum", "torch.cat", "torch.stack"),
        *("torch.concat", "torch.lerp", "torch.allclose", "torch.addmm", "torch.einsum"),
    }
)
_MODULES = frozenset(f"torch.nn.{name}" for name in _LOSSES.values())
_METHODS = frozenset({"matmul", "mm", "bmm", "gather", "index_select", "masked_fill"})
#: What makes a tensor on the host unless it is told a device.
_MADE = frozenset(
    f"torch.{name}"
    for name in (
        "zeros",
        "ones",
        "arange",
        "rand",
        "randn",
        "randint",
        "linspace",
        "eye",
        "randperm",
    )
)
#: What leaves a tensor where it is.
_STAYS = frozenset(
    {"long", "float", "int", "bool", "view", "reshape", "unsqueeze", "expand", "repeat", "half"}
)
#: What decides where tensors are made for lines that do not say.
_DEFAULTS = ("torch.set_default_device", "torch.set_default_tensor_type", "torch.device")
#: Names under which programs unpack tensors of a batch.
_TENSORS = frozenset(
    {
        *("x", "y", "xb", "yb", "image", "images", "img", "imgs", "label", "labels", "target"),
        *("targets", "pixels", "input_ids", "attention_mask", "labels_", "mask", "masks"),
    }
)


@rule("XLA504")
def host_tensor_in_operation(model: FileModel) -> Iterator[Problem]:
    """Find operations between the host and the device, and moves whose result nobody takes."""
    if not model.is_xla:
        return
    yield from _lost_moves(model)
    if not any(any(part.calls(_DEFAULTS[0])) for part in (model, *model.linked)):
        yield from unmoved(model)
    if any(_sets_default(part) for part in (model, *model.linked)):
        return
    for call in model.calls():
        yield from _mixed(model, call.node, _operands(model, call))
    for node in model.nodes(cst.BinaryOperation, cst.Comparison):
        if isinstance(node, cst.Comparison):
            (first, *more) = node.comparisons
            compares = not isinstance(first.operator, cst.Is | cst.IsNot | cst.In | cst.NotIn)
            operands = [node.left, first.comparator] if compares and not more else []
        else:
            assert isinstance(node, cst.BinaryOperation)
            multiplies = isinstance(node.operator, cst.MatrixMultiply)
            operands = [node.left, node.right] if multiplies else []
        yield from _mixed(model, node, operands)


def _lost_moves(model: FileModel) -> Iterator[Problem]:
    """``images.to(device)`` and ``xm.send_cpu_data_to_device(images, device)`` as statements."""
    for call in (*model.methods("to"), *model.calls(SENDS)):
        by_name = call.name == SENDS
        tensor = call.argument(0, "datas") if by_name else call.receiver
        device = call.argument(1, "device") if by_name else call.argument(0, "device")
        if not isinstance(model.parent(call.node), cst.Expr) or not isinstance(tensor, cst.Name):
            continue
        if device is None or model.value(device).kind is not Kind.DEVICE:
            continue
        if not _is_tensor(model, tensor) or model.on_xla(call.node) is OnXla.NO:
            continue
        used = _use_behind(model, tensor, call)
        if used is None:
            continue
        name = tensor.value
        written = f"{name} = {model.tree.text(call.node).strip()}"
        yield model.problem(
            call.node,
            f"the move of {snippet(model, tensor)} makes another tensor, which nobody takes: it "
            "stays on the host, and the model is on the device",
            suggestion=f"{name} = {name}.to(device)" if by_name else written,
            related=[model.place(used, "still the tensor of the host")],
        )


def _is_tensor(model: FileModel, name: cst.Name) -> bool:
    """Whether a name holds a tensor itself: batches of transformers move in place.

    What a function of torch made, or a part of a batch that goes by a tensor's name.
    """
    if model.value(name).kind not in {Kind.CPU_TENSOR, Kind.DEVICE_TENSOR}:
        return False
    made = assigned(model, name)
    if made:
        return all(_is_host_made(model, one) for one in made)
    bindings = model.bindings(name.value, name)
    return name.value.lower() in _TENSORS and any(_unpacks(model, x.node) for x in bindings)


def _unpacks(model: FileModel, target: cst.CSTNode) -> bool:
    """``for images, labels in loader``."""
    node: cst.CSTNode | None = target
    while isinstance(node, cst.Name | cst.Element | cst.Tuple):
        target, node = node, model.parent(node)
    return isinstance(node, cst.For) and node.target is target and isinstance(target, cst.Tuple)


def _use_behind(model: FileModel, name: cst.Name, move: CallSite) -> cst.Name | None:
    """The next use of a name behind a move of what it holds, if it still holds that."""
    for line in _lines_below(model, move.node):
        used = [x for x in walk(line) if isinstance(x, cst.Name) and x.value == name.value]
        if not used:
            continue
        if any(_is_bound(model, node) for node in used):
            return None
        given = next((node for node in used if _is_operand(model, node)), None)
        if given is not None:
            return given
    return None


def _is_operand(model: FileModel, name: cst.Name) -> bool:
    """Whether a call or an operator is given what a name holds, or that in another form."""
    node: cst.CSTNode | None = name
    parent = model.parent(name)
    while isinstance(parent, cst.Attribute) and parent.attr.value in _STAYS:
        node = model.parent(parent)
        parent = model.parent(node) if node is not None else None
    return isinstance(parent, cst.Arg | cst.BinaryOperation)


def _lines_below(model: FileModel, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The lines that run behind a node in its loop or function; nothing of other branches."""
    child: cst.CSTNode = node
    parent = model.parent(child)
    while parent is not None and not isinstance(child, cst.FunctionDef | cst.For | cst.While):
        if isinstance(parent, cst.IndentedBlock | cst.Module):
            lines = [*parent.body]
            yield from lines[next(i for i, x in enumerate(lines) if x is child) + 1 :]
        child, parent = parent, model.parent(parent)


def _is_bound(model: FileModel, name: cst.Name) -> bool:
    """Whether a name stands in what a line, or a loop, is assigned to."""
    node: cst.CSTNode = name
    parent = model.parent(node)
    while isinstance(parent, cst.Element | cst.Tuple | cst.List | cst.StarredElement):
        node, parent = parent, model.parent(parent)
    if isinstance(parent, cst.For | cst.AugAssign | cst.AnnAssign):
        return parent.target is node
    return isinstance(parent, cst.AssignTarget | cst.AsName | cst.CompFor)


def _operands(model: FileModel, call: CallSite) -> Sequence[cst.BaseExpression]:
    """The tensors of an operation that wants all of them on one device."""
    name = call.name or ""
    given = [*call.positional, *call.keywords.values()]
    if name in _FUNCTIONS:
        listed = given[0] if given else None
        if isinstance(listed, cst.List | cst.Tuple):
            return [element.value for element in listed.elements]
        return given[:3]
    if not name and call.method in _METHODS and call.receiver is not None:
        return [call.receiver, *given]
    loss = model.value(call.node.func)
    return given[:2] if loss.kind is Kind.LOSS and loss.type_name in _MODULES else []


def _mixed(
    model: FileModel, node: cst.CSTNode, operands: Sequence[cst.BaseExpression]
) -> Iterator[Problem]:
    on_device = next((x for x in operands if _is_on_device(model, x)), None)
    if on_device is None:
        return
    host = next((x for x in operands if _is_host_made(model, x)), None)
    if host is None or model.on_xla(node) is OnXla.NO or model.hot_loop(node) is None:
        return
    yield model.problem(
        node,
        f"{snippet(model, host)} is on the host and {snippet(model, on_device)} on the device: "
        'this raises RuntimeError, "Expected XLA tensor"',
        suggestion="make it there: device=device",
        related=[model.place(made, "made on the host") for made in _made(model, host)],
    )


def _is_on_device(model: FileModel, node: cst.BaseExpression) -> bool:
    value = model.value(node)
    return value.is_device_tensor and not value.roads


def _is_host_made(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether an expression is a tensor that a line here makes, without a word of a device."""
    value = model.value(node)
    if value.kind is not Kind.CPU_TENSOR or not value.certain or value.roads:
        return False
    made = _made(model, node)
    return bool(made) and all(_is_factory(model, one) for one in made)


def _made(model: FileModel, node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The calls that make what a name holds, without what only gives it another form."""
    nodes = assigned(model, node) if isinstance(node, cst.Name) else [node]
    return [_plain(model, one) for one in nodes]


def _plain(model: FileModel, node: cst.BaseExpression) -> cst.BaseExpression:
    while isinstance(node, cst.Call):
        call = model.call(node)
        if call.name is not None or call.method not in _STAYS or call.receiver is None:
            return node
        node = call.receiver
    return node


def _is_factory(model: FileModel, node: cst.BaseExpression) -> bool:
    if not isinstance(node, cst.Call):
        return False
    call = model.call(node)
    return call.name in _MADE and not call.has_star and "device" not in call.keywords


def _sets_default(part: FileModel) -> bool:
    """Whether tensors may be made elsewhere: by a default, or under ``with device:``."""
    if any(part.calls(*_DEFAULTS[:2])):
        return True
    items = (item.item for node in part.nodes(cst.With) for item in node.items)
    return any(
        part.value(item).kind in {Kind.DEVICE, Kind.OTHER_DEVICE}
        or (isinstance(item, cst.Call) and part.name(item.func) == _DEFAULTS[2])
        for item in items
    )
