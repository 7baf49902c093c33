"""Objects of libraries that read tensors of their own, or look for NaN: ``tables/readers.toml``."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.model import Kind
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.values import UNKNOWN
from xladoctor.lint.rules._moves import moves
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xladoctor.lint.model import CallSite, FileModel

_TO = "to"
#: Metrics of torchmetrics that look for labels that they do not know, unless told not to
#: (torchmetrics 1.9, functional/classification/stat_scores.py and confusion_matrix.py). Those of
#: several classes do so only where the predictions are labels: given scores they read nothing
#: (measured with torchmetrics 1.9).
_LABELS = re.compile(
    r"(^|\.)(Binary|Multiclass|Multilabel)?(Accuracy|Precision|Recall|F1Score|FBetaScore"
    r"|Specificity|StatScores|ConfusionMatrix|JaccardIndex|CohenKappa|MatthewsCorrCoef)$"
)
#: What makes labels of scores, and what gives them beside their values.
_MAKE_LABELS = frozenset({"argmax", "argmin", "argsort", "long", "int"})
_WITH_PLACES = frozenset({"max", "min", "topk", "sort"})


class Counting(NamedTuple):
    """A call that asks counts which are on the device: its row, and what has placed them there."""

    call: CallSite
    row: Mapping[str, Any]
    placed: cst.CSTNode


def counting(model: FileModel) -> Iterator[Counting]:
    """Calls such as ``averaged.update_parameters(model)`` of counts that are on the device."""
    for row in catalogue.table("readers")["counted"]:
        for call in model.methods(*row["methods"]):
            made = _made(model, call.receiver, row) if call.receiver is not None else None
            placed = _placed(model, made, row) if made else None
            if placed is not None:
                yield Counting(call, row, placed)


def checks_labels(model: FileModel, call: CallSite) -> bool:
    """``accuracy(predictions, labels)`` of a metric of torchmetrics that checks its arguments."""
    made, made_as = _metric(model, call)
    # torchmetrics was ``pytorch_lightning.metrics`` before.
    package, _, name = made_as.replace("lightning.pytorch.metrics.", "torchmetrics.", 1).partition(
        "."
    )
    if package != "torchmetrics" or not _LABELS.search(name) or len(call.positional) < 2:
        return False
    if made is None:
        return False
    given = {x.keyword.value: x.value for x in made.args if x.keyword is not None}
    checks = given.get("validate_args")
    unread = any(argument.star for argument in made.args)
    if unread or (checks is not None and model.literal(checks) is not True):
        return False
    task = given.get("task")
    of_classes = "Multiclass" in name or (
        task is not None and model.literal(task) not in {"binary", "multilabel"}
    )
    return not of_classes or _are_labels(model, call.positional[0])


def _are_labels(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether predictions are labels, not scores: ``logits.argmax(1)``, ``logits.max(1)[1]``."""
    for made in sources(model, node) or ():
        if isinstance(made, cst.Call) and model.call(made).last in _MAKE_LABELS:
            return True
        if isinstance(made, cst.Attribute) and made.attr.value == "indices":
            return True
        picked = made.value if isinstance(made, cst.Subscript) else None
        if isinstance(picked, cst.Call) and model.call(picked).last in _WITH_PLACES:
            return True
    return False


def _metric(model: FileModel, call: CallSite) -> tuple[cst.Call | None, str]:
    """What makes the metric that a call updates, if it is known, and the class that it is of."""
    metric = call.receiver if call.method in {"update", "forward"} else call.node.func
    value = model.value(metric) if metric is not None else UNKNOWN
    made = value.origin if isinstance(value.origin, cst.Call) else None
    return made, value.type_name or ""


def checks_for_nan(model: FileModel, call: CallSite) -> bool:
    """``mean.update(loss)``, or ``mean(loss)``, of a metric that looks for NaN in what it gets."""
    node, made_as = _metric(model, call)
    package, _, name = made_as.partition(".")
    row = _checked().get((package, name.rpartition(".")[2]))
    if node is None or row is None or model.call(node).has_star:
        return False
    argument, off = row["unless"]
    given = model.call(node).keywords.get(argument)
    return given is None or model.literal(given) not in {off, NotImplemented}


@functools.cache
def _checked() -> Mapping[tuple[str, str], Mapping[str, Any]]:
    """The rows of metrics by package and class."""
    return {
        (row["package"].partition(" ")[0], name): row
        for row in catalogue.table("readers")["checked"]
        for name in row["classes"]
    }


def _made(
    model: FileModel,
    node: cst.BaseExpression,
    row: Mapping[str, Any],
    seen: frozenset[cst.BaseExpression] = frozenset(),
) -> list[CallSite] | None:
    """The calls that make what an expression holds, moves of them too; None if one is another.

    ``seen`` are the calls on the way: ``self.average = self.average.to(device)`` is made of itself.
    """
    found: list[CallSite] = []
    for source in sources(model, node) or _where_given(model, node):
        if is_name(source, "None") or source in seen:
            continue
        if not isinstance(source, cst.Call):
            return None
        call = model.call(source)
        if call.name == row["class"]:
            found.append(call)
            continue
        inner = call.receiver if call.method == _TO and call.name is None else None
        more = _made(model, inner, row, seen | {source}) if inner is not None else None
        if more is None:
            return None
        found += [call, *more]
    return found


def _where_given(model: FileModel, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What the calls that give a parameter make it: ``averaged=None`` for evaluation alone."""
    function = model.with_parameter(node) if isinstance(node, cst.Name) else None
    if function is None or not isinstance(node, cst.Name):
        return
    default = function.default(node.value)
    if default is None or not is_name(default, "None"):
        return
    for call in model.callers(function):
        given = call.given_to(function, node.value)
        if given is not None and not call.has_star:
            yield from sources(model, given) or ()


def _placed(model: FileModel, made: list[CallSite], row: Mapping[str, Any]) -> cst.CSTNode | None:
    """What has put the counts of objects on the device; None if nothing is known to."""
    for call in made:
        device = call.argument(*row["device"]) if "device" in row else None
        device = call.argument(0, "device") if call.method == _TO else device
        if device is not None and model.value(device).kind is Kind.DEVICE:
            return device
    nodes = {call.node for call in made}
    for part in (model, *model.linked):
        for move in moves(part):
            device = move.origin.argument(0, "device")
            if device is None or part.value(device).kind is not Kind.DEVICE:
                continue
            moved = _made(part, move.source, row)
            if moved and not nodes.isdisjoint(one.node for one in moved):
                return move.call.node
    return None
