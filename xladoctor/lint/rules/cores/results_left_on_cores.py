"""XLA452: what the processes of the cores have changed, read in the process that started them."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, Kind
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.model.knowledge import MODEL_WRAPPER, SPAWNERS
from xladoctor.lint.model.loops import opposed
from xladoctor.lint.model.parts import index_of
from xladoctor.lint.model.taken import targets
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import runs_here
from xladoctor.lint.rules._exact import around, in_order, is_global, is_read, reads
from xladoctor.lint.rules._reads import snippet
from xladoctor.lint.rules._sources import given_to_cores, started_by

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Function, Problem

#: What changes a list, a dictionary or a set in place.
_CHANGES = frozenset({"append", "extend", "insert", "update", "add", "setdefault", "appendleft"})
#: What makes one that each process has for itself; those of ``multiprocessing.Manager()`` are not.
_MADE = frozenset(
    {"builtins.list", "builtins.dict", "builtins.set", "collections.defaultdict",
     "collections.OrderedDict", "collections.Counter", "collections.deque"}
)  # fmt: skip
#: Methods that ask for the weights of a model.
_ASK_FOR_WEIGHTS = frozenset(
    {"state_dict", "eval", "generate", "predict", "save", "save_pretrained", "push_to_hub",
     "merge_and_unload"}
)  # fmt: skip
#: Methods that give the same model back, moved.
_MOVES = frozenset({"to", "cpu", "train", "float", "half"})
#: What may write a result, or show it.
_KEEPS = re.compile(
    r"(^|[_.])(save|write|dump|print|log|plot|show|put|push|upload|send|report)", re.IGNORECASE
)
#: How many names what a core trains may have.
_NAMES = 4


@dataclasses.dataclass(frozen=True)
class _Change:
    """What a process of the cores changes.

    Attributes:
        node: Where it does.
        name: One of the names of it, in the parent or of the module.
        weights: Whether it is a model, of which the weights change.
        key: The one of a dictionary that changes, if it is a text that is written there.
    """

    node: cst.CSTNode
    name: cst.Name
    weights: bool = False
    key: str | None = None


@rule("XLA452")
def results_left_on_cores(model: FileModel) -> Iterator[Problem]:
    """Find results of the processes of the cores that the parent reads in its own memory."""
    if not model.is_xla:
        return
    for start in model.calls(*SPAWNERS):
        if runs_here(model, start) or model.on_every_core(start.node) is not None:
            continue
        yield from _given_back(model, start)
        yield from _never_kept(model, start)
        told: set[str] = set()
        for change in _changes(model, start):
            read = next(_read_after(model, start, change), None)
            if read is not None and change.name.value not in told:
                told.add(change.name.value)
                yield _problem(model, start, change.node, read, weights=change.weights)
        for attribute, assigned in _attributes(model, start):
            yield _problem(model, start, assigned, attribute, weights=False)


def _problem(
    model: FileModel,
    start: CallSite,
    changed: cst.CSTNode,
    read: cst.CSTNode,
    *,
    weights: bool,
) -> Problem:
    name = snippet(model, read)
    return model.problem(
        read,
        f"the processes of the cores have trained copies of {name}: here it still has the weights "
        "from before they were started"
        if weights
        else f"{name} is changed in the processes of the cores, each of which has its own: here it "
        "is as it was before they were started",
        suggestion="let the cores write it to a file, the master alone (xm.save, torch.save of "
        "what is on the host), and load that here",
        related=[
            model.place(changed, "changed in the processes"),
            model.place(start.node, "the cores are started here"),
        ],
    )


def _given_back(model: FileModel, start: CallSite) -> Iterator[Problem]:
    """``history = xmp.spawn(train)``: None, whatever ``train`` returns."""
    line = model.parent(start.node)
    target = targets(line)[0] if isinstance(line, cst.Assign) else None
    if target is None:
        return
    if isinstance(target, cst.Name):
        used = [use for use in reads(model, target) if in_order(model, start.node, use)]
        if not any(_is_used(model, use) for use in used) or _is_asked(model, used):
            return
    elif not isinstance(target, cst.Tuple | cst.List):
        return
    yield model.problem(
        start.node,
        "the start gives back None: what the function returns stays in the processes of the cores",
        suggestion="let the master write it to a file (torch.save of what is on the host), and "
        "load that here",
        related=[model.place(target, "used as if it came back")],
    )


def _never_kept(model: FileModel, start: CallSite) -> Iterator[Problem]:
    """A function that trains, returns the model, and writes nothing."""
    function = started_by(model, start)
    given = [one for one in returned(function) if not is_name(one, "None")] if function else []
    if function is None or not any(model.value(one).kind is Kind.MODEL for one in given):
        return
    calls = model.reached(function.node)
    names = [call.method or call.name or model.tree.text(call.node.func) for call in calls]
    if "backward" not in names or any(_KEEPS.search(name) for name in names):
        return
    last = next(one for one in given if model.value(one).kind is Kind.MODEL)
    if not model.is_here(last):
        return
    yield model.problem(
        last,
        f"what {function.name} returns is lost with the processes of the cores, and nothing in it "
        "writes the trained weights: the parent goes on with the ones from before",
        suggestion="xm.save(model.state_dict(), path) at its end, on all cores, and load that here",
        related=[model.place(start.node, "the cores are started here")],
    )


def _is_asked(model: FileModel, uses: list[cst.Name]) -> bool:
    """``if context is not None:``: who asks is ready for None."""
    return any(isinstance(model.parent(use), cst.Comparison | cst.If) for use in uses)


def _is_used(model: FileModel, use: cst.Name) -> bool:
    """Whether more is done with a name than to ask whether it is None, or to give it on."""
    parent = model.parent(use)
    return (isinstance(parent, cst.Attribute | cst.Subscript) and parent.value is use) or (
        isinstance(parent, cst.For | cst.CompFor) and parent.iter is use
    )


def _changes(model: FileModel, start: CallSite) -> Iterator[_Change]:
    """What the started function changes of what the parent knows, and what that runs."""
    function = started_by(model, start)
    if function is None:
        return
    lines: list[cst.Assign | cst.AugAssign] = [*model.nodes(cst.Assign)]
    lines += model.nodes(cst.AugAssign)
    for line in lines:
        for target in targets(line) if _is_on_cores(model, line, start) else ():
            held = target.value if isinstance(target, cst.Subscript) else target
            if not isinstance(held, cst.Name):
                continue
            if held is not target or not isinstance(line.value, cst.Name | cst.SimpleString):
                yield from _known_outside(model, start, function, held, line)
    calls = [call for call in model.calls() if _is_on_cores(model, call.node, start)]
    trained = any(call.method == "backward" for call in calls)
    for call in calls:
        if not isinstance(call.receiver, cst.Name):
            continue
        if call.method in _CHANGES:
            yield from _known_outside(model, start, function, call.receiver, call.node)
        elif call.method == "parameters" and trained:
            name = _outside(model, start, function, call.receiver)
            if name is not None:
                yield _Change(call.node, name, weights=True)


def _is_on_cores(model: FileModel, node: cst.CSTNode, start: CallSite) -> bool:
    entry = model.on_every_core(node)
    return entry is not None and entry.call is start.node


def _known_outside(
    model: FileModel, start: CallSite, function: Function, held: cst.Name, node: cst.CSTNode
) -> Iterator[_Change]:
    """A global that a line binds, or a list or dictionary of the parent that it changes."""
    if isinstance(node, cst.Assign | cst.AugAssign) and held in targets(node):
        home = model.function_of(held)
        if home is not None and is_global(home, held.value):
            yield _Change(node, held)
        return
    name = held
    if held.value in function.parameters and model.with_parameter(held) is function:
        given = given_to_cores(start, function, held.value)
        if not isinstance(given, cst.Name):
            return
        name = given
    made = model.assigned_to(name)
    known = len(made) == len(model.bindings(name.value, name))
    if made and known and all(_is_container(model, one) for one in made):
        yield _Change(node, name, key=_key(model, model.parent(held)))


def _key(model: FileModel, node: cst.CSTNode | None) -> str | None:
    """``"loss"`` of ``facts["loss"]``."""
    index = index_of(node) if isinstance(node, cst.Subscript) else None
    key = model.literal(index) if index is not None else None
    return key if isinstance(key, str) else None


def _is_container(model: FileModel, made: cst.BaseExpression) -> bool:
    if isinstance(made, cst.List | cst.Dict | cst.ListComp | cst.DictComp):
        return True
    return isinstance(made, cst.Call) and model.call(made).name in _MADE


def _outside(
    model: FileModel, start: CallSite, function: Function, held: cst.Name
) -> cst.Name | None:
    """What the parent calls a model that the cores train: not what they make themselves."""
    name: cst.BaseExpression | None = held
    for _ in range(_NAMES):
        if not isinstance(name, cst.Name):
            return None
        if name.value in function.parameters and model.function_of(name) is function:
            name = given_to_cores(start, function, name.value)
            continue
        made = model.assigned_to(name)
        call = model.call(made[0]) if len(made) == 1 and isinstance(made[0], cst.Call) else None
        if call is not None and call.method in _MOVES:
            name = call.receiver
        elif call is not None and call.name == MODEL_WRAPPER:
            name = call.argument(0, "model")
        else:
            break
    if not isinstance(name, cst.Name) or any(
        _is_on_cores(model, one.node, start) for one in model.bindings(name.value, name)
    ):
        return None
    return name


def _read_after(model: FileModel, start: CallSite, change: _Change) -> Iterator[cst.Name]:
    """Where the parent reads what has changed, in the function that started the cores."""
    bound = [one.node for one in model.bindings(change.name.value, change.name)]
    for use in reads(model, change.name):
        if model.function_of(use) is not start.function or not is_read(model, use):
            continue
        if not in_order(model, start.node, use) or opposed(
            model.guards(start.node), model.guards(use)
        ):
            continue
        if model.on_every_core(use) is not None or use in model.within(start.node, cst.Name):
            continue
        outer = set(around(model, use))
        if any(in_order(model, start.node, one, use) and one not in outer for one in bound):
            return  # another one by now
        parent = model.parent(use)
        if change.weights:
            if _is_loaded(model, use):
                return
            if _asks_for_weights(model, use):
                yield use
        elif change.key is not None:
            # What else a dictionary of settings holds is the same everywhere.
            if _key(model, parent) == change.key:
                yield use
        elif not isinstance(parent, cst.Del) and not (
            isinstance(parent, cst.Attribute) and parent.attr.value in {*_CHANGES, "clear"}
        ):
            yield use


def _is_loaded(model: FileModel, use: cst.Name) -> bool:
    """``net.load_state_dict(...)``, ``load_checkpoint(net, path)``."""
    for node in around(model, use):
        if isinstance(node, cst.Call):
            call = model.call(node)
            return "load" in (call.method or call.name or "").lower()
        if not isinstance(node, cst.Attribute | cst.Arg):
            return False
    return False


def _asks_for_weights(model: FileModel, use: cst.Name) -> bool:
    parent = model.parent(use)
    if isinstance(parent, cst.Attribute):
        return parent.attr.value in _ASK_FOR_WEIGHTS
    if isinstance(parent, cst.Call):
        return parent.func is use
    return isinstance(parent, cst.Arg) and model.value(use).kind is Kind.MODEL


def _attributes(model: FileModel, start: CallSite) -> Iterator[tuple[cst.Attribute, cst.CSTNode]]:
    """``self.history`` behind ``xmp.spawn(self.run)``, which sets it; each name once.

    And ``agent.best`` behind ``xmp.spawn(agent)`` or ``xmp.spawn(agent.run)``.
    """
    function = started_by(model, start)
    holder = _holder(model, start, function) if function is not None else None
    if holder is None:
        return
    set_there = dict(_set_on_cores(model, start))
    home = start.function.node if start.function is not None else model.tree.module
    for read in model.within(home, cst.Attribute):
        name = read.attr.value
        if name not in set_there or not is_name(read.value, holder):
            continue
        parent = model.parent(read)
        if isinstance(parent, cst.AssignTarget) and in_order(model, start.node, read):
            set_there.pop(name)
        elif (
            in_order(model, start.node, read)
            and model.function_of(read) is start.function
            and not opposed(model.guards(start.node), model.guards(read))
            and read not in model.within(start.node, cst.Attribute)
        ):
            yield read, set_there.pop(name)


def _holder(model: FileModel, start: CallSite, function: Function) -> str | None:
    """The name of the object of which a method is started: ``self``, ``agent``."""
    if not isinstance(function.owner, Class):
        return None
    if start.function is not None and start.function.owner is function.owner:
        return "self"
    started = start.argument(0, SPAWNERS[start.name or ""])
    held = started.value if isinstance(started, cst.Attribute) else started
    if not isinstance(held, cst.Name) or model.value(held).kind is not Kind.OBJECT:
        return None
    return held.value


def _set_on_cores(model: FileModel, start: CallSite) -> Iterator[tuple[str, cst.CSTNode]]:
    """The attributes of ``self`` that code of the cores binds anew or changes in place."""
    lines = [
        (target.target, line)
        for line in model.nodes(cst.Assign)
        if not isinstance(line.value, cst.Name | cst.SimpleString | cst.Integer)
        for target in line.targets
    ]
    changed = [(call.receiver, call.node) for call in model.methods(*_CHANGES)]
    for held, node in (*lines, *changed):
        if not isinstance(held, cst.Attribute) or not is_name(held.value, "self"):
            continue
        if _is_on_cores(model, node, start):
            yield held.attr.value, node
