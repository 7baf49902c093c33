"""XLA426: each core starts from weights of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Returns
from xladoctor.lint.model import Class, Function, Kind, LoopKind
from xladoctor.lint.model.devices import words
from xladoctor.lint.model.knowledge import MODULE_HOLDERS
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rewrites.moves import insert_behind, line_of
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import entry_places, every_core
from xladoctor.lint.rules._equal import Seed, equal_weights, last_seed, seeded
from xladoctor.lint.rules._exact import in_order
from xladoctor.lint.rules._heads import is_weighted, new_head

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Guard, Problem

_ADVICE = "xm.broadcast_master_param(model) after the move to the device, on all cores"
#: Words in the names of arguments that give a model its weights.
_COMES_WITH = frozenset(
    {"pretrained", "weights", "checkpoint", "ckpt", "path", "load", "resume", "init", "state"}
)
#: Words in the names of functions that read a model with its weights.
_GIVES_WEIGHTS = frozenset({"load", "loaded", "pretrained", "restore", "resume", "checkpoint"})
#: What makes new models in libraries, unless it is asked for pretrained ones.
_DRAWS = re.compile(r"^(torchvision\.models\.|timm\.(models\.|models\.factory\.)?create_model$)")
#: Names of what computes a loss.
_LOSS = re.compile(r"loss|criterion|objective", re.IGNORECASE)
#: Methods that give the model itself.
_SAME = frozenset({"to", "train", "eval", "float", "bfloat16", "half", "requires_grad_"})
#: Calls that send what the master has to the others.
_SENT = re.compile(r"broadcast|sync_module|DistributedDataParallel|FullySharded")


@rule("XLA426")
def initial_weights(model: FileModel) -> Iterator[Problem]:
    """Find models that every core makes at random, and weights that only the master loads."""
    if not model.is_xla or not model.multi_core or model.frameworks:
        return
    if not _trains_anywhere(model):
        return
    alone = dict(_loaded_alone(model))
    yield from alone.values()
    # Weights that are loaded are the same on all cores once all of them load.
    if any(map(_is_sure, alone)) or equal_weights(model):
        return
    seeds = list(seeded(model))
    for call in model.calls():
        made = _makes_model(model, call) or _made_elsewhere(model, call, seeds)
        late = None if made else _made_before_the_seed(model, call, seeds)
        if late is not None and (entry := every_core(model, late.node)) is not None:
            yield model.problem(
                late.node,
                "every core draws its own random weights here, before the seed that would make "
                "them equal; gradients are averaged, weights never",
                suggestion=_ADVICE,
                related=entry_places(model, entry),
            )
        entry = every_core(model, call.node) if made else None
        seed = last_seed(model, call, seeds) if entry is not None else None
        if entry is None or (seed is not None and not seed.apart) or _loaded_then(model, call):
            continue
        makers = _makers(model, call) if call.method == "to" else ()
        heads = (new_head(model, model.call(maker)) for maker in makers)
        head = next((node for node in heads if node is not None and model.is_here(node)), None)
        drawn = (
            "the last layer of this pretrained model is new, and every core draws its own"
            if head is not None
            else "every core draws its own random weights here"
        )
        yield model.problem(
            call.node if head is None else head,
            f"{drawn}; gradients are averaged, weights never, so the cores train different models "
            "from the first step on",
            suggestion=_ADVICE,
            related=entry_places(model, entry),
            fix=_fix(model, call),
        )


def _trains_anywhere(model: FileModel) -> bool:
    """Whether steps are taken here, or in a file that this one is linked to."""
    parts = (model, *model.linked)
    return any(loop.kind is LoopKind.STEP for part in parts for loop in part.loops)


def _loaded_alone(model: FileModel) -> Iterator[tuple[Guard, Problem]]:
    """``if xm.is_master_ordinal(): model.load_state_dict(...)`` before the training, for good."""
    loading = list(model.methods("load_state_dict"))
    if not loading or any(_sends(model, call) for call in model.calls()):
        return
    for call in loading:
        guard = model.master_only(call.node)
        entry = model.on_every_core(call.node)
        if guard is None or entry is None or call.receiver is None:
            continue
        if model.value(call.receiver).kind is not Kind.MODEL or not _trained_after(
            model, call, guard
        ):
            continue
        problem = model.problem(
            call.node,
            "only the master core loads these weights: the others start from what they have, and "
            "gradients are averaged, weights never",
            suggestion=f"load them on all cores, or {_ADVICE}",
            related=[model.place(guard.test, "the master core alone"), *entry_places(model, entry)],
        )
        yield guard, problem


def _is_sure(guard: Guard) -> bool:
    """``if is_master:`` alone, not ``if is_master and os.path.isfile(path):``."""
    return not isinstance(guard.test, cst.BooleanOperation)


def _sends(model: FileModel, call: CallSite) -> bool:
    text = model.tree.text(call.node)
    return _SENT.search(model.tree.text(call.node.func)) is not None or (
        "all_reduce" in text and "param" in text
    )


def _trained_after(model: FileModel, call: CallSite, guard: Guard, depth: int = 2) -> bool:
    """Whether the training follows, and not under the same condition."""
    callers = model.callers(call.function) if call.function is not None and depth else ()
    if any(_trained_after(model, caller, guard, depth - 1) for caller in callers):
        return True
    return any(
        loop.kind in {LoopKind.STEP, LoopKind.EPOCH}
        and loop.function is call.function
        and in_order(model, call.node, loop.node)
        and not any(around.node is guard.node for around in model.guards(loop.node))
        for loop in model.loops
    )


def _made_elsewhere(model: FileModel, call: CallSite, seeds: list[Seed]) -> bool:
    """``build_model(config).to(device)``: a model of another file that is trained here.

    Behind a seed of each core's own it is told whoever makes it. Without any seed it is told of
    a class alone (``Net(64).to(device)``), or of a function of this file that puts layers together:
    another one may well load what it makes. (A seed of each core's own that comes later makes
    nothing equal.)
    """
    value = model.value(call.node)
    if call.method != "to" or value.kind is not Kind.MODEL or not value.on_device:
        return False
    makers = [made for made in _makers(model, call) if model.on_every_core(made) is not None]
    if not _is_trained(model, call):
        return False
    seed = last_seed(model, call, seeds)
    if seed is not None and seed.apart:
        return any(_may_draw(model, maker) for maker in makers)
    if seed is not None or not all(seed.apart for seed in seeds):
        return False
    return bool(makers) and all(_surely_draws(model, maker) for maker in makers)


def _made_before_the_seed(model: FileModel, call: CallSite, seeds: list[Seed]) -> CallSite | None:
    """``net = Net()`` and then the seed of all cores, before ``net.to(device)``."""
    value = model.value(call.node)
    if call.method != "to" or value.kind is not Kind.MODEL or not value.on_device:
        return None
    makers = [made for made in _makers(model, call) if model.on_every_core(made) is not None]
    made = model.call(makers[0]) if len(makers) == 1 else None
    if made is None or not _surely_draws(model, made.node) or not _is_trained(model, call):
        return None
    if last_seed(model, made, seeds) is not None or _loaded_then(model, made):
        return None
    alike = [seed for seed in seeds if not seed.apart]
    late = bool(alike) and all(_runs_after(model, made, seed.call) for seed in alike)
    return made if late else None


def _runs_after(model: FileModel, made: CallSite, later: CallSite, depth: int = 3) -> bool:
    """Whether a call runs after another one of the same file, in its function or what it calls."""
    if not model.is_here(later.node) or not model.is_here(made.node):
        return False
    if later.function is made.function:
        return in_order(model, made.node, later.node)
    callers = list(model.callers(later.function)) if later.function is not None and depth else []
    return bool(callers) and all(_runs_after(model, made, one, depth - 1) for one in callers)


def _loaded_then(model: FileModel, made: CallSite) -> bool:
    """``model = Net(); model.load_state_dict(...)`` in one branch: all cores load the same."""
    name = _bound(model, made)
    around = {(guard.node, guard.when) for guard in model.guards(made.node)}
    return name is not None and any(
        call.receiver is not None
        and model.tree.text(call.receiver) == name
        and call.function is made.function
        and in_order(model, made.node, call.node)
        and all((guard.node, guard.when) in around for guard in model.guards(call.node))
        for call in model.methods("load_state_dict")
    )


def _bound(model: FileModel, made: CallSite) -> str | None:
    """What ``net = ...`` binds the result of a call to, as written."""
    line = line_of(model, made.node)
    if line is None or not isinstance(line.body[0], cst.Assign):
        return None
    return model.tree.text(line.body[0].targets[0].target)


def _is_trained(model: FileModel, moved: CallSite) -> bool:
    """Whether ``net.to(device)`` is trained: an optimizer, or a function of the program, gets it.

    Also by another name that is given to it in the same function (``self.net = net``).

    What computes a loss has no weights as a rule.
    """
    bound = _bound(model, moved)
    names = set() if bound is None else {bound.strip()}
    if moved.receiver is not None and not isinstance(moved.receiver, cst.Call):
        names.add(model.tree.text(moved.receiver).strip())
    if any(_LOSS.search(name) for name in names):
        return False
    names |= {
        model.tree.text(target.target).strip()
        for line in model.nodes(cst.Assign)
        if model.function_of(line) is moved.function
        and model.tree.text(line.value).strip() in names
        for target in line.targets
    }
    return any(_trains(model, call, names) for call in model.calls())


def _trains(model: FileModel, call: CallSite, names: set[str], depth: int = 3) -> bool:
    """Whether a call asks for the parameters, or hands the model to what does."""
    if call.method in {"parameters", "named_parameters"} and call.receiver is not None:
        return model.tree.text(call.receiver).strip() in names
    given = [x.value for x in call.node.args if model.tree.text(x.value).strip() in names]
    maker = call.target
    if isinstance(maker, Class):
        maker = maker.methods.get("__init__")
    if maker is None or not given or depth == 0:
        return bool(given) and "optim" in call.last.lower()
    bound = maker.owner is not None and not maker.is_static
    known = {
        name
        for index, name in enumerate(maker.parameters[int(bound) :])
        if call.argument(index, name) in given
    }
    known |= {f"self.{name}" for name in known if bound}
    inner = [other for other in model.calls() if _is_within(other.function, maker)]
    return any(_trains(model, other, known, depth - 1) for other in inner)


def _is_within(function: Function | None, maker: Function) -> bool:
    """Whether a function is the maker, inside of it, or of the class that it makes objects of."""
    if function is None:
        return False
    same_class = maker.name == "__init__" and function.owner is maker.owner
    return function is maker or function.outer is maker or same_class


def _makers(model: FileModel, moved: CallSite) -> Iterator[cst.Call]:
    """The calls that make what ``....to(device)`` moves, through names and what wraps a model."""
    waiting: list[cst.BaseExpression | None] = [moved.receiver]
    seen: set[cst.BaseExpression] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, cst.Name):
            waiting.extend(
                item.node
                for item in model.bindings(node.value, node)
                if isinstance(item.node, cst.BaseExpression) and item.kind == "assign"
            )
        elif isinstance(node, cst.Attribute):
            waiting.extend(_kept(model, node))
        elif isinstance(node, cst.Call):
            inner = _within(model, node)
            if inner is None:
                yield node
            else:
                waiting.append(inner)


def _kept(model: FileModel, node: cst.Attribute) -> Iterator[cst.BaseExpression]:
    """What is assigned to ``self.net`` in the class around a node."""
    text, home = model.tree.text(node).strip(), model.function_of(node)
    for assign in model.nodes(cst.Assign):
        function = model.function_of(assign)
        same = function is not None and home is not None and function.owner is home.owner
        if same and any(model.tree.text(item.target).strip() == text for item in assign.targets):
            yield assign.value


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
    """Whether a call makes an object, by how its name is written."""
    return model.call(node).written[:1].isupper()


def _names_weights(model: FileModel, node: cst.Call) -> bool:
    """``Net("base")``, ``Net(config, checkpoint=path)``: it may come with its weights."""
    given = [argument.keyword.value for argument in node.args if argument.keyword is not None]
    if any(set(re.split(r"[_\d]+", name)) & _COMES_WITH for name in given):
        return True
    return any(isinstance(model.literal(argument.value), str) for argument in node.args)


def _may_draw(model: FileModel, node: cst.Call) -> bool:
    """Whether a call may make a model of another file with weights drawn at random."""
    made = model.call(node)
    if made.method == "from_pretrained" or words(made.last) & _GIVES_WEIGHTS:
        return False
    return not _given(model, made, "pretrained", "weights", sure=True) and not isinstance(
        made.target, Class
    )


def _surely_draws(model: FileModel, node: cst.Call) -> bool:
    """Whether nothing but new weights can come of a call, whoever wrote what it calls."""
    made = model.call(node)
    if isinstance(made.target, Class):
        return False
    if new_head(model, made) is not None:
        return True
    if _given(model, made, "pretrained", "weights"):
        return False
    if _DRAWS.search(made.name or "") or made.method == "from_config":
        return not made.has_star
    named = _of_a_class(model, node) and not _names_weights(model, node)
    return (named and made.method != "from_pretrained") or _puts_together(model, node)


def _makes_model(model: FileModel, call: CallSite) -> bool:
    if not isinstance(call.target, Class):
        return False
    owners = (function.owner for function in model.functions_around(call.node))
    if any(owner is not None and _is_model(model, owner) for owner in owners):
        return False  # a part of another model: that one is told, where it is made
    return _is_model(model, call.target)


def _is_model(model: FileModel, cls: Class) -> bool:
    if _LOSS.search(cls.name):
        return False
    bases = {(model.name(base) or "") for base in cls.bases}
    return (
        "torch.nn.Module" in bases
        and bool(cls.methods)
        and not _only_pretrained(model, cls)
        and not _only_holds(model, cls)
    )


def _only_holds(model: FileModel, cls: Class) -> bool:
    """``Ensemble(*models)``, ``GD(generator, discriminator)``: what it is given, and no layer."""
    maker = cls.methods.get("__init__")
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
    maker = cls.methods.get("__init__")
    if maker is None:
        return False
    calls = [call for call in model.calls() if call.function is maker]
    loads = any(
        call.method == "from_pretrained" or _given(model, call, "pretrained", "weights")
        for call in calls
    )
    return loads and not any(
        is_weighted(call.name)
        or new_head(model, call) is not None
        or (isinstance(call.target, Class) and _is_model(model, call.target))
        for call in calls
    )


def _given(model: FileModel, call: CallSite, *keywords: str, sure: bool = False) -> bool:
    """Whether an argument is given that is not None or False; ``sure``: that is something else."""
    nothing = (None, False, NotImplemented) if sure else (None, False)
    values = (call.keywords.get(keyword) for keyword in keywords)
    return any(value is not None and model.literal(value) not in nothing for value in values)


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    """Send the first core's weights to all, behind ``model = Net().to(device)``."""
    line = line_of(model, call.node)
    written = spell(model, call.node, "torch_xla.core.xla_model.broadcast_master_param")
    if line is None or written is None or not isinstance(line.body[0], cst.Assign):
        return None
    statement = line.body[0]
    target = statement.targets[0].target
    moved = statement.value
    if len(statement.targets) != 1 or not isinstance(target, cst.Name):
        return None
    if not isinstance(moved, cst.Call) or model.call(moved).method != "to":
        return None
    spelled, added = written
    behind = insert_behind(model, line, f"{spelled}({target.value})")
    return model.fix("Start all cores from the same weights", behind, added, safe=False)
