"""How many dimensions the tensors of a loader's batches have, where the text says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules._loaders import DATA_LOADER
from xladoctor.lint.rules._sources import made_in, the_call

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel

_MAKES = frozenset({"torch.randn", "torch.rand", "torch.zeros", "torch.ones", "torch.empty"})
_DRAWS = "torch.randint"
_TENSORS = "torch.utils.data.TensorDataset"
_PICTURES = tuple(
    f"torchvision.datasets.{name}"
    for name in (
        "MNIST", "FashionMNIST", "CIFAR10", "CIFAR100", "ImageFolder", "ImageNet", "FakeData",
        "SVHN", "STL10", "Flowers102", "Food101",
    )
)  # fmt: skip
#: A batch of pictures: batch, channels, rows, columns.
_OF_PICTURES = 4
#: What makes something else of a picture.
_RESHAPES = frozenset({"Lambda", "flatten", "view", "reshape"})


def first_rank(model: FileModel, loader: cst.BaseExpression | None) -> int | None:
    """The dimensions of the first tensor of a batch (the largest one, as a rule).

    Args:
        model: The file.
        loader: What a device loader is given.

    Returns:
        None where the text does not say.
    """
    made = None if loader is None else made_in(model, loader, (DATA_LOADER,))
    if made is None or made.has_star or "collate_fn" in made.keywords:
        return None
    data = made.argument(0, "dataset")
    if data is None:
        return None
    if made_in(model, data, _PICTURES) is not None:
        changed = any(call.last in _RESHAPES for call in model.calls())
        return None if changed else _OF_PICTURES
    held = made_in(model, data, (_TENSORS,))
    if held is None or held.has_star or not held.positional:
        return None
    made = the_call(model, held.positional[0])
    return None if made is None else _made_rank(made)


def _made_rank(call: CallSite) -> int | None:
    if call.has_star:
        return None
    if call.name == _DRAWS:
        size = call.keywords.get("size") or (call.positional[-1] if call.positional else None)
        return _length(size)
    if call.name not in _MAKES or not call.positional:
        return None
    first = call.positional[0]
    return _length(first) if isinstance(first, cst.Tuple | cst.List) else len(call.positional)


def _length(size: cst.BaseExpression | None) -> int | None:
    if not isinstance(size, cst.Tuple | cst.List):
        return None
    starred = any(isinstance(one, cst.StarredElement) for one in size.elements)
    return None if starred else len(size.elements)
