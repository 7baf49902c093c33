"""XLA109: a library call that reads the values of the device tensors it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, Kind, OnXla
from xladoctor.lint.model.frameworks import BAR_METRICS, LIGHTNING_CALLBACKS
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._constants import constant
from xladoctor.lint.rules._exact import made_by, same_name
from xladoctor.lint.rules._generation import generated
from xladoctor.lint.rules._masked_models import masks_that_are_read
from xladoctor.lint.rules._noise_schedulers import steps_that_are_looked_up
from xladoctor.lint.rules._own_reads import checks_for_nan, checks_labels, counting
from xladoctor.lint.rules._reads import costly_loop, loop_place, often

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

#: Function to what it reads for, and what to write instead. Measured (tables/ops.toml).
_READERS = {
    "torch.linalg.inv": ("its error check", "torch.linalg.inv_ex(a).inverse"),
    "torch.inverse": ("its error check", "torch.linalg.inv_ex(a).inverse"),
    "torch.nn.functional.gaussian_nll_loss": (
        "its check of the variance",
        "write the loss out: 0.5 * (var.log() + (input - target) ** 2 / var)",
    ),
    "torch.randint": (
        "torch.randint, which takes its bounds as numbers,",
        "(torch.rand(n, device=device) * bound).long(), which stays on the device",
    ),
    "copy.copy": ("the copy, which goes through pickle,", "t.clone()"),
}
_UNCHECKED = (
    "give validate_args=False, or say it once for all: "
    "torch.distributions.Distribution.set_default_validate_args(False)"
)
#: Turns the checks of all distributions off.
_CHECKS_OFF = frozenset(
    f"torch.distributions.{home}Distribution.set_default_validate_args"
    for home in ("", "distribution.")
)
_METER = "MetricLogger"
#: What wandb.watch logs, and in which pass. Once in so many turns it is no matter.
_WATCHED = {
    "gradients": ("all gradients", "backward pass"),
    "parameters": ("all weights", "forward pass"),
    "all": ("all weights and gradients", "step"),
}
_SELDOM = 50
#: Read on the host for a flag of Accelerate's own (Accelerate 1.15, accelerator.py).
_TRIGGER = "accelerate.Accelerator.check_trigger"

#: ``if (std == 0).any()`` of a tensor on the device (torchvision 0.24, _functional_tensor.py).
_NORMALIZE = "torchvision.transforms.functional.normalize"
_NORMALIZERS = frozenset(
    f"torchvision.transforms.{module}Normalize" for module in ("", "transforms.")
)

#: What makes an image of a tensor, on the host (torchvision 0.24, functional.py).
_TO_IMAGE = frozenset(
    f"torchvision.transforms.{module}ToPILImage" for module in ("", "transforms.", "v2.")
)
#: Reads how many batches each BatchNorm has seen, whose running mean is over all of them.
_UPDATE_BN = "torch.optim.swa_utils.update_bn"

#: Methods of distributions that check the sample that they are given.
_OF_SAMPLES = frozenset({"log_prob", "cdf", "icdf"})


@rule("XLA109")
def hidden_host_read(model: FileModel) -> Iterator[Problem]:
    """Find calls in hot loops that were measured to read their device tensors on the host."""
    for call in model.calls():
        name = _short(call.name or "")
        given = [*call.positional, *call.keywords.values()]
        known = model.effects.name(call)
        if known is not None and known.dotted == _TRIGGER:
            what = "check_trigger reduces a flag over all cores and"
            instead = "check it once in a while, or at the end of the epoch"
        elif _copied_meter(model, call):
            what = "MetricLogger.update() calls .item() on each tensor that it is given, which"
            instead = "give it loss.detach() every 100 steps, or keep sums on the device"
        elif not any(model.value(item).is_device_tensor for item in given):
            continue
        elif name in _READERS:
            what, instead = _READERS[name]
        elif _normalizes(model, call):
            what = "torchvision asks whether a deviation is zero, which"
            instead = "(x - mean) / std, with both as buffers; or normalize in the Dataset"
        elif (made := made_by(model, call.node.func)) is not None and made.name in _TO_IMAGE:
            what = "ToPILImage brings the image to the host, which"
            instead = "bring the whole batch to the host first, once: images = images.cpu()"
        elif (check := _checks(model, call, name)) is not None:
            what, instead = check
        elif call.method == "step" and _is_scheduler(model, call.receiver):
            what, instead = "the scheduler", "step the scheduler once per epoch, with a number"
        else:
            continue
        loop = costly_loop(model, call.node)
        if loop is not None:
            yield model.problem(
                call.node,
                f"{what} reads device values on the host {often(loop)}: the host waits and the "
                "graph is cut there",
                suggestion=instead,
                related=[loop_place(model, loop)],
            )
    yield from _of_counts(model)
    yield from _of_norms(model)
    yield from _membership(model)
    yield from _each_token(model)
    yield from masks_that_are_read(model)
    yield from steps_that_are_looked_up(model)
    yield from _of_the_bar(model)
    yield from _watched(model) if model.is_xla else ()


def _of_counts(model: FileModel) -> Iterator[Problem]:
    """``averaged.update_parameters(model)`` whose count of updates is on the device."""
    for call, row, placed in counting(model):
        loop = costly_loop(model, call.node)
        if loop is not None:
            name = row["class"].rpartition(".")[2]
            yield model.problem(
                call.node,
                f"{name} asks on the host how often it was updated, and its count is on the "
                f"device: {row['reads']} {often(loop)}",
                suggestion=row["instead"],
                related=[
                    loop_place(model, loop),
                    model.place(placed, "this puts the count on the device"),
                ],
            )


def _of_norms(model: FileModel) -> Iterator[Problem]:
    """``update_bn(loader, averaged)`` of a model on the device.

    Measured on 2.9: a read for each BatchNorm and batch, and a compilation for each batch. Models
    of transformers have none of these layers, and nothing happens.
    """
    if any(name.partition(".")[0] == "transformers" for name in model.names.imported()):
        return
    for call in model.calls(_UPDATE_BN):
        net = call.argument(1, "model")
        value = model.value(net) if net is not None else None
        if net is None or value is None or value.kind is not Kind.MODEL or not value.on_device:
            continue
        if _is_brought_back(model, call, net):
            continue
        yield model.problem(
            call.node,
            "update_bn reads on the host how many batches each BatchNorm has seen, and that number "
            "stands in the graph: a read for each layer and batch, and a compilation for each "
            "batch of the loader",
            suggestion="do it on the host (averaged.cpu()), or go over the loader yourself with "
            "the momentum of the layers as it is",
        )


def _is_brought_back(model: FileModel, call: CallSite, net: cst.BaseExpression) -> bool:
    """``averaged.cpu()`` before the call, or as what it is given."""
    moves = (one for one in model.methods("cpu", "to") if one.function is call.function)
    return any(
        one.node is net
        or (same_name(one.receiver, net) and model.tree.order[one.node] < model.tree.order[net])
        for one in moves
        if one.method == "cpu" or not _names_xla(model, one)
    )


def _names_xla(model: FileModel, move: CallSite) -> bool:
    """Whether ``.to(device)`` may move to an XLA device."""
    device = move.argument(0, "device")
    text = model.literal(device) if device is not None else None
    if device is None or isinstance(text, str):
        return text is None or str(text).startswith("xla")
    return model.value(device).kind is not Kind.OTHER_DEVICE


def _normalizes(model: FileModel, call: CallSite) -> bool:
    """``Normalize(mean, std)(images)`` of torchvision's first transforms, or their function.

    Those of ``transforms.v2`` look at the list itself.
    """
    if call.name == _NORMALIZE:
        return True
    made = made_by(model, call.node.func)
    return made is not None and made.name in _NORMALIZERS


def _of_the_bar(model: FileModel) -> Iterator[Problem]:
    """``trainer.progress_bar_metrics`` of Lightning, and ``self.get_metrics`` of a progress bar."""
    if "lightning" not in model.frameworks:
        return
    asked: list[cst.CSTNode] = [
        node for node in model.nodes(cst.Attribute) if node.attr.value == BAR_METRICS
    ]
    for call in model.methods("get_metrics"):
        owner = call.function.owner if call.function is not None else None
        if owner is None or not isinstance(call.receiver, cst.Name):
            continue
        if not LIGHTNING_CALLBACKS.isdisjoint(model.library_bases(owner)):
            asked.append(call.node)
    for node in asked:
        loop = costly_loop(model, node)
        if loop is not None:
            yield model.problem(
                node,
                f"Lightning reads here all that the progress bar shows {often(loop)}: the host "
                "waits and the graph is cut there",
                suggestion="ask for it where the bar is drawn, every 50 steps",
                related=[loop_place(model, loop)],
            )


def _watched(model: FileModel) -> Iterator[Problem]:
    """``wandb.watch(model, log_freq=1)``: hooks that take a histogram of each gradient.

    They copy what is not on a GPU to the host first, one tensor after the other, by default in each
    thousandth turn (wandb/integration/torch/wandb_torch.py; read, not run).
    """
    for call in model.calls("wandb.watch"):
        every, of = call.argument(3, "log_freq"), call.argument(2, "log")
        turns = constant(model, every) if every is not None else None
        kind = "gradients" if of is None else model.literal(of)
        if not isinstance(turns, int) or not 0 < turns < _SELDOM or kind not in _WATCHED:
            continue
        if model.on_xla(call.node) is not OnXla.NO:
            what, when = _WATCHED[str(kind)]
            each = f"each {when}" if turns == 1 else f"one {when} in {turns}"
            yield model.problem(
                call.node,
                f"wandb's hooks read {what} on the host in {each}: the host waits once for each "
                "of them, and the graph is cut there",
                suggestion="leave log_freq at its 1000, or log the norm of the gradients",
            )


def _each_token(model: FileModel) -> Iterator[Problem]:
    """``model.generate(ids)`` asks on the host, token by token, whether all texts have ended."""
    for call, writing in generated(model):
        if model.throttled(call.node):
            continue  # as seldom as a read should be
        yield model.problem(
            call.node,
            "generate reads on the host after each token whether all texts have ended: as many "
            f"graphs and waits as there are tokens{writing.often}",
            suggestion=("generate seldom, or " if writing.often else "generate ")
            + "in a loop of your own over a fixed number of tokens that keeps what has ended as a "
            "mask on the device",
            related=writing.related,
        )


def _copied_meter(model: FileModel, call: CallSite) -> bool:
    """``metric_logger.update(loss=loss)`` of a ``MetricLogger`` whose source is not in sight.

    Many programs hold a copy of DETR's class (facebookresearch/detr, util/misc.py), as DeiT, MAE
    and torchvision's references do; these read. Where the source is there, it tells.
    """
    if call.method != "update" or call.receiver is None:
        return False
    made = made_by(model, call.receiver)
    if made is None or made.last != _METER or made.target is not None:
        return False
    return any(
        value.is_device_tensor or (argument.star == "**" and value.holds_device_tensor)
        for argument in call.node.args
        for value in [model.value(argument.value)]
    )


def _short(name: str) -> str:
    """``torch.distributions.normal.Normal`` is ``torch.distributions.Normal``."""
    parts = name.split(".")
    if name.startswith("torch.distributions.") and len(parts) == 4:
        return f"torch.distributions.{parts[3]}"
    return name


def _checks(model: FileModel, call: CallSite, name: str) -> tuple[str, str] | None:
    """What checks the values that it is given, and what to write instead."""
    if _checks_arguments(model, call, name):
        return "the check of its arguments (and later of what log_prob is given)", _UNCHECKED
    if _checks_sample(model, call):
        return "the check of what it is given", _UNCHECKED
    if checks_labels(model, call):
        what = "the metric checks which labels there are (torch.unique), and"
        return what, "give it validate_args=False where it is made"
    if checks_for_nan(model, call):
        what = "the metric looks for NaN in what it is given, which"
        instead = 'give it nan_strategy="disable" where it is made, or keep a sum on the device'
        return what, instead
    return None


def _checks_arguments(model: FileModel, call: CallSite, name: str) -> bool:
    """``Categorical(logits=logits)``, also of a class of the program that is made of it."""
    known = model.library.get(name)
    if isinstance(call.target, Class):
        bases = (model.library.get(_short(model.name(base) or "")) for base in call.target.bases)
        known = next((base for base in bases if base is not None), None)
    if known is None or known.checks is None or call.has_star:
        return False
    checks = call.keywords.get(known.checks)
    if checks is not None:
        return model.literal(checks) is True
    return not any(
        model.literal(argument) is False
        for part in (model, *model.linked)
        for off in part.calls(*_CHECKS_OFF)
        if (argument := off.argument(0, "value")) is not None
    )


def _checks_sample(model: FileModel, call: CallSite) -> bool:
    """``Normal(0.0, 1.0).log_prob(x)``; of one that is made of tensors, making it is told.

    Measured on torch_xla 2.9: one read for each.
    """
    if call.method not in _OF_SAMPLES or call.receiver is None:
        return False
    made = made_by(model, call.receiver)
    if made is None or not _checks_arguments(model, made, _short(made.name or "")):
        return False
    given = [*made.positional, *made.keywords.values()]
    return not any(model.value(item).is_device_tensor for item in given)


def _is_scheduler(model: FileModel, node: cst.BaseExpression | None) -> bool:
    if node is None:
        return False
    value = model.value(node)
    return value.kind is Kind.SCHEDULER and (value.type_name or "").endswith("ReduceLROnPlateau")


def _membership(model: FileModel) -> Iterator[Problem]:
    """``label in seen`` with a tensor on the right."""
    for node in model.nodes(cst.Comparison):
        for part in node.comparisons:
            value = model.value(part.comparator)
            if not isinstance(part.operator, cst.In | cst.NotIn) or not value.is_device_tensor:
                continue
            if isinstance(model.literal(node.left), str):
                continue  # a key of a dictionary, whatever the model takes it for
            loop = costly_loop(model, node) if value.certain else None
            if loop is not None:
                yield model.problem(
                    node,
                    f"`in` compares on the device and reads the answer on the host {often(loop)}",
                    suggestion="keep it a tensor: (x == seen).any()",
                    related=[loop_place(model, loop)],
                )
