"""Whether a loader goes over a stream of Hugging Face's datasets, which takes no sampler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

_LOADS = "load_dataset"
_MAKES = "to_iterable_dataset"
#: ``IterableDataset.from_generator(...)``.
_CLASS = ("datasets.IterableDataset.", "datasets.iterable_dataset.IterableDataset.")
#: How many assignments before a loader its dataset is made.
_DEEP = 4


def streamed_by_datasets(model: FileModel, loader: CallSite) -> bool:
    """``load_dataset(name, streaming=True)``, ``rows.to_iterable_dataset()``.

    Also where a setting says whether to stream: ``split_dataset_by_node`` takes both kinds
    (datasets 2.9 and later, ``datasets/distributed.py``).
    """
    dataset = loader.argument(0, "dataset")
    return dataset is not None and any(_is_stream(model, call) for call in _made_by(model, dataset))


def trains_on_stream(model: FileModel) -> bool:
    """``Trainer(train_dataset=load_dataset(name, streaming=True))``: no epoch has an end."""
    given = (call.keywords["train_dataset"] for call in model.giving("train_dataset"))
    return any(_is_stream(model, call) for one in given for call in _made_by(model, one))


def _is_stream(model: FileModel, call: CallSite) -> bool:
    if call.method == _MAKES or (call.name or "").startswith(_CLASS):
        return True
    asked = call.keywords.get("streaming")
    return call.last == _LOADS and asked is not None and model.literal(asked) is not False


def _made_by(model: FileModel, dataset: cst.BaseExpression) -> Iterator[CallSite]:
    """The calls that a dataset comes from: ``load_dataset(...).map(f)``, through names."""
    last: list[cst.CSTNode] = [dataset]
    seen: set[cst.CSTNode] = set()
    for _ in range(_DEEP):
        parts = [part for node in last if node not in seen for part in walk(node)]
        seen.update(last)
        yield from (model.call(part) for part in parts if isinstance(part, cst.Call))
        names = [part for part in parts if isinstance(part, cst.Name | cst.Attribute)]
        made = [one for name in names for one in (*model.assigned_to(name), *model.made_of(name))]
        last = [one for one in made if one is not None]
