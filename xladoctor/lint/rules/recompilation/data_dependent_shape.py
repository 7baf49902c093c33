"""XLA201: an operation whose result has as many elements as the data say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.model.parts import each_in, index_of
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._chosen_lists import is_chosen, made_of_chosen
from xladoctor.lint.rules._left_out import samples_left_out, samples_skipped
from xladoctor.lint.rules._read_numbers import made_of, was_listed, was_read
from xladoctor.lint.rules._reads import costly_loop, loop_place, often, snippet, why_on_device
from xladoctor.lint.rules._sources import the_call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem

#: Name to what to write instead; the same names exist as functions of torch and as methods.
_ALWAYS = {
    "nonzero": "keep the mask and use torch.where(mask, x, 0) or multiply by it",
    "argwhere": "keep the mask and use torch.where(mask, x, 0) or multiply by it",
    "masked_select": "use torch.where(mask, x, 0) or multiply by the mask",
    "unique": "torch.sort has a fixed size; or find the unique values in the Dataset, on the host",
    "unique_consecutive": "find them in the Dataset, on the host",
}
_PACKED = "pack_padded_sequence"
_COUNT = (
    "(labels[:, None] == torch.arange(classes, device=labels.device)).sum(0) has a fixed "
    "size and stays on the device"
)


#: Functions and methods whose numbers are sizes of the result.
_SIZED = frozenset(
    {"zeros", "ones", "empty", "full", "rand", "randn", "arange", "new_zeros", "new_ones",
     "new_empty", "new_full", "view", "reshape", "expand", "repeat", "narrow"}
)  # fmt: skip
#: Functions and methods that take a number or a list of them to divide a tensor.
_DIVIDES = frozenset({"topk", "split", "tensor_split", "split_with_sizes", "chunk", "narrow"})
_METRIC_LEARNING = "pytorch_metric_learning"
#: Losses that look for all pairs or triplets of a batch where they are given none.
_PAIR_LOSSES = frozenset(
    {"ContrastiveLoss", "TripletMarginLoss", "LiftedStructureLoss", "NTXentLoss",
     "GeneralizedLiftedStructureLoss", "MultiSimilarityLoss"}
)  # fmt: skip
#: Miners that take the triplets as they come.
_ALL_KEPT = frozenset({"EmbeddingsAlreadyPackagedAsTriplets"})
_NUMBERS = frozenset({"max", "min", "sum", "amax", "amin", "count_nonzero", "argmax", "prod"})


@rule("XLA201")
def data_dependent_shape(model: FileModel) -> Iterator[Problem]:
    """Find operations with a data-dependent result size on device tensors in hot loops."""
    for call in model.calls():
        yield from _sized_by_number(model, call)
        found = _sized_by_data(model, call)
        if found is None:
            continue
        name, tensor, advice = found
        loop = costly_loop(model, call.node)
        if loop is None:
            continue
        yield model.problem(
            call.node,
            f"the size of the result of `{name}` depends on the data: the host reads it "
            f"{often(loop)}, and every new size recompiles everything after it",
            suggestion=advice,
            related=[loop_place(model, loop), *why_on_device(model, model.value(tensor), loop)],
        )
    yield from _cut_by_number(model)
    yield from _divided(model)
    yield from _chosen_rows(model)
    yield from _mined(model)
    yield from samples_left_out(model)
    yield from samples_skipped(model)


def _mined(model: FileModel) -> Iterator[Problem]:
    """``miner(embeddings, labels)`` of pytorch-metric-learning: as many pairs as it finds."""
    for call in model.calls() if any(model.calls(f"{_METRIC_LEARNING}.*")) else ():
        made = the_call(model, call.node.func) if len(call.positional) == 2 else None
        if made is not None and made.method == "to" and made.receiver is not None:
            made = the_call(model, made.receiver)
        module, _, name = (made.name or "").rpartition(".") if made is not None else ("", "", "")
        package, _, kind = module.rpartition(".")
        pairs = kind == "miners" or (kind == "losses" and name in _PAIR_LOSSES)
        if package != _METRIC_LEARNING or not pairs or name in _ALL_KEPT:
            continue
        loop = costly_loop(model, call.node)
        if loop is not None and model.value(call.positional[0]).is_device_tensor:
            yield model.problem(
                call.node,
                f"{name} picks its pairs with torch.where: the host reads how many there are "
                f"{often(loop)}, and every new number recompiles everything after it",
                suggestion="write the loss with masks over all pairs of the batch (the hardest is "
                "a max over a row), or use one of losses that has no pairs",
                related=[loop_place(model, loop)],
            )


def _divided(model: FileModel) -> Iterator[Problem]:
    """``x.topk(k)`` with ``k = int(mask.sum())``, ``x.split(lengths.tolist())``."""
    for call in model.calls():
        name = (call.name or call.method or "").rpartition(".")[2]
        if name not in _DIVIDES or (call.name is not None and not call.name.startswith("torch.")):
            continue
        tensor = call.receiver if call.name is None else call.argument(0)
        if tensor is None or not model.value(tensor).is_device_tensor:
            continue
        given = [*call.positional, *call.keywords.values()]
        number = next((x for x in given if was_read(model, x) or was_listed(model, x)), None)
        loop = costly_loop(model, call.node) if number is not None else None
        if loop is not None and number is not None:
            yield _of_size(model, call.node, number, loop, "was read from")


def _chosen_rows(model: FileModel) -> Iterator[Problem]:
    """``x[rows]`` with ``rows = [i for i in range(n) if labels[i] > 0]``: as many as there are.

    And ``torch.tensor(rows, device=device)`` of such a list.
    """
    for node in model.nodes(cst.Subscript):
        if not model.value(node.value).is_device_tensor:
            continue
        name = index_of(node)
        if name is None or not is_chosen(model, name):
            continue
        loop = costly_loop(model, node)
        if loop is not None:
            yield _of_size(model, node, name, loop, "was chosen by data of")
    for call, chosen in made_of_chosen(model):
        loop = costly_loop(model, call.node)
        if loop is not None:
            yield _of_size(model, call.node, chosen, loop, "was chosen by data of")


def _sized_by_data(model: FileModel, call: CallSite) -> tuple[str, cst.BaseExpression, str] | None:
    """Name, device tensor and advice if the call's result is sized by the tensor's data."""
    if call.has_star:
        return None
    found = _operation(call)
    if found is None:
        return None
    name, tensor, rest = found
    if tensor is None or not model.value(tensor).is_device_tensor:
        return None
    if name == _PACKED:
        return name, tensor, "keep the padded tensor, and mask what is behind each length"
    if name in _ALWAYS:
        return name, tensor, _ALWAYS[name]
    if name == "where" and not rest and not call.keywords:
        return (
            "torch.where(condition)",
            tensor,
            "give all three arguments: torch.where(condition, a, b)",
        )
    if name == "bincount" and "minlength" not in call.keywords and len(rest) < 2:
        return "bincount", tensor, _COUNT
    classes = rest[0] if rest else call.keywords.get("num_classes")
    if name == "one_hot" and (classes is None or model.literal(classes) == -1):
        return "one_hot", tensor, "give num_classes"
    if name == "repeat_interleave" and "output_size" not in call.keywords:
        repeats = rest[0] if rest else call.keywords.get("repeats")
        if repeats is not None and model.value(repeats).kind is Kind.DEVICE_TENSOR:
            return (
                "repeat_interleave",
                tensor,
                "repeat a fixed number of times, or give output_size",
            )
    return None


def _cut_by_number(model: FileModel) -> Iterator[Problem]:
    """``longest = int(lengths.max())``, and then ``x[:, :longest]``."""
    for node in model.nodes(cst.Subscript):
        for element in node.slice:
            end = element.slice.upper if isinstance(element.slice, cst.Slice) else None
            begins = isinstance(element.slice, cst.Slice) and element.slice.lower is None
            if end is None or not begins or not model.value(node.value).is_device_tensor:
                continue
            loop = costly_loop(model, node) if was_read(model, end) else None
            if loop is not None:
                yield _of_size(model, node, end, loop, "was read from")
                break


def _sized_by_number(model: FileModel, call: CallSite) -> Iterator[Problem]:
    """``torch.zeros(rows, lengths.max())``: a number of the device is a size."""
    name = (call.name or call.method or "").rpartition(".")[2]
    if name not in _SIZED or (call.name is not None and not call.name.startswith("torch.")):
        return
    written = [*call.positional, *(x for key, x in call.keywords.items() if key == "size")]
    numbers = [part for size in written for part in each_in(size)]
    for number in numbers:
        stands = _is_read(model, number)
        if not stands and not (was_read(model, number) and model.value(call.node).is_device_tensor):
            continue
        loop = costly_loop(model, call.node)
        if loop is not None:
            how = "stands on" if stands else "was read from"
            yield _of_size(model, call.node, number, loop, how)
        return


def _of_size(
    model: FileModel, node: cst.CSTNode, number: cst.BaseExpression, loop: Loop, how: str
) -> Problem:
    """A number of the device that is a size."""
    reads = f"the host reads it {often(loop)}, and " if how == "stands on" else ""
    return model.problem(
        node,
        f"{snippet(model, number)} is a size and {how} the device: {reads}every new size "
        "recompiles everything after it",
        suggestion="take a size that does not depend on the batch (the longest that may come), and "
        "mask what is beyond",
        related=[loop_place(model, loop)],
    )


def _is_read(model: FileModel, node: cst.BaseExpression, depth: int = 3) -> bool:
    """Whether a number is computed from the values of a tensor: a parameter may be any number."""
    if not model.value(node).is_device_tensor:
        return False
    if isinstance(node, cst.Name):
        return depth > 0 and any(_is_read(model, made, depth - 1) for made in made_of(model, node))
    if isinstance(node, cst.BinaryOperation):
        return _is_read(model, node.left, depth) or _is_read(model, node.right, depth)
    if not isinstance(node, cst.Call):
        return False
    call = model.call(node)
    return (call.name or call.method or "").rpartition(".")[2] in _NUMBERS and not call.positional[
        1:
    ]


def _operation(
    call: CallSite,
) -> tuple[str, cst.BaseExpression | None, tuple[cst.BaseExpression, ...]] | None:
    """Plain name, tensor and remaining positional arguments of a torch function or method."""
    if call.name is not None:
        module, _, name = call.name.rpartition(".")
        if module == "torch.nn.utils.rnn" and name == _PACKED:
            return name, call.argument(0, "input"), call.positional[1:]
        if module in {"torch", "torch.nn.functional"}:
            return name, call.argument(0, "input"), call.positional[1:]
        return None
    if call.receiver is not None and call.method is not None and call.method != "where":
        return call.method, call.receiver, call.positional
    return None
