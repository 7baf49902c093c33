"""Noise and labels that a step makes on the host: by NumPy, or by tensors of old that it fills."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

from xladoctor.lint.rules._batches import OF_DATA, is_of_data
from xladoctor.lint.rules._exact import drawn, made_by
from xladoctor.lint.rules._fixed import is_fixed

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel

#: Methods and functions that give the numbers of an array in another type or shape.
_SAME = frozenset({"astype", "reshape", "copy"})
_ARRAYS = frozenset({"numpy.float32", "numpy.asarray", "numpy.array"})
#: Calls and names from what is uploaded to what makes it.
_DEPTH = 6
_VARIABLE = "torch.autograd.Variable"
#: Methods that fill a tensor in place, and the factory that makes such a tensor.
_FILLS = {
    "fill_": "full",
    "zero_": "zeros",
    "normal_": "randn",
    "uniform_": "rand",
    "random_": "randint",
    "bernoulli_": "rand",
}
#: NumPy's functions that draw an array of a shape, at the place of its ``size``; and torch's.
_DRAWS = {
    **dict.fromkeys(("rand", "random", "random_sample", "ranf", "sample"), (0, "rand")),
    **dict.fromkeys(("randn", "standard_normal"), (0, "randn")),
    **dict.fromkeys(("normal",), (2, "randn")),
    **dict.fromkeys(("uniform",), (2, "rand")),
    **dict.fromkeys(("randint", "integers"), (2, "randint")),
    "permutation": (0, "randperm"),
}


class HostMade(NamedTuple):
    """A tensor that the host makes of nothing but a shape.

    Attributes:
        call: What draws or fills it.
        factory: The function of torch that makes such a tensor on the device.
    """

    call: CallSite
    factory: str


def made_on_host(model: FileModel, node: cst.BaseExpression) -> HostMade | None:
    """What fills or draws a tensor on the host, through what only changes its type or shape.

    ``torch.FloatTensor(n, 1).fill_(1.0)``, ``torch.from_numpy(np.random.randn(n, 8)).float()``.

    Args:
        model: The file.
        node: What is uploaded.
    """
    made, filled = _constructor(model, node)
    if made is None or made.name not in OF_DATA or "device" in made.keywords:
        return None
    first = made.argument(0, "data")
    if first is None or (is_of_data(model, made) and not isinstance(first, cst.Integer)):
        return None if first is None else drawn_array(model, first)
    if filled is None or not all(is_fixed(model, one) for one in filled.positional):
        return None
    return HostMade(filled, _FILLS[str(filled.method)])


def is_drawn(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether dice make what is uploaded, an array or one number."""
    made, _ = _constructor(model, node)
    first = None if made is None else made.argument(0, "data")
    return first is not None and drawn(model, _array(model, first)) is not None


def _constructor(
    model: FileModel, node: cst.BaseExpression
) -> tuple[CallSite | None, CallSite | None]:
    """The call that makes a tensor, and the method that fills it."""
    filled: CallSite | None = None
    for _ in range(_DEPTH):
        made = made_by(model, node)
        if made is not None and made.name == _VARIABLE and made.positional:
            node = made.positional[0]
        elif made is not None and made.name is None and made.receiver is not None:
            filled = made if made.method in _FILLS else filled
            node = made.receiver
        else:
            return made, filled
    return None, None


def drawn_array(model: FileModel, node: cst.BaseExpression) -> HostMade | None:
    """The call of NumPy that draws an array: ``np.random.randn(n, 8).astype("float32")``."""
    made = drawn(model, _array(model, node))
    if made is None or made.last not in _DRAWS:
        return None
    if made.name is not None and not made.name.startswith("numpy.random."):
        return None
    place, factory = _DRAWS[made.last]
    shaped = "size" in made.keywords or len(made.positional) > place
    return HostMade(made, factory) if shaped else None


def _array(model: FileModel, node: cst.BaseExpression) -> cst.BaseExpression:
    """What another type or shape is given to."""
    while isinstance(node, cst.Call):
        call = model.call(node)
        if call.name is None and call.method in _SAME and call.receiver is not None:
            node = call.receiver
        elif call.name in _ARRAYS and call.positional:
            node = call.positional[0]
        else:
            break
    return node
