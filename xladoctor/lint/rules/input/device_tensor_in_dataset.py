"""XLA605: a dataset or its ``collate_fn`` puts samples on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import Function, Kind
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._loaders import DATA_LOADER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_DATASETS = frozenset({"Dataset", "IterableDataset", "VisionDataset", "ImageFolder"})


@rule("XLA605")
def device_tensor_in_dataset(model: FileModel) -> Iterator[Problem]:
    """Find moves to the XLA device in ``__getitem__``, ``__iter__`` and ``collate_fn``."""
    if not model.is_xla:
        return
    told = set()
    for function in dict.fromkeys(_loading(model)):
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


def _loading(model: FileModel) -> Iterator[Function]:
    for cls in model.classes:
        if model.bases(cls) & _DATASETS:
            names = ("__getitem__", "__iter__", "__getitems__")
            yield from (cls.methods[name] for name in names if name in cls.methods)
    for call in model.calls(DATA_LOADER):
        collate = call.argument(6, "collate_fn")
        function = model.value(collate).function if collate is not None else None
        if function is not None:
            yield function


def _on_device(model: FileModel, call: CallSite) -> bool:
    if call.method == "to" and call.name is None:
        target = call.argument(0, "device")
    else:
        target = call.keywords.get("device") if (call.name or "").startswith("torch.") else None
    if target is None:
        return False
    value = model.value(target)
    return value.kind is Kind.DEVICE and value.certain
