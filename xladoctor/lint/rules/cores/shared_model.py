"""XLA424: one model of the module that several cores move to their device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, OnXla
from xladoctor.lint.model.knowledge import MODEL_WRAPPER
from xladoctor.lint.rewrites.shared import Shared, shared_fix
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import entry_places
from xladoctor.lint.rules._exact import is_global, reads, same_name
from xladoctor.lint.rules._handed_over import handed_over
from xladoctor.lint.rules._sources import of_parameter, starts_of, the_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, Entry, FileModel, Problem
    from xladoctor.lint.model.syntax import Binding
    from xladoctor.lint.model.taken import Taken

#: How many names a model may have between the function that the cores run and what moves it.
_DEPTH = 4
#: First release without XRT, in which each core was a process.
_SINCE = (2, 0)
#: What only modules are asked for: a tensor has none of these methods.
_OF_MODULES = frozenset(
    {"parameters", "named_parameters", "state_dict", "load_state_dict", "train", "eval"}
)


@rule("XLA424")
def shared_model(model: FileModel) -> Iterator[Problem]:
    """Find ``global_model.to(device)`` and ``MpModelWrapper`` in what every core runs."""
    yield from _asked_as_module(model)
    if model.target < _SINCE or not model.is_xla or model.spmd:
        return
    for move in model.methods("to"):
        entry = model.on_every_core(move.node)
        if entry is None or (model.led_by and entry.call is None):
            continue
        shared = _shared(model, move)
        made = shared.made if shared is not None else _made_outside(model, move, entry)
        if made is None or move.receiver is None:
            continue
        one = model.tree.text(shared.original if shared is not None else move.receiver).strip()
        moved = model.tree.text(move.receiver).strip()
        whose = _whose(model, move, shared, made)
        yield model.problem(
            move.node,
            f"all cores of a process move the same {one} {whose}: where a process has two cores "
            "(TPU v2, v3), both train the same parameters, on one of them",
            suggestion="make the model in the function that each core runs, or move a copy: "
            f"copy.deepcopy({moved}).to(device)",
            related=[
                model.place(
                    made,
                    "given to what starts the cores"
                    if isinstance(made, cst.Param)
                    else "made once, before the cores start",
                ),
                *entry_places(model, entry),
            ],
            fix=shared_fix(model, move, shared) if shared is not None else None,
        )


def _asked_as_module(model: FileModel) -> Iterator[Problem]:
    """``WRAPPED(images)``, ``self.model.parameters()`` of a wrapper, which has ``to`` alone.

    One finding for each wrapper.
    """
    wrappers: set[cst.CSTNode] = {call.node for call in model.calls(MODEL_WRAPPER)}
    for call, given in handed_over(model) if wrappers else ():
        if (
            the_source(model, given) in wrappers
            and model.value(call.node.func).kind is not Kind.MODEL
        ):
            yield model.problem(
                given,
                "MpModelWrapper has one method, to(), which returns the model: the wrapper itself "
                f"is no module, and {model.tree.text(call.node.func).strip()} cannot run it",
                suggestion="give it the model that to(device) returns, or leave the wrapper out",
            )
    for call in model.calls() if wrappers else ():
        held = call.receiver if call.method in _OF_MODULES else call.node.func
        made = the_source(model, held) if isinstance(held, cst.Name | cst.Attribute) else None
        if made is None or made not in wrappers:
            continue
        wrappers.discard(made)
        fails = "TypeError" if held is call.node.func else "AttributeError"
        yield model.problem(
            made,
            "MpModelWrapper has one method, to(), which returns the model: what is asked of the "
            f"wrapper itself raises {fails}",
            suggestion="keep the model that to(device) returns, or leave the wrapper out",
            related=[model.place(call.node, "asked here")],
        )


def _whose(model: FileModel, move: CallSite, shared: Shared | None, made: cst.CSTNode) -> str:
    if not model.is_here(made) and model.function_of(made) is None:
        return "of the imported module"
    if isinstance(move.receiver, cst.Attribute):
        home, owner = model.function_of(made), model.class_around(move.receiver)
        own = home is not None and home.owner is owner and not isinstance(made, cst.Param)
        return "of the object" if own else "that the object is given"
    outer = move.function.outer if move.function is not None else None
    if outer is not None and model.function_of(made) is outer:
        return "of the function around"
    own = isinstance(move.receiver, cst.Name) and bool(_of_global(model, move.receiver))
    return "of the module" if shared is not None or own else "that they are given"


def _made_outside(model: FileModel, move: CallSite, entry: Entry) -> cst.CSTNode | None:
    """What made, before the cores start, the one model that all of them move.

    It is of an object whose method they run (``xmp.spawn(self.run)``), a global, or handed to them,
    or to the function that starts them (its parameter).
    """
    held, device = move.receiver, move.argument(0, "device")
    if device is None or held is None or model.value(device).kind is not Kind.DEVICE:
        return None
    if move.function is None:
        return None
    makers: list[cst.Call] = []
    if isinstance(held, cst.Name):
        given = _given_to_start(model, move, held, entry)
    else:
        given = _given_to_object(model, held, entry) if isinstance(held, cst.Attribute) else None
    if given is not None:
        return given
    around = _of_function_around(model, move, held) if isinstance(held, cst.Name) else []
    if model.value(held).kind is not Kind.MODEL and not (
        isinstance(held, cst.Name) and _is_model(model, move, held)
    ):
        makers = [node for node in around if model.call(node).name == MODEL_WRAPPER]
        return next(iter(makers), None)
    if isinstance(held, cst.Attribute):
        makers = _of_object(model, move, held, entry)
    elif isinstance(held, cst.Name):
        makers = around or _of_global(model, held)
    first = _first_name(model, held)
    if first is not held and isinstance(first, cst.Name):
        makers = makers or _of_module(model, first)
    before = [
        node
        for node in makers or _of_start(model, first, entry) or _of_import(model, held)
        if model.on_every_core(node) is None and model.on_xla(node) is not OnXla.NO
    ]
    return before[0] if before else None


def _given_to_start(
    model: FileModel, move: CallSite, held: cst.Name, entry: Entry
) -> cst.Param | None:
    """The model that a function is given, which starts the cores and runs inner functions on them.

    ``def fit(net): def work(rank): net.to(device)`` and ``xmp.spawn(work)``.
    """
    bound = [binding.node for binding in model.bindings(held.value, held)]
    outer = move.function.outer if move.function is not None else None
    if len(bound) != 1 or not isinstance(bound[0], cst.Param) or outer is None:
        return None
    starts = entry.call is not None and model.function_of(entry.call) is outer
    if not starts or model.function_of(bound[0]) is not outer:
        return None
    return bound[0] if _is_model(model, move, held) else None


def _given_to_object(model: FileModel, held: cst.Attribute, entry: Entry) -> cst.Param | None:
    """``def __init__(self, net): self.net = net``, of the object whose method the cores run."""
    started, owner = entry.function, model.class_around(held)
    if started is None or owner is None or not any(one.owner is owner for one in started.around):
        return None
    kept = _kept(model, held)
    if len(kept) != 1 or not isinstance(kept[0], cst.Name):
        return None
    bound = [item.node for item in model.bindings(kept[0].value, kept[0])]
    if len(bound) != 1 or not isinstance(bound[0], cst.Param):
        return None
    home = model.function_of(bound[0])
    if home is None or home.name != "__init__" or home.owner is not owner:
        return None
    asked = (call.receiver for call in model.methods(*_OF_MODULES))
    is_model = model.value(held).kind is Kind.MODEL or any(same_name(x, held) for x in asked)
    return bound[0] if is_model else None


def _kept(model: FileModel, held: cst.Attribute) -> list[cst.BaseExpression]:
    """What an attribute is set to, but for what is made of itself: ``DataParallel(self.net)``."""
    return [
        one
        for one in model.kept_in(held)
        if not any(same_name(part, held) for part in model.within(one, cst.Attribute))
    ]


def _of_function_around(model: FileModel, move: CallSite, held: cst.Name) -> list[cst.Call]:
    """``net = Net()`` in the function that starts the cores, and moves in a function within it."""
    found = [binding.node for binding in model.bindings(held.value, held)]
    made = [node for node in found if isinstance(node, cst.Call)]
    outer = move.function.outer if move.function is not None else None
    outside = outer is not None and all(model.function_of(node) is outer for node in found)
    if len(made) != 1 or not outside or len(made) < len(found) or _is_copied(model, made[0]):
        return []
    return made if model.on_every_core(made[0]) is None else []


def _of_start(model: FileModel, held: cst.BaseExpression, entry: Entry) -> list[cst.Call]:
    """What made the model that ``xmp.spawn(run, args=(net,))`` hands to all cores, also in a dict.

    It is made where the cores are started, or in what is called there; a copy is not shared.
    """
    start = entry.call
    if start is None or not isinstance(held, cst.Name):
        return []
    made = model.value(held).origin or _handed_over(model, held, entry)
    if not isinstance(made, cst.Call):
        return []
    home, maker = model.function_of(start), model.function_of(made)
    if home is not None:
        near = any(call.node is made for call in model.reached(home.node))
    elif maker is None:
        near = model.is_here(made) and model.is_here(start)
    else:
        near = any(call.function is None for call in model.callers(maker))
    return [made] if near and not _is_copied(model, made) else []


def _handed_over(model: FileModel, held: cst.Name, entry: Entry) -> cst.CSTNode | None:
    """What ``net`` is bound to in ``xmp.spawn(run, args=(net,))``, made by unread code."""
    start, function = entry.call, entry.function
    passed = model.call(start).argument(1, "args") if isinstance(start, cst.Call) else None
    if not isinstance(passed, cst.Tuple) or function is None:
        return None
    own = len(model.bindings(held.value, held)) == 1 and model.function_of(held) is function
    places = [*function.parameters[1:]] if own else []
    if held.value not in places[: len(passed.elements)]:
        return None
    given = passed.elements[places.index(held.value)].value
    if not isinstance(given, cst.Name):
        return given
    bound = model.bindings(given.value, given)
    return bound[0].node if len(bound) == 1 else None


def _first_name(model: FileModel, held: cst.BaseExpression) -> cst.BaseExpression:
    """What the functions around call a model that an object keeps, or a helper is given.

    ``self.net`` of ``Engine(net)``, which keeps its parameter; all callers have to give one name.
    """
    for _ in range(_DEPTH):
        if isinstance(held, cst.Attribute):
            kept = _kept(model, held)
            given = kept if len(kept) == 1 else []
        else:
            given = list(_by_callers(model, held)) if isinstance(held, cst.Name) else []
        names = [one for one in given if isinstance(one, cst.Name)]
        homes = {id(model.bindings(one.value, one)) for one in names}
        if not names or len(names) < len(given) or len(homes) != 1:
            break
        held = names[0]
    return held


def _by_callers(model: FileModel, name: cst.Name) -> Sequence[cst.BaseExpression]:
    """What calls give for a parameter; what starts the cores hands over, ``_of_start`` tells."""
    function = model.with_parameter(name)
    started = function is not None and bool(starts_of(model, function))
    return () if started else of_parameter(model, name) or ()


def _of_module(model: FileModel, name: cst.Name) -> list[cst.Call]:
    """What made a model of the module, of this file."""
    made = _made(model, name)
    return [] if made is None else [made]


def _of_import(model: FileModel, held: cst.BaseExpression) -> list[cst.Call]:
    """``nets.decoder`` that a linked file makes when it is imported: once in each process."""
    made = model.value(held).origin
    if not isinstance(made, cst.Call) or model.is_here(made):
        return []
    alone = model.function_of(made) is None and not model.value(held).roads
    return [made] if alone and not _is_copied(model, made) else []


def _is_copied(model: FileModel, made: cst.Call) -> bool:
    """Whether copies are taken of what a call made."""
    copies = (part.calls("copy.deepcopy", "copy.copy") for part in (model, *model.linked))
    return any(model.value(call.node).origin is made for calls in copies for call in calls)


def _of_object(
    model: FileModel, move: CallSite, held: cst.Attribute, entry: Entry
) -> list[cst.Call]:
    """What ``self.net`` is bound to, all of it calls, of the object that all cores share."""
    started = entry.function
    owner = move.function.owner if move.function is not None else None
    if started is None or owner is None or started.owner is not owner or started.is_static:
        return []
    text = model.tree.text(held).strip()
    found = [
        assign.value
        for assign in model.nodes(cst.Assign)
        if (function := model.function_of(assign)) is not None
        and function.owner is owner
        and any(model.tree.text(item.target).strip() == text for item in assign.targets)
    ]
    own = [node for node in found if node is not move.node]
    return [node for node in own if isinstance(node, cst.Call)] * all(
        isinstance(node, cst.Call) and model.on_every_core(node) is None for node in own
    )


def _of_global(model: FileModel, held: cst.Name) -> list[cst.Call]:
    """What a name of the module is bound to, in functions that say ``global``, moves aside."""
    found: list[cst.Call] = []
    for binding in model.bindings(held.value, held):
        node = binding.node
        if binding.kind != "assign" or not isinstance(node, cst.Call) or not model.is_here(node):
            return []
        function = model.function_of(node)
        if _moves_itself(model, binding, held):
            continue
        if function is None or model.on_every_core(node) is not None:
            return []
        if not is_global(function, held.value):
            return []
        found.append(node)
    return found


def _shared(model: FileModel, move: CallSite) -> Shared | None:
    """The model of the module that ``x.to(device)`` moves, if ``x`` is one."""
    name = move.receiver
    device = move.argument(0, "device")
    if not isinstance(name, cst.Name) or device is None or move.function is None:
        return None
    original = _handed_in(model, move, name) or name
    made = _made(model, original)
    if made is None:
        return None
    wrapped = None
    if model.call(made).name == MODEL_WRAPPER:
        wrapped = model.call(made).argument(0, "model")
        if wrapped is None:
            return None
    elif model.value(device).kind is not Kind.DEVICE or not _is_model(model, move, original):
        return None
    return Shared(name, original, made, wrapped)


def _made(model: FileModel, name: cst.Name) -> cst.Call | None:
    """The call of the module's own code that made what a name holds, the first of several."""
    made: cst.Call | None = None
    for binding in model.bindings(name.value, name):
        node = binding.node
        taken = model.taken(node) if binding.kind == "other" else None
        if made is None and taken is not None and _is_made_with(model, taken):
            made = taken.value if isinstance(taken.value, cst.Call) else None
            continue  # ``net, optimizer = make_model(...)``
        if binding.kind != "assign" or not isinstance(node, cst.Call) or not model.is_here(node):
            return None
        if model.function_of(node) is not None:
            if not _moves_itself(model, binding, name):
                return None
        elif made is None:
            made = node
    return made


def _is_made_with(model: FileModel, taken: Taken) -> bool:
    """Whether a line of the module takes apart what a call gives."""
    alone = isinstance(taken.line, cst.Assign) and model.function_of(taken.line) is None
    return alone and model.is_here(taken.line) and isinstance(taken.value, cst.Call)


def _moves_itself(model: FileModel, binding: Binding, name: cst.Name) -> bool:
    """``global model`` and ``model = model.to(device)`` in a function."""
    moved = model.call(binding.node) if isinstance(binding.node, cst.Call) else None
    return (
        moved is not None
        and moved.method == "to"
        and isinstance(moved.receiver, cst.Name)
        and moved.receiver.value == name.value
    )


def _handed_in(model: FileModel, move: CallSite, name: cst.Name) -> cst.Name | None:
    """The module's model that all callers hand to the function as the parameter ``name``."""
    function = move.function
    if function is None or function.owner or name.value not in function.parameters:
        return None
    bindings = [x for x in model.bindings(name.value, name) if x.kind != "assign"]
    given = [call.given_to(function, name.value) for call in model.callers(function)]
    if len(bindings) != 1 or not given:
        return None
    first = given[0]
    if not isinstance(first, cst.Name) or not model.is_here(first):
        return None
    home = model.bindings(first.value, first)
    same = all(
        isinstance(item, cst.Name) and model.bindings(item.value, item) is home for item in given
    )
    return first if same else None


def _is_model(model: FileModel, move: CallSite, original: cst.Name) -> bool:
    """Whether what is moved is known for a module, or is used as only modules are."""
    if model.value(original).kind is Kind.MODEL:
        return True
    parent = model.parent(move.node)
    held = original
    if isinstance(parent, cst.Assign) and isinstance(parent.targets[0].target, cst.Name):
        held = parent.targets[0].target
    for use in reads(model, held):
        site = model.parent(use)
        if isinstance(site, cst.Attribute) and site.value is use and site.attr.value in _OF_MODULES:
            return True
    return False
