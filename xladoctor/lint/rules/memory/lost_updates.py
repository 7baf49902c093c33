"""XLA732: a model in bfloat16 whose updates are too small to move its weights."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.model.knowledge import GIVE_ITSELF
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._constants import default_of
from xladoctor.lint.rules._environment import key_of
from xladoctor.lint.rules._given import entries, given
from xladoctor.lint.rules._handed_over import is_trainer
from xladoctor.lint.rules._optimized import owners
from xladoctor.lint.rules._settled import by_default, chosen
from xladoctor.lint.rules._sources import the_call, the_source
from xladoctor.lint.rules._training_arguments import (
    ARGUMENTS,
    DEFAULTS,
    OF_TRANSFORMERS,
    argument,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Problem

_BFLOAT16 = frozenset({"torch.bfloat16"})
#: torch's optimizers that write the update to the weight itself, whose size is about the rate.
_RATES = frozenset(
    f"torch.optim.{name}" for name in ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Lion")
) | {
    *("torch_xla.amp.syncfree.Adam", "torch_xla.amp.syncfree.AdamW"),
    *("transformers.AdamW", "transformers.optimization.AdamW"),
}
#: An update of this size moves no weight above 0.05: half the distance between bfloat16 numbers.
MOST = 1e-4
_PRETRAINED = "from_pretrained"
_GET = "get"
#: What keeps other weights than these, or trains few of them.
_ELSEWHERE = re.compile(
    r"master_?(weights|params)|kahan|stochastic_?round|\blora\b|(\b|_)peft(\b|_)|Lora"
)


@rule("XLA732")
def lost_updates(model: FileModel) -> Iterator[Problem]:
    """Find optimizers with small rates over the parameters of a model that was made bfloat16."""
    if not model.is_xla or model.led_by - {"transformers"}:
        return
    narrow = {name: cast for cast, name in _casts(model)}
    if not narrow or _ELSEWHERE.search(model.text):
        return
    told: set[CallSite] = set()
    for call, value, names in (*_own_optimizers(model), *_optimizers_of_trainers(model)):
        if value is None or not 0 < value <= MOST:
            continue
        cast = next((narrow[name] for name in names if name in narrow), None)
        if cast is None or cast in told or model.row(cast.node) > model.row(call.node):
            continue
        told.add(cast)
        yield model.problem(
            _dtype_given(cast) or cast.node,
            f"weights in bfloat16 have 8 significant bits: an update of lr={value:g} changes no "
            f"weight larger than {value * 512:.2g}",
            suggestion='leave the weights in float32 and compute in bfloat16: torch.autocast("xla",'
            " dtype=torch.bfloat16)",
            related=[model.place(call.node, "the optimizer writes to these weights")],
        )


def _own_optimizers(model: FileModel) -> Iterator[tuple[CallSite, float | None, list[str]]]:
    """Optimizers that the program makes, their rates, and the names of what they train."""
    for call in model.calls(*_RATES):
        yield call, _rate(model, call), [*_models(model, call)]


def _optimizers_of_trainers(model: FileModel) -> Iterator[tuple[CallSite, float | None, list[str]]]:
    """``Trainer(model, args)``: AdamW over the model's weights, unless ``optim`` names another.

    transformers 5.24 and before, trainer.py: ``optim`` is one of the kinds of AdamW by default.
    """
    for call in model.calls() if "transformers" in model.frameworks else ():
        if not is_trainer(model, call) or "optimizers" in call.keywords:
            continue
        trained, settings = call.argument(0, "model"), call.argument(1, "args")
        made = the_call(model, settings) if settings is not None else None
        if trained is None or made is None or not ARGUMENTS.search(made.name or ""):
            continue
        said = given(model, made)
        kind = model.literal(said["optim"]) if "optim" in said else "adamw"
        if not isinstance(kind, str) or not kind.startswith("adamw"):
            continue
        rates: Sequence[object] = ()
        if "learning_rate" in said:
            rates = _numbers(model, said["learning_rate"])
        elif OF_TRANSFORMERS.search(made.name or "") and not made.has_star:
            rates = (DEFAULTS["learning_rate"],)
        known = [value for value in rates if isinstance(value, float)]
        rate = max(known) if known and len(known) == len(rates) else None
        yield call, rate, [model.tree.text(trained).strip()]


def _models(model: FileModel, call: CallSite) -> Iterator[str]:
    """The models whose parameters an optimizer takes, and those that they are parts of."""
    for owner, _ in owners(model, call):
        yield model.tree.text(owner).strip()
        while isinstance(owner, cst.Attribute | cst.Subscript):
            owner = owner.value
            yield model.tree.text(owner).strip()


def _rate(model: FileModel, call: CallSite) -> float | None:
    """The largest learning rate that an optimizer is given, with the defaults of the settings."""
    groups = _groups(model, call)
    own = [
        element.value
        for group in groups
        for element in group.elements
        if isinstance(element, cst.DictElement) and model.literal(element.key) == "lr"
    ]
    rate = call.argument(1, "lr")
    if not own or len(own) < len(groups):
        if rate is None:
            return None  # torch's own default is larger
        own.append(rate)
    values = [value for one in own for value in _numbers(model, one)]
    known = [value for value in values if isinstance(value, float)]
    return max(known) if known and len(known) == len(values) else None


def _numbers(model: FileModel, node: cst.BaseExpression) -> Sequence[object]:
    """What a rate may be with the defaults of the settings, also of those in dictionaries."""
    made = _as_it_is(model, node)
    said = argument(model, made)
    if said is not NotImplemented:
        return (said,)
    if isinstance(made, cst.Subscript) and NotImplemented in by_default(model, made):
        key = key_of(model, made)
        held = [] if key is None else _held(model, made.value, key)
        return [one for value in held for one in by_default(model, value)]
    found = _of_get(model, made) if isinstance(made, cst.Call) else None
    return by_default(model, node) if found is None else found


def _held(
    model: FileModel, dictionary: cst.BaseExpression, key: str
) -> Sequence[cst.BaseExpression]:
    """What a dictionary of the program has under a key, wherever it was written or set."""
    written = [value for name, value in entries(model, dictionary) if name == key]
    later = [
        line.value
        for line in model.nodes(cst.Assign)
        for item in line.targets
        if isinstance(item.target, cst.Subscript) and key_of(model, item.target) == key
    ]
    return [*written, *later]


def _as_it_is(model: FileModel, node: cst.BaseExpression) -> cst.BaseExpression:
    """The same without ``float(...)`` around it, where it is made."""
    made = the_source(model, node)
    if isinstance(made, cst.Call) and model.name(made.func) == "builtins.float" and made.args:
        return the_source(model, made.args[0].value)
    return made


def _of_get(model: FileModel, node: cst.Call) -> Sequence[object] | None:
    """``settings.get("rate", 5e-5)``: what the dictionary holds, else the default."""
    call = model.call(node)
    key = model.literal(call.positional[0]) if call.positional else None
    if call.method != _GET or call.name is not None or call.receiver is None:
        return None  # also ``os.environ.get``, whose texts become numbers
    otherwise = call.argument(1, "default")
    held = _held(model, call.receiver, key) if isinstance(key, str) else ()
    values = held or ([] if otherwise is None else [otherwise])
    return [one for value in values for one in by_default(model, value)]


def _groups(model: FileModel, call: CallSite) -> Sequence[cst.Dict]:
    """``[{"params": body, "lr": 1e-5}, {"params": head}]``."""
    given = call.argument(0, "params")
    made = the_source(model, given) if given is not None else None
    if not isinstance(made, cst.List | cst.Tuple):
        return ()
    return [one.value for one in made.elements if isinstance(one.value, cst.Dict)]


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
        types = [*call.positional, *call.keywords.values()]
        if call.method == "to" and not any(_is_bfloat16(model, one) for one in types):
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
    """``AutoModel.from_pretrained(path, torch_dtype=torch.bfloat16)``, ``dtype="bfloat16"``."""
    given = _dtype_given(call)
    if given is None or model.value(call.node).kind is not Kind.MODEL:
        return False
    return _is_bfloat16(model, given) or {*by_default(model, given)} == {"bfloat16"}


def _is_wide(model: FileModel, node: cst.BaseExpression) -> bool:
    return (model.name(node) or "").startswith("torch.float")


def _is_bfloat16(model: FileModel, node: cst.BaseExpression, depth: int = 3) -> bool:
    """Whether something is ``torch.bfloat16`` with the defaults of the program's settings.

    ``getattr(torch, args.dtype)`` and ``{"bf16": torch.bfloat16}[args.dtype]`` too.
    """
    if model.name(node) in _BFLOAT16:
        return True
    if isinstance(node, cst.IfExp):
        picked = chosen(model, node)
        return picked is not None and depth > 0 and _is_bfloat16(model, picked, depth - 1)
    written = default_of(model, node)
    made = written if written is not None else the_source(model, node)
    if made is not node:
        return depth > 0 and _is_bfloat16(model, made, depth - 1)
    if isinstance(node, cst.Call) and model.name(node.func) == "builtins.getattr":
        of, *asked = model.call(node).positional
        names = by_default(model, asked[0]) if asked and model.name(of) == "torch" else ()
        return {*names} == {"bfloat16"}
    if isinstance(node, cst.Subscript) and len(node.slice) == 1:
        index = node.slice[0].slice
        keys = by_default(model, index.value) if isinstance(index, cst.Index) else ()
        types = [value for name, value in entries(model, node.value) if [name] == [*keys]]
        return bool(types) and all(_is_bfloat16(model, one, depth - 1) for one in types)
    return False


def _wrapped(model: FileModel, node: cst.Call) -> cst.Call:
    """The model as it is used: ``FSDP(model.to(device))``, ``read(path).to(device).train()``."""
    around = model.parent(node)
    call = model.parent(around) if isinstance(around, cst.Arg | cst.Attribute) else None
    if isinstance(around, cst.Attribute) and around.attr.value not in GIVE_ITSELF:
        return node
    if not isinstance(call, cst.Call) or any(_is_wide(model, x.value) for x in call.args):
        return node
    if model.value(call).kind is Kind.MODEL:
        return _wrapped(model, call)
    return node
