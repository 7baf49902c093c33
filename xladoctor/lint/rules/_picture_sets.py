"""Data sets of torchvision: which ones a call makes, and what they do for each picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel

_SETS = "torchvision.datasets."
#: Data sets that open a picture for each sample (torchvision 0.24).
FOLDERS = frozenset(
    f"{_SETS}{name}"
    for name in (
        *("ImageFolder", "ImageNet", "DatasetFolder", "CocoDetection", "CocoCaptions"),
        *("VOCDetection", "VOCSegmentation", "Cityscapes", "SBDataset", "CelebA", "LFWPeople"),
        *("Caltech101", "Caltech256", "DTD", "Flowers102", "Food101", "FGVCAircraft", "GTSRB"),
        *("OxfordIIITPet", "StanfordCars", "Places365", "SUN397", "INaturalist", "Imagenette"),
    )
)
#: Those that hold all pictures as one array, and where they take their transform (0.24).
_IN_MEMORY = {
    f"{_SETS}{name}": place
    for names, place in (
        (("CIFAR10", "CIFAR100", "MNIST", "FashionMNIST", "KMNIST", "SVHN", "USPS"), 2),
        (("STL10",), 3),
        (("EMNIST", "QMNIST"), None),
    )
    for name in names
}
_TRANSFORMS = ("torchvision.transforms.", "torchvision.transforms.v2.")
#: Transforms that compute each picture anew. Measured with torchvision 0.24 on one processor, for
#: 128 pictures of CIFAR10: ``ToTensor`` and ``Normalize`` 16 ms; 26 with ``RandomCrop``, 42 with
#: ``ColorJitter``, 57 with ``RandAugment``, 189 with ``Resize(224)``, 223 with
#: ``RandomResizedCrop(224)``. A flip alone adds 4.
_AUGMENTS = frozenset(
    f"{module}{name}"
    for module in _TRANSFORMS
    for name in (
        *("RandomCrop", "RandomResizedCrop", "RandAugment", "AutoAugment", "TrivialAugmentWide"),
        *("AugMix", "RandomAffine", "RandomRotation", "RandomPerspective", "ColorJitter"),
        *("ElasticTransform", "Resize", "ScaleJitter"),
    )
)
_COMPOSES = frozenset(f"{module}Compose" for module in _TRANSFORMS)
_GETATTR = "builtins.getattr"
_DEPTH = 4


def kinds(model: FileModel, call: CallSite) -> Sequence[cst.BaseExpression]:
    """What a call makes, whichever of several: their names, or the module that has them.

    ``kind(...)`` of ``kind = CIFAR10 if small else CIFAR100``, ``KINDS[name](...)``,
    ``getattr(datasets, name)(...)``.
    """
    made = call.node.func
    if isinstance(made, cst.Call):
        return [made.args[0].value] if model.name(made.func) == _GETATTR and made.args else []
    if isinstance(made, cst.Subscript):
        return [
            one.value
            for table in sources(model, made.value) or ()
            if isinstance(table, cst.Dict)
            for one in table.elements
        ]
    return sources(model, made) or [made]


def augments(model: FileModel, call: CallSite) -> cst.CSTNode | None:
    """What a data set that lies in memory computes for each picture; None if that is little."""
    for kind in kinds(model, call):
        name = model.name(kind) or ""
        if name not in _IN_MEMORY:
            continue
        place, given = _IN_MEMORY[name], call.keywords.get("transform")
        if given is None and place is not None:
            given = call.argument(place)
        return None if given is None else next(_augmenting(model, given, _DEPTH), None)
    return None


def _augmenting(model: FileModel, node: cst.BaseExpression, depth: int) -> Iterator[cst.CSTNode]:
    """The transforms of a list, ``Compose`` or function of the program that take their time."""
    for made in (sources(model, node) or ()) if depth else ():
        inner: list[cst.BaseExpression] = []
        if isinstance(made, cst.List | cst.Tuple):
            inner = [one.value for one in made.elements]
        elif isinstance(made, cst.Call):
            call = model.call(made)
            if call.name in _AUGMENTS:
                yield made
            elif call.name in _COMPOSES:
                inner = [*call.positional[:1], *call.keywords.values()]
            elif isinstance(call.target, Function):
                inner = [*returned(call.target)]
        for one in inner:
            yield from _augmenting(model, one, depth - 1)
