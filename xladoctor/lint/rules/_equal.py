"""What makes the weights of the cores equal: the same random numbers, or one core's weights."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Equal
from xladoctor.lint.model import Function, Kind, OnXla, walk
from xladoctor.lint.model.dotted import dotted_text, is_name
from xladoctor.lint.model.knowledge import SPAWNERS
from xladoctor.lint.rules._cores import differs, is_main, starts_anew
from xladoctor.lint.rules._exact import GENERATORS, around, assigned, in_order
from xladoctor.lint.rules._read_again import made_anew
from xladoctor.lint.rules._seed_options import drawn_by_default, if_asked
from xladoctor.lint.rules._sources import is_made_in, of_parameter
from xladoctor.lint.rules._taken_back import taken_back
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Guard

#: Words in the name of a function that cannot be read: it seeds, or gives a model its weights.
_SEEDS = frozenset({"seed", "seeds", "deterministic", "determinism", "reproducibility"})
_LOADS = frozenset({"load", "restore", "resume", "broadcast", "sync", "pretrained"})
_NOT_WEIGHTS = frozenset({"save", "loader", "bn", "norm", "batchnorm", "batch"})
_SETS = frozenset({"set", "state", "dict"})
_LOADS_FILE = frozenset({"load", "resume", "restore"})
#: How many calls up a seed is looked for.
_DEPTH = 3
#: Objects, and libraries, whose random numbers no weights are drawn from.
_SOURCES = GENERATORS | {"torch.Generator"}
_OTHER_NUMBERS = ("numpy.", "random.", "builtins.", "torch.cuda.", "tensorflow.", "jax.")


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Seed:
    """A call that sets what random numbers are drawn from.

    Attributes:
        call: The call.
        apart: Each core gets numbers of its own.
    """

    call: CallSite
    apart: bool


def seeded(model: FileModel) -> Iterator[Seed]:
    """The calls that seed, also through functions of the program or by their name alone.

    Those of linked files too: where the cores are started, they are often seeded.
    """
    for part in (model, *model.linked):
        yield from part.once(_all_seeded)


def _stays_behind(model: FileModel, call: CallSite, depth: int = _DEPTH) -> bool:
    """Whether a seed is that of the process which starts the cores, and no core inherits it.

    ``torch.manual_seed(0); xmp.spawn(train)``: the cores are new processes, unless they are forked.
    """
    if model.on_every_core(call.node) is not None:
        return False
    top = call.function is None
    if top and not any(is_main(model, guard) for guard in model.guards(call.node)):
        return False  # each new process reads the top of the file again
    started = [one for one in model.calls(*SPAWNERS) if top or one.function is call.function]
    if started:
        return all(starts_anew(model, one) for one in started)
    callers = model.callers(call.function) if call.function is not None and depth else ()
    return bool(callers) and all(_stays_behind(model, one, depth - 1) for one in callers)


def _all_seeded(model: FileModel) -> Sequence[Seed]:
    return list(_seeded(model))


def _seeded(model: FileModel) -> Iterator[Seed]:
    for call in model.calls():
        if model.master_only(call.node) is not None:
            continue  # the other cores go on with numbers of their own
        if if_asked(model, call):
            continue
        if model.effects.equals(call, Equal.NUMBERS):
            if not _stays_behind(model, call):
                yield Seed(call, _apart(model, call))
        elif isinstance(call.target, Function):
            inner = [
                other
                for other in model.reached(call.node)
                if other is not call
                and model.effects.equals(other, Equal.NUMBERS)
                and not _stays_behind(model, other)
            ]
            if inner:
                own = any(_is_own(model, argument.value) for argument in call.node.args)
                apart = (_apart(model, other) for other in inner if not _hands_on(other))
                yield Seed(call, own or any(apart))
        elif _of_one_source(model, call):
            continue
        elif _unread(model, call) and words(call.last) & _SEEDS and not _stays_behind(model, call):
            yield Seed(call, any(_is_own(model, argument.value) for argument in call.node.args))


def _of_one_source(model: FileModel, call: CallSite) -> bool:
    """``torch.Generator().manual_seed(0)``: numbers of its own, of which no weights are drawn."""
    if call.name is not None or call.receiver is None:
        return False
    return call.method == "manual_seed" or is_made_in(model, call.receiver, _SOURCES)


def _hands_on(call: CallSite) -> bool:
    """``torch.manual_seed(seed)`` of a parameter: each call says for itself what that is."""
    given = [argument.value for argument in call.node.args]
    return bool(given) and all(
        isinstance(node, cst.Name)
        and call.function is not None
        and node.value in call.function.parameters
        for node in given
    )


def _apart(model: FileModel, call: CallSite) -> bool:
    """``torch.manual_seed(42 + rank)``: each core draws other numbers, on purpose."""
    name = model.effects.name(call)
    core = call.argument(*name.core) if name is not None and name.core is not None else None
    if core is not None and model.literal(core) not in (0, False, None):
        return True
    return any(_is_own(model, argument.value) for argument in call.node.args)


def _is_own(model: FileModel, node: cst.BaseExpression) -> bool:
    own = differs(model, node) or model.value(node).local
    return (own and not taken_back(model, node)) or drawn_by_default(model, node)


def last_seed(model: FileModel, made: CallSite, seeds: list[Seed]) -> Seed | None:
    """The seed that decides which weights a call draws: the last one that runs before it."""
    seeds = [seed for seed in seeds if not _runs(model, seed.call, made)]
    found = _seed_before(model, made, seeds, _DEPTH)
    if found is not None:
        return found
    # At the top of the module, or where the cores are started (forked ones inherit).
    entry = model.on_every_core(made.node)
    starts = model.function_of(entry.call) if entry is not None and entry.call else None
    around = [seed for seed in seeds if seed.call.function in {None, starts}]
    alike = [seed for seed in around if seed.call.function is not made.function and not seed.apart]
    return alike[-1] if alike else None


def same_seed(model: FileModel, drawn: CallSite) -> Seed | None:
    """The seed by which all cores draw the same where a call draws on the host; None if not."""
    seed = last_seed(model, drawn, list(seeded(model)))
    return None if seed is None or seed.apart else seed


def _runs(model: FileModel, outer: CallSite, inner: CallSite) -> bool:
    """Whether a call runs another one: what seeds in there was looked for where it stands."""
    return outer is not inner and any(one.node is inner.node for one in model.reached(outer.node))


def _seed_before(model: FileModel, call: CallSite, seeds: list[Seed], depth: int) -> Seed | None:
    """The last seed in the function of a call before it, else before the calls of that function."""
    before = [
        seed
        for seed in seeds
        if seed.call.function is call.function and _comes_first(model, seed.call, call)
    ]
    if before:
        return before[-1]
    if call.function is None or depth == 0:
        return None
    found = (
        _seed_before(model, caller, seeds, depth - 1) for caller in model.callers(call.function)
    )
    return next((seed for seed in found if seed is not None), None)


def _comes_first(model: FileModel, one: CallSite, other: CallSite) -> bool:
    """Whether a call stands before another one of the same file, this or a linked one."""
    home = model.file_with(other.node)
    return home.is_here(one.node) and in_order(home, one.node, other.node)


def equal_weights(model: FileModel) -> bool:
    """Whether something brings the weights of all cores together, whatever they were before."""
    return any(part.once(_has_equal_weights) for part in (model, *model.linked))


def _has_equal_weights(model: FileModel) -> bool:
    return any(_brings_together(model, call) for call in model.calls())


def _brings_together(model: FileModel, call: CallSite) -> bool:
    if _made_behind(model, call) or model.on_xla(call.node) is OnXla.NO:
        return False
    if model.effects.equals(call, Equal.WEIGHTS):
        # A checkpoint that is loaded on request is none for a new run.
        return not (words(call.last) & _LOADS_FILE and sometimes(model, call))
    if model.effects.equals(call, Equal.INHERITED):
        # What a core wraps after its start is no other core's.
        return model.on_every_core(call.node) is None and not made_anew(model, call.node)
    if call.method == "load_state_dict" and call.receiver is not None:
        kind = model.value(call.receiver).kind
        named = words(model.tree.text(call.receiver)) & {"optimizer", "scheduler", "scaler"}
        loads = kind in {Kind.MODEL, Kind.UNKNOWN, Kind.OBJECT} and not named
        if not loads or sometimes(model, call) or _after_the_cores(model, call):
            return False
        return not _only_evaluated(model, call) and not _nobody_runs(model, call)
    if _sends_parameters(model, call):
        return True
    said = words(call.last)
    loads = bool(said & _LOADS) or said >= _SETS  # ``set_peft_model_state_dict(model, weights)``
    if not loads or said & _NOT_WEIGHTS or not _unread(model, call):
        return False
    # What cannot be read is believed, if it is given a model and runs whatever happens.
    given = any(model.value(argument.value).kind is Kind.MODEL for argument in call.node.args)
    return given and ("broadcast" in said or not sometimes(model, call))


def _nobody_runs(model: FileModel, call: CallSite) -> bool:
    """Whether a call stands in a method of a model that this program does not even name."""
    function = call.function
    if function is None or function.owner is None or function.name.startswith("__"):
        return False
    if not model.is_module(function.owner) or model.callers(function):
        return False
    return sum(part.text.count(function.name) for part in (model, *model.linked)) == 1


def _only_evaluated(model: FileModel, call: CallSite) -> bool:
    """``vgg.load_state_dict(...)``, then ``vgg.to(device).eval()``: it is not what is trained."""
    name = dotted_text(call.receiver) if call.receiver is not None else None
    modes = [
        mode
        for mode in model.methods("eval", "train", "requires_grad_")
        if mode.function is call.function
        and name is not None
        and _bottom(mode.receiver) == name
        and in_order(model, call.node, mode.node)
    ]
    evaluates = any(mode.method == "eval" for mode in modes)
    return evaluates and not any(_trains(model, mode) for mode in modes)


def _trains(model: FileModel, mode: CallSite) -> bool:
    """``net.train()``, not ``net.train(False)`` or ``net.requires_grad_(False)``."""
    given = mode.argument(0, "mode") or mode.argument(0, "requires_grad")
    return mode.method != "eval" and (given is None or model.literal(given) is not False)


def _bottom(node: cst.BaseExpression | None) -> str | None:
    """``net`` of ``net.to(device)``: what a chain of calls begins with."""
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        node = node.func.value
    return dotted_text(node) if node is not None else None


def _after_the_cores(model: FileModel, call: CallSite, depth: int = _DEPTH) -> bool:
    """Whether a call runs when the cores that a file starts have ended: no core loads that.

    ``xmp.spawn(train)`` and then ``net.load_state_dict(torch.load(path))`` to look at the result.
    """
    if not model.is_here(call.node) or model.on_every_core(call.node) is not None:
        return False
    starts = model.calls(*SPAWNERS)
    if any(
        one.function is call.function and in_order(model, one.node, call.node) for one in starts
    ):
        return True
    callers = model.callers(call.function) if call.function is not None and depth else ()
    return bool(callers) and all(_after_the_cores(model, one, depth - 1) for one in callers)


def _made_behind(model: FileModel, call: CallSite) -> bool:
    """``xm.broadcast_master_param(model)`` above ``model = Net()``: it sends nothing of that."""
    sent = call.argument(0)
    if not isinstance(sent, cst.Name) or any(model.is_loop(x) for x in around(model, call.node)):
        return False
    made = assigned(model, sent)
    return bool(made) and all(
        model.function_of(one) is call.function and in_order(model, call.node, one) for one in made
    )


def _sends_parameters(model: FileModel, call: CallSite) -> bool:
    """``dist.broadcast(p, 0)``, ``xm.all_reduce("sum", [p])`` of all of a model's parameters.

    They stand in the call, in what its arguments are bound to, or the loop around it goes over
    them; what else the loop does (``model.state_dict()`` to save it) says nothing.
    """
    if not model.effects.equals(call, Equal.RESULT):
        return False
    sent: list[cst.CSTNode] = [argument.value for argument in call.node.args]
    sent += [made for value in sent for made in _made_of(model, value)]
    if "grad" in _attributes(sent):
        return False  # ``xm.all_reduce("sum", p.grad)``: gradients are no weights
    sent.extend(node.iter for node in model.tree.ancestors(call.node) if isinstance(node, cst.For))
    return not _attributes(sent).isdisjoint(
        {"parameters", "named_parameters", "buffers", "state_dict"}
    )


def _made_of(
    model: FileModel, value: cst.CSTNode, depth: int = _DEPTH
) -> Iterator[cst.BaseExpression]:
    """What the names in an expression are bound to; of a parameter, what the callers give.

    ``def broadcast(tensors): xm.all_reduce("sum", tensors)``, called with the model's parameters.
    """
    for part in [part for part in walk(value) if isinstance(part, cst.Name | cst.Attribute)]:
        if isinstance(part, cst.Attribute):
            yield from model.kept_in(part)
            continue
        yield from _put_in(model, part)
        for binding in model.bindings(part.value, part):
            if isinstance(binding.node, cst.BaseExpression):
                yield binding.node
            elif binding.kind == "param" and depth:
                for given in of_parameter(model, part) or ():
                    yield given
                    yield from _made_of(model, given, depth - 1)


def _put_in(model: FileModel, name: cst.Name) -> Iterator[cst.BaseExpression]:
    """``for p in net.parameters(): sent.append(p.data)``: what the loops that fill it go over."""
    for call in model.methods("append", "extend"):
        if is_name(call.receiver, name.value) and call.function is model.function_of(name):
            loops = (node for node in around(model, call.node) if isinstance(node, cst.For))
            yield from (loop.iter for loop in loops)


def _attributes(nodes: Iterable[cst.CSTNode]) -> set[str]:
    """The names of all attributes that expressions ask for."""
    parts = (part for node in nodes for part in walk(node))
    return {part.attr.value for part in parts if isinstance(part, cst.Attribute)}


def _unread(model: FileModel, call: CallSite) -> bool:
    """Whether a function is of a package that is neither read here nor known."""
    if call.target is not None or model.effects.name(call) is not None:
        return False
    return call.name is None or not call.name.startswith(
        (*_OTHER_NUMBERS, "torch.", "torch_xla.", "yaml.", "json.", "pickle.", "os.")
    )


def sometimes(
    model: FileModel, call: CallSite, depth: int = 3, besides: Guard | None = None
) -> bool:
    """Whether a call runs only under a condition of the program: a resume is none for a new run.

    A condition that raises otherwise decides nothing (``if path: load() else: raise``), nor does
    one on the parts that a loop goes over (``for key in nets: if key in saved: load(nets[key])``).
    """
    if any(
        _is_choice(guard)
        and (besides is None or guard.node is not besides.node)
        and not _raises_else(guard)
        and not _picks_parts(model, call, guard)
        for guard in model.guards(call.node)
    ):
        return True
    callers = model.callers(call.function) if call.function is not None and depth else ()
    return bool(callers) and all(sometimes(model, caller, depth - 1, besides) for caller in callers)


def _raises_else(guard: Guard) -> bool:
    """``if path: ... else: raise``, ``if not path: raise`` before what follows."""
    if not isinstance(guard.node, cst.If):
        return False
    if not guard.inside:
        other: cst.CSTNode | None = guard.node.body
    else:
        other = guard.node.orelse.body if isinstance(guard.node.orelse, cst.Else) else None
    lines = other.body if isinstance(other, cst.IndentedBlock) else ()
    last = lines[-1] if lines else None
    return isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Raise)


def _picks_parts(model: FileModel, call: CallSite, guard: Guard) -> bool:
    """Whether a condition asks for what a loop around the call goes over."""
    asked = {part.value for part in walk(guard.test) if isinstance(part, cst.Name)}
    return any(
        isinstance(part, cst.Name) and part.value in asked
        for loop in around(model, call.node)
        if isinstance(loop, cst.For)
        for part in walk(loop.target)
    )


def _is_choice(guard: Guard) -> bool:
    """Not ``if __name__ == "__main__":``, not ``if use_tpu:``."""
    main = any(isinstance(part, cst.Name) and part.value == "__name__" for part in walk(guard.test))
    return not main and guard.runs is not OnXla.YES
