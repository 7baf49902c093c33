"""XLA705: float64 numbers reach the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.model.dotted import is_name, text_of
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._environment import OFF, is_off, settings
from xladoctor.lint.rules._exact import made_by
from xladoctor.lint.rules._reads import costly_loop, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Function, Guard, Problem

_DOUBLE = frozenset({"torch.float64", "torch.double", "numpy.float64", "numpy.double"})
#: Functions of numpy whose result is float64 unless ``dtype`` says otherwise.
_ARRAYS = frozenset(
    f"numpy.{name}"
    for name in (
        "zeros", "ones", "empty", "linspace", "eye", "identity",
        "random.rand", "random.randn", "random.random", "random.normal", "random.uniform",
        "random.standard_normal", "random.random_sample",
    )
)  # fmt: skip
#: Those that give an array where they are given its size, and a float otherwise, and its place.
_SIZED = {
    f"numpy.random.{name}": place
    for name, place in (
        ("beta", 2), ("gamma", 2), ("exponential", 1), ("laplace", 2), ("lognormal", 2),
        ("triangular", 3), ("standard_exponential", 0), ("dirichlet", 1),
    )
}  # fmt: skip
#: Functions that give arrays of 8-bit integers: a true division makes them float64.
_IMAGES = frozenset({"cv2.imread", "imageio.imread", "skimage.io.imread", "cv2.cvtColor"})
_TENSORS = ("torch.from_numpy", "torch.tensor", "torch.as_tensor")
#: Functions that give an array of the kind that they are asked for.
_CASTS = frozenset({"numpy.array", "numpy.asarray"})
_DEEPEST = 6
#: With these variables there is no float64 on the device: it is float32 there, or bfloat16
#: (torch_xla 2.9).
_NARROWING = frozenset({"XLA_DOWNCAST_BF16", "XLA_USE_BF16"})


@rule("XLA705")
def float64_input(model: FileModel) -> Iterator[Problem]:
    """Find device tensors made float64, and samples made of float64 arrays."""
    if not model.is_xla or any(part.once(_narrows) for part in (model, *model.linked)):
        return
    for call in model.methods("double", "to", "type"):
        tensor = call.receiver
        if tensor is None or not model.value(tensor).is_device_tensor:
            continue
        if costly_loop(model, call.node) is None or _is_narrowed(model, call.node):
            continue
        if call.method == "double" or any(_is_double(model, a.value) for a in call.node.args):
            yield _problem(model, call.node, f"{snippet(model, tensor)} becomes float64 here")
    for call in model.calls(*_TENSORS):
        first = call.argument(0)
        if first is None or "dtype" in call.keywords or len(call.positional) > 1:
            continue
        sample = _is_sample(model, call.function) or _is_uploaded(model, call)
        if not sample or _converted(model, call.node):
            continue
        if _is_float64(model, first):
            yield _problem(
                model, call.node, f"numpy made {snippet(model, first)} float64, and torch keeps it"
            )


def _narrows(model: FileModel) -> bool:
    """``os.environ["XLA_DOWNCAST_BF16"] = "1"``.

    Not for XLA_USE_BF16, which XLA701 advises to leave out: then there is a float64 again.
    """
    return any(
        name == "XLA_DOWNCAST_BF16" and not is_off(model, node) for name, _, node in settings(model)
    )


def _is_narrowed(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a node stands under ``if os.environ.get("XLA_DOWNCAST_BF16") == "1":``."""
    return any(
        _is_on(model, guard)
        for guard in model.guards(node)
        if any(text_of(part) in _NARROWING for part in walk(guard.test))
    )


def _is_on(model: FileModel, guard: Guard) -> bool:
    """Whether a condition on a variable lets through where it is on: ``!= "0"``, ``== "1"``."""
    test = guard.test
    if not isinstance(test, cst.Comparison):
        return guard.when
    [asked, *_] = test.comparisons
    equal = isinstance(asked.operator, cst.Equal | cst.In)
    return (guard.when is equal) is (model.literal(asked.comparator) not in OFF)


def _problem(model: FileModel, node: cst.CSTNode, what: str) -> Problem:
    return model.problem(
        node,
        f"{what}: XLA computes in what it is given, and TPUs have no float64 unit",
        suggestion="add .float(), or make the array with dtype=np.float32",
    )


def _is_double(model: FileModel, node: cst.BaseExpression) -> bool:
    return model.name(node) in _DOUBLE


def _is_uploaded(model: FileModel, call: CallSite) -> bool:
    """``torch.from_numpy(rewards).to(device)`` in a hot loop."""
    node: cst.CSTNode | None = call.node
    while isinstance(node, cst.Call | cst.Attribute):
        if isinstance(node, cst.Call) and model.value(node).is_device_tensor:
            return costly_loop(model, call.node) is not None
        node = model.parent(node)
    return False


def _is_sample(model: FileModel, function: Function | None) -> bool:
    """Whether a function makes what a loader gives: ``__getitem__`` or a ``collate_fn``."""
    if function is None:
        return False
    if function.name == "__getitem__" and function.owner is not None:
        bases = {(model.name(b) or "").rpartition(".")[2] for b in function.owner.bases}
        # ``class Pairs: def __getitem__`` needs no base to be a loader's data set.
        return any(name.endswith("Dataset") for name in (function.owner.node.name.value, *bases))
    return "collate" in function.name


def _converted(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a method called on the tensor sets its dtype, or a name takes it elsewhere."""
    parent = model.parent(node)
    while isinstance(parent, cst.Attribute | cst.Call):
        name = parent.attr.value if isinstance(parent, cst.Attribute) else ""
        if name in {"float", "half", "bfloat16", "type", "long", "int", "type_as"}:
            return True
        if isinstance(parent, cst.Call) and model.call(parent).method == "to":
            given = [model.value(argument.value).kind for argument in parent.args]
            if not given or not set(given) <= {Kind.DEVICE, Kind.OTHER_DEVICE}:
                return True
        parent = model.parent(parent)
    if not isinstance(parent, cst.Assign):
        return False
    target = parent.targets[0].target
    if not isinstance(target, cst.Name):
        return True
    # x = torch.from_numpy(...); x = x.float(), or return x.float()
    return any(
        is_name(call.receiver, target.value)
        for call in model.methods("float", "to", "type", "half", "bfloat16", "long")
    )


def _is_float64(model: FileModel, node: cst.BaseExpression, depth: int = 0) -> bool:
    """Whether a numpy expression certainly gives float64."""
    if depth > _DEEPEST:
        return False
    if isinstance(node, cst.BinaryOperation):
        if isinstance(node.operator, cst.Divide) and _is_image(model, node.left):
            return True
        sides = (node.left, node.right)
        return any(_is_float64(model, side, depth + 1) for side in sides)
    if isinstance(node, cst.Name | cst.Attribute):
        made = model.assigned_once(node)
        return made is not None and _is_float64(model, made, depth + 1)
    if not isinstance(node, cst.Call):
        return False
    call = model.call(node)
    if call.name in _ARRAYS:
        dtype = call.keywords.get("dtype")
        shape_only = {"numpy.zeros", "numpy.ones", "numpy.empty"}
        if dtype is None and call.name in shape_only and len(call.positional) > 1:
            dtype = call.positional[1]
        return dtype is None or _is_double(model, dtype)
    if call.name in _SIZED:
        return call.argument(_SIZED[call.name], "size") is not None
    if call.method == "astype" or call.name in _CASTS:
        kind = call.argument(0 if call.method == "astype" else 1, "dtype")
        return kind is not None and (
            _is_double(model, kind)
            or model.name(kind) == "builtins.float"
            or model.literal(kind) in {"float64", "double", "float", "d", "f8"}
        )
    if call.method == "transpose" and call.receiver is not None:
        return _is_float64(model, call.receiver, depth + 1)
    return False


def _is_image(model: FileModel, node: cst.BaseExpression) -> bool:
    made = made_by(model, node)
    if made is None or made.name is None:
        return False
    if made.name in {"numpy.array", "numpy.asarray"} and "dtype" not in made.keywords:
        first = made.argument(0)
        return first is not None and len(made.positional) == 1 and _is_picture(model, first)
    return made.name in _IMAGES


def _is_picture(model: FileModel, node: cst.BaseExpression) -> bool:
    """``Image.open(...)`` with or without ``.convert("RGB")``."""
    made: CallSite | None = made_by(model, node)
    while made is not None and made.name is None and isinstance(made.receiver, cst.Call):
        made = model.call(made.receiver)
    return made is not None and made.name == "PIL.Image.open"
