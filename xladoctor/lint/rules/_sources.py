"""Where a value comes from: through names, parameters and attributes, over functions and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.model.knowledge import SPAWNERS, WITHOUT_NUMBER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel

#: Calls that hand on what they go over, one for one.
_HAND_ON = frozenset({"builtins.enumerate", "builtins.iter", "builtins.list", "builtins.tuple"})
_BARS = ("tqdm.",)
#: Names, parameters and attributes on the way to where a value is made.
_DEPTH = 5
_CONSTANTS = frozenset({"None", "True", "False"})
#: What starts a function in several processes, with ``args``, to the name of its first argument.
_STARTS = {**SPAWNERS, "torch.multiprocessing.spawn": "fn"}


def sources(
    model: FileModel, node: cst.BaseExpression, depth: int = _DEPTH, *, apart: bool = True
) -> list[cst.BaseExpression] | None:
    """The expressions that make what a name, a parameter or an attribute of ``self`` holds.

    Args:
        model: The file.
        node: An expression; anything but a name, such an attribute or ``a if b else c`` is its own
            source.
        depth: How many names the way may have.
        apart: Whether the two sides of ``a if b else c`` are two sources.

    Returns:
        None where not all of them are known.
    """
    if isinstance(node, cst.Name) and node.value not in _CONSTANTS:
        given = _of_name(model, node)
    elif isinstance(node, cst.Attribute) and _is_self(node.value):
        given = model.kept_in(node)
    elif isinstance(node, cst.IfExp) and apart:
        given = (node.body, node.orelse)
    else:
        return [node]
    if not given or depth == 0:
        return None
    found: list[cst.BaseExpression] = []
    for one in given:
        more = sources(model, one, depth - 1, apart=apart)
        if more is None:
            return None
        found += [item for item in more if item not in found]
    return found


def made_in(model: FileModel, node: cst.BaseExpression, names: Collection[str]) -> CallSite | None:
    """The one call of these names that makes what an expression holds, wherever it stands."""
    call = the_call(model, node)
    return call if call is not None and call.name in names else None


def is_made_in(model: FileModel, node: cst.BaseExpression, names: Collection[str]) -> bool:
    """Whether calls of these names make what an expression holds, whichever branch ran."""
    found = sources(model, node)
    return bool(found) and all(
        isinstance(made, cst.Call) and model.call(made).name in names for made in found or ()
    )


def the_call(model: FileModel, node: cst.BaseExpression) -> CallSite | None:
    """The one call that makes what an expression holds, wherever it stands; None if it is not."""
    made = the_source(model, node)
    return model.call(made) if isinstance(made, cst.Call) else None


def the_source(model: FileModel, node: cst.BaseExpression) -> cst.BaseExpression:
    """The one expression that makes what an expression holds; itself, if that is not known."""
    found = sources(model, node, apart=False)
    return found[0] if found is not None and len(found) == 1 else node


def gone_over(model: FileModel, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What a loop goes over, and what that is made of: within progress bars, ``enumerate``, names.

    Args:
        model: The file.
        node: What the loop is given.

    Yields:
        ``bar``, ``tqdm(enumerate(loader))``, ``enumerate(loader)``, ``loader``.
    """
    waiting = [(node, 0)]
    while waiting:
        one, depth = waiting.pop()
        yield one
        if depth == _DEPTH:
            continue
        if isinstance(one, cst.Call) and one.args:
            name = model.call(one).name or ""
            if name in _HAND_ON or name.startswith(_BARS):
                waiting.append((one.args[0].value, depth + 1))
        elif isinstance(one, cst.NamedExpr):
            waiting.append((one.value, depth))
        elif isinstance(one, cst.Name):
            made = model.assigned_once(one)
            waiting += [] if made is None else [(made, depth + 1)]


def _of_name(model: FileModel, node: cst.Name) -> Sequence[cst.BaseExpression] | None:
    given: list[cst.BaseExpression] = []
    for binding in model.bindings(node.value, node):
        if binding.kind == "assign" and isinstance(binding.node, cst.BaseExpression):
            given.append(binding.node)
        elif binding.kind == "param":
            more = of_parameter(model, node)
            if more is None:
                return None
            given += more
        else:
            parts = _unpacked(model, binding.node)
            if not parts:
                return None
            given += parts
    return given


def _unpacked(model: FileModel, target: cst.CSTNode) -> Sequence[cst.BaseExpression]:
    """``net, device`` of ``net, device = prepare(args)``: what each ``return`` gives there.

    Nothing where one of them is not known.
    """
    part = model.taken(target)
    if part is None or not isinstance(part.line, cst.Assign):
        return ()
    function = model.call(part.value).target if isinstance(part.value, cst.Call) else None
    whole = [part.value] if function is None else []
    if isinstance(function, Function):
        whole = list(returned(function))
    for place in part.places:
        found = [_at(one, place) for one in whole]
        whole = [one for one in found if one is not None]
        if len(whole) < len(found):
            return ()
    return whole


def _at(node: cst.BaseExpression, place: int) -> cst.BaseExpression | None:
    """What stands at a place of a tuple that is written out."""
    items = node.elements if isinstance(node, cst.Tuple | cst.List) else ()
    if place >= len(items) or any(isinstance(one, cst.StarredElement) for one in items):
        return None
    return items[place].value


def of_parameter(model: FileModel, node: cst.Name) -> Sequence[cst.BaseExpression] | None:
    """What all callers give for a parameter, or leave to its default; None if one is not known.

    Where programs for XLA devices call the function, those for others beside them do not count.
    """
    function = model.with_parameter(node)
    if function is None or function.place(node.value) == -1:
        return None  # or it is the object itself, which no caller gives
    calls = model.callers(function)
    calls = [call for call in calls if model.says_xla(call.node)] or calls
    calls = [call for call in calls if not _raises(model, call, function, node.value)]
    given = [_given_by(model, call, function, node.value) for call in calls]
    given += [given_to_cores(call, function, node.value) for call in starts_of(model, function)]
    known = [value for value in given if value is not None]
    return known if len(known) == len(given) else None


def _raises(model: FileModel, call: CallSite, function: Function, name: str) -> bool:
    """Whether a call leaves out what has no default: it never comes in."""
    return (
        not function.decorators
        and not call.has_star
        and not model.gives_name(call)
        and call.given_to(function, name) is None
        and function.default(name) is None
    )


def _given_by(
    model: FileModel, call: CallSite, function: Function, name: str
) -> cst.BaseExpression | None:
    """What a call gives a parameter, or leaves to its default."""
    if model.gives_name(call) or call.has_star:
        return None
    given = call.given_to(function, name)
    return function.default(name) if given is None else given


def starts_of(model: FileModel, function: Function) -> Sequence[CallSite]:
    """The calls that start a function on every core: ``xmp.spawn(train, args=(flags,))``."""
    return [
        call
        for part in (model, *model.linked)
        for started, call in part.once(_started)
        if started is function
    ]


def started_by(model: FileModel, start: CallSite) -> Function | None:
    """The function that ``xmp.spawn(train)`` starts on every core, if it is known."""
    return next((one for one, call in model.once(_started) if call is start), None)


def _started(model: FileModel) -> list[tuple[Function, CallSite]]:
    given = [(_target(call), call) for call in model.calls(*_STARTS)]
    functions = [(model.runs(one), call) for one, call in given if one is not None]
    return [(function, call) for function, call in functions if function is not None]


def _target(call: CallSite) -> cst.BaseExpression | None:
    return call.argument(0, _STARTS[call.name or ""])


def given_to_cores(call: CallSite, function: Function, name: str) -> cst.BaseExpression | None:
    """``xmp.spawn(train, args=(flags,))``: behind the core's number, one for each parameter."""
    place, args = function.place(name), call.argument(1, "args")
    first = 0 if call.name in WITHOUT_NUMBER else 1
    if place is None or isinstance(_target(call), cst.Call):
        return None
    items = args.elements if isinstance(args, cst.Tuple | cst.List) else ()
    if any(isinstance(item, cst.StarredElement) for item in items):
        return None
    if 0 <= place - first < len(items):
        return items[place - first].value
    # Without ``args`` nothing is given but the number; elsewhere nobody sees what is.
    known = args is None or isinstance(args, cst.Tuple | cst.List)
    return function.default(name) if known and place >= first else None


def _is_self(node: cst.BaseExpression) -> bool:
    return is_name(node, "self")
