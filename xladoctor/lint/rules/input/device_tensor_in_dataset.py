"""XLA605: a dataset or its ``collate_fn`` puts samples on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, Kind, walk
from xladoctor.lint.model.knowledge import ASKS_FOR_DEVICE
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._collate import collate_functions
from xladoctor.lint.rules._loaders import DATA_LOADER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_DATASETS = frozenset({"Dataset", "IterableDataset", "VisionDataset", "ImageFolder"})
#: Names of functions that put transforms of samples in a row, and of the base class of those.
_ROWS = tuple(
    f"{package}.{name}"
    for package in ("torchvision.transforms", "torchvision.transforms.v2", "monai.transforms")
    for name in ("Compose", "RandomApply")
)
_TRANSFORM = frozenset({"Transform"})


@rule("XLA605")
def device_tensor_in_dataset(model: FileModel) -> Iterator[Problem]:
    """Find moves to the XLA device in ``__getitem__``, ``__iter__`` and ``collate_fn``."""
    if not model.is_xla:
        return
    yield from _of_tensors(model)
    yield from _kept(model)
    told = set()
    for function in dict.fromkeys([*_loading(model), *_transforms(model)]):
        for call in model.reached(function.node):
            if call.node in told or not model.is_here(call.node) or not _on_device(model, call):
                continue
            told.add(call.node)
            outside = call.function is not function
            yield model.problem(
                call.node,
                "the loader's worker processes cannot hand over tensors of an XLA device: with "
                "num_workers > 0 this raises, without it every sample is an upload of its own",
                suggestion="return CPU tensors; pl.MpDeviceLoader moves whole batches",
                related=[model.place(function.node, "the loader calls this")] if outside else [],
            )


def _of_tensors(model: FileModel) -> Iterator[Problem]:
    """``DataLoader(TensorDataset(x.to(device), y))``, in one of its spellings.

    Measured on torch_xla 2.9: one compilation for each batch, shuffled or not.
    """
    for call in model.calls(DATA_LOADER):
        given = call.argument(0, "dataset")
        dataset = model.value(given) if given is not None else None
        sample = dataset.element if dataset is not None else None
        if given is None or sample is None or not sample.holds_device_tensor:
            continue
        made = dataset.origin if dataset is not None else None
        yield model.problem(
            made if isinstance(made, cst.Call) and model.is_here(made) else given,
            "each sample is cut out of a tensor on the device by its number, and the number is "
            "part of the graph: every batch is compiled anew",
            suggestion="keep the dataset on the host and let pl.MpDeviceLoader move whole batches, "
            "or index the tensor on the device with a tensor of numbers",
            related=[model.place(call.node, "the loader over it")],
        )


def _kept(model: FileModel) -> Iterator[Problem]:
    """``self.labels = labels.to(device)`` in ``__init__``, ``self.labels[i]`` of each sample."""
    told = set()
    for function in _loading(model):
        for node in walk(function.node, into_functions=False) if function.owner else ():
            if not isinstance(node, cst.Subscript) or not isinstance(node.value, cst.Attribute):
                continue
            kept = model.value(node.value)
            made = kept.origin
            if not kept.is_device_tensor or not kept.certain or not isinstance(made, cst.Call):
                continue
            home = model.function_of(made)
            if made in told or home is None or home.owner is not function.owner:
                continue
            told.add(made)
            yield model.problem(
                made,
                "each sample is cut out of a tensor on the device by its number, and the number is "
                "part of the graph: every batch is compiled anew, and worker processes cannot "
                "hand such tensors over",
                suggestion="keep it on the host and let pl.MpDeviceLoader move whole batches",
                related=[model.place(node, "the loader takes each sample here")],
            )


def _loading(model: FileModel) -> Iterator[Function]:
    for cls in model.classes:
        if model.bases(cls) & _DATASETS:
            names = ("__getitem__", "__iter__", "__getitems__")
            yield from (cls.methods[name] for name in names if name in cls.methods)
    yield from collate_functions(model)


def _transforms(model: FileModel) -> Iterator[Function]:
    """What a dataset does to each sample: ``Compose([Stylize(net, device)])``, ``transform=f``."""
    for cls in model.classes:
        if model.bases(cls) & _TRANSFORM:
            names = ("__call__", "forward", "_transform", "transform")
            yield from (cls.methods[name] for name in names if name in cls.methods)
    for part in (model, *model.linked):
        given = [call.keywords["transform"] for call in part.giving("transform")]
        for call in part.calls(*_ROWS):
            row = call.argument(0, "transforms")
            if isinstance(row, cst.List | cst.Tuple):
                given += [element.value for element in row.elements]
        yield from filter(None, (_called(part, node) for node in given))


def _called(model: FileModel, node: cst.BaseExpression) -> Function | None:
    """The function that runs when something is called: a function, or an object's method."""
    value = model.value(node)
    if value.instance is not None and value.kind is Kind.OBJECT:
        return value.instance.cls.methods.get("__call__")
    return value.function


def _on_device(model: FileModel, call: CallSite) -> bool:
    if call.method == "to" and call.name is None:
        target = call.argument(0, "device")
    else:
        target = call.keywords.get("device") if (call.name or "").startswith("torch.") else None
    if target is None:
        return False
    value = model.value(target)
    if value.kind is not Kind.DEVICE:
        return False
    # ``collate(batch, device)`` of a program for other devices too: here it is XLA's.
    made = value.origin
    asked = model.name(made.func) if isinstance(made, cst.Call) else None
    return value.certain or (asked or "").endswith(ASKS_FOR_DEVICE)
