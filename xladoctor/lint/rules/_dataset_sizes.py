"""How many samples a dataset has, where the program says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules._exact import made_by, same_name

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel

#: Samples of the (training, test) part of well-known datasets, from torchvision's documentation.
_SIZES = {
    "MNIST": (60_000, 10_000),
    "FashionMNIST": (60_000, 10_000),
    "KMNIST": (60_000, 10_000),
    "CIFAR10": (50_000, 10_000),
    "CIFAR100": (50_000, 10_000),
}
#: What makes a tensor of the sizes that it is given first.
_FILLED = frozenset({"torch.rand", "torch.randn", "torch.zeros", "torch.ones", "torch.empty"})
#: The size of what is drawn stands behind the bounds: ``torch.randint(10, (64,))``.
_DRAWN = "torch.randint"
_DEPTH = 3


def divides(model: FileModel, call: CallSite) -> bool:
    """Whether the size of a loader's dataset is known, and a multiple of its batch size."""
    dataset, batch = call.argument(0, "dataset"), call.argument(1, "batch_size")
    if dataset is None or batch is None or "sampler" in call.keywords:
        return False
    made, size = made_by(model, dataset), _number(model, batch)
    if made is None:
        return False
    if _is_multiple(model, _size_written(model, made), batch):
        return True
    if size is None or size <= 0:
        return False
    samples = _samples(model, made)
    return samples is not None and samples % size == 0


def drops_itself(model: FileModel, call: CallSite) -> bool:
    """``DataLoader(Shard(data, size, drop_last=True))``: the dataset gives whole batches."""
    dataset = call.argument(0, "dataset")
    made: list[cst.CSTNode | None] = [dataset]
    if isinstance(dataset, cst.Name | cst.Attribute):
        made = [*model.assigned_to(dataset)]
    return any("drop_last" in model.call(x).keywords for x in made if isinstance(x, cst.Call))


def _is_multiple(
    model: FileModel, rows: cst.BaseExpression | None, batch: cst.BaseExpression
) -> bool:
    """``torch.randn(batches * batch_size, 8)``, in batches of ``batch_size``."""
    if isinstance(rows, cst.Name):
        rows = model.assigned_once(rows)
    if not isinstance(rows, cst.BinaryOperation) or not isinstance(rows.operator, cst.Multiply):
        return False
    for factor in (rows.left, rows.right):
        # A parameter is bound once; what is bound again may be another number by then.
        known = isinstance(factor, cst.Name) and len(model.bindings(factor.value, factor)) == 1
        if (known or isinstance(factor, cst.Attribute)) and same_name(factor, batch):
            return model.function_of(factor) is model.function_of(batch)
    return False


def _size_written(model: FileModel, maker: CallSite) -> cst.BaseExpression | None:
    """The number of samples of a ``TensorDataset``, as it is written."""
    name = maker.name or ""
    if not name.startswith("torch.utils.data.") or not name.endswith(".TensorDataset"):
        return None
    tensor = made_by(model, maker.positional[0]) if maker.positional else None
    return _rows(tensor) if tensor is not None else None


def _samples(model: FileModel, maker: CallSite) -> int | None:
    name = maker.name or ""
    last = name.rpartition(".")[2]
    written = _size_written(model, maker)
    if written is not None:
        return _number(model, written)
    sizes = _SIZES.get(last) if name.startswith("torchvision.datasets.") else None
    train = maker.argument(1, "train")
    part = True if train is None else model.literal(train)
    return sizes[0 if part else 1] if sizes is not None and isinstance(part, bool) else None


def _rows(maker: CallSite) -> cst.BaseExpression | None:
    """The first size of a tensor that is made here: ``torch.randn(length, 8)``."""
    given: cst.BaseExpression | None = None
    if maker.name in _FILLED:
        given = maker.argument(0, "size")
    elif maker.name == _DRAWN:
        sizes = [one for one in maker.positional if isinstance(one, cst.Tuple | cst.List)]
        given = maker.keywords.get("size") or next(iter(sizes), None)
    if isinstance(given, cst.Tuple | cst.List):
        given = given.elements[0].value if given.elements else None
    return given


def _number(model: FileModel, node: cst.BaseExpression, depth: int = _DEPTH) -> int | None:
    """A number that the program writes down, also as a parameter that all calls leave alone."""
    value = model.literal(node)  # what the command line may change is not settled
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    function = model.function_of(node)
    if not isinstance(node, cst.Name) or function is None or not depth:
        return None
    if node.value not in function.parameters:
        return None
    calls = model.callers(function)
    given = [one.given_to(function, node.value) or function.default(node.value) for one in calls]
    if not calls or any(call.has_star for call in calls):
        return None
    found = {None if one is None else _number(model, one, depth - 1) for one in given}
    return found.pop() if len(found) == 1 else None
