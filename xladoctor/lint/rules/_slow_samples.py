"""What a data set does for each sample: reads a file, tokenizes a text, augments a picture."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, Function, walk
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.model.knowledge import TOKENIZER_NAME
from xladoctor.lint.rules._collate import called_by
from xladoctor.lint.rules._exact import same_name
from xladoctor.lint.rules._picture_sets import FOLDERS, augments
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

    #: Where it does something that takes its time, and what.
    Work = tuple[cst.CSTNode, str]

#: Calls that open or decode a file.
_READS = re.compile(
    r"^(builtins\.open|cv2\.imread|PIL\.Image\.open|imageio\..*imread|skimage\.io\.imread|"
    r"numpy\.load|torch\.load|h5py\.File|librosa\.load|torchaudio\.load|soundfile\.read|"
    r"torchvision\.io\..*|pydicom\.(dcmread|read_file)|rasterio\.open|nibabel\.load|json\.load|"
    r"pandas\.read_\w+|(gzip|bz2|lzma|io|tarfile)\.open|zipfile\.ZipFile|pickle\.load|"
    r"numpy\.(fromfile|loadtxt|genfromtxt)|matplotlib\.(image|pyplot)\.imread|tifffile\.imread|"
    r"scipy\.io\.(loadmat|wavfile\.read)|wave\.open|decord\.VideoReader|cv2\.VideoCapture|"
    r"av\.open|SimpleITK\.ReadImage|safetensors\.torch\.load_file|"
    r"pyarrow\.parquet\.read_table|"
    r"torchvision\.datasets\.folder\.(default|pil|accimage)_loader)$"
)
_READING, _TOKENIZING = "reads a file for every sample", "tokenizes every sample"
_AUGMENTING, _DECODING = "transforms every picture", "decodes every picture"
#: What the process that feeds the device does, in the words of a message.
DOES = {
    _READING: "reads and decodes every file",
    _TOKENIZING: "tokenizes every text",
    _AUGMENTING: "augments every picture",
    _DECODING: "decodes and transforms every picture",
}
_ENCODES = frozenset({"encode", "encode_plus", "tokenize"})
#: Parts of data sets, and several as one: what they are given first reads.
_PARTS = frozenset(
    f"torch.utils.data.{module}{name}"
    for module in ("", "dataset.")
    for name in ("Subset", "random_split", "ConcatDataset")
)
#: Methods of data sets of the Hub that give one with the same transform.
_KEEP = frozenset({"shuffle", "select", "take", "skip"})
_LATER = "with_transform"
#: Modes of PIL, in which ``picture.convert("RGB")`` decodes a picture.
_MODES = frozenset({"RGB", "RGBA", "L", "P", "HSV", "LAB", "YCbCr", "CMYK", "1", "I", "F", "LA"})
#: Functions and parts on the way from a loader to what makes its data set.
_DEPTH = 4


def is_augmented(work: Work) -> bool:
    """Whether pictures that lie in memory are augmented, which small batches do not feel."""
    return work[1] is _AUGMENTING


def costs(model: FileModel, dataset: cst.BaseExpression, depth: int = _DEPTH) -> Work | None:
    """What in a dataset costs time for each sample, and what it does; None if that is not known.

    One that a setting chooses among several is each of them.
    """
    found = (_of_call(model, one, depth) for one in _made_by(model, dataset))
    return next(filter(None, found), None) or _transformed(model, dataset)


def collates(model: FileModel, given: cst.BaseExpression) -> Work | None:
    """What a ``collate_fn`` does for each sample of its batch, in a loop over them."""
    for function in called_by(model, given):
        inside = (site for site in model.reached(function.node) if model.loop(site.node))
        found = next(filter(None, map(_work, inside)), None)
        if found is not None:
            return found
    return None


def _made_by(model: FileModel, node: cst.BaseExpression, depth: int = _DEPTH) -> Iterator[cst.Call]:
    """The calls that make what an expression holds, on whichever way."""
    made = sources(model, node)
    if made is None and isinstance(node, cst.Name | cst.Attribute):
        # Also a part of ``train, rest = random_split(data)``.
        made = [one for one in model.made_of(node) if one is not None]
        for one in made if depth else ():
            if isinstance(one, cst.Name | cst.Attribute) and not same_name(one, node):
                yield from _made_by(model, one, depth - 1)
    for one in made or ():
        if isinstance(one, cst.Subscript):
            yield from _made_by(model, one.value, depth - 1) if depth else ()  # ``data["train"]``
        elif isinstance(one, cst.Call):
            yield one


def _of_call(model: FileModel, node: cst.Call, depth: int) -> Work | None:
    call = model.call(node)
    if call.name in FOLDERS:
        return call.node, _READING
    if isinstance(call.target, Class):
        return _of_class(model, call.target)
    if not depth:
        return None
    augmenting = augments(model, call)
    if augmenting is not None:
        return augmenting, _AUGMENTING
    if call.method == _LATER and call.target is None:
        given = call.argument(0, "transform")
        return None if given is None else _at_access(model, given)
    inner: list[cst.BaseExpression] = []
    given = call.argument(0) if call.name in _PARTS else None
    if isinstance(call.target, Function):
        inner = [*returned(call.target)]
    elif isinstance(given, cst.List | cst.Tuple):
        inner = [element.value for element in given.elements]
    elif given is not None:
        inner = [given]
    elif call.method in _KEEP and call.receiver is not None:
        inner = [call.receiver]
    found = (costs(model, one, depth - 1) for one in inner)
    return next(filter(None, found), None)


def _transformed(model: FileModel, dataset: cst.BaseExpression) -> Work | None:
    """``rows.set_transform(function)``, of the data set or of what it is taken from."""
    held = {*_held(model, dataset)}
    for call in model.methods("set_transform") if held else ():
        given = call.argument(0, "transform")
        if call.receiver is None or given is None or call.target is not None:
            continue
        if held.isdisjoint(_held(model, call.receiver)):
            continue
        found = _at_access(model, given)
        if found is not None:
            return found
    return None


def _held(model: FileModel, node: cst.BaseExpression) -> Iterator[cst.CSTNode | str]:
    """What makes a data set, and what it is a part of: ``data["train"]`` as it is written."""
    for one in sources(model, node) or ():
        if isinstance(one, cst.Subscript):
            yield model.file_with(one).tree.text(one)
            yield from sources(model, one.value) or ()
        yield one


def _at_access(model: FileModel, given: cst.BaseExpression) -> Work | None:
    """What a transform of a data set of the Hub does for each sample, whenever one is taken."""
    for function in called_by(model, given):
        for site in model.reached(function.node):
            work = _work(site)
            if _decodes(model, site):
                return site.node, _DECODING
            if work is not None and model.loop(site.node) is not None:
                return work
    return None


def _decodes(model: FileModel, site: CallSite) -> bool:
    """``picture.convert("RGB")``, which no file does before it has to."""
    mode = site.argument(0, "mode") if site.method == "convert" and site.target is None else None
    return mode is not None and model.file_with(mode).literal(mode) in _MODES


def _of_class(model: FileModel, owner: Class) -> Work | None:
    method = model.method(owner, "__getitem__")
    if method is not None:
        return next(filter(None, map(_work, model.reached(method.node))), None)
    method = model.method(owner, "__iter__")
    return None if method is None else next(_streamed(model, method, _DEPTH), None)


def _streamed(model: FileModel, function: Function, depth: int) -> Iterator[Work]:
    """What a generator, or a function that gives one back, does for each sample.

    A file that is opened for many samples is not one for every sample: what reads stands in the
    loop that yields.
    """
    home = model.file_with(function.node)
    loops = {
        loop.node
        for part in walk(function.node, into_functions=False)
        if isinstance(part, cst.Yield)
        and not isinstance(part.value, cst.From)
        and (loop := home.loop(part)) is not None
    }
    for one in (*returned(function), *_yielded_from(function)):
        yield from _handed_on(home, one, depth)
    for call in home.calls_of(function):
        loop = home.loop(call.node)
        for work in _with_helpers(home, call) if loop is not None else ():
            if loop is not None and (loop.node in loops or work[1] is _TOKENIZING):
                yield work


def _handed_on(model: FileModel, node: cst.BaseExpression, depth: int) -> Iterator[Work]:
    """``iter(self.samples())``, ``map(self.read, names)``, ``(read(name) for name in names)``."""
    if isinstance(node, cst.GeneratorExp):
        for call in model.calls_in(node.elt):
            yield from _with_helpers(model, call)
    if not isinstance(node, cst.Call) or not depth:
        return
    call = model.call(node)
    first = call.positional[0] if call.positional else None
    if isinstance(call.target, Function):
        yield from _streamed(model, call.target, depth - 1)
    elif first is not None and call.name == "builtins.iter":
        yield from _handed_on(model, first, depth - 1)
    elif first is not None and call.name == "builtins.map":
        for function in called_by(model, first):
            yield from filter(None, map(_work, model.reached(function.node)))


def _with_helpers(model: FileModel, call: CallSite) -> Iterator[Work]:
    """What a call does that costs time, itself or in the function of the program that it runs."""
    inside = model.reached(call.target.node) if isinstance(call.target, Function) else ()
    yield from filter(None, map(_work, (call, *inside)))


def _yielded_from(function: Function) -> Iterator[cst.BaseExpression]:
    for part in walk(function.node, into_functions=False):
        if isinstance(part, cst.From):
            yield part.item


def _work(site: CallSite) -> Work | None:
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
