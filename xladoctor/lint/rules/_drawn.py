"""What makes a model, and whether its weights are drawn or come with it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Returns
from xladoctor.lint.model import Class, Function, walk
from xladoctor.lint.model.hooks import is_library_model
from xladoctor.lint.model.knowledge import MODULE_HOLDERS
from xladoctor.lint.rules._constants import is_required
from xladoctor.lint.rules._exact import assigned
from xladoctor.lint.rules._heads import is_weighted, new_head
from xladoctor.lint.rules._sources import of_parameter
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

#: Words in the names of arguments that give a model its weights.
_COMES_WITH = frozenset(
    {"pretrained", "weights", "checkpoint", "ckpt", "path", "load", "resume", "init", "state"}
)
#: Words in the names of arguments whose texts may say which weights, not only how it is built.
_SAYS_WHICH = frozenset(
    {"model", "name", "arch", "architecture", "backbone", "encoder", "decoder", "variant",
     "version", "size", "source", "url", "file", "dir", "id"}
)  # fmt: skip
#: Words in the names of functions that read a model with its weights.
_GIVES_WEIGHTS = frozenset({"load", "loaded", "pretrained", "restore", "resume", "checkpoint"})
#: What makes new models in libraries, unless it is asked for pretrained ones.
_DRAWS = re.compile(r"^(torchvision\.models\.|timm\.(models\.|models\.factory\.)?create_model$)")
#: Names of what computes a loss.
_LOSS = re.compile(r"loss|criterion|objective", re.IGNORECASE)
#: Methods that give the model itself.
_SAME = frozenset({"to", "train", "eval", "float", "bfloat16", "half", "requires_grad_"})


def makers_of(model: FileModel, moved: cst.BaseExpression | None) -> Iterator[cst.Call]:
    """The calls that make a model that is moved, through names and what wraps a model.

    Also through parameters, where all that callers give is known: ``def train(net): net.to(...)``.
    """
    waiting = [moved]
    seen: set[cst.BaseExpression] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, cst.Name | cst.Attribute):
            waiting.extend(model.assigned_to(node))
            if isinstance(node, cst.Name) and model.is_parameter(node):
                waiting.extend(of_parameter(model, node) or ())
        elif isinstance(node, cst.IfExp):
            waiting += [node.body, node.orelse]
        elif isinstance(node, cst.Call):
            inner = _within(model, node)
            given = [inner] if inner is not None else _given_back(model, node)
            if given:
                waiting.extend(given)
            else:
                yield node


def _within(model: FileModel, node: cst.Call) -> cst.BaseExpression | None:
    """The model that a call hands on: ``net.train()``, ``convert_sync_batchnorm(net)``."""
    call = model.call(node)
    if call.name is None and call.method in _SAME:
        return call.receiver
    first = call.argument(0)
    wraps = call.last.startswith("convert_") or (
        call.name is not None and model.library.returns(call.name) is Returns.FIRST
    )
    return first if wraps else None


def _given_back(model: FileModel, node: cst.Call) -> list[cst.BaseExpression]:
    """What a function of the program that makes a model gives back, if all of that is known.

    ``return Net()``, ``net = resnet50(pretrained=True); net.fc = nn.Linear(8, 8); return net``.
    """
    target = model.call(node).target
    if not isinstance(target, Function):
        return []
    if isinstance(target.node, cst.Lambda):
        given: list[cst.BaseExpression | None] = [target.node.body]
    else:
        parts = walk(target.node.body, into_functions=False)
        given = [part.value for part in parts if isinstance(part, cst.Return)]
    made = [one for one in given if one is not None and _is_made(model, one)]
    return made if len(made) == len(given) else []


def _is_made(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether an expression is a call, or a name that one is bound to.

    Also a parameter that has been wrapped: ``def wrap(net): net = DDP(net); return net``.
    """
    if isinstance(node, cst.Name):
        parameter = model.is_parameter(node)
        made = [*model.assigned_to(node)] if parameter else assigned(model, node)
        return bool(made) and all(isinstance(one, cst.Call) for one in made)
    return isinstance(node, cst.Call) and _within(model, node) is None


def _puts_together(model: FileModel, node: cst.Call) -> bool:
    """``def net(): return nn.Sequential(nn.Linear(8, 8))``: new layers, nothing that is read."""
    target = model.call(node).target
    if not isinstance(target, Function):
        return False
    reached = model.reached(target.node)
    names = [call.name or "" for call in reached]
    layers = any(name.startswith("torch.nn.") and name[9:10].isupper() for name in names)
    return layers and not any(
        call.method in {"from_pretrained", "load_state_dict"}
        or (call.name or "").startswith(("torchvision.models.", "timm.", "transformers."))
        or _given(model, call, "pretrained", "weights")
        for call in reached
    )


def _of_a_class(model: FileModel, node: cst.Call) -> bool:
    """Whether a call makes an object, by how its name is written: ``Net()``, ``net_cls()``."""
    written = model.call(node).written
    return written[:1].isupper() or written.endswith(("_cls", "_class"))


def _names_weights(model: FileModel, node: cst.Call) -> bool:
    """``Net("base")``, ``Net(config, checkpoint=path)``: it may come with its weights.

    ``Net(norm="batch", backbone_type="none")`` says how it is built.
    """
    for argument in node.args:
        said = None if argument.keyword is None else re.split(r"[_\d]+", argument.keyword.value)
        if said is not None and _COMES_WITH.intersection(said):
            return True
        which = said is None or (said[-1] != "type" and bool(_SAYS_WHICH.intersection(said)))
        if which and isinstance(model.literal(argument.value), str):
            return True
    return False


def may_draw(model: FileModel, node: cst.Call) -> bool:
    """Whether a call may make a model of another file with weights drawn at random."""
    made = model.call(node)
    if made.method == "from_pretrained" or words(made.last) & _GIVES_WEIGHTS:
        return False
    return not _given(model, made, "pretrained", "weights", sure=True) and not isinstance(
        made.target, Class
    )


def surely_draws(model: FileModel, node: cst.Call) -> bool:
    """Whether nothing but new weights can come of a call, whoever wrote what it calls."""
    made = model.call(node)
    if isinstance(made.target, Class):
        return False
    if new_head(model, made) is not None:
        return True
    if _given(model, made, "pretrained", "weights"):
        return False
    if _DRAWS.search(made.name or "") or made.method == "from_config" or _by_its_name(model, node):
        return not made.has_star
    named = _of_a_class(model, node) and not _names_weights(model, node)
    return (named and made.method != "from_pretrained") or _puts_together(model, node)


def _by_its_name(model: FileModel, node: cst.Call) -> bool:
    """``getattr(models, arch)(num_classes=10)``, ``models.__dict__[arch]()`` of torchvision.

    Also by a name of its own: ``make = models.__dict__[arch]``, ``make(num_classes=10)``.
    """
    func = model.assigned_once(node.func) if isinstance(node.func, cst.Name) else node.func
    holder: cst.BaseExpression | None = None
    if isinstance(func, cst.Call) and model.name(func.func) == "builtins.getattr":
        holder = model.call(func).argument(0)
    elif isinstance(func, cst.Subscript) and isinstance(func.value, cst.Attribute):
        holder = func.value.value if func.value.attr.value == "__dict__" else None
    return holder is not None and model.name(holder) == "torchvision.models"


def makes_model(model: FileModel, call: CallSite) -> bool:
    if not isinstance(call.target, Class):
        return False
    if any(_puts_in(model, function) for function in model.functions_around(call.node)):
        return False  # a part of another model: that one is told, where it is made
    return _is_new(model, call)


def _is_new(model: FileModel, call: CallSite) -> bool:
    """Whether a call of a class makes a model, and reads no weights of transformers' for it."""
    cls = call.target
    if not isinstance(cls, Class):
        return False
    loads = call.method == "from_pretrained" and not model.inherits(cls, "torch.nn.Module")
    return not loads and _is_model(model, cls)


def _puts_in(model: FileModel, function: Function, depth: int = 3) -> bool:
    """Whether a function makes parts of a model: a method of one, or a helper of such alone."""
    owner = function.owner
    if owner is not None and (model.is_module(owner) or _is_model(model, owner)):
        # ``Net.build(args)`` makes the model itself.
        return not (function.is_static or function.of_class) or not model.callers(function)
    calls = model.callers(function) if depth else ()
    return bool(calls) and all(
        call.function is not None and _puts_in(model, call.function, depth - 1) for call in calls
    )


def _is_model(model: FileModel, cls: Class) -> bool:
    if _LOSS.search(cls.name):
        return False
    direct = "torch.nn.Module" in {model.name(base) for base in cls.bases}
    # ``Net(config)`` of a model of transformers draws its weights, whatever base it has there.
    of_library = any(
        base.startswith("transformers.") and is_library_model(base)
        for base in model.library_bases(cls)
    )
    return (
        (of_library or model.inherits(cls, "torch.nn.Module"))
        and (bool(cls.methods) or not direct)
        and not _only_pretrained(model, cls)
        and not _only_holds(model, cls)
    )


def _only_holds(model: FileModel, cls: Class) -> bool:
    """``Ensemble(*models)``, ``GD(generator, discriminator)``: what it is given, and no layer."""
    maker = model.method(cls, "__init__")
    if maker is None or len(maker.parameters) + bool(maker.node.params.star_arg) < 2:
        return False
    return all(
        call.method == "__init__"
        or call.name in MODULE_HOLDERS
        or (call.name or "").startswith(("builtins.", "torch_xla."))
        for call in model.reached(maker.node)
    )


def _only_pretrained(model: FileModel, cls: Class) -> bool:
    """Whether all that a model is made of comes with its weights."""
    maker = model.method(cls, "__init__")
    if maker is None:
        return False
    calls = [call for call in model.reached(maker.node) if call.function is maker]
    loads = any(
        call.method == "from_pretrained" or _given(model, call, "pretrained", "weights")
        for call in calls
    )
    return loads and not any(
        is_weighted(call.name) or new_head(model, call) is not None or _is_new(model, call)
        for call in calls
    )


def never_asked(model: FileModel, call: CallSite) -> bool:
    """``if args.path: net = load(args.path)``, ``else: net = Net()``, and the path is required."""
    makers = [call.node, *(makers_of(model, call.receiver) if call.method == "to" else ())]
    return any(
        not guard.when and is_required(model, guard.test)
        for maker in makers
        for guard in model.guards(maker)
    )


def _given(model: FileModel, call: CallSite, *keywords: str, sure: bool = False) -> bool:
    """Whether an argument is given that is not None or False; ``sure``: that is something else."""
    nothing = (None, False, NotImplemented) if sure else (None, False)
    values = (call.keywords.get(keyword) for keyword in keywords)
    return any(value is not None and model.literal(value) not in nothing for value in values)
