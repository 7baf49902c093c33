"""XLA732: a model in bfloat16 whose updates are too small to move its weights."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._sources import the_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_BFLOAT16 = frozenset({"torch.bfloat16"})
#: torch's optimizers that write the update to the weight itself, whose size is about the rate.
_RATES = frozenset(
    f"torch.optim.{name}" for name in ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Lion")
)
#: An update of this size moves no weight above 0.05: half the distance between bfloat16 numbers.
MOST = 1e-4
_PRETRAINED = "from_pretrained"
#: What keeps other weights than these, or trains few of them.
_ELSEWHERE = re.compile(r"master_?(weights|params)|kahan|stochastic_?round|\blora\b|\bpeft\b|Lora")


@rule("XLA732")
def lost_updates(model: FileModel) -> Iterator[Problem]:
    """Find optimizers with small rates over the parameters of a model that was made bfloat16."""
    if not model.is_xla or model.led_by:
        return
    narrow = {name: cast for cast, name in _casts(model)}
    if not narrow or _ELSEWHERE.search(model.text):
        return
    for call in model.calls(*_RATES):
        rate = call.argument(1, "lr")
        given = call.argument(0, "params")
        value = model.literal(rate) if rate is not None else None
        if given is None or not isinstance(value, float) or not 0 < value <= MOST:
            continue
        cast = next((narrow[name] for name in _models(model, given) if name in narrow), None)
        if cast is None or model.row(cast.node) > model.row(call.node):
            continue
        yield model.problem(
            _dtype_given(cast) or cast.node,
            f"weights in bfloat16 have 8 significant bits: an update of lr={value:g} changes no "
            f"weight larger than {value * 512:.2g}",
            suggestion='leave the weights in float32 and compute in bfloat16: torch.autocast("xla",'
            " dtype=torch.bfloat16)",
            related=[model.place(call.node, "the optimizer writes to these weights")],
        )


def _casts(model: FileModel) -> Iterator[tuple[CallSite, str]]:
    """Calls that make a model bfloat16, with the name of the model afterwards."""
    for call in model.calls():
        if call.last == _PRETRAINED and _read_narrow(model, call):
            parent = model.parent(_wrapped(model, call.node))
            if isinstance(parent, cst.Assign) and len(parent.targets) == 1:
                yield call, model.tree.text(parent.targets[0].target).strip()
            continue
        if call.method not in ("to", "bfloat16") or call.receiver is None:
            continue
        given = [*call.positional, *call.keywords.values()]
        if call.method == "to" and not any(model.name(one) in _BFLOAT16 for one in given):
            continue
        if model.value(call.node).kind is not Kind.MODEL:
            continue
        parent = model.parent(_wrapped(model, call.node))
        if isinstance(parent, cst.Assign) and len(parent.targets) == 1:
            yield call, model.tree.text(parent.targets[0].target).strip()
        else:
            yield call, model.tree.text(call.receiver).strip()


def _dtype_given(call: CallSite) -> cst.BaseExpression | None:
    """The type in which ``from_pretrained`` reads a model."""
    named = call.keywords if call.last == _PRETRAINED else {}
    return named.get("torch_dtype") or named.get("dtype")


def _read_narrow(model: FileModel, call: CallSite) -> bool:
    """``AutoModel.from_pretrained(path, torch_dtype=torch.bfloat16)``."""
    given = _dtype_given(call)
    narrow = given is not None and model.name(given) in _BFLOAT16
    return narrow and model.value(call.node).kind is Kind.MODEL


def _wrapped(model: FileModel, node: cst.Call) -> cst.Call:
    """The model as it is used: ``FSDP(model.to(device))``."""
    argument = model.parent(node)
    call = model.parent(argument) if isinstance(argument, cst.Arg) else None
    if isinstance(call, cst.Call) and model.value(call).kind is Kind.MODEL:
        return _wrapped(model, call)
    return node


def _models(model: FileModel, given: cst.BaseExpression) -> Iterator[str]:
    """The names whose ``parameters()`` an optimizer is given."""
    for node in walk(the_source(model, given)):
        if isinstance(node, cst.Call):
            call = model.call(node)
            if call.method == "parameters" and call.receiver is not None:
                yield model.tree.text(call.receiver).strip()
