"""XLA606: the process that feeds the device also reads and decodes the files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xladoctor.lint.model import Class
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._loaders import DATA_LOADER, training_loop
from xladoctor.lint.rules._reads import loop_place
from xladoctor.lint.rules._sources import the_call

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from xladoctor.lint.model import FileModel, Function, Problem

#: Calls that open or decode a file.
_READS = re.compile(
    r"^(builtins\.open|cv2\.imread|PIL\.Image\.open|imageio\..*imread|skimage\.io\.imread|"
    r"numpy\.load|torch\.load|h5py\.File|librosa\.load|torchaudio\.load|soundfile\.read|"
    r"torchvision\.io\..*|pydicom\.(dcmread|read_file)|rasterio\.open|nibabel\.load|json\.load|"
    r"pandas\.read_\w+)$"
)
#: Calls whose cost does not depend on the one sample that is asked for.
_WHOLE = re.compile(r"^(glob\.i?glob|os\.(listdir|walk|scandir)|pandas\.read_\w+)$")
_FOLDERS = frozenset(
    f"torchvision.datasets.{name}"
    for name in ("ImageFolder", "ImageNet", "DatasetFolder", "CocoDetection", "VOCSegmentation")
)


@rule("XLA606")
def loader_workers(model: FileModel) -> Iterator[Problem]:
    """Find loaders without workers over datasets that read files, and listings per sample."""
    if not model.is_xla:
        return
    for call in model.calls(DATA_LOADER):
        workers = call.argument(5, "num_workers")
        if call.has_star or (workers is not None and model.literal(workers) != 0):
            continue
        loop = training_loop(model, call)
        dataset = call.argument(0, "dataset")
        reads = _reads_files(model, dataset) if dataset is not None else None
        if loop is None or reads is None:
            continue
        yield model.problem(
            call.node,
            "without num_workers the process that feeds the device reads and decodes every file "
            "itself, one after the other: the device waits for it",
            suggestion="num_workers=4, persistent_workers=True (and more, if the machine has the "
            "processors)",
            related=[model.place(reads, "reads a file for every sample"), loop_place(model, loop)],
        )
    for function in _item_methods(model):
        for call in model.calls():
            if call.function is function and _WHOLE.match(call.name or ""):
                yield model.problem(
                    call.node,
                    "__getitem__ does this for every single sample, however small: the loader "
                    "becomes slower than the device",
                    suggestion="do it once, in __init__, and keep the result",
                )


def _reads_files(model: FileModel, dataset: cst.BaseExpression) -> cst.CSTNode | None:
    """What in a dataset reads a file for each sample, or None if that is not known."""
    call = the_call(model, dataset)
    if call is None:
        return None
    if call.name in _FOLDERS:
        return call.node
    if not isinstance(call.target, Class):
        return None
    method = call.target.methods.get("__getitem__")
    if method is None:
        return None
    inside = (site for site in model.reached(method.node) if _READS.match(site.name or ""))
    return next((site.node for site in inside if model.is_here(site.node)), None)


def _item_methods(model: FileModel) -> Iterator[Function]:
    for cls in model.classes:
        if "__getitem__" in cls.methods and any(
            base.endswith("Dataset") for base in model.bases(cls)
        ):
            yield cls.methods["__getitem__"]
