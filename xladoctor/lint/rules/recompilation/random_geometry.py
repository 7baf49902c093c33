"""XLA208: a random crop of device tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.model.parts import index_of, names_bound
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._collate import collate_functions, sizes
from xladoctor.lint.rules._exact import (
    bounds,
    drawn,
    drawn_in,
    drawn_rows,
    indices,
    made_by,
    may_be_drawn,
    reads,
    tossed,
)
from xladoctor.lint.rules._graph_constants import graph_constants
from xladoctor.lint.rules._reads import costly_loop, loop_place
from xladoctor.lint.rules._settled import by_default
from xladoctor.lint.rules._sources import sources
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

#: Transforms that were measured to compile a new graph in (almost) every step.
_MEASURED = frozenset(
    f"torchvision.transforms{version}.{name}"
    for version in ("", ".v2")
    for name in ("RandomCrop", "RandomResizedCrop", "RandomErasing", "CutMix")
)
#: timm 1.0's, data/mixup.py: with CutMix, ``x[:, :, yl:yh, xl:xh] = ...`` of drawn numbers.
_MIXES = frozenset({"timm.data.Mixup", "timm.data.mixup.Mixup"})
#: What makes tensors of another size.
_RESIZES = (
    "torch.nn.functional.interpolate",
    "torchvision.transforms.functional.resize",
    "torchvision.transforms.v2.functional.resize",
)

#: Dice that give a list or an array, and the place of the size for those that give one number.
_SEVERAL = frozenset({"sample", "choices", "permutation"})
_SIZE_AT = {
    "randint": 2,
    "choice": 1,
    "uniform": 2,
    "normal": 2,
    "rand": 0,
    "randn": 0,
    "random": 0,
}


@rule("XLA208")
def random_geometry(model: FileModel) -> Iterator[Problem]:
    """Find random crops and the like that are given device tensors in hot loops."""
    yield from _cut_out(model)
    yield from _resized(model)
    yield from _batches_of_drawn_size(model)
    yield from _by_name(model)
    yield from _drawn_constants(model)
    yield from _drawn_turns(model)
    for call in model.calls():
        transform = _transform(model, call)
        if transform is None or not call.positional:
            continue
        if not any(model.value(item).is_device_tensor for item in call.positional):
            continue
        loop = costly_loop(model, call.node)
        if loop is not None:
            name = (transform.name or "").rpartition(".")[2]
            box = "CutMix in Mixup" if transform.name in _MIXES else name
            yield model.problem(
                call.node,
                f"the box of {box} is drawn as Python numbers, which become constants of the "
                "graph: a new graph, and a compilation, in almost every step",
                suggestion="transform on the host: in the Dataset, or in collate_fn for CutMix",
                related=[
                    loop_place(model, loop),
                    model.place(transform.node, "the transform is made here"),
                ],
            )


def _told(
    model: FileModel, node: cst.CSTNode, made: CallSite | None, message: str, suggestion: str
) -> Iterator[Problem]:
    """The problem that something is drawn for a node in each turn of a loop over batches."""
    loop = costly_loop(model, node) if made is not None else None
    if made is not None and loop is not None and model.hot_loop(made.node) is not None:
        yield model.problem(
            node,
            message,
            suggestion=suggestion,
            related=[loop_place(model, loop), model.place(made.node, "drawn here")],
        )


def _cut_out(model: FileModel) -> Iterator[Problem]:
    """``images[:, :, top : top + 224]`` with ``top = random.randrange(32)``."""
    for node in model.nodes(cst.Subscript) if model.once(may_be_drawn) else ():
        if not model.value(node.value).is_device_tensor or _is_array(model, node):
            continue
        made = next(filter(None, (drawn_in(model, bound) for bound in bounds(node))), None)
        yield from _told(
            model,
            node,
            made,
            "the place of this cut is drawn as a Python number, which becomes a constant of the "
            "graph: a new graph, and a compilation, in almost every step",
            suggestion="cut on the host, in the Dataset; or draw the place on the device: "
            "x.index_select(dim, start + torch.arange(length, device=device))",
        )


def _drawn_constants(model: FileModel) -> Iterator[Problem]:
    """``x.roll(shift)``, ``frames[k]``, ``torch.randn(k, 4, device=device)`` with a drawn ``k``."""
    if not model.once(may_be_drawn):
        return
    for node in model.nodes(cst.Subscript, cst.Call, cst.BinaryOperation):
        numbers = graph_constants(model, node, likely=True)
        if isinstance(node, cst.Subscript):
            cuts = list(bounds(node))  # those of cuts are told above
            numbers = [number for number in numbers if number not in cuts]
            numbers = [] if _holds_by_name(model, node) else numbers
        draws = (_drawn_number(model, number) for number in numbers)
        made = next(filter(None, draws), None)
        yield from _told(
            model,
            node,
            made,
            "this number is drawn on the host and becomes a constant of the graph: each value is a "
            "graph of its own, compiled when it first comes up",
            suggestion="draw it on the device as a tensor (index_select takes one), or do this on "
            "the host, in the Dataset",
        )


def _drawn_number(model: FileModel, number: cst.BaseExpression) -> CallSite | None:
    """What draws one number on the host: ``random.randrange(8)``, ``torch.randint(...).item()``."""
    made = drawn(model, number)
    if made is not None:
        return None if _draws_several(made) else made
    return tossed(model, number) if model.value(number).kind is Kind.NUMBER else None


def _drawn_turns(model: FileModel) -> Iterator[Problem]:
    """``for i in torch.randint(n, (k,)): mask[i] = 0``: the same, place by place."""
    for turns in model.nodes(cst.For) if model.once(may_be_drawn) else ():
        made = drawn_rows(model, turns.iter)
        names = set(names_bound(turns.target))
        parts = walk(turns.body) if made is not None else ()
        used = (part for part in parts if isinstance(part, cst.Subscript))
        node = next((one for one in used if _is_placed(model, one, names)), None)
        if node is None or made is None:
            continue
        yield from _told(
            model,
            node,
            made,
            "the places that this loop goes over are drawn on the host, and each becomes a "
            "constant of the graph: a new graph, and a compilation, in almost every step",
            suggestion="draw them on the device and write all at once: mask.index_fill(0, "
            "torch.randint(n, (k,), device=device), 0)",
        )


def _is_placed(model: FileModel, node: cst.Subscript, names: set[str]) -> bool:
    """Whether a device tensor is indexed by one of these names."""
    at = (index for index in indices(node) if isinstance(index, cst.Name))
    return any(x.value in names for x in at) and model.value(node.value).is_device_tensor


def _resized(model: FileModel) -> Iterator[Problem]:
    """``F.interpolate(images, scale_factor=scale)`` with ``scale = random.uniform(0.5, 1.5)``."""
    for call in model.calls(*_RESIZES):
        images = call.argument(0, "input")
        asked = [call.argument(1, "size"), call.argument(2, "scale_factor")]
        made = next(filter(None, (drawn_in(model, size) for size in asked if size)), None)
        if images is None or made is None or not _is_on_device(model, images):
            continue
        yield from _told(
            model,
            call.node,
            made,
            "the size is drawn as a Python number: each size is a graph of its own, of this and of "
            "all that follows, compiled when it first comes up",
            suggestion="resize on the host, in the Dataset, to one size for all batches",
        )


def _batches_of_drawn_size(model: FileModel) -> Iterator[Problem]:
    """``F.interpolate(image, size=self.size)`` in a collate function that draws ``self.size``.

    Also ``row[:n]`` with ``n = random.randint(100, 200)``: the same for all rows of a batch.
    """
    for function in dict.fromkeys(collate_functions(model) if model.is_xla else ()):
        if not model.is_here(function.node):
            continue
        for node in walk(function.node, into_functions=False):
            numbers = list(sizes(model, node))
            call = model.call(node) if isinstance(node, cst.Call) else None
            size = call.argument(1, "size") if call and call.name in _RESIZES else None
            numbers += [] if size is None else [size]
            drawn_sizes = (drawn_in(model, number) for number in numbers)
            made = next(filter(None, drawn_sizes), None)
            if made is not None and not _in_a_turn(model, made.node):
                yield model.problem(
                    node,
                    "each batch has a drawn size: each size is a graph of its own of the whole "
                    "step, compiled when it first comes up",
                    suggestion="take one size for all batches, or a few, each for many steps",
                    related=[model.place(made.node, "drawn here")],
                )
                break


def _in_a_turn(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether something is done for each sample by itself: all end up with one size then."""
    for parent in model.tree.ancestors(node):
        if isinstance(parent, cst.For | cst.BaseComp):
            return True
        if isinstance(parent, cst.FunctionDef | cst.Lambda):
            return False
    return False


def _by_name(model: FileModel) -> Iterator[Problem]:
    """``paired_random_crop([a, b], c, size)`` of another package says itself what it does."""
    for call in model.calls():
        if call.target is not None or (call.name or "").startswith(("torch.", "torchvision.")):
            continue
        if not {"random", "crop"} <= words(call.last) or call.last[:1].isupper():
            continue
        loop = costly_loop(model, call.node)
        if loop is None or not any(_is_on_device(model, item) for item in call.positional):
            continue
        yield model.problem(
            call.node,
            "a random crop draws its box as Python numbers, which become constants of the graph: "
            "a new graph, and a compilation, in almost every step",
            suggestion="crop on the host, in the Dataset",
            related=[loop_place(model, loop)],
        )


def _is_on_device(model: FileModel, node: cst.BaseExpression) -> bool:
    value = model.value(node)
    return value.holds_device_tensor or value.made_of_device


def _is_array(model: FileModel, node: cst.Subscript) -> bool:
    """``y = waves[a:b]; torch.from_numpy(y)``: a device loader leaves arrays on the host."""
    line = model.parent(node)
    target = line.targets[0].target if isinstance(line, cst.Assign) else None
    return isinstance(target, cst.Name) and any(
        isinstance(given := call.argument(0), cst.Name) and given.value == target.value
        for call in model.calls("torch.from_numpy")
    )


def _holds_by_name(model: FileModel, node: cst.Subscript) -> bool:
    """``step = steps[k]; step["image"]``: the place is one of a list, and no constant."""
    line = model.parent(node)
    target = line.targets[0].target if isinstance(line, cst.Assign) else None
    asked = [node] if not isinstance(target, cst.Name) else [*reads(model, target)]
    around = (model.parent(one) for one in asked)
    return any(
        isinstance(one, cst.Subscript)
        and (index := index_of(one)) is not None
        and isinstance(model.literal(index), str)
        for one in around
    )


def _draws_several(call: CallSite) -> bool:
    """``np.random.randint(0, n, size=32)``: rows of a batch are data of the graph, no constants."""
    name = call.last
    if name in _SEVERAL or "size" in call.keywords or "k" in call.keywords:
        return True
    return name in _SIZE_AT and call.argument(_SIZE_AT[name]) is not None


def _transform(model: FileModel, call: CallSite) -> CallSite | None:
    func = call.node.func
    made = made_by(model, func) if isinstance(func, cst.Name | cst.Call) else None
    if made is not None and made.name in _MEASURED:
        return made
    if call.name is not None or len(call.positional) != 2:
        return None
    # ``mix = None``, and ``mix = Mixup(...)`` where it is asked for, which a function is given.
    ways = sources(model, func) if isinstance(func, cst.Name | cst.Attribute) else None
    made_at = [model.call(way) for way in ways or () if isinstance(way, cst.Call)]
    return next((one for one in made_at if one.name in _MIXES and _cuts(model, one)), None)


def _cuts(model: FileModel, made: CallSite) -> bool:
    """Whether timm's Mixup was asked for CutMix, and no default of the program leaves it out."""
    if made.has_star:
        return False
    home = model.file_with(made.node)
    alpha, box = made.argument(1, "cutmix_alpha"), made.argument(2, "cutmix_minmax")
    alphas = by_default(home, alpha) if alpha is not None else ()
    boxes = by_default(home, box) if box is not None else ()
    return any(value is not None and value != 0 for value in alphas) or any(
        value is not None and value is not NotImplemented for value in boxes
    )
