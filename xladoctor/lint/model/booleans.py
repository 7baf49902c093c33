"""Which tensors and arrays certainly hold booleans: what indexes by them has a size of the data's.

Source: PyTorch 2.9, "Tensor Attributes" and the type promotion of its operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from xladoctor.lint.model.contained import element_of
from xladoctor.lint.model.values import Arguments, Kind, Value, join

if TYPE_CHECKING:
    from collections.abc import Callable

    import libcst as cst

    Resolve: TypeAlias = "Callable[[cst.BaseExpression], str | None]"

#: Kinds of value that have elements of one type.
TENSORS = frozenset({Kind.DEVICE_TENSOR, Kind.CPU_TENSOR, Kind.ARRAY})
#: Kinds of value that ask for the master core.
MASTERS = frozenset({Kind.IS_MASTER, Kind.NOT_MASTER})
_BOOLEAN = frozenset({"torch.bool", "builtins.bool", "torch.BoolTensor", "numpy.bool_"})
#: Functions and methods that ask something of each element.
_ASK = frozenset(
    {
        *("isnan", "isinf", "isfinite", "isclose", "isposinf", "isneginf", "isin", "isreal"),
        *("eq", "ne", "gt", "ge", "lt", "le", "greater", "greater_equal", "less", "less_equal"),
        *("logical_and", "logical_or", "logical_not", "logical_xor"),
    }
)
#: One answer for each row, where they are given a dimension.
_FOR_ROWS = frozenset({"all", "any"})
#: Functions and methods that move elements and change none.
_KEEP = frozenset(
    {
        *("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "ravel", "view_as"),
        *("expand", "expand_as", "contiguous", "clone", "detach", "t", "transpose", "permute"),
        *("repeat", "repeat_interleave", "tile", "flip", "roll", "triu", "tril", "diagonal"),
        *("index_select", "gather", "narrow", "select", "take", "movedim", "swapaxes", "cpu"),
        *("cuda", "numpy", "chunk", "split", "unbind", "cat", "concat", "stack", "hstack"),
        *("vstack", "copy", "requires_grad_", "broadcast_to", "masked_fill", "masked_fill_"),
        *("scatter", "scatter_", "index_fill", "index_fill_", "index_copy", "index_copy_"),
        *("masked_scatter", "masked_scatter_", "take_along_dim", "swapdims", "rot90", "fliplr"),
        *("fill_", "zero_", "copy_", "pad", "bitwise_and", "bitwise_or", "bitwise_xor"),
        *("bitwise_not", "logical_and_", "logical_or_", "logical_not_", "logical_xor_"),
    }
)
#: Functions that fill a new tensor, of the type that they are given.
_FILLED = frozenset({"zeros", "ones", "full", "empty", "tensor", "as_tensor"})
_LIKE = frozenset({"zeros_like", "ones_like", "full_like", "empty_like"})
_OF_DATA = frozenset({"tensor", "as_tensor", "from_numpy", "asarray", "array"})


def of_method(
    name: str, node: cst.Call, receiver: Value, arguments: Arguments, resolve: Resolve
) -> bool:
    """Whether ``tensor.name(...)`` gives booleans.

    Args:
        name: The method.
        node: The call.
        receiver: The tensor.
        arguments: What is given to it.
        resolve: The dotted name of an expression, as far as it is one of a library.
    """
    if name == "bool" or name in _ASK:
        return True
    if name in _FOR_ROWS:
        return bool(arguments)
    if name in {"to", "type", "astype"}:
        typed = _typed(node, resolve)
        return receiver.boolean if typed is None else typed
    return receiver.boolean and name in _KEEP


def of_function(name: str, node: cst.Call, arguments: Arguments, resolve: Resolve) -> bool:
    """Whether a function of torch or NumPy gives booleans.

    Args:
        name: Its dotted name.
        node: The call.
        arguments: What is given to it.
        resolve: The dotted name of an expression, as far as it is one of a library.
    """
    last = name.rpartition(".")[2]
    if name == "torch.BoolTensor" or last in _ASK:
        return True
    if last in _FOR_ROWS:
        return len(arguments) > 1
    typed = _typed(node, resolve)
    if typed is not None:
        return typed and (last in _FILLED or last in _LIKE or last in _OF_DATA)
    first = arguments[0][1] if arguments else None
    if first is None or not (last in _KEEP or last in _LIKE or last in _OF_DATA):
        return False
    if first.kind is Kind.CONTAINER:
        first = element_of(first)
    return first.kind in TENSORS and first.boolean


def _typed(node: cst.Call, resolve: Resolve) -> bool | None:
    """Whether the type that a call names is that of booleans; None if it names none."""
    for argument in node.args:
        keyword = argument.keyword.value if argument.keyword is not None else None
        name = resolve(argument.value)
        if name in _BOOLEAN:
            return True
        if keyword == "dtype" or (keyword is None and name is not None and _is_type(name)):
            return False
    return None


def _is_type(name: str) -> bool:
    """``torch.float32``, ``numpy.int64``, ``builtins.float``."""
    module, _, last = name.rpartition(".")
    return module in {"torch", "numpy", "builtins"} and last.rstrip("0123456789_") in {
        *("float", "bfloat", "int", "uint", "long", "half", "double", "short", "complex"),
    }


def both(left: Value, right: Value, *, together: bool) -> Value:
    """What ``left and right`` is (``together``), or ``left or right``."""
    if together:
        for value in (left, right):
            if value.kind in MASTERS:
                return value
    if left.kind is right.kind:
        return join(left, right)
    kinds = {left.kind, right.kind}
    if Kind.DEVICE_TENSOR in kinds:
        return join(left, right)
    # ``is_master or debug`` lets others through too.
    open_to_others = kinds & {Kind.UNKNOWN, *MASTERS}
    return Value(local=left.local or right.local) if open_to_others else join(left, right)
