"""XLA606: the process that feeds the device also reads and decodes the files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, Function
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.model.knowledge import TOKENIZER_NAME
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._collate import called_by
from xladoctor.lint.rules._constants import constant
from xladoctor.lint.rules._exact import same_name
from xladoctor.lint.rules._loaders import DATA_LOADER, training_loop
from xladoctor.lint.rules._reads import loop_place
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem

#: Calls that open or decode a file.
_READS = re.compile(
    r"^(builtins\.open|cv2\.imread|PIL\.Image\.open|imageio\..*imread|skimage\.io\.imread|"
    r"numpy\.load|torch\.load|h5py\.File|librosa\.load|torchaudio\.load|soundfile\.read|"
    r"torchvision\.io\..*|pydicom\.(dcmread|read_file)|rasterio\.open|nibabel\.load|json\.load|"
    r"pandas\.read_\w+)$"
)
#: Calls whose cost does not depend on the one sample that is asked for.
_WHOLE = re.compile(r"^(glob\.i?glob|os\.(listdir|walk|scandir)|pandas\.read_\w+)$")
_READING, _TOKENIZING = "reads a file for every sample", "tokenizes every sample"
_DOES = {_READING: "reads and decodes every file", _TOKENIZING: "tokenizes every text"}
_ENCODES = frozenset({"encode", "encode_plus", "tokenize"})
#: Data sets that open a picture for each sample (torchvision 0.24; others keep all in memory).
_FOLDERS = frozenset(
    f"torchvision.datasets.{name}"
    for name in (
        *("ImageFolder", "ImageNet", "DatasetFolder", "CocoDetection", "CocoCaptions"),
        *("VOCDetection", "VOCSegmentation", "Cityscapes", "SBDataset", "CelebA", "LFWPeople"),
        *("Caltech101", "Caltech256", "DTD", "Flowers102", "Food101", "FGVCAircraft", "GTSRB"),
        *("OxfordIIITPet", "StanfordCars", "Places365", "SUN397", "INaturalist", "Imagenette"),
    )
)
#: Parts of data sets, and several as one: what they are given first reads.
_PARTS = frozenset(
    f"torch.utils.data.{module}{name}"
    for module in ("", "dataset.")
    for name in ("Subset", "random_split", "ConcatDataset")
)
#: Functions and parts on the way from a loader to what makes its data set.
_DEPTH = 4


@rule("XLA606")
def loader_workers(model: FileModel) -> Iterator[Problem]:
    """Find loaders without workers over datasets that read files, and listings per sample."""
    if not model.is_xla:
        return
    for call in model.calls(DATA_LOADER):
        workers = call.argument(5, "num_workers")
        if call.has_star or (workers is not None and constant(model, workers) != 0):
            continue
        loop = _trained_with(model, call)
        dataset = call.argument(0, "dataset") if loop is not None else None
        reads = _reads_files(model, dataset) if dataset is not None else None
        if loop is not None and reads is None:
            reads = _collates(model, call)
        if loop is None or reads is None:
            continue
        yield model.problem(
            call.node,
            f"without num_workers the process that feeds the device {_DOES[reads[1]]} itself, one "
            "after the other: the device waits for it",
            suggestion="num_workers=4, persistent_workers=True (and more, if the machine has the "
            "processors)",
            related=[model.place(*reads), loop_place(model, loop)],
        )
    for function in _item_methods(model):
        for call in model.calls_of(function):
            if _WHOLE.match(call.name or ""):
                yield model.problem(
                    call.node,
                    "__getitem__ does this for every single sample, however small: the loader "
                    "becomes slower than the device",
                    suggestion="do it once, in __init__, and keep the result",
                )


def _trained_with(model: FileModel, call: CallSite) -> Loop | None:
    """The step loop over a loader, here or in a linked file."""
    return next(filter(None, (training_loop(one, call) for one in (model, *model.linked))), None)


def _reads_files(
    model: FileModel, dataset: cst.BaseExpression, depth: int = _DEPTH
) -> tuple[cst.CSTNode, str] | None:
    """What in a dataset costs time for each sample, and what it does; None if that is not known.

    One that a setting chooses among several is each of them.
    """
    found = (_costs(model, one, depth) for one in _made_by(model, dataset))
    return next(filter(None, found), None)


def _made_by(model: FileModel, node: cst.BaseExpression, depth: int = _DEPTH) -> Iterator[cst.Call]:
    """The calls that make what an expression holds, on whichever way."""
    made = sources(model, node)
    if made is None and isinstance(node, cst.Name | cst.Attribute):
        # Also a part of ``train, rest = random_split(data)``.
        made = [one for one in model.made_of(node) if one is not None]
        for one in made if depth else ():
            if isinstance(one, cst.Name | cst.Attribute) and not same_name(one, node):
                yield from _made_by(model, one, depth - 1)
    yield from (one for one in made or () if isinstance(one, cst.Call))


def _costs(model: FileModel, node: cst.Call, depth: int) -> tuple[cst.CSTNode, str] | None:
    call = model.call(node)
    if call.name in _FOLDERS:
        return call.node, _READING
    if isinstance(call.target, Class):
        return _of_class(model, call.target)
    if not depth:
        return None
    given = call.argument(0) if call.name in _PARTS else None
    if isinstance(call.target, Function):
        inner = list(returned(call.target))
    elif isinstance(given, cst.List | cst.Tuple):
        inner = [element.value for element in given.elements]
    else:
        inner = [given] if given is not None else []
    found = (_reads_files(model, one, depth - 1) for one in inner)
    return next(filter(None, found), None)


def _of_class(model: FileModel, owner: Class) -> tuple[cst.CSTNode, str] | None:
    method = owner.methods.get("__getitem__")
    works = (_work(site) for site in model.reached(method.node)) if method is not None else ()
    return next(filter(None, works), None)


def _collates(model: FileModel, loader: CallSite) -> tuple[cst.CSTNode, str] | None:
    """What a ``collate_fn`` does for each sample of its batch, in a loop over them."""
    given = loader.argument(6, "collate_fn")
    for function in called_by(model, given) if given is not None else ():
        inside = (site for site in model.reached(function.node) if model.loop(site.node))
        found = next(filter(None, map(_work, inside)), None)
        if found is not None:
            return found
    return None


def _work(site: CallSite) -> tuple[cst.CSTNode, str] | None:
    """A call that costs time for each sample, and what it does."""
    if _READS.match(site.name or ""):
        return site.node, _READING
    return (site.node, _TOKENIZING) if _tokenizes(site) else None


def _tokenizes(site: CallSite) -> bool:
    """``self.tokenizer(text, ...)``, ``tokenizer.encode_plus(text)``."""
    if site.target is not None:
        return False
    called = site.receiver if site.method in _ENCODES else site.node.func
    text = dotted_text(called) if called is not None else None
    return text is not None and bool(TOKENIZER_NAME.search(text.rpartition(".")[2]))


def _item_methods(model: FileModel) -> Iterator[Function]:
    for cls in model.classes:
        if "__getitem__" in cls.methods and any(
            base.endswith("Dataset") for base in model.bases(cls)
        ):
            yield cls.methods["__getitem__"]
